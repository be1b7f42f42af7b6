"""Rows of a mapping table: which fields map to which native arguments, and how values convert in both directions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any, Literal

from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, field_paths, fields, value_at
from launcher.records import dataclass, record

Emit = Callable[[Job], Iterable[tuple[str, Value]]]
Read = Callable[["NativeView"], Mapping[str, Value]]


class Unsupported(Exception):
    """A value that this backend cannot express, with the reason and alternatives: an override each, or several.

    `severity` is `error`, or `warning` where training is unaffected.
    """

    def __init__(
        self, path: str, why: str, works: tuple[str | tuple[str, ...], ...] = (), severity: str = "error"
    ) -> None:
        super().__init__(why)
        self.path = path
        self.works = works
        self.severity = severity


class NativeView:
    """Native arguments while a table is read backwards; `take` marks an argument as understood."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = dict(values)
        self.taken: set[str] = set()

    def has(self, flag: str) -> bool:
        """Return whether the argument was given and is not yet understood."""
        return flag in self.values and flag not in self.taken

    def peek(self, flag: str, default: Value = None) -> Value:
        """Return a value without marking it."""
        return self.values.get(flag, default)

    def number(self, flag: str, default: int) -> int:
        """Return a number to compute with, without marking it; a list or text would be repeated.

        Raises:
            TypeError: the value is none.
        """
        value = self.peek(flag, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{flag}: {value!r} is no whole number")
        return value

    def take(self, flag: str, default: Value = None) -> Value:
        """Return a value and mark it as understood."""
        if flag not in self.values:
            return default
        self.taken.add(flag)
        return self.values[flag]


@record()
class Row:
    """One mapping between fields of the job and arguments of a backend.

    Attributes:
        fields: canonical paths that the row reads (and sets, backwards); the first one names the argument's field.
        flags: native arguments that it may write.
        emit: job to (flag, value) pairs; raises `Unsupported` for a value that has no native form.
        read: native arguments to canonical values; None for arguments that follow from others and are only written.
        when: the row applies to this job; otherwise it writes nothing.
        read_in: the backend reads the arguments in this job; otherwise their defaults are irrelevant. None: every job.
        since, until: first and last backend version that has these arguments; None: unbounded.
        codec: the single argument holds the field's value, or the opposite of a boolean; None: anything else. Other
            backends respell such rows (`launcher.mapping.inherit`).
        derived: the value is computed from several fields (shown as such).
        note: remark for the generated mapping table.
    """

    fields: tuple[str, ...]
    flags: tuple[str, ...]
    emit: Emit
    read: Read | None = None
    when: Callable[[Job], bool] | None = None
    read_in: Callable[[Job], bool] | None = None
    since: str | None = None
    until: str | None = None
    codec: Literal["value", "inverted"] | None = None
    derived: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if self.read is not None:
            object.__setattr__(self, "read", _numbers_only(self.read))


def _numbers_only(read: Read) -> Read:
    """Return a reader that raises `TypeError` where it would put text (`$STEPS`, `abc`) into a numeric field."""

    def checked(view: NativeView) -> Mapping[str, Value]:
        found = read(view)
        for path, value in found.items():
            if isinstance(value, str) and path in _numeric() and not _is_number(value):
                raise TypeError(f"{path}: {value!r} is no number")
        return found

    return checked


@cache
def _numeric() -> frozenset[str]:
    numbers = (int, float, int | None, float | None)
    return frozenset(path for path, info in fields().items() if info.type in numbers)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadArgs:
    """Arguments that a backend's parser accepts and nothing reads. Its rules (`Rule.unread`) use the same record.

    Attributes:
        flags: native arguments.
        why: what happens instead, one sentence.
        source: upstream project, version and file:line.
        where: native arguments with the values (None: not given) under which nothing reads them; empty: always.
        since, until: first and last backend version that has these arguments; None: unbounded.
    """

    flags: tuple[str, ...]
    why: str
    source: str
    where: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None

    @property
    def when(self) -> str:
        """The condition of the rule, in the language of `Rule.when`."""
        return " & ".join(f"{name}={'|'.join(map(str, values))}" for name, values in self.where.items())

    def row(self, *fields: str) -> Row:
        """Return the row, of these fields, that takes the arguments when a command line is read, and writes nothing."""

        def read(view: NativeView) -> Mapping[str, Value]:
            if all(view.peek(name) in values for name, values in self.where.items()):
                for flag in self.flags:
                    view.take(flag)
            return {}

        note = f"Read only. {self.why}"
        return Row(
            fields=fields,
            flags=self.flags,
            emit=lambda job: (),
            read=read,
            since=self.since,
            until=self.until,
            note=note,
        )


@record()
class Gap:
    """A canonical field that a backend does not take.

    Attributes:
        why: reason, for the user.
        neutral: values that are equivalent to an unset field there (besides the field's own default).
        severity: `error`, or `warning` where training is unaffected.
        works: what to do instead, besides leaving the field unset; several overrides that belong together are a tuple.
        matters: whether the job is affected; None: always.
    """

    why: str
    neutral: tuple[Value, ...] = ()
    severity: str = "error"
    works: tuple[str | tuple[str, ...], ...] = ()
    matters: Callable[[Job], bool] | None = None


def warning(why: str, *neutral: Value, works: tuple[str, ...] = ()) -> Gap:
    """Return the gap of a field without which training is the same."""
    return Gap(why=why, neutral=neutral, works=works, severity="warning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The whole mapping of one backend version: rows, fields it cannot express, fields that do not concern it."""

    rows: tuple[Row, ...]
    unsupported: Mapping[str, Gap] = field(default_factory=dict)
    irrelevant: Mapping[str, str] = field(default_factory=dict)


def active_rows(table: Table, version: str) -> Iterator[Row]:
    """Yield the rows that this version has."""
    return (row for row in table.rows if in_range(version, row.since, row.until))


def unmapped_fields(table: Table, version: str) -> list[str]:
    """Return canonical fields that the table does not mention; a complete table has none."""
    known = {path for row in active_rows(table, version) for path in row.fields}
    known |= set(table.unsupported) | set(table.irrelevant)
    return [path for path in fields() if path not in known]


def unknown_fields(table: Table, version: str) -> list[str]:
    """Return paths that the table mentions and no job has: of another version of the schema, or misspelt."""
    named = [path for row in active_rows(table, version) for path in row.fields]
    return sorted({*named, *table.unsupported, *table.irrelevant} - fields().keys())


def same(path: str, flag: str, **row: Any) -> Row:
    """Return a row that renames: the value is unchanged, None is not written."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None and value != ():
            yield flag, value

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=emit,
        read=lambda view: {path: view.take(flag)} if view.has(flag) else {},
        codec="value",
        **row,
    )


def switch(path: str, flag: str, **row: Any) -> Row:
    """Return a row for a bare switch: true writes it, false and None do not."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if value_at(job, path):
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: bool(view.take(flag))} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="value", **row)


