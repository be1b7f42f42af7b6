"""Contents of a folder: entries of a known kind, which may be removed with it, and foreign entries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path

from launcher.records import dataclass

# Maximum number of foreign entries that are named.
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of a folder.

    Attributes:
        kind: name of the kind, for messages; empty: of no known kind.
        entries: relative paths of everything in it that belongs to this kind, each folder before its entries.
        foreign: the first few entries that do not belong, with a reason if the name alone is not enough.
    """

    kind: str = ""
    entries: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def replaceable(self) -> bool:
        """Whether the folder holds only entries of its kind."""
        return bool(self.kind) and not self.foreign

    @property
    def shown(self) -> str:
        """The foreign entries, for messages."""
        more = " and more" if len(self.foreign) > _SHOWN else ""
        return ", ".join(self.foreign[:_SHOWN]) + more


Judge = Callable[[Path], Contents]
"""Returns the contents of a folder; the result must not depend on the folder's location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Files that belong to a kind.

    Attributes:
        patterns: relative paths, each component as fnmatch(3) takes it.
        listed: relative path of a file to a test of whether it is still the file that was recorded.
        valid: whether a file that matches a pattern has the content that its name implies.
    """

    patterns: Sequence[str] = ()
    listed: Mapping[str, Callable[[Path], bool]] = field(default_factory=dict)
    valid: Callable[[Path], bool] = lambda path: True

    def objection(self, relative: str, path: Path) -> str | None:
        """Return why a file does not belong, as a text that names it; None if it does."""
        if relative in self.listed:
            same = path.is_symlink() or self.listed[relative](path)
            return None if same else f"{relative} (changed since it was written)"
        if not any(_fits(relative, pattern) for pattern in self.patterns):
            return relative
        if path.is_symlink():
            return None
        if not path.is_file():
            return f"{relative} (not a regular file)"
        return None if self.valid(path) else f"{relative} (content does not match its name)"

    def leads_to(self, relative: str) -> bool:
        """Whether a folder of this name may hold files that belong."""
        depth = relative.count("/") + 1
        parents = ("/".join(pattern.split("/")[:depth]) for pattern in self.patterns if pattern.count("/") >= depth)
        return any(_fits(relative, parent) for parent in parents) or any(
            name.startswith(f"{relative}/") for name in self.listed
        )


def contents_of(folder: Path, kind: str, known: Known) -> Contents:
    """Return the contents of a folder of this kind; links are inspected but never followed."""
    entries: list[str] = []
    foreign: list[str] = []
    for relative, entry in _walk(folder, known.leads_to, foreign):
        path = Path(entry.path)
        objection = known.objection(relative, path) if _is_leaf(entry) else None
        if objection is None:
            entries.append(relative)
        else:
            foreign.append(objection)
        if len(foreign) > _SHOWN:
            break
    return Contents(kind=kind, entries=tuple(entries), foreign=tuple(foreign))


def first_entries(folder: Path) -> tuple[str, ...]:
    """Return the names of the first few entries of a folder of no known kind."""
    return tuple(sorted(entry.name for entry in os.scandir(folder))[: _SHOWN + 1])


def remove(folder: Path, entries: Iterable[str]) -> bool:
    """Remove entries, then the folder unless other entries remain in it. Links are unlinked.

    Returns:
        Whether the folder is gone.
    """
    for relative in (*reversed(tuple(entries)), ""):
        path = folder / relative
        try:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
        except OSError:
            continue  # already removed, or a folder with other entries
    return not os.path.lexists(folder)


def _walk(
    folder: Path, leads: Callable[[str], bool], foreign: list[str], prefix: str = ""
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        foreign.append(f"{prefix.rstrip('/') or folder.name} (cannot be read: {error.strerror})")
        return
    for entry in found:
        relative = prefix + entry.name
        if _is_leaf(entry):
            yield relative, entry
        elif leads(relative):
            yield relative, entry
            yield from _walk(Path(entry.path), leads, foreign, f"{relative}/")
        else:
            foreign.append(f"{relative}/")


def _is_leaf(entry: os.DirEntry[str]) -> bool:
    return not entry.is_dir(follow_symlinks=False)


def _fits(relative: str, pattern: str) -> bool:
    names, patterns = relative.split("/"), pattern.split("/")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
