"""One row for each field of a job: name, meaning, type, choices, unit, default, earlier names."""

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from launcher.job import Value, fields
from launcher.job.migrations import JOB_FILES, current_path
from launcher.records import dataclass

Kind: TypeAlias = Literal["boolean", "integer", "number", "text", "mapping"]
_KINDS: Mapping[Any, Kind] = {bool: "boolean", int: "integer", float: "number", str: "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """A field of a job.

    Attributes:
        path: dotted path (`parallel.tp`).
        meaning: one line.
        kind: type of a value, or of each value of a list.
        is_list: the field takes a list; a single value counts as a list of one.
        nullable: null leaves it to the backend.
        text_values: the values of a mapping are text.
        choices: the allowed values; empty: any of the type.
        minimum: smallest allowed number; None: no bound.
        unit: unit of a number; "": none.
        default: value of a job that does not set it; None: the backend's.
        affects_training: the value changes what is learned.
        source: where the meaning comes from.
        earlier_names: dotted paths that files of earlier versions have for it.
    """

    path: str
    meaning: str
    kind: Kind
    is_list: bool
    nullable: bool
    text_values: bool
    choices: tuple[str, ...]
    minimum: float | None
    unit: str
    default: Value
    affects_training: bool
    source: str
    earlier_names: tuple[str, ...]

    @property
    def section(self) -> str:
        """Dotted path of the section that the field is in; "" for the fields of the job itself."""
        return self.path.rpartition(".")[0]

    @property
    def type_text(self) -> str:
        """The type in words: `integer`, `list of text`, `mapping`."""
        return f"list of {self.kind}" if self.is_list else self.kind


@cache
def field_table() -> tuple[FieldRow, ...]:
    """Return the rows of all fields, in order of declaration."""
    earlier = _earlier_names()
    rows = []
    for path, info in fields().items():
        kind, is_list, nullable, text_values = _kind_of(info.type)
        row = FieldRow(
            path=path,
            meaning=info.meta.doc,
            kind=kind,
            is_list=is_list,
            nullable=nullable,
            text_values=text_values,
            choices=info.meta.choices,
            minimum=info.meta.minimum,
            unit=info.meta.unit,
            default=info.default,
            affects_training=info.meta.affects_training,
            source=info.meta.source,
            earlier_names=earlier.get(path, ()),
        )
        rows.append(row)
    return tuple(rows)


def _earlier_names() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for migration in JOB_FILES:
        for old in migration.renames:
            new = current_path(old, JOB_FILES)
            found[new] = (*found.get(new, ()), old)
    return found


def _kind_of(annotation: Any) -> tuple[Kind, bool, bool, bool]:
    """Return kind, whether it is a list, whether it takes null, and whether a mapping's values are text."""
    parts = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    target = next(part for part in parts if part is not type(None))
    nullable = type(None) in parts
    origin = typing.get_origin(target)
    if origin is tuple:
        return _KINDS[typing.get_args(target)[0]], True, nullable, False
    if origin is not None:
        return "mapping", False, nullable, typing.get_args(target)[1] is str
    return _KINDS[target], False, nullable, False
