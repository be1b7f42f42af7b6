"""Looks up arguments that a version lacks: renamed, removed, or of another backend."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from launcher.catalogue.catalogue import Catalogue
from launcher.catalogue.versions import in_range
from launcher.job import Value
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.records import dataclass

_RELEASE = re.compile(r"\d+(?:\.\d+)+")


@cache
def renames_of(backend: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments renamed or removed between a backend's versions, by the old name; see the file itself."""
    path = get_backend(backend).entry.renames
    if path is None or not path.is_file():
        return {}
    return {row["old"]: row for row in json.loads(path.read_text(encoding="utf-8"))["names"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedArg:
    """Result of the look-up of an option that this version lacks.

    Attributes:
        message: which versions or backends have it, and its renaming or removal; empty if it is unknown.
        name: the argument of this version that replaced it, where the value can be converted.
        convert: the value for `name`.
        works: names to try.
        implied: values that are what this version does anyway, so that the argument can be omitted.
    """

    message: str = ""
    name: str | None = None
    convert: Callable[[Value], Value] | None = None
    works: tuple[str, ...] = ()
    implied: tuple[Value, ...] = ()


def find_renamed(option: str, backend: Backend, version: str, *, near: bool = True) -> RenamedArg:
    """Look up an unknown option: in other versions (with its new name), other backends, and near spellings.

    Args:
        near: look for near spellings, which takes most of the time.
    """
    catalogue = backend.catalogue(version)
    having = [each for each in backend.versions if each != version and backend.catalogue(each).get(option) is not None]
    row = renames_of(backend.name).get(option.replace("-", "_")) or {}
    older = _before(option, backend, catalogue) if having and not row else None
    if older is not None:
        where = f"it is an argument of {backend.title} {', '.join(having)}; in {version} it is {older}"
        return RenamedArg(message=where, name=older, convert=lambda value: value)
    if having:
        return _became(f"it is an argument of {backend.title} {', '.join(having)}", row, option, catalogue, near)
    if row:
        return _became(_of_history(row, backend, version), row, option, catalogue, near)
    spelled = _spelled(option.replace("-", "_"), catalogue)
    if spelled is not None and spelled != option and catalogue.get(spelled) is not None:
        return RenamedArg(message=f"it is written --{spelled}", name=spelled, convert=lambda value: value)
    titles = _other_backends(option, backend.name)
    message = f"it is an argument of {', '.join(titles)}" if titles else ""
    return RenamedArg(message=message, works=_near(option, catalogue) if near else ())


def _near(option: str, catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(f"--{name}" for name in catalogue.suggest(option))


def _before(option: str, backend: Backend, catalogue: Catalogue) -> str | None:
    """Return the name that this older catalogue has for an argument that was later renamed; None: it has none."""
    name = option.replace("-", "_")
    rows = renames_of(backend.name).values()
    olds = (_spelled(row["old"], catalogue) for row in rows if row.get("new") == name and row.get("kind") == "rename")
    return next((old for old in olds if old is not None and catalogue.get(old) is not None), None)


def _of_history(row: Mapping[str, Any], backend: Backend, version: str) -> str:
    """Describe the origin of an argument that no catalogue has: a fork, an older or a newer release."""
    if row.get("of"):
        return f"it is an argument of {row['of']}"
    if not row.get("since"):
        return f"it was an argument until {row['until']}"
    release = _RELEASE.search(row["since"])
    is_later = release is None or not in_range(version, release.group(), None)
    extra = "" if is_later else ", in a parser that only some programs add, or only with an optional package"
    return f"it came with {row['since']}{extra}"


def _other_backends(option: str, backend_name: str) -> list[str]:
    found = []
    for name in backend_names():
        other = get_backend(name)
        if name != backend_name and any(other.catalogue(version).get(option) is not None for version in other.versions):
            found.append(other.title)
    return found


def _spelled(name: str | None, catalogue: Catalogue) -> str | None:
    """Return a name of the table of renames as this catalogue spells it, with - or _."""
    if name is None or catalogue.get(name) is not None:
        return name
    return next((known for known in catalogue.names() if known.replace("-", "_") == name), name)


def _became(where: str, row: Mapping[str, Any], option: str, catalogue: Catalogue, near: bool) -> RenamedArg:
    new = _spelled(row.get("new"), catalogue)
    if row.get("of") or row.get("kind") == "newer":
        return RenamedArg(message=where)
    if row and new is None:
        consequence = "it is the default" if row.get("implied") else "nothing replaced it"
        return RenamedArg(message=f"{where}; {consequence}{_note(row)}", implied=tuple(row.get("implied", ())))
    if new is None or catalogue.get(new) is None:
        return RenamedArg(message=where, works=_near(option, catalogue) if near else ())
    message = f"{where}; in {catalogue.version} it is {new}{_note(row)}"
    kind = row.get("kind")
    if kind == "rename":
        return RenamedArg(message=message, name=new, convert=lambda value: value)
    if kind == "inverted":
        return RenamedArg(message=f"{message} (the opposite)", name=new, convert=lambda value: not value)
    if kind == "convert" and row.get("scale"):
        scale = row["scale"]
        return RenamedArg(message=message, name=new, convert=lambda value: _scaled(value, scale))
    return RenamedArg(message=message, works=(f"--{new}",))


def _scaled(value: Value, scale: float) -> Value:
    product = float(value) * scale
    return int(product) if product.is_integer() else product


def _note(row: Mapping[str, Any]) -> str:
    return f" ({row['note']})" if row.get("note") else ""
