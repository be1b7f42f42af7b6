"""Writes output files given on the command line: atomically, and never over a file of another kind."""

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

# An open stream of this process, such as /dev/stdout or /dev/fd/3.
_STREAM = re.compile(r"(?:/dev/fd/|/proc/self/fd/)(\d+)|/dev/std(out|err)")
_NUMBERS = {"out": 1, "err": 2}


class OutputRefused(Exception):
    """A file must not be replaced; has the reason and a free alternative name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}: it is not replaced")
        self.free = free_path(path)


def check_output(file: str | Path, kind: Kind) -> None:
    """Refuse a path that exists and is not of this kind; writes nothing.

    Raises:
        OutputRefused: the path is refused; has a free alternative name.
        OSError: the existing file cannot be read.
    """
    path = Path(file).expanduser()
    if _is_stream(path) or not os.path.lexists(path):
        return
    reason = _reason(path, kind)
    if reason is not None:
        raise OutputRefused(path, reason)


def check_empty(folder: str | Path) -> None:
    """Refuse a folder that is not empty, so that its files are not mixed with others.

    Raises:
        OutputRefused: the folder is not empty; has a free alternative name.
    """
    path = Path(folder).expanduser()
    if path.is_dir() and (found := first_entries(path)):
        raise OutputRefused(path, f"is not empty ({', '.join(found)})")


def write_output(file: str | Path, content: str | bytes | Callable[[Path], None], kind: Kind) -> Path | None:
    """Write a file atomically: at any time either the complete old file or the complete new one exists.

    Args:
        content: text, bytes, or a function that writes the file to a given path.

    Returns:
        Path of the backup of an old file, if users edit this kind of file and its content differs; else None.

    Raises:
        OutputRefused: the path exists and is not of this kind.
        OSError: the file cannot be written.
    """
    path = Path(file).expanduser()
    check_output(path, kind)
    if _is_stream(path):
        _write_stream(path, content)
        return None
    with _temporary_file(path, content) as temporary:
        if not os.path.lexists(path):
            _appear(temporary, path)
            return None
        same = path.read_bytes() == temporary.read_bytes()
        kept = _keep(path) if kind.edited and not same else None
        if not same:
            os.replace(temporary, path)
    return kept


def _reason(path: Path, kind: Kind) -> str | None:
    if path.is_symlink():
        return f"is a symbolic link to {os.readlink(path)}"
    if not path.is_file():
        return "is not a regular file"
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
    """Open a stream; an already open one is duplicated, since its file has its own position."""
    match = _STREAM.fullmatch(os.path.abspath(path))
    if match is None:
        return path.open("wb")
    return os.fdopen(os.dup(_NUMBERS[match[2]] if match[2] else int(match[1])), "wb")


@contextlib.contextmanager
def _temporary_file(path: Path, content: str | bytes | Callable[[Path], None]) -> Iterator[Path]:
    """Yield the new file under a temporary name in the same folder; it is removed afterwards."""
    # Keep the suffix: some writers choose their format by it.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if not callable(content):
                file.write(content.encode() if isinstance(content, str) else content)
        if callable(content):
            content(temporary)
        temporary.chmod(_mode(path))
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _appear(temporary: Path, path: Path) -> None:
    """Give a file its final name unless that has been created meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise OutputRefused(path, "was created meanwhile") from None
    except OSError:
        os.replace(temporary, path)  # a file system without hard links


def _keep(path: Path) -> Path:
    """Back up a file under a second name in its folder, and return that name."""
    for number in itertools.count(1):
        kept = path.with_name(f"{path.name}.{number}")
        if os.path.lexists(kept):
            continue
        try:
            os.link(path, kept)
        except FileExistsError:
            continue  # made just now: the next number
        except OSError:
            os.rename(path, kept)  # a file system without hard links
        return kept
    raise AssertionError("numbers do not end")
