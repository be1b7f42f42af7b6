"""Judging a command line or file that somebody already has: as it is written, not as the launcher would write it."""

import dataclasses

from launcher.importing.imported import Imported
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.rules.engine import load, ordered, run
from launcher.rules.native import facts_of


def judge_existing(imported: Imported, strict: str | None = None) -> list[Finding]:
    """Return every finding about the arguments as they stand, errors first.

    Args:
        strict: `all` or `upstream`, instead of `all`.
    """
    backend = get_backend(imported.backend)
    load(backend.rules)
    job = imported.job
    if strict is not None:
        job = dataclasses.replace(job, rules=dataclasses.replace(job.rules, strict=strict))
    job = backend.prepare(job, imported.version)
    findings = run(facts_of(job, backend, imported.version, imported.native, as_written=True))
    notes = [
        Finding(rule="IMPORT", severity="error", message=str(note), source="reading the file")
        for note in imported.problems
    ]
    return ordered([*findings, *notes])
