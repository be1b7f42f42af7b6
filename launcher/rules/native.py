"""Builds a `RuleContext` for a backend: values set by pass-through arguments are checked like values of fields."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from launcher.catalogue.catalogue import Catalogue, as_parsed, check_value
from launcher.job import Job, Value, field_at, value_at, with_values
from launcher.job.build import WrongValue, convert
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import fields_by_flag, understood
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.mapping.rows import NativeView, Row, active_rows
from launcher.rules.effective import EffectiveValues, effective_values
from launcher.rules.engine import load
from launcher.rules.registry import RuleContext

# Files of some backends have the number of replicas, which is read as nodes; a job's machine is not changed by it.
_MACHINE = "cluster."


def rule_context(
    job: Job, backend: Backend, version: str, native: NativeArgs, *, as_written: bool = False
) -> RuleContext:
    """Return the input of rules: the job as its native arguments set it, and those arguments.

    Pass-through arguments that a row of the mapping table can read change the job that the rules see; deprecated
    names count under the names that replaced them.

    Args:
        as_written: the arguments are an existing command line, from which `job` was read.
    """
    catalogue = backend.arguments_of_training(version)
    native = native.with_args(_parsed(native, catalogue, as_written=as_written))
    values = {arg.flag: arg.value for arg in native}
    passthrough = {arg.flag for arg in native if as_written or arg.origin == "pass-through"}
    left_out = {} if as_written else _left_out(job, catalogue)
    overriding: dict[str, str] = {}
    beyond: dict[str, tuple[str, str]] = {}
    if passthrough or left_out:
        keys = left_out | {arg.flag: arg.key or arg.flag for arg in native}
        passthrough |= left_out.keys()
        view = NativeView(values)
        for row in _renaming(backend.name, version):
            _read(row, view)
        # The values of a file were read already, except those that no field can hold.
        read_before = as_written or job.imported.backend == backend.name
        new = set(job.backend.args) if as_written else passthrough | (view.values.keys() - values.keys())
        values = view.values
        # Reading marks arguments as taken, so each row gets its own view.
        rows = (row for row in _reading(backend.name, version) if not new.isdisjoint(row.flags))
        read = [(row, {**_switched_off(row, left_out), **_read(row, NativeView(values))}) for row in rows]
        found = {
            path: value
            for _, each in read
            for path, value in each.items()
            if value is not None and (as_written or not path.startswith(_MACHINE))
        }
        by = {path: _by(row, passthrough, values) for row, each in read for path in each}
        beyond = {
            path: (_outside(path, row, values) or by[path], why)
            for row, each in read
            for path, value in each.items()
            if value is not None and (why := _beyond(path, value))
        }
        changes = _changes(job, found)
        if read_before:
            changes = {path: value for path, value in changes.items() if _is_override(keys.get(by[path], ""), job)}
        if changes:
            # First, so that what is derived where nothing sets it (the folder of checkpoints) is not derived again.
            set_by = {path: job.origin(f"backend.args.{keys.get(by[path], by[path])}") for path in changes}
            job = with_values(replace(job, origins={**job.origins, **set_by}), changes)
        overriding = {
            path: keys.get(flag, flag)
            for path, flag in by.items()
            if flag and (path in changes or (path in found and not read_before))
        }
    return RuleContext(
        job=job,
        backend=backend.name,
        version=version,
        native=native,
        values=values,
        written={arg.flag: arg for arg in native},
        catalogue=catalogue,
        command=backend.command(job),
        fields_by_flag=_fields_by_flag(backend.name, version),
        as_written=as_written,
        passthrough=overriding,
        beyond=beyond,
    )


def effective_of(
    job: Job, backend: Backend, version: str, native: NativeArgs, *, as_written: bool = False
) -> EffectiveValues:
    """Return what validation leaves of arguments, without the other facts that rules need.

    Args:
        job: of which the arguments are.
        as_written: the arguments are an existing command line.
    """
    load(backend.rules)
    catalogue = backend.arguments_of_training(version)
    view = NativeView({arg.flag: arg.value for arg in _parsed(native, catalogue, as_written=as_written)})
    for row in _renaming(backend.name, version):
        _read(row, view)
    context = RuleContext(
        job=job,
        backend=backend.name,
        version=version,
        native=native,
        values=view.values,
        catalogue=catalogue,
        command=backend.command(job),
        as_written=as_written,
    )
    return effective_values(context)


def _parsed(native: NativeArgs, catalogue: Catalogue, *, as_written: bool) -> Iterator[NativeArg]:
    """Yield arguments with pass-through values as a command-line parser stores them, without those it cannot parse.

    Rules only get values of the argument's type; ARG-VALUE reports the omitted ones. A value outside the choices is
    kept: rules report it in more detail. A YAML file has no such parser: its values are used as they are.
    """
    has_parser = catalogue.style != "yaml"
    for arg in native:
        is_parsed = has_parser and (as_written or arg.origin == "pass-through")
        argument = catalogue.get(arg.flag) if is_parsed else None
        if argument is None:
            yield arg
            continue
        negated = bool(argument.negation) and catalogue.is_negation(arg.flag)
        if not check_value(argument, arg.value, negated=negated, any_choice=True):
            parsed = as_parsed(argument, arg.value)
            yield arg if parsed is arg.value else replace(arg, value=parsed)


def _read(row: Row, view: NativeView) -> Mapping[str, Value]:
    assert row.read is not None
    return understood(row.read, view)


def _beyond(path: str, value: Value) -> str:
    """Return why a number cannot be a value of its field; "" where it can, or where its type is wrong."""
    info = field_at(path)
    try:
        convert(value, info.type, info.meta)
    except WrongValue as error:
        return str(error) if error.kind == "bound" else ""
    return ""


def _outside(path: str, row: Row, values: Mapping[str, Value]) -> str:
    """Return the argument of a row that is itself a number outside the bounds of a field; "" for none."""
    return next((flag for flag in row.flags if values.get(flag) is not None and _beyond(path, values[flag])), "")


def _changes(job: Job, found: Mapping[str, Value]) -> dict[str, Value]:
    read = {path: _of_type(path, value) for path, value in found.items() if not _beyond(path, value)}
    return {path: value for path, value in read.items() if value is not None and value_at(job, path) != value}


def _of_type(path: str, value: Value) -> Value:
    """Return a value converted to its field's type; None where that fails, which ARG-VALUE reports."""
    info = field_at(path)
    try:
        return convert(value, info.type, info.meta)
    except WrongValue as error:
        return None if error.kind == "type" else value


