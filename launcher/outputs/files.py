"""Writing a file that the command line names: whole or not at all, and never in place of somebody else's."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from launcher.outputs.contents import first_entries
from launcher.outputs.free import free_path
from launcher.outputs.kinds import Kind

# An open stream of this process, whatever it leads to.
_STREAM = re.compile(r"(?:/dev/fd/|/proc/self/fd/)(\d+)|/dev/std(out|err)")
_NUMBERS = {"out": 1, "err": 2}


class OutputRefused(Exception):
    """A file that is not replaced: why, and another name that is free."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}: it is not replaced")
        self.free = free_path(path)


def check_output(file: str | Path, kind: Kind) -> None:
    """Refuse a path under which something lies that is not of this kind; nothing is written.

    Raises:
        OutputRefused: with another name that is free.
        OSError: what lies there cannot be read.
    """
    path = Path(file).expanduser()
    if _is_stream(path) or not os.path.lexists(path):
        return
    reason = _reason(path, kind)
    if reason is not None:
        raise OutputRefused(path, reason)


def check_empty(folder: str | Path) -> None:
    """Refuse a folder that holds something, so that nothing is mixed with it.

    Raises:
        OutputRefused: with another name that is free.
    """
    path = Path(folder).expanduser()
    if path.is_dir() and (found := first_entries(path)):
        raise OutputRefused(path, f"is not empty ({', '.join(found)})")


def write_output(file: str | Path, content: str | bytes | Callable[[Path], None], kind: Kind) -> Path | None:
    """Write a file; at every moment either the earlier file or the new one is there, whole.

    Args:
        content: text, bytes, or what writes the file at the path that it is given.

    Returns:
        Where an earlier file of this kind is kept, if people edit such files and it is not the same; else None.

    Raises:
        OutputRefused: something else lies there.
        OSError: the file cannot be written.
    """
    path = Path(file).expanduser()
    check_output(path, kind)
    if _is_stream(path):
        _write_stream(path, content)
        return None
    with _written_beside(path, content) as beside:
        if not os.path.lexists(path):
            _appear(beside, path)
            return None
        same = path.read_bytes() == beside.read_bytes()
        kept = _keep(path) if kind.edited and not same else None
        if not same:
            os.replace(beside, path)
    return kept


def _reason(path: Path, kind: Kind) -> str | None:
    if path.is_symlink():
        return f"is a symbolic link to {os.readlink(path)}"
    if not path.is_file():
        return "is no regular file"
    if path.stat().st_size == 0 or kind.recognises(path):
        return None
    return f"is not {kind.title}"


def _is_stream(path: Path) -> bool:
    if _STREAM.fullmatch(os.path.abspath(path)):
        return True
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _write_stream(path: Path, content: str | bytes | Callable[[Path], None]) -> None:
    if callable(content):
        with tempfile.TemporaryDirectory(prefix="launch-") as folder:
            made = Path(folder, path.name)
            content(made)
            content = made.read_bytes()
    sys.stdout.flush()
    sys.stderr.flush()
    with _opened(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _opened(path: Path) -> BinaryIO:
    """Open a stream; one that is open already is used as it is, since a file behind it has its own position."""
    match = _STREAM.fullmatch(os.path.abspath(path))
    if match is None:
        return path.open("wb")
    return os.fdopen(os.dup(_NUMBERS[match[2]] if match[2] else int(match[1])), "wb")


@contextlib.contextmanager
def _written_beside(path: Path, content: str | bytes | Callable[[Path], None]) -> Iterator[Path]:
    """Give the new file under a name of its own in the same folder; it is gone afterwards."""
    # The ending stays last: some writers choose their format by it.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if not callable(content):
                file.write(content.encode() if isinstance(content, str) else content)
        if callable(content):
            content(beside)
        beside.chmod(_mode(path))
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _appear(beside: Path, path: Path) -> None:
    """Give a file its name unless something has appeared under it meanwhile."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise OutputRefused(path, "has just appeared") from None
    except OSError:
        os.replace(beside, path)  # a file system without hard links


def _keep(path: Path) -> Path:
    """Give a file a second name beside its own, and return that."""
    for number in itertools.count(1):
        kept = path.with_name(f"{path.name}.{number}")
        if os.path.lexists(kept):
            continue
        try:
            os.link(path, kept)
        except FileExistsError:
            continue
        except OSError:
            os.rename(path, kept)  # a file system without hard links
        return kept
    raise AssertionError("numbers do not end")
