"""Names that several backends accept and that are no field of the job, with the reason: nothing that trains reads them.

Backends name the file of the table (`Entry.without_field`); docs/mapping.md prints it, and a test compares it with the
catalogues.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launcher.translate.backend import backend_names, get_backend
from launcher.translate.own import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutField:
    """Arguments of some backends that have no canonical field, for one reason.

    Attributes:
        why: reason, a sentence for the user.
        source: upstream `file:line @version` where that can be read.
        backends: backends whose arguments are meant; those of the same name elsewhere may have a field.
        names: arguments in the catalogue's spelling; `-` and `_` are the same.
        instead: argument that took their place, where the parser refuses them.
    """

    why: str
    source: str
    backends: tuple[str, ...]
    names: tuple[str, ...]
    instead: str = ""


@cache
def _table(path: Path) -> tuple[WithoutField, ...]:
    return tuple(
        WithoutField(
            why=row["why"],
            source=row["source"],
            backends=tuple(row["backends"]),
            names=tuple(row["names"].split()),
            instead=row.get("instead", ""),
        )
        for row in json.loads(path.read_text(encoding="utf-8"))
    )


def records() -> tuple[WithoutField, ...]:
    """Return the rows of all backends."""
    files = dict.fromkeys(get_backend(name).entry.without_field for name in backend_names())
    return tuple(row for path in files if path is not None for row in _table(path))


@cache
def _reasons(backend: str) -> dict[str, WithoutField]:
    path = get_backend(backend).entry.without_field
    rows = () if path is None else _table(path)
    return {plain(name): row for row in rows if backend in row.backends for name in row.names}


def reason(backend: str, name: str) -> WithoutField | None:
    """Return why an argument of a backend has no field; None: its table does not name it."""
    return _reasons(backend).get(plain(name))
