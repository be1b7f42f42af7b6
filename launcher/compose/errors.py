"""What composition refuses: every problem at once, each with the place where it was written."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake in what the user wrote.

    Attributes:
        what: one sentence that begins with the name or value concerned.
        where: file:line or the override as typed; empty where it has no place.
        works: what would work, nearest first.
    """

    what: str
    where: str = ""
    works: tuple[str, ...] = ()


class ComposeError(Exception):
    """The words or files do not describe a job; usage error (exit code 2)."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("\n".join(mistake.what for mistake in mistakes))
        self.mistakes = mistakes


def first_line(error: Exception) -> str:
    """Return the first line of a library's message that says something, or the error's name."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
