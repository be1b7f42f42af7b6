"""Arguments in `backend.args` as the fields that they set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from launcher.job import Job, Value, value_at, with_values
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import translate
from launcher.rules.engine import findings_of
from launcher.rules.native import fields_passed, rule_context
from launcher.rules.registry import RULES, RuleContext

_BY_USER = ("override", "recipe")
_OF_ARGUMENTS = ("ARG-UNKNOWN", "ARG-VALUE", "ARG-CONTRADICTION")


def passed_fields(job: Job) -> dict[str, str]:
    """Return the fields that arguments in `backend.args` decide, each with the argument's key there."""
    context = _context(job)
    if context is None or context.version is None:
        return {}
    return fields_passed(context, get_backend(job.backend.name or ""), context.version)


def with_passed(job: Job, *, and_arguments: bool = False) -> Job:
    """Return the job with the arguments in `backend.args` that the mapping table covers as fields.

    Args:
        and_arguments: these arguments stay in `backend.args`, too.
    """
    context = _context(job)
    passed = {} if context is None else context.passthrough
    if context is None or not passed:
        return job
    changed = _with_fields(job, context.job, passed)
    return changed if and_arguments else without_arguments(changed, set(passed.values()))


def with_unset_passed(job: Job, backend: Backend, version: str) -> Job:
    """Return the job with arguments in `backend.args` also as the fields that they set and the user does not.

    What a backend is told beside such an argument (LoRA's alpha beside its rank) then depends on it.
    """
    if not job.backend.args or job.imported.backend is not None:
        return job
    context = rule_context(job, backend, version, translate(job, backend, version).native)
    unset = {path: key for path, key in context.passthrough.items() if job.origin(path).kind not in _BY_USER}
    return _with_fields(job, context.job, unset) if unset else job


def _with_fields(job: Job, read: Job, passed: Mapping[str, str]) -> Job:
    """Return the job with the values that another one has of some fields, set by arguments of these keys."""
    origins = {path: job.origin(f"backend.args.{key}") for path, key in passed.items()}
    return with_values(
        replace(job, origins={**job.origins, **origins}), {path: value_at(read, path) for path in passed}
    )


def passed_errors(job: Job) -> list[Finding]:
    """Return errors of the arguments in `backend.args` themselves: unknown, out of bounds, against a field."""
    if job.backend.name is None or not job.backend.args or job.imported.backend not in (None, job.backend.name):
        return []
    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    translation = translate(job, backend, version)
    context = rule_context(job, backend, version, translation.native)
    found = [each for each in translation.findings if each.severity == "error" and each.rule in _OF_ARGUMENTS]
    return [*found, *findings_of(RULES["ARG-BOUND"], context)]


def without_arguments(job: Job, names: Collection[str]) -> Job:
    """Return the job without some arguments of `backend.args`, by name (see `launcher.job.backend.Passed`)."""
    removed = {name.replace("-", "_") for name in names}
    return replace(job, backend=replace(job.backend, args=_without(job.backend.args, removed, "")))


def _without(args: Mapping[str, Value], names: Collection[str], prefix: str) -> dict[str, Value]:
    """Return the arguments without some, and without the sections that this empties."""
    left: dict[str, Value] = {}
    for key, value in args.items():
        path = prefix + key.replace("-", "_")
        if path in names:
            continue
        inner = _without(value, names, f"{path}.") if isinstance(value, Mapping) and value else value
        if inner != {} or inner is value:
            left[key] = inner
    return left


def _context(job: Job) -> RuleContext | None:
    """Return the job as its backend reads it, with arguments in `backend.args`; None: there are none to read."""
    if job.backend.name is None or not job.backend.args or job.imported.backend not in (None, job.backend.name):
        return None
    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    return rule_context(job, backend, version, translate(job, backend, version).native)
