"""Checks an existing command line or file as it is written, not as the launcher would write it."""

import dataclasses

from launcher.importing.imported import DEVICES, Imported
from launcher.importing.presets import with_known_model
from launcher.job import Job, Origin
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.pipeline import AsWritten, Outcome, judge


def judge_existing(imported: Imported, strict: str | None = None, *, fixes: bool = True) -> Outcome:
    """Judge the arguments as given.

    Sizes of a model that the input only names come from its config.json or its preset, as in a composed job.

    Args:
        strict: `all` or `upstream`, instead of `all`.
        fixes: search for changes with which the job passes.
    """
    judged = imported.judged
    if judged is not None and judged.read is imported.job and judged.native is imported.native:
        job, unreadable, errors = judged.job, judged.unreadable, judged.errors
    else:
        (job, unreadable), errors = with_known_model(imported), None
    if strict is not None:
        job, errors = dataclasses.replace(job, rules=dataclasses.replace(job.rules, strict=strict)), None
    problems = [*map(str, imported.problems), *([unreadable] if unreadable else [])]
    findings = [
        Finding(rule="IMPORT", severity="error", message=problem, source="reading the file") for problem in problems
    ]
    for note in imported.warnings:
        if note.rule:
            source = f"parser of {imported.backend} {imported.version}"
            findings.append(Finding(rule=note.rule, severity="error", message=str(note), source=source))
    if imported.other_version:
        source, message = f"catalogues of {imported.backend}", imported.other_version
        findings.append(Finding(rule="IMPORT-VERSION", severity="warning", message=message, source=source))
    written = AsWritten(
        native=imported.native,
        flags=_flags_by_field(imported),
        findings=tuple(findings),
        errors=errors,
        assumed=() if imported.devices_specified else DEVICES,
    )
    return judge(job, written=written, fixes=fixes)


def located(imported: Imported) -> Job:
    """Return the job with the source location of its values in the input: `file:line --flag`."""
    dashes = "" if get_backend(imported.backend).catalogue(imported.version).style == "yaml" else "--"
    job, _ = with_known_model(imported)
    origins = dict(job.origins)
    for each in imported.mapped_args:
        if each.where:
            for path in each.fields or (f"backend.args.{each.flag}",):
                origins.setdefault(path, Origin(kind="recipe", where=f"{each.where} {dashes}{each.flag}"))
    return dataclasses.replace(job, origins=origins)


def _flags_by_field(imported: Imported) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in imported.mapped_args:
        for path in () if each.implied else each.fields:
            found.setdefault(path, []).append(each.flag)
    return found
