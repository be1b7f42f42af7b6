"""What must be settled by people before a version of a backend is registered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from launcher.catalogue.versions import in_range
from launcher.mapping.backend import Backend
from launcher.mapping.engine import fields_of_flags
from launcher.mapping.native_only_index import native_only_index_of
from launcher.mapping.renames import renames_of
from launcher.mapping.rows import active_rows, unmapped_fields
from launcher.nearest import nearest
from tools.catalogue.changes import changes
from tools.catalogue.evidence import Tree, Trees
from tools.catalogue.facts import open_facts

SETTLED = Path(__file__).with_name("settled.json")
# Similarity from which a new argument may be one that is gone, under another name.
_LIKE = 0.8


def unsettled(
    backend: Backend, version: str, around: tuple[str | None, str | None], tree: Tree | Trees | None
) -> list[str]:
    """Return what is to be settled, one line each: what it is, and where.

    Args:
        around: the registered versions before and after it; None: there is none.
        tree: its checkout, in which the lines are looked up that facts name as their source; None: it is not given.
    """
    return [
        *_rows(backend, version),
        *_arguments(backend, version, around),
        *(_renames(backend, around[0], version, around[1]) if around[0] is not None else ()),
        *_facts(backend, version, around, tree),
    ]


def _rows(backend: Backend, version: str) -> Iterator[str]:
    table, catalogue = backend.table(version), backend.catalogue(version)
    folder = f"backends/{backend.name}/mapping"
    for path in unmapped_fields(table, version):
        yield f"field {path}: no row and no reason why there is none ({folder}, `unsupported`)"
    active = list(active_rows(table, version))
    for row in active:
        missing = [flag for flag in row.flags if catalogue.get(flag) is None and not catalogue.is_open(flag)]
        if missing:
            yield f"row {_name(row.fields)}: {', '.join(missing)} is not in {version}: its since= or until= ({folder})"
    written = {flag for row in active for flag in row.flags}
    mapped = {path for row in active for path in row.fields}
    judged = settled(backend.name, version)
    for row in table.rows:
        if in_range(version, row.since, row.until) or not row.flags or written & set(row.flags):
            continue
        if mapped & set(row.fields) or f"row {_name(row.fields)}" in judged:
            continue
        if all(catalogue.get(flag) is not None for flag in row.flags):
            flags, bounds = ", ".join(row.flags), f"since {row.since}, until {row.until}"
            yield f"row {_name(row.fields)}: {version} has {flags}, but the row holds {bounds} ({folder})"


def _name(fields: tuple[str, ...]) -> str:
    return ", ".join(fields[:2]) or "without a field"


def _arguments(backend: Backend, version: str, around: tuple[str | None, str | None]) -> Iterator[str]:
    ties, index = fields_of_flags(backend.name, version), native_only_index_of(backend.name)
    judged = settled(backend.name, version)
    folder = f"backends/{backend.name}"
    for argument in backend.catalogue(version).arguments:
        if argument.name in ties or argument.renamed_to in ties or f"argument {argument.name}" in judged:
            continue  # a deprecated name is read as the new one
        tied = [
            f"{path} at {other}"
            for other in around
            if other is not None
            for path in fields_of_flags(backend.name, other).get(argument.name, ())[:1]
        ]
        if tied:
            yield f"argument {argument.name}: no row, but one of {', '.join(tied)}: its bounds ({folder}/mapping)"
        elif index.of(argument.name, argument) is None:
            said = f" [{argument.help[:80]}]" if argument.help else ""
            yield (
                f"argument {argument.name} ({argument.source}){said}: no field and no description "
                f"({folder}/native_only, or a row)"
            )


def _renames(backend: Backend, before: str, version: str, after: str | None) -> Iterator[str]:
    """Yield what is gone and not in the table of renames, if a field had it or a new name is like it.

    What the registered version after this one lacks too was settled with that one.
    """
    if backend.entry.renames is None:
        return
    known, judged = renames_of(backend.name), settled(backend.name, version)
    ties = fields_of_flags(backend.name, before)
    found = changes(backend.catalogue(before), backend.catalogue(version), {})
    added = [each.name for each in found if each.what == "new"]
    for each in found:
        if each.what != "gone" or each.name.replace("-", "_") in known or f"gone {each.name}" in judged:
            continue
        if after is not None and backend.catalogue(after).get(each.name) is None:
            continue
        near = nearest(each.name, added, cutoff=_LIKE)
        if near or each.name in ties:
            hint = f"; new and like it: {', '.join(near)}" if near else ""
            yield f"gone {each.name}: no entry in {backend.entry.renames.name}{hint}"


def _facts(
    backend: Backend, version: str, around: tuple[str | None, str | None], tree: Tree | Trees | None
) -> Iterator[str]:
    judged = settled(backend.name, version)
    for each in open_facts(backend, version, around, tree):
        if each.is_decided or any(fnmatchcase(each.fact.name, name) for name in judged):
            continue
        seen = {True: "has", False: "lacks", None: "does not decide on"}[each.evidence]
        yield (
            f"{each.fact.name}: {_says(each.before)} at {around[0]}, {_says(each.after)} at {around[1]}; by its bounds "
            f"{_says(each.here)} here; the source {seen} its lines ({each.fact.source or 'no line'})"
        )


def _says(text: str) -> str:
    return text or "does not hold"


def settled(backend: str, version: str) -> Mapping[str, str]:
    """Return the facts (or patterns of their names) that people judged for a version, each with the reason."""
    records = json.loads(SETTLED.read_text(encoding="utf-8")).get(backend, [])
    found = [record for record in records if in_range(version, record["since"], record["until"])]
    return {name: record["why"] for record in found for name in record["facts"]}