def _left_out(job: Job, catalogue: Catalogue) -> dict[str, str]:
    """Return the switches that `backend.args` sets to false or null, each with its key there.

    One that stores true and has that default is on without it, too.
    """
    named = {key: catalogue.of_key(key) for key, value in job.backend.args.items() if value is None or value is False}
    return {
        argument.name: key
        for key, argument in named.items()
        if argument is not None and argument.is_flag and not (argument.action == "store_true" and argument.default)
    }


def _switched_off(row: Row, left_out: Mapping[str, str]) -> dict[str, Value]:
    """Return the field of a row whose only argument is a switch that is left out: the opposite of what it sets."""
    if not left_out.keys() >= set(row.flags):
        return {}
    path = row.fields[0]
    written = _read(row, NativeView(dict.fromkeys(row.flags, True))).get(path)
    return {path: not written} if isinstance(written, bool) else {}


def _is_override(key: str, job: Job) -> bool:
    return bool(key) and job.origin(f"backend.args.{key}").kind == "override"


def _by(row: Row, passthrough: set[str], values: Mapping[str, Value]) -> str:
    """Return the pass-through argument that a row reads, by its old name if it was given under that."""
    matching = [flag for flag in row.flags if flag in passthrough]
    old = sorted(passthrough - values.keys())
    return matching[0] if matching else old[0] if len(old) == 1 else ""


@cache
def _renaming(backend: str, version: str) -> tuple[Row, ...]:
    """Return the rows that only replace old names by new ones."""
    rows = active_rows(get_backend(backend).table(version), version)
    return tuple(row for row in rows if row.read is not None and not row.flags)


@cache
def _reading(backend: str, version: str) -> tuple[Row, ...]:
    rows = active_rows(get_backend(backend).table(version), version)
    return tuple(row for row in rows if row.read is not None and row.flags and row.fields)


@cache
def _fields_by_flag(backend: str, version: str) -> Mapping[str, str]:
    found = fields_by_flag(get_backend(backend).table(version), version, first=True)
    return {flag: paths[0] for flag, paths in found.items() if paths}
