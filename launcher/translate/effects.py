"""What a job really means on a backend: each canonical value after the backend's own defaults."""

from collections.abc import Mapping
from dataclasses import dataclass

from launcher.job import Job, Value, field_paths, value_at
from launcher.translate.backend import Backend
from launcher.translate.catalogue import Catalogue
from launcher.translate.engine import active_rows, read_back, translate
from launcher.translate.rows import NativeView, Row

WRITTEN, DEFAULT, NONE = "written", "the backend's default", "not expressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One canonical value on one backend, and whether it is written or the backend's default."""

    value: Value
    how: str


def effects(job: Job, backend: Backend, version: str) -> dict[str, Effect]:
    """Return the value of every canonical field on a backend version.

    A value is what the written arguments mean, read backwards; where nothing is written, the default of the parser, if
    one argument alone expresses the field. Fields that the backend does not take have no value.
    """
    prepared = backend.prepare(job, version)
    written = {arg.flag: arg.value for arg in translate(prepared, backend, version).native}
    meant = read_back(written, backend, version).job
    rows = list(active_rows(backend.table(version), version))
    catalogue = backend.catalogue(version)
    return {path: _effect(path, prepared, meant, rows, written, catalogue) for path in field_paths()}


def _effect(
    path: str, job: Job, meant: Job, rows: list[Row], written: Mapping[str, Value], catalogue: Catalogue
) -> Effect:
    mine = [row for row in rows if path in row.fields]
    if not mine:
        return Effect(value=None, how=NONE)
    if any(flag in written for row in mine for flag in row.flags):
        value = value_at(meant, path)
        return Effect(value=value_at(job, path) if value in (None, ()) else value, how=WRITTEN)
    for row in mine:
        if len(row.fields) == 1 and len(row.flags) == 1 and row.read is not None:
            argument = catalogue.get(row.flags[0])
            if argument is not None and argument.default is not None:
                return Effect(value=row.read(NativeView({row.flags[0]: argument.default})).get(path), how=DEFAULT)
    return Effect(value=None, how=DEFAULT)
