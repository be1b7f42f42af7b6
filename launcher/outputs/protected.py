"""Paths that are never replaced, whatever they hold: links, the working directory, home, mount points, work trees."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
# What a bare git repository holds (gitrepository-layout(5)).
_BARE = ("HEAD", "objects", "refs")


def located(path: Path) -> Path:
    """Return the absolute path with the links of its parents resolved; the last component stays as it is."""
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent)) / path.name


def reason_against(path: Path) -> str | None:
    """Return why a located path may not be replaced; None if only its content decides."""
    if path.is_symlink():
        return f"is a symbolic link to {os.readlink(path)}"
    return place_of(path) or _versioned(path)


def place_of(path: Path) -> str | None:
    """Return the protected user or system folder that a located path is or contains; None for other folders."""
    if path.parent == path:
        return "is the root of the file system"
    own = _identity(path)
    if own is None:
        return None
    for what, place in _places():
        if _identity(place) == own:
            return f"is {what}"
        if own in map(_identity, place.parents):
            return f"contains {what} ({place})"
    return _mounted(path)


def overlap(path: Path, others: Iterable[tuple[str, Path]]) -> tuple[str, Path] | None:
    """Return the first of `others` (name and path) that is, contains or lies in `path`; None if there is none.

    Files are compared by identity, so a bind mount or a link does not hide an overlap. A folder whose files are links
    into `path` counts as lying in it.
    """
    own = _identity(path)
    chain = {_identity(folder) for folder in path.parents} - {None}
    for what, other in others:
        there = Path(os.path.realpath(other))
        if there == path or there in path.parents or path in there.parents:
            return what, other
        identity = _identity(there)
        if identity is not None and identity in chain:
            return what, other
        if own is not None and (own == identity or own in map(_identity, there.parents) or _links_into(there, path)):
            return what, other
    return None


def _links_into(folder: Path, path: Path) -> bool:
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = os.path.join(where, name)
            if os.path.islink(entry) and path in Path(os.path.realpath(entry)).parents:
                return True
    return False


def _places() -> Iterator[tuple[str, Path]]:
    with contextlib.suppress(OSError):  # a working directory can be deleted
        yield "the working directory", Path.cwd()
    with contextlib.suppress(RuntimeError, OSError):  # no HOME
        yield "the home directory", Path(os.path.realpath(Path.home()))
    with contextlib.suppress(KeyError):  # a container's user without an entry
        yield "the home directory", Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _mounted(path: Path) -> str | None:
    if path.is_mount():
        return "is a mount point"
    for point in _mount_points():
        if point == path:
            return "is a mount point"
        if path in point.parents:
            return f"contains the mount point {point}"
    return None


def _mount_points() -> Iterator[Path]:
    """Yield all mount points; bind mounts of the same file system are known to the kernel only (proc(5))."""
    try:
        text = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            yield Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))


def _versioned(path: Path) -> str | None:
    if os.path.lexists(path / ".git"):
        return "is a git work tree"
    if all((path / name).exists() for name in _BARE):
        return "is a git repository"
    return None
