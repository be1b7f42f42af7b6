"""Finds a free alternative name for a path that may not be replaced."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from launcher.outputs.protected import located, place_of

_TRIES = 1000
# Base name if the refused path has none to build on.
_NAME = "output"


def free_path(path: Path, *, accept: Callable[[Path], bool] = lambda path: True) -> Path | None:
    """Return a nonexistent path near `path`, spelled like `path`; None if there is none.

    Args:
        path: the refused path.
        accept: whether the caller would take a candidate.
    """
    asked, path = path, located(path)
    here = _working_directory()
    # Do not suggest a folder beside /home or a mount point.
    place = not path.is_symlink() and place_of(path) is not None
    for folder in (here, path.parent) if place else (path.parent, here):
        if folder is None or not os.access(folder, os.W_OK | os.X_OK):
            continue
        for name in itertools.islice(_names(_NAME if place else path.name), _TRIES):
            found = folder / name
            if not os.path.lexists(found):
                if accept(found):
                    return asked.with_name(found.name) if folder == path.parent and asked.name else found
                break  # the folder itself is not accepted
    return None


def free_folder(first: Path, taken: Container[str] = ()) -> str:
    """Return a folder that does not exist, as text: `first`, or `first` with a number.

    Args:
        taken: folders that are as good as there.
    """
    folder, number = first, 1
    while folder.exists() or str(folder) in taken:
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return str(folder)


def _names(name: str) -> Iterator[str]:
    stem, dot, ending = name.rpartition(".")
    # "model.v1" is a folder's name, "best.yaml" a file's: a number goes before an ending without digits.
    before, after = (stem, dot + ending) if stem and ending.isalpha() else (name, "")
    return itertools.chain((name,), (f"{before}-{number}{after}" for number in itertools.count(2)))


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None
