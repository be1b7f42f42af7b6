"""Errors of composition: all mistakes at once, each with its source location."""

from collections.abc import Sequence
from dataclasses import replace

from launcher.job.secret import redacted, without_secrets
from launcher.records import dataclass

# Rule ids of mistakes, documented in launcher/rules/diagnostics.py.
WORDS, NAME, OPTION, VALUE, BOUND = "JOB-WORDS", "JOB-FIELD", "JOB-OPTION", "JOB-VALUE", "JOB-BOUND"
# Prefix of the last entry of a truncated list of names.
MORE = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake in what the user wrote.

    Attributes:
        what: one sentence that begins with the name or value concerned.
        where: file:line or the override as typed; empty if there is none.
        works: what would work, nearest first.
        rule: rule id of the corresponding finding.
        field: field or group concerned, if any.
    """

    what: str
    where: str = ""
    works: tuple[str, ...] = ()
    rule: str = WORDS
    field: str = ""

    @property
    def fixes(self) -> tuple[str, ...]:
        """Return the suggestions as overrides, if the mistake is a single name or value."""
        word, sign, typed = self.where.partition("=")
        if self.rule in (VALUE, BOUND):
            return tuple(f"{self.field}={value}" for value in self.works)
        if self.rule == NAME and sign and self.field == word.lstrip("+"):
            return tuple(name if "=" in name else f"{name}={typed}" for name in self.works)
        if self.rule == OPTION and sign and self.field == word.lstrip("+"):
            options = (option for option in self.works if not option.startswith(MORE))
            return tuple(option if option.startswith("--") else f"{word}={option}" for option in options)
        return self.works


class ComposeError(Exception):
    """The overrides or files do not describe a job; usage error (exit code 2).

    Attributes:
        mistakes: all of them.
        words: overrides that were composed; empty: only files were read.
        impossible: every mistake is an unknown hardware option or a value out of bounds.
    """

    def __init__(self, mistakes: list[Mistake], words: Sequence[str] = ()) -> None:
        self.words = tuple(words)
        # Locations and Hydra's messages repeat the typed text, so secrets are hidden. Locations first: they include the
        # name of the value, while messages may repeat the value without it.
        placed = [replace(each, where=without_secrets([each.where])[0]) for each in mistakes]
        self.mistakes = [
            replace(each, what=redacted(each.what), works=tuple(map(redacted, each.works))) for each in placed
        ]
        super().__init__("\n".join(mistake.what for mistake in self.mistakes))
        self.impossible = all(
            (each.rule, each.field) == (OPTION, "hardware") or each.rule == BOUND for each in mistakes
        )


def first_line(error: Exception) -> str:
    """Return the first non-empty line of a library's message, or the error's name."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines and isinstance(error.__cause__, Exception):
        return first_line(error.__cause__)  # Hydra wraps what OmegaConf says in an error without words
    return lines[0] if lines else type(error).__name__
