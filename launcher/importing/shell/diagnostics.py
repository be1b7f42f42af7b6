"""Warnings of the evaluation, and reasons for which a script cannot be read; both quote the script as it is."""

from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One sentence on the script.

    Attributes:
        where: `file:line`, `file`, or empty.
        works: alternatives that would work.
    """

    message: str
    where: str = ""
    works: tuple[str, ...] = ()


class NotReadable(Exception):
    """The script cannot be evaluated; `diagnostic` says why and where."""

    def __init__(self, message: str, where: str = "", *works: str) -> None:
        self.diagnostic = Diagnostic(message=message, where=where, works=works)
        super().__init__(message)
