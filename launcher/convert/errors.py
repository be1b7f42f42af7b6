"""Conversion errors: all problems at once, each with the tensor and the expected and found values."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 20


class ConvertError(Exception):
    """A conversion that cannot be done or verified; `problems` holds one message for the user each."""

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        shown = list(self.problems[:_SHOWN])
        if len(self.problems) > _SHOWN:
            shown.append(f"… and {len(self.problems) - _SHOWN} more")
        super().__init__("\n".join(shown))


class WrongWord(ConvertError):
    """An invalid command line argument: an unknown name or a missing folder."""
