"""Index of a backend's native-only arguments: the rows that are about one argument."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

from launcher.catalogue.catalogue import Argument, plain
from launcher.job import Job, Value, value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.native_only import NativeOnlyArg


class NativeOnlyIndex:
    """Rows by name, then by pattern, then by group; the first row that gives an attribute takes precedence."""

    def __init__(self, rows: Iterable[NativeOnlyArg]) -> None:
        self.rows = tuple(rows)
        self._names: dict[str, list[NativeOnlyArg]] = {}
        self._patterns: list[tuple[str, NativeOnlyArg]] = []
        self._groups: dict[str, NativeOnlyArg] = {}
        for row in self.rows:
            for name in row.names:
                if "*" in name:
                    self._patterns.append((plain(name), row))
                else:
                    self._names.setdefault(plain(name), []).append(row)
            for group in row.groups:
                self._groups.setdefault(group, row)

    def of(
        self, name: str, argument: Argument | None = None, job: Job | None = None, value: Value = None
    ) -> NativeOnlyArg | None:
        """Return the description of an argument; None: the table has none.

        Args:
            argument: its entry of the catalogue, whose name and group are looked up as well.
            job, value: rows that apply only to other jobs or values are ignored; None: all rows are considered.
        """
        found = tuple(self.about(name, argument, job, value))
        whole = next((row for row in found if row.effect), None)
        if whole is None:
            return None
        does = next(row.does for row in found if row.does)
        return whole if does == whole.does else replace(whole, does=does)

    def reason(self, name: str, argument: Argument | None = None) -> NativeOnlyArg | None:
        """Return the row that explains why an argument has no canonical field; None: there is none."""
        return next((row for row in self.about(name, argument) if row.no_field), None)

    def about(
        self, name: str, argument: Argument | None = None, job: Job | None = None, value: Value = None
    ) -> Iterator[NativeOnlyArg]:
        """Yield the rows about an argument, the most specific first; see `of`."""
        return (row for row in self._about(name, argument) if job is None or _meets(row, job, value))

    def _about(self, name: str, argument: Argument | None) -> Iterator[NativeOnlyArg]:
        for each in dict.fromkeys((plain(name), plain(name if argument is None else argument.name))):
            yield from self._names.get(each, ())
        yield from (row for pattern, row in self._patterns if _fits(plain(name), pattern))
        for group in (argument.group, argument.owner) if argument is not None else ():
            if group in self._groups:
                yield self._groups[group]


@cache
def native_only_index_of(backend: str) -> NativeOnlyIndex:
    """Return the index of a backend's native-only arguments."""
    return NativeOnlyIndex(get_backend(backend).entry.native_only())


def _fits(name: str, pattern: str) -> bool:
    start, star, rest = pattern.partition("*")
    return name.startswith(start) if star and not rest else fnmatchcase(name, pattern)


def _meets(row: NativeOnlyArg, job: Job, value: Value) -> bool:
    if row.given and value not in row.given:
        return False
    if all(value_at(job, path) == wanted for path, wanted in row.holds.items()):
        return True
    # The row also applies once the fields have the values that the argument becomes.
    return bool(row.becomes) and all(value_at(job, path) == value for path, value in row.becomes.items())
