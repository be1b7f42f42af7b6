"""Puts what the target has in place of the source's values that it cannot take, and reports each."""

import dataclasses
from collections.abc import Iterator, Mapping

from launcher.job import Job, Origin, Value, fields, override_text, value_at
from launcher.job.derive import with_values
from launcher.job.finding import Finding
from launcher.mapping.engine import translate
from launcher.mapping.substitute import ENVIRONMENT
from launcher.port.dropped import PortRoute
from launcher.records import dataclass

SUBSTITUTE_RULE = "PORT-SUBSTITUTE"
_DERIVED = Origin(kind="derived")
# Where it reads and writes is the user's, though no training depends on it.
_PLACES = frozenset({"model.path", "checkpoint.save", "data.validation_paths", "data.test_paths"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Values that the target has in place of others: what the job had, what it has, and why."""

    before: Mapping[str, Value]
    after: Mapping[str, Value]
    why: str
    affects_training: bool = False


def originals(job: Job) -> Job:
    """Return the job with the values that an earlier port replaced, where the user has not set others since."""
    values = {
        path: tuple(value) if isinstance(value, list) else value
        for path, value in job.imported.replaced.items()
        if (path in fields() or path.startswith(ENVIRONMENT)) and _is_open(job, path)
    }
    if not values:
        return job
    return dataclasses.replace(_with(job, values), imported=dataclasses.replace(job.imported, replaced={}))


def with_substitutes(route: PortRoute, job: Job) -> tuple[Job, tuple[Replaced, ...]]:
    """Return the job with substitutes, recorded in `imported.replaced`, and what was replaced.

    The rows of the target's table come first; then values of fields that affect no training and that the target refuses
    are left to it. What the user has set stays and is refused.
    """
    found: list[Replaced] = []
    if route.source.name != route.target.name:
        for changed, replaced in _steps(route, job):
            job = changed
            found.append(replaced)
    before: dict[str, Value] = {}
    for each in found:
        before = {**each.before, **before}
    recorded = dataclasses.replace(job.imported, replaced=before)
    return dataclasses.replace(job, imported=recorded), tuple(found)


def _steps(route: PortRoute, job: Job) -> Iterator[tuple[Job, Replaced]]:
    for row in route.target.substitutes():
        if not row.when(job) or not all(_is_open(job, path) for path in row.fields):
            continue
        after = {path: value for path, value in row.put(job).items() if _value(job, path) != value}
        if after and all(_is_open(job, path) for path in after):
            before = {path: _value(job, path) for path in after}
            job = _with(job, after)
            yield (
                job,
                Replaced(before=before, after=after, why=row.why, affects_training=row.affects_training),
            )
    for path, why in _refused(route, job):
        default = fields()[path].default
        left = with_values(job, {path: default}, _DERIVED)
        if path not in dict(_refused(route, left)):
            yield left, Replaced(before={path: value_at(job, path)}, after={path: default}, why=why)
            job = left


def _value(job: Job, path: str) -> Value:
    """Return the value of a field, or the text of an environment variable; None: it is not set."""
    return job.backend.env.get(path[len(ENVIRONMENT) :]) if path.startswith(ENVIRONMENT) else value_at(job, path)


def _with(job: Job, values: Mapping[str, Value]) -> Job:
    """Return the job with values of fields and environment variables; a variable that is None is not set."""
    env = {path[len(ENVIRONMENT) :]: value for path, value in values.items() if path.startswith(ENVIRONMENT)}
    if env:
        kept = {name: text for name, text in {**job.backend.env, **env}.items() if text is not None}
        job = dataclasses.replace(job, backend=dataclasses.replace(job.backend, env=kept))
    own = {path: value for path, value in values.items() if not path.startswith(ENVIRONMENT)}
    return with_values(job, own, _DERIVED) if own else job


def _refused(route: PortRoute, job: Job) -> list[tuple[str, str]]:
    """Return the fields without effect on training whose values the target refuses, with the reason."""
    prepared = route.target.prepare(job, route.version)
    return [
        (finding.fields[0], finding.message.partition(": ")[2])
        for finding in translate(prepared, route.target, route.version).findings
        if finding.severity == "error"
        and finding.rule == "MAP-UNSUPPORTED"
        and (info := fields().get(finding.fields[0])) is not None
        and not info.meta.affects_training
        and finding.fields[0] not in _PLACES
        and _is_open(job, finding.fields[0])
    ]


def _is_open(job: Job, path: str) -> bool:
    """Return whether the user has not set a value on top of the script's."""
    return job.origin(path).kind != "override"


def substitute_findings(route: PortRoute, replaced: tuple[Replaced, ...]) -> Iterator[Finding]:
    """Yield a finding for each substitute."""
    for each in replaced:
        shown = ", ".join(
            f"{path}={override_text(each.before[path])} → {_shown(path, value)}" for path, value in each.after.items()
        )
        yield Finding(
            rule=SUBSTITUTE_RULE,
            severity="warning" if each.affects_training else "change",
            message=f"{shown}: {each.why}"
            + (f". Training is not exactly that of {route.source.title}" if each.affects_training else ""),
            fields=tuple(each.after),
            source=f"substitutes of {route.target.name}",
        )


def _shown(path: str, value: Value) -> str:
    default = None if path.startswith(ENVIRONMENT) else fields()[path].default
    return "left to the backend" if value == default and value in (None, ()) else override_text(value)
