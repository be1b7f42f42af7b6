"""Exact reads, full writes, and creation of sparse files of a given size."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.convert.containers.errors import Damaged, Unwritable, unwritable


def read_exactly(descriptor: int, path: Path, at: int, count: int, what: str) -> bytes:
    """Read `count` bytes from `at`; Damaged if the file ends before."""
    pieces, left = [], count
    while left:
        piece = os.pread(descriptor, left, at + count - left)
        if not piece:
            raise Damaged(
                path, f"truncated: {what}", expected=f"{count} bytes from {at}", found=f"{count - left} bytes"
            )
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def read_into(descriptor: int, path: Path, at: int, buffer: memoryview) -> None:
    """Fill a buffer with the bytes from `at` on; Damaged if the file ends before, or its disk fails."""
    done = 0
    while done < len(buffer):
        try:
            count = os.preadv(descriptor, [buffer[done:] if done else buffer], at + done)
        except OSError as error:
            raise Damaged(path, f"cannot be read: {error.strerror}") from None
        if not count:
            expected = f"{at + len(buffer)} bytes"
            raise Damaged(path, "truncated while it was read", expected=expected, found=at + done)
        done += count


def write_all(descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
    """Write all of `data` at `at`, in as many system calls as needed."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], at + done)


def open_to_read(path: Path) -> int:
    """Open a regular file for reading; Damaged if there is none."""
    try:
        if not path.is_file():
            raise Damaged(path, "not a file" if path.exists() else "no such file")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Damaged(path, f"cannot be opened: {error.strerror}") from None


def create_sized(path: Path, pieces: list[tuple[int, bytes]], size: int) -> None:
    """Create a file of `size` bytes that holds `pieces` (offset, bytes) and holes everywhere else.

    Unwritable if it exists or the file system refuses it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise Unwritable(path, f"cannot be created: {error.strerror}") from None
    try:
        os.ftruncate(descriptor, size)
        for at, data in pieces:
            write_all(descriptor, data, at)
    except OSError as error:
        raise unwritable(path, error, what=f"cannot be written ({size} bytes)", resumes=False) from None
    finally:
        os.close(descriptor)
