"""The table of a verification: for the terminal, and as a section of docs/parity.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "differs", "failed", "not run"]
HEADING = "## On a GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        check: the step that it belongs to.
        what: what was run.
        status: `ok`: it ran, and is within the tolerance where there is one; `not run`: nothing was measured.
        figures: what was measured, or why nothing was.
    """

    check: str
    what: str
    status: Status
    figures: str


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, in Markdown, aligned for a terminal."""
    head = ("check", "what", "result", "measured")
    cells = [head, *((row.check, row.what, row.status, row.figures.replace("|", "/")) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = ["| " + " | ".join((*map(str.ljust, line[:3], widths), line[3])) + " |" for line in cells]
    lines.insert(1, "|" + "|".join(["-" * (width + 2) for width in widths] + ["---"]) + "|")
    return "\n".join(lines)


def marked(table: str) -> str:
    """Return a table between the marks by which the page's translation refers to it."""
    return f"<!-- verify: begin -->\n{table.strip()}\n<!-- verify: end -->"


def with_section(page: str, section: str) -> str:
    """Return the text of a page with its section on GPUs, from the heading to the next one, replaced or appended."""
    before, found, after = page.partition(f"\n{HEADING}\n")
    rest = after.partition("\n## ") if found else ("", "", "")
    following = f"\n## {rest[2]}" if rest[1] else ""
    return before.rstrip() + "\n\n" + section.strip() + "\n" + following


def passed(rows: Sequence[Row]) -> bool:
    """Return whether nothing failed and nothing differs."""
    return not any(row.status in ("differs", "failed") for row in rows)
