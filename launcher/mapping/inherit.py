"""Tables by inheritance: the rows of a backend from those of the backend whose arguments it extends."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace as changed
from typing import Any

from launcher.catalogue.catalogue import Argument
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, field_at, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported, negated, same


def extend(
    base: Iterable[Row],
    version: str | None = None,
    *,
    replace: Mapping[str, Iterable[Row]],
    drop: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    respell: Callable[[Row], Row | None] = lambda row: row,
) -> tuple[Row, ...]:
    """Return the rows of a backend that takes another one's arguments, in that one's order.

    Args:
        base: rows of all versions of the other backend; a row is known by its first field.
        version: the other backend's version that this one is built on; None: whatever `respell` accepts, each once.
        replace: rows in place of the base's by field; at the end where `version` has none of the field.
        drop: fields whose base rows do not apply.
        rename: other names of the base's arguments.
        respell: base row to the row in the backend's own style; None: this backend has no such argument.

    Raises:
        ValueError: the base has no row of a field, or no argument, that is to be replaced, dropped or renamed.
    """
    rows, names = tuple(base), dict(rename or {})
    _check("field", {*replace, *drop}, {row.fields[0] for row in rows if row.fields})
    _check("argument", names, {flag for row in rows for flag in row.flags})
    found: list[Row] = []
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    replaced: set[str] = set()
    for row in rows:
        key = row.fields[0] if row.fields else ""
        if key in drop or (version is not None and not in_range(version, row.since, row.until)):
            continue
        if key not in replace:
            spelled = respell(renamed(row, names) if names.keys() & set(row.flags) else row)
            if spelled is not None and not (spelled.flags and (spelled.fields, spelled.flags) in seen):
                seen.add((spelled.fields, spelled.flags))
                bounded = (spelled.since, spelled.until) != (None, None)
                found.append(changed(spelled, since=None, until=None) if bounded else spelled)
        elif key not in replaced:
            replaced.add(key)
            found += replace[key]
    return (*found, *(row for key, late in replace.items() if key not in replaced for row in late))


def _check(kind: str, wanted: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise ValueError(f"the extended table has no row of the {kind} {', '.join(unknown)}")


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """Return a row that writes and reads its arguments under other names."""
    names = {old: new for old, new in names.items() if old != new}
    back = {new: old for old, new in names.items()}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        return ((names.get(flag, flag), value) for flag, value in row.emit(job))

    def read(view: NativeView) -> Mapping[str, Value]:
        inner = NativeView({back.get(flag, flag): value for flag, value in view.values.items() if flag not in names})
        inner.taken = {back.get(flag, flag) for flag in view.taken}
        found = row.read(inner) if row.read is not None else {}
        view.values |= {names.get(flag, flag): value for flag, value in inner.values.items()}
        view.taken |= {names.get(flag, flag) for flag in inner.taken}
        return found

    flags = tuple(names.get(flag, flag) for flag in row.flags)
    return changed(row, flags=flags, emit=emit, read=None if row.read is None else read)


def holding(path: str, argument: Argument, *, inverted: bool = False, **row: Any) -> Row:
    """Return the row of an argument that holds a field's value, as the catalogue declares it: list, choice or plain.

    Args:
        inverted: the argument holds the opposite of a boolean field.
        row: other attributes of the row.
    """
    if inverted:
        return negated(path, argument.name, **row)
    if argument.is_list:
        return _listed(path, argument.name, **row)
    if argument.choices:
        return _one_of(path, argument, **row)
    return same(path, argument.name, **row)


def _listed(path: str, flag: str, **row: Any) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if value_at(job, path):
            yield flag, value_at(job, path)

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {}
        given = view.take(flag)
        return {path: tuple(given) if isinstance(given, (list, tuple)) else (given,)}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def _one_of(path: str, argument: Argument, **row: Any) -> Row:
    known, field = argument.choices or (), field_at(path)
    given = sorted(field.meta.choices or known, key=lambda name: name != field.default)
    names = tuple(name for name in given if name in known)
    plain = same(path, argument.name)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None and value not in names:
            works = tuple(f"{path}={name}" for name in names[:3])
            raise Unsupported(path, f"it knows {', '.join(str(name) for name in names)}", works)
        return plain.emit(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        return plain.read(view) if plain.read is not None and view.peek(argument.name) in names else {}

    return Row(fields=(path,), flags=(argument.name,), emit=emit, read=read, **row)
