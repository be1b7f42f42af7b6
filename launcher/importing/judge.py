"""Checks an existing command line or file as it is written, not as the launcher would write it."""

import dataclasses
from collections.abc import Iterable, Iterator

from launcher.importing.imported import Imported
from launcher.importing.presets import with_known_model
from launcher.job import Job, Origin
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.passthrough import pass_through
from launcher.pipeline import judge
from launcher.rules.engine import load, ordered, run
from launcher.rules.native import facts_of


def judge_existing(imported: Imported, strict: str | None = None, *, fixes: bool = True) -> list[Finding]:
    """Return every finding on the arguments as given, errors first.

    Sizes of a model that the input only names come from its config.json or its preset, as in a composed job.

    Args:
        strict: `all` or `upstream`, instead of `all`.
        fixes: search for changes with which the job passes.
    """
    backend = get_backend(imported.backend)
    load(backend.rules)
    job, unreadable = with_known_model(imported.job)
    if strict is not None:
        job = dataclasses.replace(job, rules=dataclasses.replace(job.rules, strict=strict))
    prepared = backend.prepare(job, imported.version)
    findings = run(facts_of(prepared, backend, imported.version, imported.native, as_written=True))
    findings += _wrong_values(prepared, backend, imported.version)
    findings += [_of_reading(str(note)) for note in imported.problems]
    findings += [_of_reading(unreadable)] if unreadable else []
    findings += [_of_version(imported)] if imported.older_version else []
    findings = [_with_flags(finding, imported) for finding in findings]
    return ordered(_with_fixes(findings, job) if fixes else findings)


def located(imported: Imported) -> Job:
    """Return the job with the source location of its values in the input: `file:line --flag`."""
    dashes = "" if get_backend(imported.backend).catalogue(imported.version).style == "yaml" else "--"
    job, _ = with_known_model(imported.job)
    origins = dict(job.origins)
    for each in imported.became:
        if each.where:
            for path in each.fields or (f"backend.args.{each.flag}",):
                origins.setdefault(path, Origin(kind="recipe", where=f"{each.where} {dashes}{each.flag}"))
    return dataclasses.replace(job, origins=origins)


def _wrong_values(job: Job, backend: Backend, version: str) -> Iterator[Finding]:
    """Yield errors in values that no field holds; on a command line the parser rejects them."""
    if backend.catalogue(version).style == "yaml":
        yield from (finding for finding in pass_through(job, [], backend, version)[1] if finding.rule == "ARG-VALUE")


def _of_reading(message: str) -> Finding:
    return Finding(rule="IMPORT", severity="error", message=message, source="reading the file")


def _of_version(imported: Imported) -> Finding:
    source = f"catalogues of {imported.backend}"
    return Finding(rule="IMPORT-VERSION", severity="warning", message=imported.older_version, source=source)


def _with_flags(finding: Finding, imported: Imported) -> Finding:
    """Return the finding with the input arguments of its fields."""
    if finding.flags:
        return finding
    fields = {*finding.fields}
    flags = (each.flag for each in imported.became if not each.implied and not fields.isdisjoint(each.fields))
    return dataclasses.replace(finding, flags=tuple(dict.fromkeys(flags)))


def _with_fixes(findings: Iterable[Finding], job: Job) -> list[Finding]:
    """Return the findings with the fixes of the same errors in an equivalent job."""
    found = list(findings)
    if all(finding.severity != "error" for finding in found):
        return found
    fixes = {(finding.rule, finding.fields): finding.fixes for finding in judge(job).findings}
    return [dataclasses.replace(each, fixes=fixes.get((each.rule, each.fields), each.fixes)) for each in found]
