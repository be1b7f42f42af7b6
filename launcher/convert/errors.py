"""What a conversion refuses: every problem at once, each with the tensor, what was expected and what was found."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 20


class ConvertError(Exception):
    """A conversion that cannot be made or proved; `problems` holds one sentence each, for the user."""

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        shown = list(self.problems[:_SHOWN])
        if len(self.problems) > _SHOWN:
            shown.append(f"… and {len(self.problems) - _SHOWN} more")
        super().__init__("\n".join(shown))


class WrongWord(ConvertError):
    """A word of the command line that no conversion could have: an unknown name, a folder that is not there."""
