"""What composition refuses: every problem at once, each with the place where it was written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.job.secret import redacted, without_secrets

# Ids of the findings that mistakes are (launcher/rules/diagnostics.py says what they mean).
WORDS, NAME, OPTION, VALUE, BOUND = "JOB-WORDS", "JOB-FIELD", "JOB-OPTION", "JOB-VALUE", "JOB-BOUND"
# How the end of a list of names begins that is cut short.
MORE = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake in what the user wrote.

    Attributes:
        what: one sentence that begins with the name or value concerned.
        where: file:line or the override as typed; empty where it has no place.
        works: what would work, nearest first.
        rule: id of the finding that it is to programs.
        field: field or group concerned, where it is one.
    """

    what: str
    where: str = ""
    works: tuple[str, ...] = ()
    rule: str = WORDS
    field: str = ""

    @property
    def fixes(self) -> tuple[str, ...]:
        """Return what would work as words of the command line, where the mistake is a single name or value."""
        word, sign, typed = self.where.partition("=")
        if self.rule in (VALUE, BOUND):
            return tuple(f"{self.field}={value}" for value in self.works)
        if self.rule == NAME and sign and self.field == word.lstrip("+"):
            return tuple(name if "=" in name else f"{name}={typed}" for name in self.works)
        if self.rule == OPTION and sign and self.field == word.lstrip("+"):
            return tuple(f"{word}={option}" for option in self.works if not option.startswith(MORE))
        return self.works


class ComposeError(Exception):
    """The words or files do not describe a job; usage error (exit code 2).

    Attributes:
        mistakes: all of them.
        words: the words of the command line that were composed; none: files alone were read.
        impossible: they are words of a job throughout, which no hardware or size could meet.
    """

    def __init__(self, mistakes: list[Mistake], words: Sequence[str] = ()) -> None:
        self.words = tuple(words)
        # What was typed is shown again as the place, and in messages of Hydra: not where it is a secret. Places first:
        # there the name of the value stands, and messages may repeat the value without it.
        placed = [replace(each, where=without_secrets([each.where])[0]) for each in mistakes]
        self.mistakes = [
            replace(each, what=redacted(each.what), works=tuple(map(redacted, each.works))) for each in placed
        ]
        super().__init__("\n".join(mistake.what for mistake in self.mistakes))
        self.impossible = all(
            (each.rule, each.field) == (OPTION, "hardware") or each.rule == BOUND for each in mistakes
        )


def first_line(error: Exception) -> str:
    """Return the first line of a library's message that says something, or the error's name."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