def switch_off(path: str, flag: str, **row: Any) -> Row:
    """Return a row for a negative switch (`--no-x`): false writes it, true and None do not."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if value_at(job, path) is False:
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: not view.take(flag)} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="inverted", **row)


def negated(path: str, flag: str, **row: Any) -> Row:
    """Return a row for a negative boolean with a value (`no_x: true`): the value is inverted."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, not value

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: not view.take(flag)} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, codec="inverted", **row)


def choice(path: str, flag: str, names: Mapping[Value, Value], why: str = "", **row: Any) -> Row:
    """Return a row for an enumeration: canonical names to native names; the others are `Unsupported`.

    A canonical name that maps to None is not written: it is the backend's default.
    """
    back = {native: canonical for canonical, native in names.items() if native is not None}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is None:
            return
        if value not in names:
            reason = why or f"{value} has no counterpart (it knows {', '.join(str(name) for name in names)})"
            raise Unsupported(path, reason, tuple(f"{path}={name}" for name in names)[:3])
        if names[value] is not None:
            yield flag, names[value]

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag) or view.peek(flag) not in back:
            return {}
        return {path: back[view.take(flag)]}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def mapped(path: str, flag: str, forward: Callable[[Any], Value], backward: Callable[[Any], Value], **row: Any) -> Row:
    """Return a row whose value is converted (unit, list to text, …); `backward` undoes `forward`."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None and value != ():
            yield flag, forward(value)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: backward(view.take(flag))} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def only_with(switch: str, section: str) -> dict[str, str]:
    """Return why the other fields of a section have no effect on a backend that cannot express the switch."""
    paths = (path for path in field_paths() if path.startswith(section) and path != switch)
    return dict.fromkeys(paths, without(switch))


def without(switch: str) -> str:
    """Return why a field has no effect on a backend that cannot express the switch."""
    return f"only with {switch}, which it cannot express"


def computed(fields: tuple[str, ...], flags: tuple[str, ...], emit: Emit, read: Read | None = None, **row: Any) -> Row:
    """Return a row with custom `emit` and `read`: one field to many arguments, many to one, derived values."""
    return Row(fields=fields, flags=flags, emit=emit, read=read, derived=True, **row)


def fixed(flag: str, value: Value, when: Callable[[Job], bool] | None = None, note: str = "", **row: Any) -> Row:
    """Return a row for an argument that every (or every such) job needs on this backend; read back, it is dropped."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag) and view.peek(flag) == value:
            view.take(flag)
        return {}

    return Row(
        fields=(),
        flags=(flag,),
        emit=lambda job: ((flag, value),),
        read=read,
        when=when,
        derived=True,
        note=note,
        **row,
    )
