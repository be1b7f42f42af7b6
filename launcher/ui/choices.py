"""What the choosers and fields of the page offer, from the configuration groups and the canonical schema."""

import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any

from launcher.compose.search_path import search_path
from launcher.job import FieldInfo, Job, fields
from launcher.mapping.backend import backend_names, get_backend
from launcher.records import dataclass

# Sections without fields that a person edits here: what an import keeps of its script.
_NOT_EDITED = ("imported",)
_GENERAL = "general"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the job: its name, what it is about, and its fields."""

    name: str
    doc: str
    fields: tuple[FieldInfo, ...]


@cache
def sections() -> dict[str, Section]:
    """Return the sections of a job in the order of the schema; fields of the job itself are the first one."""
    found: dict[str, list[FieldInfo]] = {}
    for path, info in fields().items():
        name = path.partition(".")[0] if "." in path else _GENERAL
        if name not in _NOT_EDITED and not _is_mapping(info):
            found.setdefault(name, []).append(info)
    return {name: Section(name=name, doc=_doc(name), fields=tuple(each)) for name, each in found.items()}


def _doc(section: str) -> str:
    import dataclasses

    kind = next((field.type for field in dataclasses.fields(Job) if field.name == section), Job)
    lines = (kind.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""


def _is_mapping(info: FieldInfo) -> bool:
    return "Mapping" in str(info.type)


def is_switch(info: FieldInfo) -> bool:
    """Return whether a field is true, false, or not set."""
    return bool in _parts(info)


def kind(info: FieldInfo) -> str:
    """Return the type of a field in words."""
    parts = _parts(info)
    if any(typing.get_origin(part) is tuple for part in parts):
        return "list, such as [a,b]"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return next((names[part] for part in (bool, int, float, str) if part in parts), "")


def _parts(info: FieldInfo) -> Sequence[Any]:
    return typing.get_args(info.type) if isinstance(info.type, types.UnionType) else (info.type,)


@cache
def options(group: str) -> list[dict[str, str]]:
    """Return the options of a configuration group for a chooser."""
    if group == "backend":
        return [{"label": get_backend(name).title, "value": name} for name in backend_names()]
    return [{"label": name, "value": name} for name in search_path().options(group)]


def versions(backend: str | None) -> list[dict[str, str]]:
    """Return the versions of a backend for a chooser, the newest first."""
    if backend not in backend_names():
        return []
    return [{"label": each, "value": each} for each in get_backend(backend).versions]


def matching(section: str | None, query: str) -> list[FieldInfo]:
    """Return the fields of a section, or of all of them where words are searched in names and meanings."""
    text = query.lower().split()
    if not text:
        return list(sections()[section].fields) if section in sections() else []
    return [
        info
        for each in sections().values()
        for info in each.fields
        if all(word in f"{info.path} {info.meta.doc} {' '.join(info.meta.choices)}".lower() for word in text)
    ]
