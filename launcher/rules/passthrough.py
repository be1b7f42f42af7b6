"""Arguments in `backend.args` as the fields that they set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from launcher.job import Job, Value, value_at, with_values
from launcher.job.backend import spelling
from launcher.job.finding import Finding
from launcher.job.schema import USER_ORIGINS
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import Translation, translate
from launcher.rules.engine import findings_of
from launcher.rules.native import rule_context
from launcher.rules.registry import RULES, RuleContext

_OF_ARGUMENTS = ("ARG-UNKNOWN", "ARG-VALUE", "ARG-CONTRADICTION")


def passthrough_fields(job: Job) -> dict[str, str]:
    """Return the fields that arguments in `backend.args` decide, each with the argument's key there."""
    read = _read(job)
    return {} if read is None else dict(read[1].passthrough)


def with_passthrough(job: Job, *, and_arguments: bool = False) -> Job:
    """Return the job with the arguments in `backend.args` that the mapping table covers as fields.

    Args:
        and_arguments: these arguments stay in `backend.args`, too.
    """
    read = _read(job)
    if read is None or not read[1].passthrough:
        return job
    context = read[1]
    changed = _with_fields(job, context.job, context.passthrough)
    return changed if and_arguments else without_arguments(changed, set(context.passthrough.values()))


def with_passthrough_unless_set(job: Job, backend: Backend, version: str) -> Job:
    """Return the job with the fields that arguments in `backend.args` set, except those that the user sets.

    The arguments stay. Other arguments that the mapping table derives from such a field are then written as for a job
    that sets the field: the data's split beside its path, the finetuning switch beside a checkpoint.
    """
    if not job.backend.args or job.imported.backend is not None:
        return job
    context = rule_context(job, backend, version, translate(job, backend, version).native)
    unset = {path: key for path, key in context.passthrough.items() if job.origin(path).kind not in USER_ORIGINS}
    return _with_fields(job, context.job, unset) if unset else job


def passthrough_errors(job: Job) -> list[Finding]:
    """Return errors of the arguments in `backend.args` themselves: unknown, out of bounds, against a field."""
    read = _read(job)
    if read is None:
        return []
    translation, context = read
    found = [each for each in translation.findings if each.severity == "error" and each.rule in _OF_ARGUMENTS]
    return [*found, *findings_of(RULES["ARG-BOUND"], context)]


def without_arguments(job: Job, names: Collection[str]) -> Job:
    """Return the job without some arguments of `backend.args`, by name in any spelling (`PassthroughArgs`)."""
    args = _without(job.backend.args, set(map(spelling, names)), "")
    return replace(job, backend=replace(job.backend, args=args))


def _without(args: Mapping[str, Value], names: Collection[str], prefix: str) -> dict[str, Value]:
    """Return the arguments without some, and without the sections that this empties."""
    left: dict[str, Value] = {}
    for key, value in args.items():
        path = prefix + spelling(key)
        if path in names:
            continue
        inner = _without(value, names, f"{path}.") if isinstance(value, Mapping) and value else value
        if inner != {} or inner is value:
            left[key] = inner
    return left


def _with_fields(job: Job, other: Job, keys: Mapping[str, str]) -> Job:
    """Return the job with another job's values of some fields, whose origins are those of the arguments that set them.

    Args:
        keys: canonical path to the argument's key in `backend.args`.
    """
    origins = {path: job.origin(f"backend.args.{key}") for path, key in keys.items()}
    return with_values(replace(job, origins={**job.origins, **origins}), {path: value_at(other, path) for path in keys})


def _read(job: Job) -> tuple[Translation, RuleContext] | None:
    """Return the job's translation, and its context with the arguments in `backend.args`; None: there are none."""
    if job.backend.name is None or not job.backend.args or job.imported.backend not in (None, job.backend.name):
        return None
    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    translation = translate(job, backend, version)
    return translation, rule_context(job, backend, version, translation.native)
