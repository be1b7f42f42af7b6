"""Row factories for ms-swift: renamed and inverted options, explicit defaults, enumerations, lists."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from launcher.budgets import json_value
from launcher.job import Job, Value, field_at, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported

# Last version of the 3.x line; swift renamed 113 options at 4.0.
THREE = "3.99"
FOUR = "4.0"
# Oldest supported version: ms-swift commit 54e9c505, before 3.5.
SEED = "3.5-dev"


def above_one(path: str, flag: str, **row: Any) -> Row:
    """Return a row for a size whose default is 1 everywhere: only larger sizes are written."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value > 1:
            yield flag, value

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=emit,
        read=lambda view: {path: view.take(flag)} if view.has(flag) else {},
        **row,
    )


def explicit(path: str, flag: str, absent: Value, names: Mapping[Value, Value] | None = None, **row: Any) -> Row:
    """Return a row for a value that is always written; an absent argument is read as `absent`."""
    forward = names or {}
    back = {native: canonical for canonical, native in forward.items()}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, forward.get(value, value)

    def read(view: NativeView) -> Mapping[str, Value]:
        value = view.take(flag, absent)
        return {path: back.get(value, value)}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def one_of(path: str, flag: str, names: tuple[str, ...], **row: Any) -> Row:
    """Return a row for an enumeration whose native names are the canonical ones; other names are rejected.

    Where the option is a list (`nargs='+'`), a list of one is read as its item.
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is None:
            return
        if value not in names:
            raise Unsupported(path, f"it knows {', '.join(names)}", tuple(f"{path}={name}" for name in names[:3]))
        yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        value = single(view.peek(flag))
        if not view.has(flag) or value not in names:
            return {}
        view.take(flag)
        return {path: value}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def listed(path: str, flag: str, **row: Any) -> Row:
    """Return a row for an option that takes several values."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value:
            yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: as_values(view.take(flag))} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def only(path: str, allowed: tuple[Value, ...], why: str, works: tuple[str, ...] = (), **row: Any) -> Row:
    """Return a row for a field without an option: the allowed values match the fixed behavior, others are rejected."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None and value != field_at(path).default and value not in allowed:
            raise Unsupported(path, why, works)
        return ()

    return Row(fields=(path,), flags=(), emit=emit, **row)


def single(value: Value) -> Value:
    """Return the item of a list of one, any other value unchanged."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return value[0]
    return value


def as_values(value: Value) -> tuple[Value, ...]:
    """Return the values of an option that takes several; a single value may be given without a list."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def mapping_of(value: Value) -> dict[str, Value] | None:
    """Return the mapping that a JSON option holds, given as mapping or as text; None if it is neither."""
    if isinstance(value, str):
        try:
            value = json_value(value)
        except ValueError:
            return None
    return dict(value) if isinstance(value, Mapping) else None


def set_default(view: NativeView, flag: str, default: Value) -> None:
    """Set a default that differs from the table's explicitly, so that it is passed through."""
    view.values.setdefault(flag, default)


# -- conditions


def _has_experts(model_type: str | None) -> bool:
    if model_type is None:
        return False
    from launcher.families.registry import FAMILIES

    return FAMILIES[model_type].has_experts


def may_be_moe(path: str, absent: Value = None) -> Callable[[Job], bool]:
    """Return a condition: the model is MoE, or only the backend knows it and its family is MoE or `path` is set.

    Args:
        path: canonical field.
        absent: canonical value of the backend's default; None: the field's default.
    """

    def when(job: Job) -> bool:
        unknown = job.model.hidden_size is None and job.model.num_experts is None
        fallback = field_at(path).default if absent is None else absent
        return job.model.is_moe or (unknown and (_has_experts(job.model.model_type) or value_at(job, path) != fallback))

    return when
