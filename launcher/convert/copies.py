"""Compares byte ranges of files that should be copies of each other, piece by piece, in the processor's cache."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from launcher.convert.containers.files import read_into
from launcher.convert.containers.transfer import STEP, OpenFiles
from launcher.records import dataclass

# Bytes per piece. Two of them stay in a processor's cache, where they are compared and hashed.
_PIECE = 256 * 2**10
# Bytes per piece where nothing is compared.
_READ = 2 * _PIECE
_of_thread = threading.local()


@dataclass(slots=True, kw_only=True)
class Copied:
    """A range of bytes of one file that should equal a range of another file.

    Attributes:
        path, here: file and first byte of the original.
        there: first byte of the copy.
        count: bytes of each.
        size: bytes of an element.
        wrong: elements found to differ.
    """

    path: Path
    here: int
    there: int
    count: int
    size: int
    wrong: int = 0


def read_all(files: OpenFiles, path: Path, start: int, count: int, on_bytes: Callable[[memoryview], None]) -> None:
    """Map a range of a file, and call `on_bytes` with all bytes of it, in order."""
    for first in range(start, start + count, STEP):
        last = min(first + STEP, start + count)
        files.load(path, first, last - first)
        whole = files.view(path)
        for at in range(first, last, _READ):
            on_bytes(whole[at : min(at + _READ, last)])
        files.forget(path, first, last - first)


def compare_copies(
    files: OpenFiles,
    path: Path,
    start: int,
    count: int,
    copies: Sequence[Copied],
    on_bytes: Callable[[memoryview], None],
    advance: Callable[[int], None],
) -> None:
    """Map a range of a file once, and compare it with the originals of all copies inside of it, which are read once.

    Args:
        files: open files.
        path, start, count: the range; it and the copies begin and end between elements.
        copies: what the range should hold; they may overlap. Their `wrong` is updated.
        on_bytes: callback with all bytes of the range, in order.
        advance: callback with the number of bytes compared.
    """
    buffer = _buffer()
    left = deque((copy, files.read_fd(copy.path)) for copy in sorted(copies, key=lambda copy: copy.there))
    # The range is compared where it is mapped, which saves the kernel's copy of it. The originals are read: another
    # program may truncate them meanwhile, and a read of what has gone is an error and not the end of this process.
    for first in range(start, start + count, STEP):
        last = min(first + STEP, start + count)
        files.load(path, first, last - first)
        for at in range(first, last, _PIECE):
            piece = files.view(path)[at : min(at + _PIECE, last)]
            _compare_piece(at, piece, left, buffer, advance)
            on_bytes(piece)
        files.forget(path, first, last - first)


def _compare_piece(
    at: int, piece: memoryview, left: deque[tuple[Copied, int]], buffer: bytearray, advance: Callable[[int], None]
) -> None:
    """Compare the bytes of a file from `at` on, and drop the copies that end there."""
    end = at + len(piece)
    for copy, descriptor in left:
        low, high = max(at, copy.there), min(end, copy.there + copy.count)
        if copy.there >= end:
            break
        if low >= high:
            continue
        original = memoryview(buffer)[: high - low]
        read_into(descriptor, copy.path, copy.here + low - copy.there, original)
        copy.wrong += _differing(original, piece[low - at : high - at], copy.size)
        advance(high - low)
    while left and left[0][0].there + left[0][0].count <= end:
        left.popleft()


def _buffer() -> bytearray:
    """Return this thread's buffer."""
    kept: bytearray | None = getattr(_of_thread, "buffer", None)
    if kept is None:
        kept = _of_thread.buffer = bytearray(_PIECE)
    return kept


def _differing(one: memoryview, other: memoryview, size: int) -> int:
    """Return the number of elements of `size` bytes that differ."""
    # A bytearray is compared by memcmp, a memoryview element by element.
    whole = one.obj if len(one) == _PIECE else bytearray(one)
    if whole == other:
        return 0
    import numpy as np

    a, b = np.frombuffer(one, dtype="u1"), np.frombuffer(other, dtype="u1")
    return int(np.count_nonzero((a != b).reshape(-1, size).any(axis=1)))
