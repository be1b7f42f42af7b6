"""Keeps what the backend refuses in an input, so that its imported job is refused for the same reason."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launcher.budgets import BeyondBudget
from launcher.importing.exact import as_loaded, passing
from launcher.importing.imported import Imported, JudgedInput, with_source
from launcher.importing.presets import with_known_model
from launcher.job import Value
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.pipeline import Outcome, errors_as_written, judge


def with_refused(imported: Imported) -> Imported:
    """Return a judged import, with pass-through arguments where the backend refuses the input, but not the job.

    A field holds neither null nor a number of another type, and the launcher writes what an input may lack: a job made
    of fields alone would silently repair a wrong input. As few arguments as possible are passed through.
    """
    try:
        return _with_refused(imported)
    except BeyondBudget:
        return imported  # the check of the input reports it


def _with_refused(imported: Imported) -> Imported:
    imported = _judged(imported)
    errors = _rules(imported.judged.errors if imported.judged is not None else ())
    if not errors:
        return imported
    outcome = _outcome(imported)
    missing = errors - _rules(outcome.findings)
    if not missing:
        return imported
    args = _different(imported, outcome)

    def refused(flags: Sequence[str]) -> set[str]:
        return missing & _rules(_outcome(_passing(imported, args, flags)).findings)

    found = refused([*args])
    return _passing(imported, args, _fewest([*args], lambda flags: refused(flags) >= found)) if found else imported


def _judged(imported: Imported) -> Imported:
    job, unreadable = with_known_model(imported)
    errors = errors_as_written(job, get_backend(imported.backend), imported.version, imported.native)
    judged = JudgedInput(
        read=imported.job, native=imported.native, job=job, unreadable=unreadable, errors=tuple(errors)
    )
    return dataclasses.replace(imported, judged=judged)


def _outcome(imported: Imported) -> Outcome:
    return judge(as_loaded(with_known_model(imported)[0]), fixes=False)


def _rules(findings: Sequence[Finding]) -> set[str]:
    return {finding.rule for finding in findings if finding.severity == "error"}


def _different(imported: Imported, outcome: Outcome) -> Mapping[str, Value]:
    """Return the arguments that the job writes differently, as the input has them; None: it has none, or null."""
    given = {arg.flag: arg.value for arg in imported.native}
    written = {arg.flag: arg.value for arg in outcome.native}
    return {flag: given.get(flag) for flag in {**given, **written} if _text(flag, given) != _text(flag, written)}


def _text(flag: str, values: Mapping[str, Value]) -> str:
    """Return a value as text that tells numbers, text, null and what is not there from each other."""
    return repr(_plain(values[flag])) if flag in values else ""


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def _passing(imported: Imported, args: Mapping[str, Value], flags: Sequence[str]) -> Imported:
    return with_source(passing(imported, {**imported.exact, **{flag: args[flag] for flag in flags}}))


def _fewest(flags: list[str], is_enough: Callable[[list[str]], bool]) -> list[str]:
    """Return as few of the flags as are enough: leaves out halves, then quarters, and at last single ones."""
    size = len(flags)
    while size:
        at = 0
        while at < len(flags):
            rest = flags[:at] + flags[at + size :]
            if rest and is_enough(rest):
                flags = rest
            else:
                at += size
        size //= 2
    return flags
