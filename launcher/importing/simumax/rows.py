"""What became of each field of an input file of SimuMax."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.importing.notes import Note
from launcher.importing.simumax.table import BOOL, INT, LIST, NUMBER, OBJECT, TEXT, FieldRow
from launcher.nearest import nearest
from launcher.records import dataclass

MAPPED, NEAREST, IMPLIED, DROPPED, UNKNOWN = "mapped", "nearest", "implied", "dropped", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One field of a file.

    Attributes:
        file: `strategy`, `model` or `system`.
        value: as in the file, or SimuMax's default.
        status: `mapped`; `nearest` (to the most similar value of a job); `implied` (no effect, or the only way here);
            `dropped` (it has an effect in SimuMax, but no field); `unknown` (SimuMax itself refuses it).
        fields: the fields of the job that it became.
        note: why it was dropped or implied, or how far it differs.
        given: the file has it; otherwise it is SimuMax's default.
    """

    file: str
    field: str
    value: Any
    status: str
    fields: tuple[str, ...] = ()
    note: str = ""
    given: bool = True

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "file": self.file,
            "field": self.field,
            "value": self.value,
            "status": self.status,
            "fields": list(self.fields),
            "note": self.note,
            "given": self.given,
        }


def is_a(value: Any, kind: str) -> bool:
    """Return whether a value from JSON has a type of the table; numbers are finite."""
    if kind in (INT, NUMBER):
        number = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
        return number and (kind == NUMBER or value == int(value))
    return isinstance(value, {BOOL: bool, TEXT: str, LIST: list, OBJECT: dict}[kind])


def mistakes(tree: Mapping[str, Any], table: Mapping[str, FieldRow], where: str) -> Iterator[Note]:
    """Yield what is wrong with the values of a file: missing fields, types, bounds and choices."""
    for name, row in table.items():
        if tree.get(name) is None:
            if row.required:
                yield Note(message=f"field {name} is missing: SimuMax needs {row.type}", where=where)
            elif name in tree and row.default is not None:
                yield _wrong(name, None, f"must be {row.type}", where, repr_of(row.default))
            continue
        value = tree[name]
        if not is_a(value, row.type):
            example = row.default if row.default is not None else row.choices[0] if row.choices else row.least
            yield _wrong(name, value, f"must be {row.type}", where, repr_of(example))
        elif row.least is not None and value < row.least:
            yield _wrong(name, value, f"must be at least {row.least:g}", where, repr_of(row.least))
        elif row.choices and str(value) not in row.choices:
            yield _wrong(name, value, f"must be one of {', '.join(row.choices)}", where, *row.choices[:3])


def _wrong(name: str, value: Any, must: str, where: str, *works: str) -> Note:
    offers = tuple(f"{name}: {work}" for work in works if work not in ("null", ""))
    return Note(message=f"field {name} is {repr_of(value)}: {must}", where=where, works=offers)


def repr_of(value: Any) -> str:
    """Return a value as in JSON, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def unknown(file: str, name: str, value: Any, known: list[str]) -> Row:
    """Return the row of a field that SimuMax does not have."""
    near = nearest(name, known)
    hint = f"; similar: {', '.join(near[:2])}" if near else ""
    note = f"not a field of SimuMax 1.2, which refuses such a file{hint}"
    return Row(file=file, field=name, value=value, status=UNKNOWN, note=note)
