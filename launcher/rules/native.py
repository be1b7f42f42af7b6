"""Facts with the backend's side: what a passed-through argument sets is judged like what a field sets."""

from collections.abc import Mapping
from functools import cache

from launcher.job import Job, Value, value_at, with_values
from launcher.rules.registry import Facts
from launcher.translate.backend import Backend, get_backend
from launcher.translate.engine import active_rows
from launcher.translate.native import NativeArgs
from launcher.translate.rows import NativeView, Row


def facts_of(job: Job, backend: Backend, version: str, native: NativeArgs, *, as_written: bool = False) -> Facts:
    """Return what rules look at: the job as its native arguments make it, and those arguments.

    Passed-through arguments that a row of the mapping table can read change the job that the rules see; deprecated
    names count under the names that replaced them.

    Args:
        as_written: the arguments are a command line that somebody already has, and `job` is what it was read as.
    """
    values = {arg.flag: arg.value for arg in native}
    passed = {arg.flag for arg in native if as_written or arg.origin == "pass-through"}
    if passed:
        view = NativeView(values)
        for row in _renaming(backend.name, version):
            _read(row, view)
        new = set() if as_written else passed | (view.values.keys() - values.keys())
        values = view.values
        # Reading takes arguments, so that each row gets a view of its own.
        rows = (row for row in _reading(backend.name, version) if not new.isdisjoint(row.flags))
        found = {path: value for row in rows for path, value in _read(row, NativeView(values)).items()}
        job = _changed(job, found)
    return Facts(
        job=job,
        backend=backend.name,
        version=version,
        native=native,
        values=values,
        written={arg.flag: arg for arg in native},
        catalogue=backend.catalogue(version),
        fields_by_flag=_fields_by_flag(backend.name, version),
        as_written=as_written,
    )


def _read(row: Row, view: NativeView) -> Mapping[str, Value]:
    assert row.read is not None
    try:
        return row.read(view)
    except (TypeError, ValueError, AttributeError, LookupError):
        # A value of the wrong type; the catalogue's check has said so.
        return {}


def _changed(job: Job, found: Mapping[str, Value]) -> Job:
    changes = {path: value for path, value in found.items() if value is not None and value_at(job, path) != value}
    return with_values(job, changes) if changes else job


@cache
def _renaming(backend: str, version: str) -> tuple[Row, ...]:
    """Return the rows that only give old names their new ones."""
    rows = active_rows(get_backend(backend).table(version), version)
    return tuple(row for row in rows if row.read is not None and not row.flags)


@cache
def _reading(backend: str, version: str) -> tuple[Row, ...]:
    rows = active_rows(get_backend(backend).table(version), version)
    return tuple(row for row in rows if row.read is not None and row.flags and row.fields)


@cache
def _fields_by_flag(backend: str, version: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for row in active_rows(get_backend(backend).table(version), version):
        for flag in row.flags:
            if row.fields:
                found.setdefault(flag, row.fields[0])
    return found
