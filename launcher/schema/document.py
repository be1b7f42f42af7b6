"""JSON Schema 2020-12 of job files and recipes, and of files that fill one section (conf/hardware, conf/model …)."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from launcher.job import Job
from launcher.job.migrations import JOB_FILES, KEY
from launcher.schema.field_table import FieldRow, field_table

Schema: TypeAlias = dict[str, Any]

TITLE = "Job of Launch"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# OmegaConf resolves `${…}` when the job is composed; `???` is a value that the command line must give.
INTERPOLATION = r"\$\{|^\?\?\?$"
_REFERENCE = {"$ref": "#/$defs/interpolation"}
_TYPES = {"boolean": "boolean", "integer": "integer", "number": "number"}
# `launch` reads a number as text where text is expected (backend.version: 3.10 needs quotes, as everywhere in YAML).
_TEXT = ["string", "number"]
_GROUPS = ("backend", "model", "hardware", "cluster", "task", "recipe", "job", "strategy")
_OF_GROUP = {"type": ["string", "array", "null"], "items": {"type": "string"}}
_ENTRY = r"^(optional )?(override )?/?[\w/.-]+(@[\w.]+)?$"


def document() -> Schema:
    """Return the schema of a job file; that of one section's file is below `$defs`, by the section's path."""
    sections = dict(_sections(Job, ""))
    root = sections.pop("")
    root["properties"] = {"defaults": {"$ref": "#/$defs/defaults"}, KEY: _version(), **root["properties"]}
    return {
        "$schema": DIALECT,
        "title": TITLE,
        "description": "One training job: a recipe, or a file for +job=, +recipe= or +strategy=.",
        **root,
        "$defs": {"interpolation": _interpolation(), "defaults": _defaults(), **sections},
    }


def _version() -> Schema:
    return {
        "description": "Version of the file's format; launch writes it, and a file without it is of version 0.",
        "type": "integer",
        "minimum": 0,
        "maximum": len(JOB_FILES),
    }


def _interpolation() -> Schema:
    return {
        "description": "A reference to another value (${parallel.tp}, ${oc.env:NAME}), or ???: must be given.",
        "type": "string",
        "pattern": INTERPOLATION,
    }


def _defaults() -> Schema:
    known = {f"{prefix}{group}": _OF_GROUP for group in _GROUPS for prefix in ("override /", "/", "")}
    entry = {
        "type": "object",
        "minProperties": 1,
        "properties": known,
        "patternProperties": {_ENTRY: _OF_GROUP},
        "additionalProperties": False,
    }
    return {
        "description": "Hydra's defaults list: the files that this one builds on, such as `- override /model: NAME`.",
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, entry]},
    }


def _sections(cls: type, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas of a section and of all sections in it, by dotted path, the outer ones first."""
    inner: list[tuple[str, type]] = []
    properties: Schema = {}
    rows = {row.path: row for row in field_table()}
    for field in dataclasses.fields(cls):
        own = f"{path}.{field.name}".lstrip(".")
        if own in rows:
            properties[field.name] = field_schema(rows[own])
        elif isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            inner.append((own, field.type))
            properties[field.name] = {"$ref": f"#/$defs/{own}"}
    properties |= dict(_renamed(path))
    doc = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
    section = {"type": ["object", "null"] if path else "object", "properties": properties}
    yield path, {**({"description": doc} if path else {}), **section, "additionalProperties": False}
    for own, kind in inner:
        yield from _sections(kind, own)


def _renamed(section: str) -> Iterator[tuple[str, Schema]]:
    """Yield the names that files of earlier versions have in a section."""
    for row in field_table():
        for old in row.earlier_names:
            holder, _, name = old.rpartition(".")
            if holder == section:
                note = f"Renamed to {row.path}."
                yield (
                    name,
                    {**field_schema(row), "description": note, "deprecated": True, "deprecationMessage": note},
                )


def field_schema(row: FieldRow) -> Schema:
    """Return the schema of one field's value."""
    notes = {"x-unit": row.unit} if row.unit else {}
    default = list(row.default) if isinstance(row.default, tuple) else row.default
    unit = f" Unit: {row.unit}." if row.unit else ""
    return {"description": row.meaning + unit, **value_schema(row), "default": default, **notes}


def value_schema(row: FieldRow) -> Schema:
    """Return what values of a field are allowed."""
    if row.kind == "mapping":
        values = {"additionalProperties": {"type": ["string", "number", "boolean"]}} if row.text_values else {}
        return {"anyOf": [{"type": ["object", "null"] if row.nullable else "object", **values}, _REFERENCE]}
    item = _item(row)
    if not row.is_list:
        return _with_reference(_nullable(item) if row.nullable else item)
    items = {"type": ["array", "null"] if row.nullable else "array", "items": _with_reference(item)}
    return {"anyOf": [items, *_alternatives(item), *([] if _takes_any_text(item) else [_REFERENCE])]}


def _item(row: FieldRow) -> Schema:
    if row.choices:
        return {"enum": list(row.choices)}
    if row.kind == "text":
        return {"type": _TEXT}
    bound = {} if row.minimum is None else {"minimum": row.minimum}
    return {"type": _TYPES[row.kind], **bound}


def _nullable(item: Schema) -> Schema:
    if "enum" in item:
        return {"enum": [*item["enum"], None]}
    kinds = item["type"] if isinstance(item["type"], list) else [item["type"]]
    return {**item, "type": [*kinds, "null"]}


def _with_reference(item: Schema) -> Schema:
    return item if _takes_any_text(item) else {"anyOf": [*_alternatives(item), _REFERENCE]}


def _alternatives(item: Mapping[str, Any]) -> list[Schema]:
    return list(item["anyOf"]) if "anyOf" in item else [dict(item)]


def _takes_any_text(item: Mapping[str, Any]) -> bool:
    return "enum" not in item and "string" in item.get("type", ())
