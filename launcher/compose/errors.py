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
