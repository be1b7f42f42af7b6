"""Effective values of a job on a backend: each canonical value after the backend's own defaults."""

from collections.abc import Callable, Mapping

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.job import Job, Value, field_paths, value_at
from launcher.mapping.backend import Backend
from launcher.mapping.engine import read_back, translate
from launcher.mapping.rows import NativeView, Row, active_rows
from launcher.records import dataclass
from launcher.rules.effective import EffectiveValues
from launcher.rules.native import effective_of

WRITTEN, DEFAULT, SET, NONE = "written", "the backend's default", "set by its validation", "not expressed"
# Set by the launcher; most backends have no argument for them.
_LAUNCHER_FIELDS = ("parallel.dp", "cluster.nodes", "cluster.devices_per_node")
# Prefixes of fields that only some jobs read; for other jobs a backend's default is irrelevant.
_READ_BY: Mapping[str, Callable[[Job], bool]] = {
    "generation.": lambda job: job.task.type in ("grpo", "gkd"),
    "data.shuffle_buffer_size": lambda job: bool(job.data.streaming),
    "optimizer.qk_clip_": lambda job: bool(job.optimizer.qk_clip),
    "profiler.level": lambda job: job.profiler.enabled,
    "fault_tolerance.error_injection.type": lambda job: bool(job.fault_tolerance.error_injection.rate),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One canonical value on one backend, and whether it is written or the backend's default."""

    value: Value
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Effective values of a job on one backend version.

    Attributes:
        job: as the backend's conventions prepare it.
        fields: every canonical field's effect.
        effective: its native arguments as they are written, and what validation leaves of them.
        cannot: set fields that the backend cannot express, with the reason.
    """

    job: Job
    backend: Backend
    version: str
    fields: Mapping[str, Effect]
    effective: EffectiveValues
    cannot: Mapping[str, str]


def meaning(job: Job, backend: Backend, version: str) -> Meaning:
    """Return the effective values of a job on a backend version.

    A value is read back from what the backend's validation leaves of the arguments; where none of them is written or
    set, it is the default of the parser if a single argument expresses the field. Fields that the backend does not
    take have no value.
    """
    prepared = backend.prepare(job, version)
    translation = translate(prepared, backend, version)
    written = {arg.flag: arg.value for arg in translation.native}
    read_job = read_back(written, backend, version).job
    effective = effective_of(prepared, backend, version, translation.native)
    rows_by_field: dict[str, list[Row]] = {}
    for row in active_rows(backend.table(version), version):
        for path in dict.fromkeys(row.fields):
            rows_by_field.setdefault(path, []).append(row)
    catalogue = backend.catalogue(version)
    found = {
        path: _effect(path, prepared, read_job, rows_by_field.get(path, []), written, catalogue)
        for path in field_paths()
    }
    found |= _after_validation(found, effective, backend, version)
    found |= {
        path: Effect(value=value, how=DEFAULT)
        for path, value in backend.absent(prepared).items()
        if found[path].how != WRITTEN and value_at(prepared, path) is None
    }
    for path in _LAUNCHER_FIELDS:
        found[path] = Effect(value=value_at(prepared, path), how=WRITTEN)
    refused = {
        path: finding.message
        for finding in translation.findings
        if finding.rule == "MAP-UNSUPPORTED"
        for path in finding.fields
    }
    return Meaning(
        job=prepared,
        backend=backend,
        version=version,
        fields=found,
        effective=effective,
        cannot=refused,
    )


def _after_validation(
    found: Mapping[str, Effect], effective: EffectiveValues, backend: Backend, version: str
) -> dict[str, Effect]:
    """Return the fields whose value validation sets."""
    return {
        path: Effect(value=value, how=SET if found[path].how == WRITTEN else DEFAULT)
        for path, value in fields_set(effective, backend, version).items()
        if value != found[path].value and (value is not None or found[path].how == WRITTEN)
    }


def fields_set(effective: EffectiveValues, backend: Backend, version: str) -> dict[str, Value]:
    """Return the fields of the arguments that validation sets, with the value that it leaves."""
    flags = {change.flag for change in effective.changes}
    if not flags:
        return {}
    job = read_back(effective.values, backend, version).job
    rows = (row for row in active_rows(backend.table(version), version) if not flags.isdisjoint(row.flags))
    return {path: value_at(job, path) for row in rows for path in row.fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled:
    """One canonical field that the job sets and the backend's validation leaves at another value.

    Attributes:
        path: the field.
        before, after: its values.
        rule: id of the record that sets the argument.
    """

    path: str
    before: Value
    after: Value
    rule: str


def overruled(job: Job, backend: Backend, version: str) -> list[Overruled]:
    """Return the fields whose value validation changes.

    Of arguments that the job writes, and of those whose rule has a message.
    """
    native = translate(job, backend, version).native
    effective = effective_of(job, backend, version, native)
    by = {change.flag: change.rule for change in effective.changes if change.written or change.message}
    if not by:
        return []
    before = read_back(effective.written, backend, version).job
    after = read_back(effective.values, backend, version).job
    found = {}
    for row in active_rows(backend.table(version), version):
        rule = next((by[flag] for flag in row.flags if flag in by), None)
        for path in row.fields if rule is not None else ():
            left, right = value_at(before, path), value_at(after, path)
            if left != right and right != value_at(job, path):
                found[path] = Overruled(path=path, before=value_at(job, path), after=right, rule=rule or "")
    return list(found.values())


def _effect(
    path: str, job: Job, read_job: Job, mine: list[Row], written: Mapping[str, Value], catalogue: Catalogue
) -> Effect:
    if not mine:
        return Effect(value=None, how=NONE)
    if any(flag in written for row in mine for flag in row.flags):
        value = value_at(read_job, path)
        return Effect(value=value_at(job, path) if value in (None, ()) else value, how=WRITTEN)
    if not all(reads(job) for start, reads in _READ_BY.items() if path.startswith(start)):
        return Effect(value=None, how=DEFAULT)
    for row in mine:
        if row.read_in is not None and not row.read_in(job):
            continue
        if len(row.fields) == 1 and len(row.flags) == 1 and row.read is not None:
            argument = catalogue.get(row.flags[0])
            default = None if argument is None else absent_value(argument)
            if default is not None:
                given = {row.flags[0]: default}
                return Effect(value=row.read(NativeView(given)).get(path), how=DEFAULT)
    return Effect(value=None, how=DEFAULT)


def absent_value(argument: Argument) -> Value:
    """Return the value that is equivalent to omitting the argument; False for a switch that stores false."""
    if argument.action == "store_false":
        return False
    return argument.without()
