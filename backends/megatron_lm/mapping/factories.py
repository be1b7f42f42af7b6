"""Row factories for Megatron-LM arguments: an absent argument means Megatron's default, not the canonical one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.catalogue.registered import registered
from launcher.job import Job, Value, field_at, value_at
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, choice


def valued(path: str, flag: str, default: Value, *, quiet: bool = False, **row: Any) -> Row:
    """Return a row for a value whose absence means Megatron's `default`.

    Args:
        path: canonical field.
        flag: argument that takes the value.
        default: value of Megatron's parser when the argument is absent.
        quiet: do not write a value that equals the default.
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None and not (quiet and value == default):
            yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: single(view.take(flag, default))}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="value", **row)


def when_set(path: str, flag: str, forward: Callable[[Any], Value] = lambda value: value, **row: Any) -> Row:
    """Return a row for an optional value; a list of one, as `nargs='+'` arguments are parsed, is read as its item."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, forward(value)

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=emit,
        read=lambda view: {path: single(view.take(flag))} if view.has(flag) else {},
        codec="value",
        **row,
    )


def listed(path: str, flag: str, **row: Any) -> Row:
    """Return a row for several values after one flag; one value reads back as a list of one."""

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: many(view.take(flag))} if view.has(flag) else {}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value:
            yield flag, tuple(value)

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="value", **row)


def flag_on(path: str, flag: str, **row: Any) -> Row:
    """Return a row for a switch of a field with a canonical default: absent means false."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if value_at(job, path):
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: bool(view.take(flag, False))}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="value", **row)


def flag_unless(path: str, flag: str, **row: Any) -> Row:
    """Return a row for a switch that disables a feature that Megatron enables by default: absent means true."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if value_at(job, path) is False:
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: not view.take(flag, False)}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="inverted", **row)


def chosen(path: str, flag: str, names: Mapping[Value, Value], default: Value = None, why: str = "", **row: Any) -> Row:
    """Return a row for an enumeration: canonical to native names; the others are `Unsupported`.

    Args:
        path: canonical field.
        flag: argument that takes the name.
        names: canonical name to native name; None: the canonical name is expressed by omitting the argument.
        default: canonical value of an absent argument; None: the field stays unset.
        why: reason given for names that are missing.
    """
    back = {native: canonical for canonical, native in names.items() if native is not None}

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {} if default is None else {path: default}
        value = single(view.peek(flag))
        if value not in back:
            return {}
        view.take(flag)
        return {path: back[value]}

    written = choice(path, flag, names, why or f"it knows {', '.join(str(name) for name in names)}", **row)
    return replace(written, read=read, codec="value" if _same_names(names) else None)


def _same_names(names: Mapping[Value, Value]) -> bool:
    return all(native in (None, name) for name, native in names.items())


def refused(path: str, why: str, works: tuple[str, ...] = (), neutral: tuple[Value, ...] = (), **row: Any) -> Row:
    """Return a row for a field that some versions lack: any value but the default and `neutral` is rejected."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None and value != field_at(path).default and value not in neutral:
            raise Unsupported(path, why, works)
        return ()

    return Row(fields=(path,), flags=(), emit=emit, **row)


def reworded(aliases: Mapping[str, str], without_effect: Mapping[str, Value], note: str = "") -> Row:
    """Return a read-only row that renames old arguments and drops arguments without effect.

    Args:
        aliases: old name to the name that the other rows read; a new name that is present takes precedence.
        without_effect: argument to the value with which it has no effect.
        note: why they have no effect.
    """

    def read(view: NativeView) -> Mapping[str, Value]:
        for old, new in aliases.items():
            if view.has(old):
                value = view.take(old)
                view.values.setdefault(new, value)
        for flag, value in without_effect.items():
            if view.has(flag) and view.peek(flag) == value:
                view.take(flag)
        return {}

    return Row(fields=(), flags=(), emit=lambda job: (), read=read, note=note)


def single(value: Value) -> Value:
    """Return the item of a list of one, anything else unchanged."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def many(value: Value) -> tuple[Value, ...]:
    """Return a list or a single value as a tuple."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


BEFORE_0_13 = "0.12.99"
"""Last version with what core 0.13 removed or renamed."""
BEFORE_0_14 = "0.13.99"
"""Last version with what core 0.14 removed or renamed."""
BEFORE_0_15 = "0.14.99"
"""Last version with what core 0.15 removed or renamed."""
BEFORE_0_16 = "0.15.99"
"""Last version with what core 0.16 removed or renamed."""
BEFORE_0_17 = "0.16.99"
"""Last version with what core 0.17 removed or renamed."""
BEFORE_0_18 = "0.17.99"
"""Last version with what core 0.18 removed or renamed."""
VERSIONS = registered(Path(__file__).parents[1] / "versions.json").names
"""Registered versions of Megatron-LM, the newest first."""
WITH_NEWEST = f"backend.version={VERSIONS[0]}"
"""Override that offers what came with a later version."""
BEFORE_0_19 = "0.18.99"
"""Last version with what core 0.19 removed or renamed."""
ONLY_MEGATRON_LOOP = "a service of Megatron-LM's own loop; training is unaffected"
ONLY_NVIDIA_CLUSTERS = "a service of NVIDIA's clusters; training is unaffected"


def came(*neutral: Value, severity: str = "error", why: str = "it came with core {since}") -> Gap:
    """Return the gap of a field in versions before its first row; `{since}` becomes the version of that row."""
    return Gap(why=why, neutral=neutral, severity=severity)


def added_in_0_9(*neutral: Value, severity: str = "error") -> Gap:
    """Return the gap of a field that Megatron-core 0.8, on which backends are built, lacks."""
    return Gap(why="it came with Megatron core 0.9 or later", neutral=neutral, severity=severity)
