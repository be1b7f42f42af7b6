"""Effective values of a job on a backend: each canonical value after the backend's own defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.job import Job, Value, field_paths, value_at
from launcher.mapping.backend import Backend
from launcher.mapping.engine import active_rows, read_back, translate
from launcher.mapping.rows import NativeView, Row

WRITTEN, DEFAULT, NONE = "written", "the backend's default", "not expressed"
# Set by the launcher; most backends have no argument for them.
_OF_LAUNCH = ("parallel.dp", "cluster.nodes", "cluster.devices_per_node")
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
        written: its native arguments, by name.
        filled_in: absent arguments to which the backend gives a value beyond its parser's defaults, by name.
        cannot: set fields that the backend cannot express, with the reason.
    """

    job: Job
    backend: Backend
    version: str
    fields: Mapping[str, Effect]
    written: Mapping[str, Value]
    filled_in: Mapping[str, Value]
    cannot: Mapping[str, str]


def meaning(job: Job, backend: Backend, version: str) -> Meaning:
    """Return the effective values of a job on a backend version.

    A value is read back from the written arguments; where none is written, it is the value that the backend fills in,
    or the default of the parser if a single argument expresses the field. Fields that the backend does not take have
    no value.
    """
    prepared = backend.prepare(job, version)
    translation = translate(prepared, backend, version)
    written = {arg.flag: arg.value for arg in translation.native}
    meant = read_back(written, backend, version).job
    rows_by_field: dict[str, list[Row]] = {}
    for row in active_rows(backend.table(version), version):
        for path in dict.fromkeys(row.fields):
            rows_by_field.setdefault(path, []).append(row)
    catalogue = backend.catalogue(version)
    given, filled = filled_in(written, backend, version, prepared.cluster.world_size)
    found = {
        path: _effect(path, prepared, meant, rows_by_field.get(path, []), written, catalogue) for path in field_paths()
    }
    found |= {
        path: Effect(value=value, how=DEFAULT)
        for path, value in filled.items()
        if found[path].how == DEFAULT and found[path].value is None
    }
    for path in _OF_LAUNCH:
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
        written=written,
        filled_in=given,
        cannot=refused,
    )


def filled_in(
    written: Mapping[str, Value], backend: Backend, version: str, devices: int
) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """Return the values of absent arguments that the parser's defaults do not cover: by argument, and by field.

    Args:
        written: the arguments that are given, by name.
        devices: processes of the job.
    """
    given = backend.entry.computed(written, version, devices)
    if not given:
        return {}, {}
    job = read_back({**written, **given}, backend, version).job
    rows = (row for row in active_rows(backend.table(version), version) if not given.keys().isdisjoint(row.flags))
    values = {path: value_at(job, path) for row in rows for path in row.fields}
    return given, {path: value for path, value in values.items() if value is not None}


def _effect(
    path: str, job: Job, meant: Job, mine: list[Row], written: Mapping[str, Value], catalogue: Catalogue
) -> Effect:
    if not mine:
        return Effect(value=None, how=NONE)
    if any(flag in written for row in mine for flag in row.flags):
        value = value_at(meant, path)
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
