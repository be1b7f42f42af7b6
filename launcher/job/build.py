"""Builds a typed job from a plain tree; reports every wrong name, type, choice and bound at once."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from launcher.budgets import FIELDS, BeyondBudget, spend, written_out
from launcher.job.migrations import JOB_FILES, current_path
from launcher.job.option import Meta, meta_of
from launcher.job.schema import Job, Origin, Value, override_text
from launcher.nearest import nearest
from launcher.records import dataclass
from launcher.syntax import is_count, is_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An invalid entry of the tree.

    Attributes:
        path: dotted path as written.
        kind: `unknown` (no such field), `section` (a value in place of one), `type`, `choice` or `bound`.
        message: what is wrong, one sentence without the path.
        works: names or values that would work, nearest first.
    """

    path: str
    kind: str
    message: str
    works: tuple[str, ...] = ()


T = TypeVar("T")
_LARGEST = 2**63 - 1
# Minimum similarity of a suggested field name (`nearest`).
_SURE = 0.75


class WrongValue(ValueError):
    """A value does not fit its field; `works` has values that do."""

    def __init__(self, kind: str, message: str, works: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.works = works


def build(tree: Mapping[str, Any], origins: Mapping[str, Origin] | None = None) -> tuple[Job, list[Problem]]:
    """Build the job that a nested mapping describes.

    Args:
        tree: nested plain mapping, section by section; missing fields take their defaults.
        origins: where each value was set, by dotted path.

    Returns:
        The job (with defaults where a value did not fit) and all problems, in the order of the tree.
    """
    problems: list[Problem] = []
    job = _build(Job, tree, "", problems)
    assert isinstance(job, Job)
    return dataclasses.replace(job, origins=dict(origins or {})), problems


def build_section(cls: type[T], tree: Mapping[str, Any], prefix: str) -> tuple[T, list[Problem]]:
    """Build a section alone, such as `model`, or one that is not part of the schema: the options of an executor.

    Args:
        cls: dataclass of `option(…)` fields.
        prefix: path of the section in the job, with a dot at its end.
    """
    problems: list[Problem] = []
    return _build(cls, tree, prefix, problems), problems


def _build(cls: type, tree: Mapping[str, Any], prefix: str, problems: list[Problem]) -> Any:
    known = _known(cls)
    values: dict[str, Any] = {}
    for key, raw in tree.items():
        path = f"{prefix}{key}"
        field = known.get(str(key))
        if field is None:
            problems.append(_unknown(path, list(known), prefix))
            continue
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            values[field.name] = _section(field.type, raw, path, problems)
            continue
        try:
            values[field.name] = _within_budget(path, convert(raw, field.type, meta_of(field)))
        except WrongValue as error:
            works = error.works or (_default(field) if raw is None or raw == "" or raw != raw else ())
            problems.append(Problem(path=path, kind=error.kind, message=str(error), works=works))
    return cls(**values)


def _default(field: "dataclasses.Field[Any]") -> tuple[str, ...]:
    """Return the default of a field that always has a value, as text."""
    made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return () if made is dataclasses.MISSING else (override_text(made),)


@cache
def _known(cls: type) -> "Mapping[str, dataclasses.Field[Any]]":
    return {field.name: field for field in dataclasses.fields(cls) if field.name != "origins"}


def _section(cls: type, raw: Any, path: str, problems: list[Problem]) -> Any:
    if raw is None:
        return cls()
    if not isinstance(raw, Mapping):
        names = ", ".join(f"{path}.{field.name}" for field in dataclasses.fields(cls)[:4])
        problems.append(Problem(path=path, kind="section", message=f"is a section, not a value: set {names}, …"))
        return cls()
    return _build(cls, raw, f"{path}.", problems)


def _unknown(path: str, names: list[str], prefix: str) -> Problem:
    last = path[len(prefix) :]
    near = [prefix + name for name in nearest(last, names)] if current_path(path, JOB_FILES) == path else []
    works = tuple(dict.fromkeys([*near, *suggest_field(path)]))[:3]
    return Problem(path=path, kind="unknown", message="is not a field of the job", works=works)


def suggest_field(path: str) -> tuple[str, ...]:
    """Return canonical paths that are similar to `path`, nearest first, at most three."""
    from launcher.job.schema import field_paths

    renamed = current_path(path, JOB_FILES)
    if renamed != path:
        return (renamed,)
    by_path = nearest(path, field_paths(), cutoff=_SURE)
    by_leaf: dict[str, list[str]] = {}
    for known in field_paths():
        by_leaf.setdefault(known.rsplit(".", maxsplit=1)[-1], []).append(known)
    leaves = nearest(path.rsplit(".", maxsplit=1)[-1], by_leaf, cutoff=_SURE)
    near = [known for leaf in leaves for known in by_leaf[leaf]]
    return tuple(dict.fromkeys([*by_path, *near] if "." in path else [*near, *by_path]))[:3]


def convert(raw: Any, kind: Any, meta: Meta) -> Value:
    """Return `raw` as a value of the field type `kind`.

    Raises:
        WrongValue: the type, a choice or a bound does not fit.
    """
    allowed = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    optional = type(None) in allowed
    if raw is None:
        if optional:
            return None
        raise WrongValue("type", f"needs {_name(kind)}, got null")
    target = next(part for part in allowed if part is not type(None))
    try:
        value = _convert_one(raw, target)
    except WrongValue as error:
        unset = ("null",) if optional and target in (int, float) else ()
        raise WrongValue(error.kind, str(error), _within(error.works, meta) or unset) from None
    for item in value if isinstance(value, tuple) else (value,):
        _check(item, meta, optional=optional)
    return value


def _within_budget(path: str, value: Value) -> Value:
    """Return a value within the limit of its field.

    Raises:
        WrongValue: the value exceeds the limit.
    """
    try:
        if path in FIELDS and isinstance(value, int):
            spend(FIELDS[path], value, "")
        if path == "parallel.layout" and isinstance(value, str):
            written_out(value)
    except BeyondBudget as error:
        raise WrongValue("bound", f"has {error.message}; works: {error.works}") from None
    return value


def _within(works: tuple[str, ...], meta: Meta) -> tuple[str, ...]:
    """Return proposed numbers, none of them below the field's minimum."""
    low = meta.minimum
    return tuple(f"{low:g}" if low is not None and _is_below(text, low) else text for text in works)


def _is_below(text: str, low: float) -> bool:
    return is_count(text.lstrip("-")) and int(text) < low


def _convert_one(raw: Any, target: Any) -> Value:
    origin = typing.get_origin(target)
    if origin is tuple:
        item = typing.get_args(target)[0]
        items = raw if isinstance(raw, (list, tuple)) else [raw]
        return tuple(_convert_one(each, item) for each in items)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(raw, Mapping):
            raise WrongValue("type", f"needs a mapping, got {_show(raw)}")
        text_only = typing.get_args(target)[1] is str
        return {str(key): (_text(value) if text_only else value) for key, value in raw.items()}
    if target is bool and isinstance(raw, bool):
        return raw
    if target is int and isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if target is float and isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return float(raw)
    if target is str and isinstance(raw, (str, int, float)) and not isinstance(raw, bool):
        return str(raw)
    raise WrongValue("type", f"needs {_name(target)}, got {_show(raw)}", _nearest_of_type(raw, target))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest_of_type(raw: Any, target: Any) -> tuple[str, ...]:
    if target is bool:
        return ("true", "false")
    if target is int and isinstance(raw, float) and raw == raw and abs(raw) < 2**53:
        return (str(round(raw)),)
    return ()


def _check(value: Value, meta: Meta, *, optional: bool) -> None:
    if meta.choices and value not in meta.choices:
        near = nearest(str(value), meta.choices, cutoff=0.5) or meta.choices
        raise WrongValue("choice", f"{_show(value)} is not one of {', '.join(meta.choices)}", near)
    if isinstance(value, str) and not is_text(value):
        raise WrongValue("type", f"{value[:40]!a} holds a character that no file name or UTF-8 text can hold")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if value != value or value in (float("inf"), float("-inf")):
        raise WrongValue("bound", f"{value} is not a usable number", ("null",) if optional else ())
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise WrongValue("bound", f"{value} exceeds 64 bits")
    if meta.minimum is not None and value < meta.minimum:
        # A bound that is 0 may be none of the values that a machine or a job can have; not set always is one.
        works = "null" if optional and meta.minimum == 0 else f"{meta.minimum:g}"
        raise WrongValue("bound", f"{value} is below {meta.minimum:g}", (works,))


def _name(kind: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is tuple:
        return "a list"
    return names.get(kind, "a mapping")


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
