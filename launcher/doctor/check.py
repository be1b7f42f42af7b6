"""One row of the table: what was checked, what was found, and what to do."""

from dataclasses import asdict
from typing import Any

from launcher.records import dataclass

OK, WARNING, ERROR, SKIPPED = "ok", "warning", "error", "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    Attributes:
        what: what was checked.
        verdict: ok, warning (shown), error (nothing is started), or skipped (it could not be checked, and why).
        found: description of what was found.
        works: what is required, or how to get it; "" if the check passed.
        source: source of the requirement.
    """

    what: str
    verdict: str
    found: str
    works: str = ""
    source: str = ""

    def as_tree(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return asdict(self)

    def line(self) -> str:
        """Return the check in one line, for messages."""
        works = f"; works: {self.works}" if self.works else ""
        return f"{self.what}: {self.found}{works}"


def errors(checks: list[Check]) -> list[Check]:
    """Return the checks that prevent a job from starting."""
    return [check for check in checks if check.verdict == ERROR]
