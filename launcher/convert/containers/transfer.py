"""Copies bytes between files: by the kernel where blocks are contiguous, never through a writable memory map.

A full disk kills a process with a writable map (SIGBUS); pwrite returns an error. Every call here releases the GIL.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from launcher.convert.containers.errors import Damaged, Unwritable

_STEP = 64 * 2**20
# Bytes per buffered write. Larger ones take the kernel more than twice the time, because it searches large folios.
_BLOCK = 128 * 2**10
# Errors of copy_file_range for unsupported files: different file systems, an old kernel, a network file system.
_NOT_HERE = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY}
_RESUMES = "more space on this file system; the same command continues where it stopped"


class OpenFiles:
    """File descriptors and read-only maps of the files of a conversion, opened once and shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[Path, int] = {}
        self._write: dict[Path, int] = {}
        self._views: dict[Path, memoryview] = {}
        self._maps: list[mmap.mmap] = []

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close everything; a map that an array still references is released with that array."""
        with self._lock:
            for descriptor in (*self._read.values(), *self._write.values()):
                os.close(descriptor)
            for view in self._views.values():
                view.release()
            for mapped in self._maps:
                try:
                    mapped.close()
                except BufferError:
                    continue
            self._read, self._write, self._views, self._maps = {}, {}, {}, []

    def read_fd(self, path: Path) -> int:
        """Return a descriptor to read `path` with pread; Damaged if it cannot be opened."""
        with self._lock:
            if path not in self._read:
                self._read[path] = _open(path, os.O_RDONLY)
            return self._read[path]

    def write_fd(self, path: Path) -> int:
        """Return a descriptor to write into the existing file `path` with pwrite."""
        with self._lock:
            if path not in self._write:
                self._write[path] = _open(path, os.O_RDWR)
            return self._write[path]

    def view(self, path: Path) -> memoryview:
        """Return a read-only memory map of the whole file."""
        descriptor = self.read_fd(path)
        with self._lock:
            if path not in self._views:
                if os.fstat(descriptor).st_size == 0:
                    return memoryview(b"")
                mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
                self._maps.append(mapped)
                self._views[path] = memoryview(mapped)
            return self._views[path]

    def written(self) -> list[Path]:
        """Return the files that were opened for writing."""
        with self._lock:
            return list(self._write)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise Damaged(path, f"cannot be opened: {error.strerror}") from None


def copy(files: OpenFiles, source: Path, source_at: int, target: Path, target_at: int, count: int) -> int:
    """Copy `count` bytes; holes of the source are skipped, so the target's range must be unwritten.

    Returns the bytes copied, without holes. Damaged if the source ends before, Unwritable if the disk is full.
    """
    read, write = files.read_fd(source), files.write_fd(target)
    shift, at, end, moved = target_at - source_at, source_at, source_at + count, 0
    if end > os.fstat(read).st_size:
        expected = f"{end} bytes"
        raise Damaged(source, "truncated while it was read", expected=expected, found=os.fstat(read).st_size)
    while at < end:
        begin, stop = _next_data(read, at, end)
        if begin >= end:
            break
        _move(source, read, target, write, begin, begin + shift, stop - begin)
        moved += stop - begin
        at = stop
    return moved


def _next_data(descriptor: int, at: int, end: int) -> tuple[int, int]:
    """Return the next range of data in [at, end); (end, end) if all of it is a hole."""
    try:
        begin = os.lseek(descriptor, at, os.SEEK_DATA)
        if begin >= end:
            return end, end
        return begin, min(end, os.lseek(descriptor, begin, os.SEEK_HOLE))
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole up to the end
            return end, end
        return at, end


def _move(source: Path, read: int, target: Path, write: int, source_at: int, target_at: int, count: int) -> None:
    """Copy by the kernel if both offsets have the same page alignment; otherwise a small buffer is faster."""
    done = 0
    try:
        while done < count and (source_at - target_at) % mmap.PAGESIZE == 0:
            step = os.copy_file_range(read, write, min(_STEP, count - done), source_at + done, target_at + done)
            if not step:
                break
            done += step
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise _failed(target, error) from None
    buffer = _buffer(min(_BLOCK, count - done))
    while done < count:
        got = os.preadv(read, [buffer[: count - done]], source_at + done)
        if not got:
            raise Damaged(source, "truncated while it was read", expected=f"{count} bytes", found=done)
        _write_all(target, write, buffer[:got], target_at + done)
        done += got


_own = threading.local()


def _buffer(size: int) -> memoryview:
    """Return this thread's buffer; allocating one per block would cost as much as the copy."""
    if getattr(_own, "buffer", None) is None or len(_own.buffer) < size:
        _own.buffer = memoryview(bytearray(size))
    kept: memoryview = _own.buffer
    return kept


def write(files: OpenFiles, target: Path, at: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data` (a contiguous buffer) at `at`; Unwritable if the disk is full."""
    _write_all(target, files.write_fd(target), data, at)


def _write_all(target: Path, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
    view = memoryview(data).cast("B")
    done = 0
    try:
        while done < len(view):
            done += os.pwrite(descriptor, view[done : done + _BLOCK], at + done)
    except OSError as error:
        raise _failed(target, error) from None


def _failed(path: Path, error: OSError) -> Unwritable:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return Unwritable(path, f"cannot be written: {error.strerror}", works=_RESUMES if full else None)


def is_hole(files: OpenFiles, path: Path, at: int, count: int) -> bool:
    """Return whether a range was never written: its zeros need not be copied to an unwritten target."""
    begin, _ = _next_data(files.read_fd(path), at, at + count)
    return begin >= at + count


def allocated(paths: Iterable[Path]) -> int:
    """Return the bytes that files occupy on disk: an upper bound for a copy that keeps their holes."""
    return sum(os.stat(path).st_blocks * 512 for path in paths)
