"""Whether a checkout still has, or already has, the lines that rules of another version name as their source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tools.catalogue.sources import INDEX, Checkout, _lines, _symbol, digest, places


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a checkout says about one source: how many of its lines were looked for, and how many are there."""

    known: int
    found: int

    @property
    def holds(self) -> bool | None:
        """Whether the lines are there; None: none of them is of this project, or only some are there."""
        if not self.known or 0 < self.found < self.known:
            return None
        return self.found == self.known


class Tree:
    """One project's checkout, searched by the hash of a line and the function around it.

    Args:
        project: its name in `sources.json`.
        folder: checkout or unpacked package.
        known: lines that sources name, by file; else those of `sources.json`.
        version: of the checkout: where a source names lines of this version, those of others do not count.
    """

    def __init__(
        self, project: str, folder: Path, known: Mapping[str, Any] | None = None, *, version: str = ""
    ) -> None:
        self.project = project
        self.version = version
        self._checkout = Checkout(folder, "")
        self._known = known

    @cached_property
    def _index(self) -> Mapping[str, Any]:
        if self._known is not None:
            return self._known
        found: Mapping[str, Any] = json.loads(INDEX.read_text(encoding="utf-8"))["files"]
        return found

    def evidence(self, source: str) -> Evidence:
        """Return what this checkout has of the lines of a source."""
        named = [place for place in places(source) if place.project == self.project]
        wanted = [place for place in named if place.version == self.version] or named
        kept = [
            entry
            for place in wanted
            if (entry := self._entry(f"{place.project} {place.version} {place.path}", str(place.line))) is not None
        ]
        return Evidence(known=len(kept), found=sum(self._has(name, text) for name, text in kept))

    def _entry(self, key: str, line: str) -> tuple[str, str] | None:
        entry = self._index.get(key)
        text = None if entry is None else entry["lines"].get(line)
        return None if entry is None or text is None else (entry["file"], text)

    def _has(self, file: str, text: str) -> bool:
        name = self._checkout.file(file)
        if name is None:
            return False
        lines = _lines(self._checkout, name)
        wanted = text.rpartition(" ")[2]
        numbers = [number for number, line in enumerate(lines, start=1) if digest(line) == wanted]
        return any(f"{_symbol(self._checkout, name, number)} {wanted}".strip() == text for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """The checkouts of the projects that one version of a backend is made of, searched together."""

    trees: tuple[Tree, ...]

    def evidence(self, source: str) -> Evidence:
        """Return what the checkouts have of the lines of a source."""
        found = [tree.evidence(source) for tree in self.trees]
        return Evidence(known=sum(each.known for each in found), found=sum(each.found for each in found))
