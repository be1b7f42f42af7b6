"""Python files of a checkout, read with limits and only from inside its folder."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

MAX_FILE = 4 << 20
MAX_TOTAL = 64 << 20
MAX_FILES = 50_000
CHECKOUT_ITSELF = "the folder of the checkout itself"
# Folders above the given one in which its checkout is looked for.
_LEVELS = 4
# Folders that hold no program: version control, environments, builds.
_SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", "build", "dist", ".tox", "site-packages"})


class CheckoutRefused(Exception):
    """A checkout whose parser cannot be read: what, where, and what to try."""

    def __init__(self, message: str, where: str = "", works: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.where, self.works = message, where, works


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceFile:
    """A parsed Python file; `path` is relative to the checkout."""

    path: str
    tree: ast.Module


@dataclass(kw_only=True, eq=False)
class Checkout:
    """The Python files below a folder.

    Attributes:
        root: the folder, resolved.
        unreadable: files that were looked at and could not be read, with the reason.
    """

    root: Path
    unreadable: dict[str, str] = field(default_factory=dict)
    _parsed: dict[str, SourceFile | None] = field(default_factory=dict, repr=False)
    _total: int = 0

    @classmethod
    def open(cls, folder: str | Path) -> Checkout:
        """Return the checkout in a folder.

        Raises:
            CheckoutRefused: there is no such folder.
        """
        path = Path(folder).expanduser()
        if not path.is_dir():
            what = "is a file; expected the folder of a checkout" if path.exists() else "there is no such folder"
            raise CheckoutRefused(what, str(folder))
        return cls(root=path.resolve())

    def inside_of(self, ends: Iterable[str]) -> Path | None:
        """Return the nearest folder around this one that has a file at one of the relative paths; None: none has."""
        around = list(self.root.parents)[:_LEVELS]
        return next((folder for folder in around if any((folder / end).is_file() for end in ends)), None)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The relative paths of its Python files, sorted; links to files and folders are not followed.

        Raises:
            CheckoutRefused: there are more files than a checkout of a training stack has.
        """
        found: list[str] = []
        for folder, folders, files in os.walk(self.root, followlinks=False):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED)
            inside = Path(folder)
            found += [(inside / name).relative_to(self.root).as_posix() for name in files if name.endswith(".py")]
            if len(found) > MAX_FILES:
                message = f"holds more than {MAX_FILES:,} Python files: not the checkout of one training stack"
                raise CheckoutRefused(message, str(self.root), (CHECKOUT_ITSELF,))
        return tuple(sorted(found))

    def has(self, path: str) -> bool:
        """Return whether a path relative to the checkout is a regular file inside it, links resolved."""
        file = self.root / path
        try:
            return file.is_file() and file.resolve().is_relative_to(self.root)
        except OSError:
            return False

    def text(self, path: str) -> str | None:
        """Return the text of a file; None if it is outside, too large or no text (see `unreadable`).

        Raises:
            CheckoutRefused: the files read so far are larger together than a training stack's.
        """
        if not self.has(path):
            if (self.root / path).is_symlink():
                self.unreadable[path] = "is a link to a file outside of the checkout"
            return None
        file = self.root / path
        size = file.stat().st_size
        if size > MAX_FILE:
            self.unreadable[path] = f"is larger than {MAX_FILE >> 20} MiB"
            return None
        self._total += size
        if self._total > MAX_TOTAL:
            message = f"more than {MAX_TOTAL >> 20} MiB of Python source would have to be read"
            raise CheckoutRefused(message, str(self.root), (CHECKOUT_ITSELF,))
        try:
            return file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            self.unreadable[path] = f"cannot be read: {type(error).__name__}"
            return None

    def file(self, path: str) -> SourceFile | None:
        """Return a parsed file; None if it cannot be read or is no Python (see `unreadable`)."""
        if path not in self._parsed:
            self._parsed[path] = self._parse(path)
        return self._parsed[path]

    def _parse(self, path: str) -> SourceFile | None:
        text = self.text(path)
        if text is None:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return SourceFile(path=path, tree=ast.parse(text))
        except SyntaxError as error:
            self.unreadable[path] = f"line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            self.unreadable[path] = f"is no Python that can be read: {error}"
        return None

    def module(self, dotted: str, beside: str = "", level: int = 0) -> str | None:
        """Return the path of a module as `import` in the file `beside` finds it; None: it is not in the checkout.

        Args:
            level: number of leading dots; 0: absolute, looked for in the checkout's root and the file's parent folders.
        """
        parts = [part for part in dotted.split(".") if part]
        folder = Path(beside).parent
        for _ in range(level - 1):
            folder = folder.parent
        starts: Iterator[Path] = iter([folder]) if level else iter([Path(), *Path(beside).parents])
        for start in starts:
            place = start.joinpath(*parts)
            for candidate in (f"{place.as_posix()}.py", (place / "__init__.py").as_posix()):
                if self.has(candidate):
                    return candidate.removeprefix("./")
        return None
