"""Result of checking one file: its findings, each with the file and line that it is about."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from launcher.job import Job
from launcher.job.finding import Finding
from launcher.records import dataclass
from launcher.syntax import escaped
from launcher.terminal import counted

# Files that are named in a line; the others are counted.
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a file; line 0: the file as a whole.

    Attributes:
        path: as the user named the file.
        what: the field or argument that is set there; empty: the finding itself.
    """

    path: str
    line: int = 0
    what: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path

    def below(self, root: Path) -> str | None:
        """Return the path relative to a folder, with `/`; None: the file is not below it."""
        full = Path(os.path.abspath(self.path))
        return full.relative_to(root).as_posix() if full.is_relative_to(root) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFinding:
    """A finding with the line that it is about.

    Attributes:
        place: where the first of its values is set; the training command, if none of them is in a file.
        related: where its other values are set.
    """

    finding: Finding
    place: Place
    related: tuple[Place, ...] = ()

    def as_tree(self) -> dict[str, Any]:
        """Return the finding as plain data: as in `launch check --json`, with `path` and `line` (null: whole file)."""
        return {**self.finding.as_tree(), "path": self.place.path, "line": self.place.line or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """One file that was checked, or skipped because it holds no training.

    Attributes:
        path: as the user named it, or as it was found in a folder.
        label: what it was checked for: backend and version.
        found: findings, errors first.
        skipped: why it was not checked; empty: it was.
        job: the job, for the values of fields in text output.
        remarks: on how it was read, such as a file that it sources and that is missing.
    """

    path: str
    label: str = ""
    found: tuple[PlacedFinding, ...] = ()
    skipped: str = ""
    job: Job | None = field(default=None, repr=False, compare=False)
    remarks: tuple[str, ...] = ()

    def count(self, severity: str) -> int:
        """Return the number of findings of one severity."""
        return sum(each.finding.severity == severity for each in self.found)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.count("error")

    def as_tree(self) -> dict[str, Any]:
        """Return the file as plain data for `--json`."""
        return {
            "path": self.path,
            "ok": self.ok,
            "checked_for": self.label or None,
            "skipped": self.skipped or None,
            "findings": [each.as_tree() for each in self.found],
            "remarks": list(self.remarks),
        }


def totals(files: Sequence[CheckedFile]) -> str:
    """Return the counts of a check in one line."""
    checked = [each for each in files if not each.skipped]
    skipped = len(files) - len(checked)
    wrong = [each for each in checked if not each.ok]
    parts = [f"{counted(len(checked), 'file')} checked"]
    if checked:
        errors = sum(each.count("error") for each in wrong)
        parts.append(f"{len(wrong)} with errors ({counted(errors, 'error')})" if wrong else "no errors")
        warnings = sum(each.count("warning") for each in checked)
        if warnings:
            parts.append(counted(warnings, "warning"))
    noted = [each for each in checked if each.remarks]
    if noted:
        remarks = counted(sum(len(each.remarks) for each in noted), "remark")
        names = ", ".join(escaped(shlex.quote(each.path)) for each in noted[:_FEW])
        more = f" and {len(noted) - _FEW} more (--json)" if len(noted) > _FEW else ""
        parts.append(f"{remarks} on how files were read (launch import: {names}{more})")
    if skipped:
        parts.append(f"{skipped} skipped (no training script or job)")
    return ", ".join(parts)


def text_of(finding: Finding) -> str:
    """Return a finding as one paragraph of plain text: message, source, and what works."""
    lines = [finding.message + (f" [{finding.source}]" if finding.source else "")]
    if finding.fixes:
        lines.append(f"works: {' · '.join(fix.shown for fix in finding.fixes)}")
    if finding.asks:
        lines.append(f"specify: {' '.join(finding.asks)}")
    lines += filter(None, [finding.not_offered])
    return "\n".join(lines)
