"""Checks one file among many: a script or configuration as it is written, a recipe or job file as Launch runs it."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.importing.notes import ImportRefused, Note
from launcher.job import Job, with_values
from launcher.job.finding import Finding, Fix
from launcher.report.checked import CheckedFile, Place, PlacedFinding

if TYPE_CHECKING:
    from launcher.compose.errors import ComposeError
    from launcher.importing.imported import Imported
    from launcher.pipeline import Outcome

_WHERE = re.compile(r"(.+?):(\d+)(?:\s.*)?$", re.DOTALL)


def checked_file(path: str, words: Sequence[str], config_dirs: Sequence[str], *, fixes: bool = True) -> CheckedFile:
    """Check one file; what is wrong with it is among its findings, so that one file never ends the check of others.

    Args:
        words: overrides that apply to every file.
        fixes: search for changes with which the job passes, which takes longer than the check itself.
    """
    from launcher.cli.refusal import refusal_of
    from launcher.compose import ComposeError

    try:
        return _checked(path, words, config_dirs, fixes)
    except ImportRefused as error:
        if error.no_training or not _mentions(path):
            return CheckedFile(path=path, skipped=error.notes[0].message)
        return CheckedFile(path=path, found=tuple(_of_note(note, path) for note in error.notes))
    except ComposeError as error:
        return CheckedFile(path=path, found=tuple(_of_mistakes(error, path)))
    except Exception as error:
        refusal = refusal_of(error, "check")
        found = refusal.findings if refusal is not None else (_internal(error, path),)
        return CheckedFile(
            path=path, found=tuple(PlacedFinding(finding=each, place=Place(path=path)) for each in found)
        )


def _checked(path: str, words: Sequence[str], config_dirs: Sequence[str], fixes: bool) -> CheckedFile:
    from launcher.importing.mentions import is_model_config
    from launcher.importing.read_file import job_group

    if is_model_config(Path(path)):
        return CheckedFile(path=path, skipped="is a model's config.json")
    try:
        group = job_group(path)
    except ImportRefused:
        group = None  # the import says why
    if group is not None:
        return _job_file(path, group, words, config_dirs, fixes)
    return _script(path, words, config_dirs, fixes)


def _mentions(path: str) -> bool:
    from launcher.importing.mentions import mentions_training

    return mentions_training(Path(path))


# -- scripts and configurations


def _script(path: str, words: Sequence[str], config_dirs: Sequence[str], fixes: bool) -> CheckedFile:
    from launcher.importing.judge import judge_existing, located
    from launcher.importing.overrides import job_with_overrides
    from launcher.mapping.backend import get_backend
    from launcher.pipeline import judge

    imported = _read(path, reproducible=bool(words))
    start = _place(imported.where) or Place(path=path)
    if words:
        outcome = judge(job_with_overrides(imported, path, words, config_dirs), fixes=fixes)
        return replace(_of_outcome(path, outcome, outcome.job, start), remarks=_remarks(imported))
    outcome = judge_existing(imported, fixes=False)
    if fixes and not outcome.ok:
        imported = _read(path, reproducible=True)
        outcome = judge_existing(imported)
    job = located(imported)
    notes = {str(note): note for note in (*imported.problems, *imported.warnings)}
    flags = {each.flag: place for each in imported.mapped_args if (place := _place(each.where)) is not None}
    found = []
    for finding in outcome.findings:
        note = notes.get(finding.message)
        if note is not None:
            found.append(_of_note(note, path, finding.rule))
        else:
            found.append(_placed(finding, path, _places(finding, job, flags), start))
    label = f"{get_backend(imported.backend).title} {imported.version}"
    return CheckedFile(path=path, label=label, found=tuple(found), job=job, remarks=_remarks(imported))


def _remarks(imported: "Imported") -> tuple[str, ...]:
    """Return what the import remarks; remarks with a rule are findings."""
    return tuple(str(note) for note in imported.warnings if not note.rule)


def _read(path: str, *, reproducible: bool) -> "Imported":
    from launcher.importing.read_command import ImportOptions
    from launcher.importing.read_file import read_file

    return read_file(path, ImportOptions(partial=True, reproducible=reproducible))[0]


def _of_note(note: Note, path: str, rule: str = "IMPORT") -> PlacedFinding:
    message = " ".join((note.message, "; ".join(note.details))).rstrip()
    finding = Finding(
        rule=rule,
        severity="error",
        message=message,
        fixes=tuple(Fix(overrides=(each,)) for each in note.works),
        source="reading the file",
    )
    return PlacedFinding(finding=finding, place=_place(note.where) or Place(path=path))


# -- recipes and job files


def _job_file(path: str, group: str, words: Sequence[str], config_dirs: Sequence[str], fixes: bool) -> CheckedFile:
    """Check a recipe or job file; one that names no backend must pass on one of them."""
    from launcher.compose import compose
    from launcher.mapping.backend import backend_names
    from launcher.pipeline import judge

    given = [f"+{group}={path}", *words]
    job = compose(given, config_dirs)
    if not any((job.model.hub_id, job.model.path, job.model.model_type)):
        return CheckedFile(path=path, skipped="is no whole job: it has no model (a strategy, or a part of a recipe)")
    if job.backend.name is not None:
        outcome = judge(job, fixes=fixes)
        return _of_outcome(path, outcome, job, Place(path=path, line=1))
    outcomes = [judge(with_values(job, {"backend.name": name}), fixes=False) for name in backend_names()]
    passed = [each for each in outcomes if each.ok]
    if not passed:
        outcome = judge(min(outcomes, key=_errors).job, fixes=fixes)
        found = _of_outcome(path, outcome, outcome.job, Place(path=path, line=1))
        return replace(found, label=f"{found.label}, which takes most of it; no backend runs it")
    best = passed[0]
    found = _of_outcome(path, best, best.job, Place(path=path, line=1))
    titles = ", ".join(f"{each.backend.title} {each.version}" for each in passed)
    return replace(found, label=titles)


def _errors(outcome: "Outcome") -> int:
    return sum(finding.severity == "error" for finding in outcome.findings)


def _of_mistakes(error: "ComposeError", path: str) -> Iterable[PlacedFinding]:
    from launcher.cli.native_names import with_native_names

    for each in with_native_names(error):
        finding = Finding(
            rule=each.rule,
            severity="error",
            message=each.what,
            fields=(each.field,) if each.field else (),
            fixes=tuple(Fix(overrides=(works,)) for works in each.works[:3]),
        )
        yield PlacedFinding(finding=finding, place=_place(each.where) or Place(path=path, line=1))


# -- places


def _of_outcome(path: str, outcome: "Outcome", job: Job, start: Place) -> CheckedFile:
    found = tuple(_placed(each, path, _places(each, job, {}), start) for each in outcome.findings)
    return CheckedFile(path=path, label=f"{outcome.backend.title} {outcome.version}", found=found, job=job)


def _placed(finding: Finding, path: str, places: Sequence[Place], start: Place) -> PlacedFinding:
    """Return a finding at the first of its places that is in the checked file, else at `start`."""
    own = [place for place in places if place.path == path]
    first = own[0] if own else start
    rest = tuple(dict.fromkeys(place for place in places if (place.path, place.line) != (first.path, first.line)))
    return PlacedFinding(finding=finding, place=replace(first, what=""), related=rest)


def _places(finding: Finding, job: Job, flags: Mapping[str, Place]) -> list[Place]:
    found = [_place(job.origin(path).where, path) for path in finding.fields]
    found += [flags.get(flag.lstrip("-").replace("_", "-")) or flags.get(flag.lstrip("-")) for flag in finding.flags]
    return [place for place in found if place is not None]


def _place(where: str, what: str = "") -> Place | None:
    """Return the file and line of an origin; None: it is no line of a file that exists."""
    found = _WHERE.match(where)
    if found is None:
        return Place(path=os.path.normpath(where), what=what) if where and Path(where).is_file() else None
    return Place(path=os.path.normpath(found[1]), line=int(found[2]), what=what) if Path(found[1]).is_file() else None


def _internal(error: Exception, path: str) -> Finding:
    from launcher.cli.internal_error import RULE, described

    message, details = described(error, f"launch check {path}")
    message += f"; details: {details}" if details else ""
    return Finding(rule=RULE, severity="error", message=message, source="launch")
