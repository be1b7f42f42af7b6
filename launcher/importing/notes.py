"""Notes of an import to its user: errors that stop it, and warnings on what was assumed or dropped."""

from collections.abc import Iterable

from launcher.job.secret import redacted
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One note on the input.

    Attributes:
        message: one sentence.
        where: `file:line`, `file`, or empty.
        works: alternatives that would work.
        details: one line for each thing that the message is about, where it is about several.
        rule: id of the error that `launch check` reports for it: the backend's own parser rejects what is read here.
    """

    message: str
    where: str = ""
    works: tuple[str, ...] = ()
    rule: str = ""
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Messages quote the input, which may hold secrets.
        object.__setattr__(self, "message", redacted(self.message))
        object.__setattr__(self, "works", tuple(map(redacted, self.works)))
        object.__setattr__(self, "details", tuple(map(redacted, self.details)))

    def __str__(self) -> str:
        location = f"{self.where}: " if self.where else ""
        works = f" (works: {' · '.join(self.works)})" if self.works else ""
        details = f" {'; '.join(self.details)}" if self.details else ""
        return f"{location}{self.message}{details}{works}"


class ImportRefused(Exception):
    """The input cannot be imported; holds all reasons with their locations.

    Attributes:
        partial: whether the rest could be imported.
        no_training: the input was read, and it holds no training of a backend: `launch check` of many files skips it.
    """

    def __init__(self, notes: Iterable[Note], *, partial: bool = False, no_training: bool = False) -> None:
        self.notes, self.partial, self.no_training = tuple(notes), partial, no_training
        super().__init__("\n".join(str(note) for note in self.notes))


def refuse(message: str, where: str = "", *works: str) -> ImportRefused:
    """Return the exception for a single reason."""
    return ImportRefused([Note(message=message, where=where, works=works)])


def no_training(message: str, where: str = "", *works: str) -> ImportRefused:
    """Return the exception for an input that holds no training of a backend."""
    return ImportRefused([Note(message=message, where=where, works=works)], no_training=True)
