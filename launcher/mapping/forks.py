"""The mapping of a fork that the user added: that of the version which it is like, as far as its parser goes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache

from launcher.catalogue.catalogue import Catalogue
from launcher.catalogue.user import BrokenFork, Fork, LoadedFork, load_fork
from launcher.job import Job, Value, fields, value_at
from launcher.mapping.rows import Gap, NativeView, Row, Table, Unsupported, active_rows


@cache
def loaded(fork: Fork) -> LoadedFork | None:
    """Return the content of a fork's file; None if it cannot be used (see `broken_forks`)."""
    try:
        return load_fork(fork)
    except BrokenFork:
        return None


def fork_table(base: Table, title: str, catalogue: Catalogue) -> Table:
    """Return the mapping of a fork: the rows of the version that it is like whose arguments its parser has.

    A row of several arguments stays if the fork has one of them; a job that needs another one is refused. Fields
    without a row have the gap that names the missing argument.
    """
    rows: list[Row] = []
    missing: dict[str, tuple[str, ...]] = {}
    spelled = {name.replace("_", "-"): name for name in catalogue.names()}
    for row in active_rows(base, catalogue.version):
        names = {flag: flag if catalogue.get(flag) else spelled.get(flag.replace("_", "-"), "") for flag in row.flags}
        lacking = tuple(flag for flag, name in names.items() if not name)
        missing.update({path: lacking for path in row.fields if lacking and path not in missing})
        if row.flags and len(lacking) == len(row.flags):
            continue
        if lacking:
            row = replace(row, emit=_only_known(row, frozenset(lacking), title, catalogue.version))
        rows.append(_respelled(row, {flag: name for flag, name in names.items() if name and name != flag}))
    mapped = {path for row in rows for path in row.fields}
    gaps = {
        path: _gap(path, flags, title, catalogue.version)
        for path, flags in missing.items()
        if path not in mapped and path not in base.irrelevant
    }
    return Table(rows=tuple(rows), unsupported={**base.unsupported, **gaps}, irrelevant=base.irrelevant)


def with_missing(own: Catalogue, base: Catalogue) -> Catalogue:
    """Return the arguments of a fork, and those of the version it is like whose values its parser does not store."""
    stored = {argument.dest for argument in own.arguments}
    missing = tuple(argument for argument in base.arguments if argument.dest not in stored)
    return Catalogue(
        backend=own.backend,
        version=own.version,
        style=own.style,
        source=own.source,
        arguments=(*own.arguments, *missing),
        abbreviations=own.abbreviations,
        commands=own.commands,
    )


def _gap(path: str, flags: tuple[str, ...], title: str, version: str) -> Gap:
    changes = fields()[path].meta.affects_training
    return Gap(why=_lacks(flags, title, version), severity="error" if changes else "warning")


def _lacks(flags: Iterable[str], title: str, version: str) -> str:
    return f"the parser of {title} {version} has no {', '.join(f'--{flag}' for flag in flags)}"


def _only_known(
    row: Row, lacking: frozenset[str], title: str, version: str
) -> Callable[[Job], Iterable[tuple[str, Value]]]:
    """Return what a row writes without the arguments that the fork lacks; refused if the job sets what they express."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        written = list(row.emit(job))
        dropped = [flag for flag, _ in written if flag in lacking]
        set_paths = [path for path in row.fields if path in fields() and value_at(job, path) != fields()[path].default]
        if dropped and set_paths:
            raise Unsupported(set_paths[0], _lacks(dropped, title, version))
        return [(flag, value) for flag, value in written if flag not in lacking]

    return emit


class _Spelled(NativeView):
    """The arguments of a fork under the names of the version that it is like."""

    def __init__(self, view: NativeView, names: Mapping[str, str]) -> None:
        # One set of understood arguments: what a row takes here is taken for all others.
        self.values, self.taken = view.values, view.taken
        self.view, self.names = view, names

    def has(self, flag: str) -> bool:
        return self.view.has(self.names.get(flag, flag))

    def peek(self, flag: str, default: Value = None) -> Value:
        return self.view.peek(self.names.get(flag, flag), default)

    def take(self, flag: str, default: Value = None) -> Value:
        return self.view.take(self.names.get(flag, flag), default)


def _respelled(row: Row, names: Mapping[str, str]) -> Row:
    """Return a row that writes and reads arguments as the fork spells them (`_` for `-`)."""
    if not names:
        return row
    emit, read = row.emit, row.read
    return replace(
        row,
        flags=tuple(names.get(flag, flag) for flag in row.flags),
        emit=lambda job: [(names.get(flag, flag), value) for flag, value in emit(job)],
        read=None if read is None else lambda view: read(_Spelled(view, names)),
    )
