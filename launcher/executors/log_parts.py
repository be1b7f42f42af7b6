"""Parts of a log that was rotated: `node0.log.2.gz`, `node0.log.1` or `node0.log-20261128`, as logrotate names them."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from launcher.executors import private

_FORMATS: Mapping[str, Callable[[BinaryIO], io.BufferedIOBase]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
_PART = re.compile(r"(?P<log>.+?)[.-]\d{1,14}(?P<format>\.[a-z0-9]{1,4})?")
_CHUNK = 1 << 20
# Another user's file may be made to expand without end.
_LARGEST = 1 << 34


def rotated(folder: Path) -> Mapping[str, list[Path]]:
    """Return the older parts of the logs in a folder by the name of the log, oldest first: by the time of their end."""
    found: dict[str, list[tuple[float, Path]]] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = _PART.fullmatch(entry.name)
                if match is not None and entry.is_file():
                    found.setdefault(match["log"], []).append((entry.stat().st_mtime, Path(entry.path)))
    except OSError:  # there is none, or it is removed meanwhile
        return {}
    return {log: [path for _, path in sorted(parts)] for log, parts in found.items()}


def is_compressed(part: Path) -> bool:
    """Return whether a part has another size than what was written to it."""
    match = _PART.fullmatch(part.name)
    return match is not None and match["format"] is not None


def open_part(part: Path) -> BinaryIO:
    """Open a log or a part of it; a compressed one is expanded to a temporary file, so that it can be read backwards.

    Raises:
        OSError: it cannot be read, or it is compressed by a format that is not known here.
    """
    match = _PART.fullmatch(part.name)
    suffix = match["format"] if match is not None else None
    if suffix is None:
        return private.open_to_read(part)
    if suffix not in _FORMATS:
        raise OSError(f"its format {suffix} cannot be read (only {', '.join(_FORMATS)})")
    try:
        with private.open_to_read(part) as stream, _FORMATS[suffix](stream) as source:
            return _copied(source)
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise OSError(str(error)) from error


def _copied(source: io.BufferedIOBase) -> BinaryIO:
    with contextlib.ExitStack() as until_whole:
        copy = until_whole.enter_context(tempfile.TemporaryFile())
        while chunk := source.read(_CHUNK):
            copy.write(chunk)
            if copy.tell() > _LARGEST:
                raise OSError(f"it expands to more than {_LARGEST >> 30} GiB")
        copy.seek(0)
        until_whole.pop_all()
        return copy


def last_part(log: Path) -> Path:
    """Return the log, or if nothing was written to it since it was rotated, its newest part that is not compressed."""
    try:
        if log.stat().st_size:
            return log
    except OSError:
        pass
    parts = [part for part in rotated(log.parent).get(log.name, ()) if not is_compressed(part)]
    return parts[-1] if parts else log
