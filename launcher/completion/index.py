"""The index that completion reads: where it lies in the user's cache folder, and whether it is that of this program.

Nothing is imported here that costs more than a millisecond: a shell waits for the answer.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

from launcher import __version__

Index: TypeAlias = dict[str, Any]

FORMAT = 1
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Folders whose files decide what is in the index; plug-ins and forks change the folders of the import path.
_SOURCES = ("job", "cli", "completion", "rules", "executors")
# After so many seconds an index is made again beside its use: forks and plug-ins outside these folders change it, too.
_OLD = 24 * 3600


def folder() -> str:
    """Return the folder of this installation's index, in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    mark = sum((number + 1) * ord(char) for number, char in enumerate(f"{_PACKAGE}{sys.prefix}"))
    return os.path.join(cache, "launch", f"completion-{mark:x}")


def stamp() -> list[int]:
    """Return numbers that differ when the program, its groups or the installed packages have changed."""
    times = list(_times())
    return [FORMAT, len(times), sum(times), max(times, default=0)]


def _times() -> Iterator[int]:
    backends = os.path.join(os.path.dirname(_PACKAGE), "backends")
    for source in _SOURCES:
        yield from _of_files(os.path.join(_PACKAGE, source))
    for name in sorted(os.listdir(backends)) if os.path.isdir(backends) else ():
        yield from _of_files(os.path.join(backends, name, "catalogue"))
    for path in (*shipped(), *sys.path):
        if os.path.isdir(path):
            yield os.stat(path).st_mtime_ns


def _of_files(path: str) -> Iterator[int]:
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".json")):
                    yield entry.stat().st_mtime_ns


def shipped() -> tuple[str, str]:
    """Return the folders `conf` and `recipes`, as `launcher.job.shipped.shipped` does."""
    data = os.path.join(_PACKAGE, "_data")
    root = data if os.path.isdir(data) else os.path.dirname(_PACKAGE)
    return os.path.join(root, "conf"), os.path.join(root, "recipes")


def read(name: str = "index") -> Index | None:
    """Return the index, or the part of it with this name; None: there is none that this version reads."""
    try:
        with open(os.path.join(folder(), f"{name}.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    current = isinstance(found, dict) and found.get("format") == FORMAT and found.get("version") == __version__
    return found if current else None


def is_current(index: Index) -> bool:
    """Return whether an index was made from the program as it is, and not long ago."""
    return index.get("stamp") == stamp() and abs(time.time() - float(index.get("made", 0))) < _OLD


def write(index: Index, name: str = "index") -> None:
    """Write an index or a part of it; where the cache folder cannot be written there is none."""
    path = os.path.join(folder(), f"{name}.json")
    content = {"format": FORMAT, "version": __version__, "stamp": stamp(), "made": time.time(), **index}
    try:
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)
        os.replace(temporary, path)
    except OSError:
        return  # a Tab that has no index computes its candidates, and must print nothing else
