"""Offers another backend where the job's own one cannot build its model, after the job was judged on it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from launcher.job import Job, Value, with_values
from launcher.job.finding import Finding, Fix
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import UNSUPPORTED
from launcher.mapping.family_row import FAMILY
from launcher.rules.changes import changes_of

_MOST = 3
Judge = Callable[[Job, bool], Sequence[Finding]]
_Keys = set[tuple[str, tuple[str, ...]]]


def with_other_backends(findings: list[Finding], job: Job, judge: Judge) -> list[Finding]:
    """Return the findings; those that refuse the model's family, kind or values offer the backends that train it.

    A backend is offered if it removes the errors and causes no other, by itself or with what works for those that it
    causes. It trains the same model, so that it comes before what changes the training.

    Args:
        job: as the user wrote it.
        judge: job to the findings on its backend; true: with fixes.
    """
    refused = [each for each in findings if _refuses(each, job) or (_is_of_model(each) and each.not_offered)]
    is_kind = any(each.fields == (FAMILY,) or _is_unbuilt(each, job) for each in refused)
    if not is_kind and not any(each.not_offered for each in refused):
        return findings
    # A family offered for a model without a name builds the same network: the job stays where it is.
    if job.model.model_type is None and any(each.fixes for each in refused if each.fields == (FAMILY,)):
        return findings
    known = _keys(findings) - _keys(refused)
    fixes = tuple(
        fix
        for name in backend_names()
        if name != job.backend.name
        for fix in _offers(job, name, known, judge, as_it_is=not is_kind)
    )
    return [_with(each, fixes) if each in refused else each for each in findings]


def refuses_model(finding: Finding, job: Job) -> bool:
    """Return whether a backend cannot express the family, or fields that the job has from where it has the family."""
    if (finding.rule, finding.severity) != (UNSUPPORTED, "error"):
        return False
    kind = job.origin(FAMILY).kind
    return all(path.startswith("model.") and job.origin(path).kind == kind for path in finding.fields)


def _refuses(finding: Finding, job: Job) -> bool:
    return refuses_model(finding, job) or _is_unbuilt(finding, job)


def _is_unbuilt(finding: Finding, job: Job) -> bool:
    """Return whether a backend has no code for this kind of model, as conversions for it say, too (`cannot_build`)."""
    if finding.severity != "error" or job.backend.name is None:
        return False
    backend = get_backend(job.backend.name)
    rows = backend.cannot_build(backend.version(job.backend.version), job.model)
    named = {*finding.fields}
    return any(finding.rule == row.id or (finding.rule == UNSUPPORTED and named <= {*row.fields}) for row in rows)


def _is_of_model(finding: Finding) -> bool:
    return finding.severity == "error" and all(path.startswith("model.") for path in finding.fields)


def _offers(job: Job, name: str, known: _Keys, judge: Judge, *, as_it_is: bool) -> Iterator[Fix]:
    """Yield the change to a backend, in its default version or else the newest that trains the family, if it works.

    Args:
        as_it_is: no error that concerns the model alone may follow.
    """
    for version in (None, *_trained_by(name, job.model.model_type)):
        values: dict[str, Value] = {"backend.name": name, "backend.version": version}
        moved = with_values(job, values)
        errors = _new_errors(judge(moved, False), known)
        if any(_refuses(each, moved) or (as_it_is and _is_of_model(each)) for each in errors):
            continue
        overrides = [f"backend={name}"]
        if version is not None or job.backend.version is not None:
            overrides.append(f"backend.version={version or 'null'}")
        needed = [each.fixes[:1] for each in _new_errors(judge(moved, True), known)] if errors else []
        changes = {path: value for fixes in needed for fix in fixes for path, value in (changes_of(fix) or {}).items()}
        if not all(needed) or (needed and _new_errors(judge(with_values(moved, changes), False), known)):
            continue
        overrides += dict.fromkeys(override for fixes in needed for fix in fixes for override in fix.overrides)
        training = any(fix.affects_training for fixes in needed for fix in fixes)
        yield Fix(overrides=tuple(overrides), affects_training=training)
        return


def _trained_by(name: str, family: str | None) -> list[str]:
    """Return the newest version of a backend that trains a family."""
    backend = get_backend(name)
    row = backend.families().get(family or "")
    return [version for version in backend.versions if row is not None and row.name(version) is not None][:1]


def _keys(findings: Sequence[Finding]) -> _Keys:
    return {(each.rule, each.fields) for each in findings if each.severity == "error"}


def _new_errors(findings: Sequence[Finding], known: _Keys) -> list[Finding]:
    return [each for each in findings if each.severity == "error" and (each.rule, each.fields) not in known]


def _with(finding: Finding, fixes: tuple[Fix, ...]) -> Finding:
    """Return the error with its own fixes and the backends, those that keep the training first."""
    both = sorted((*finding.fixes, *fixes), key=lambda fix: fix.affects_training)
    return replace(finding, fixes=tuple(both[:_MOST]))
