"""Copies bytes between files: from a read-only memory map by pwrite, never through a writable map.

A full disk kills a process with a writable map (SIGBUS); pwrite returns an error. Written from a map, a byte is copied
once, by the kernel; read into a buffer first, twice. Every call here releases the GIL.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from launcher.convert.containers.errors import ConvertError, Damaged, unwritable

# Bytes of the source that are mapped at a time: bounds the memory of a copy.
STEP = 4 * 2**20
# Bytes per write, which ends at a multiple of it: the page cache takes them as one folio. The next number is used once
# writes of one are slow again and again. Reserved writes of 512 KiB take a third less than those of 64 KiB
# (tools/bench/write_sizes.py). On a virtual machine, though, 4 MB of them may take 10 ms in place of 0.6, all of it in
# the copy (perf): probably to pages that the host has taken back. Small folios get pages that were used lately.
_BLOCKS = (512 * 2**10, 64 * 2**10, 32 * 2**10)
_SLOW = 4
# So many slow MB are too many; one counts for less, the more fast ones follow.
_TOO_MANY = 2
_FORGIVEN = 1 / 8
# Bytes of a row from which the kernel gathers rows faster than they are put together for it, and of those together.
_GATHERED = 4096
_JOINED = 512 * 2**10
# Smallest range of a file that is reserved before it is written.
_RESERVED = 2 * 2**20
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
# Linux 5.14's MADV_POPULATE_READ, which Python 3.11 does not name: maps a range by one call in place of many faults.
_POPULATE_READ = 22
# Bytes that stay mapped after their use, with `_AROUND` for each range.
_KEPT = 32 * 2**20
# Neighbours of an accessed page that the kernel maps too.
_AROUND = 2**20
ZEROS = memoryview(bytes(_BLOCKS[-1]))
OnBytes = Callable[[Sequence[memoryview]], None]
"""Callback with pieces of bytes that follow each other: rows are many, and a call for each takes longer than a hash."""


class Copy(NamedTuple):
    """A plain copy: `rows` pieces of `length` bytes each.

    `there` is the first byte in the target's file, `here` that in the source's, which is `path`. Rows are `step` bytes
    apart in the source, and `apart` in the target; 0: adjacent.
    """

    there: int
    here: int
    length: int
    path: Path
    rows: int = 1
    step: int = 0
    apart: int = 0

    @property
    def size(self) -> int:
        """All bytes."""
        return self.length * self.rows


class _Blocks:
    """The size of a write: the first of `_BLOCKS`; the next one once MBs often take `_SLOW` times the fastest one."""

    def __init__(self) -> None:
        self._level = self._count = 0
        self._seconds, self._fastest, self._slow = 0.0, math.inf, 0.0

    @property
    def size(self) -> int:
        return _BLOCKS[self._level]

    def took(self, count: int, seconds: float) -> None:
        """Note the processor time of a write; threads may lose each other's, which only delays the next size."""
        # In locals: another thread may start the next MB at any time.
        count, seconds = self._count + count, self._seconds + seconds
        if count < 2 * _BLOCKS[0]:
            self._count, self._seconds = count, seconds
            return
        self._count, self._seconds = 0, 0.0
        self._slow = self._slow + 1 if seconds / count > _SLOW * self._fastest else max(0, self._slow - _FORGIVEN)
        self._fastest = min(self._fastest, seconds / count)
        if self._slow >= _TOO_MANY:
            self._level, self._slow = min(self._level + 1, len(_BLOCKS) - 1), 0


class OpenFiles:
    """File descriptors and read-only maps of the files of a conversion, opened once and shared by its threads."""

    def __init__(self) -> None:
        self.blocks = _Blocks()
        self._lock = threading.Lock()
        self._read: dict[Path, int] = {}
        self._write: dict[Path, int] = {}
        self._views: dict[Path, memoryview] = {}
        self._maps: list[mmap.mmap] = []
        self._write_locks: dict[Path, threading.Lock] = {}
        self._occupied: dict[Path, float] = {}
        self._used: deque[tuple[mmap.mmap, int, int]] = deque()
        self._used_bytes = 0

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
                    continue  # an array references it
            self._read, self._write, self._views, self._maps = {}, {}, {}, []
            self._used.clear()
            self._used_bytes = 0

    def read_fd(self, path: Path) -> int:
        """Return a descriptor to read `path` with pread; Damaged if it cannot be opened."""
        return self._opened(self._read, path, os.O_RDONLY)

    def write_fd(self, path: Path) -> int:
        """Return a descriptor to write into the existing file `path` with pwrite."""
        return self._opened(self._write, path, os.O_RDWR)

    def _opened(self, known: dict[Path, int], path: Path, flags: int) -> int:
        found = known.get(path)
        if found is None:
            with self._lock:
                found = known[path] = known[path] if path in known else _open(path, flags)
        return found

    def view(self, path: Path) -> memoryview:
        """Return a read-only memory map of the whole file."""
        found = self._views.get(path)
        if found is not None:
            return found
        descriptor = self.read_fd(path)
        with self._lock:
            if path not in self._views:
                if os.fstat(descriptor).st_size == 0:
                    return memoryview(b"")
                try:
                    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
                except OSError as error:  # some FUSE file systems
                    raise Damaged(path, f"cannot be mapped into memory: {error.strerror}") from None
                self._maps.append(mapped)
                self._views[path] = memoryview(mapped)
            return self._views[path]

    def check_size(self, path: Path, count: int) -> None:
        """Raise Damaged if a file has less than `count` bytes, or had when it was mapped."""
        size = min(os.fstat(self.read_fd(path)).st_size, len(self.view(path)))
        if count > size:
            raise Damaged(path, "truncated while it was read", expected=f"{count} bytes", found=size)

    def load(self, path: Path, start: int, count: int) -> None:
        """Map a range of a viewed file before it is accessed; Damaged if the file has ended or its disk fails.

        Accessing a page that cannot be read would end the process (SIGBUS); the rest of a file's last page reads as
        zeros, which no comparison through the same map would notice.
        """
        self.check_size(path, start + count)
        mapped = self.view(path).obj
        if not isinstance(mapped, mmap.mmap) or count <= 0 or not sys.platform.startswith("linux"):
            return
        first = start - start % mmap.PAGESIZE
        try:
            mapped.madvise(_POPULATE_READ, first, start + count - first)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise _unreadable(path, start + count) from None
            # Another error: a kernel without it.

    def forget(self, path: Path, start: int, count: int) -> None:
        """Let a range of a viewed file be dropped from this process's memory; the page cache keeps it.

        The last `_KEPT` bytes are not: other ranks read the same rows. The kernel also maps neighbours of an accessed
        page; they are dropped too, and mapped again on the next access.
        """
        mapped = self.view(path).obj
        if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED") or count <= 0:
            return
        with self._lock:
            # With its neighbours: of a hundred small tensors, each may have mapped a folio of 2 MB.
            self._used.append((mapped, start, count))
            self._used_bytes += count + _AROUND
            while self._used_bytes > _KEPT:
                mapped, start, count = self._used.popleft()
                self._used_bytes -= count + _AROUND
                first = max(0, start - _AROUND)
                first -= first % mmap.PAGESIZE
                mapped.madvise(mmap.MADV_DONTNEED, first, min(start + count + _AROUND, len(mapped)) - first)

    def has_holes(self, path: Path) -> bool:
        """Return whether a file occupies less than its size."""
        return self._share(path) < 1

    def is_sparse(self, path: Path) -> bool:
        """Return whether most of a file is a hole, so that looking for holes saves more time than it takes."""
        return self._share(path) < 0.5

    def _share(self, path: Path) -> float:
        """Return the share of a file that occupies its disk; asked once, when it is read first."""
        descriptor = self.read_fd(path)
        with self._lock:
            if path not in self._occupied:
                state = os.fstat(descriptor)
                self._occupied[path] = state.st_blocks * 512 / state.st_size if state.st_size else 1
            return self._occupied[path]

    def reserve(self, path: Path, start: int, count: int) -> None:
        """Reserve space for a range of a file that will be written: for many blocks at once it takes a third less time.

        Does nothing where the file system cannot, and where the disk is full: the write says so.
        """
        if count < _RESERVED or not sys.platform.startswith("linux"):
            return
        call = _fallocate()
        if call is not None:
            call(self.write_fd(path), _KEEP_SIZE, start, count)

    def write_lock(self, path: Path) -> threading.Lock:
        """Return the lock to hold while writing `path`.

        The kernel lets one thread at a time write to a file, and the others wait for it with a busy processor.
        """
        found = self._write_locks.get(path)
        if found is None:
            with self._lock:
                found = self._write_locks.setdefault(path, threading.Lock())
        return found

    def written(self) -> list[Path]:
        """Return the files that were opened for writing."""
        with self._lock:
            return list(self._write)


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the system's call; None where Python was built without ctypes, or the C library has no such function.

    os.posix_fallocate would write into every block of a file system that cannot.
    """
    try:
        import ctypes

        call = ctypes.CDLL(None).fallocate
    except (ImportError, OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found: Callable[[int, int, int, int], int] = call
    return found


def _unreadable(path: Path, count: int) -> ConvertError:
    """Return why a map of a file cannot be read: tmpfs takes memory for a hole that is."""
    if not os.statvfs(path).f_bavail:
        return unwritable(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), what="its holes cannot be read")
    return Damaged(path, "cannot be read", expected=f"{count} bytes")


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise Damaged(path, f"cannot be opened: {error.strerror}") from None


def copy(
    files: OpenFiles,
    source: Path,
    source_at: int,
    target: Path,
    target_at: int,
    count: int,
    on_bytes: OnBytes | None = None,
) -> int:
    """Copy `count` bytes; holes of the source are skipped, so the target's range must be unwritten.

    `on_bytes` is called with all bytes of the range, in order, while they are in the processor's cache. Returns the
    bytes copied, without holes. Damaged if the source ends before, Unwritable if the disk is full.
    """
    read = files.read_fd(source)
    shift, at, end, moved = target_at - source_at, source_at, source_at + count, 0
    # Of a truncated file, the missing end would be taken for a hole.
    files.check_size(source, end)
    while at < end:
        # Looking for the next hole takes the kernel long in a large file without any.
        begin, stop = _next_data(read, at, end) if files.has_holes(source) else (at, end)
        if on_bytes is not None:
            on_bytes(zeros(begin - at))
        if begin >= end:
            break
        for start in range(begin, stop, STEP):
            size = min(STEP, stop - start)
            files.load(source, start, size)
            write(files, target, start + shift, [files.view(source)[start : start + size]], [source], on_bytes)
            files.forget(source, start, size)
        moved += stop - begin
        at = stop
    return moved


def copy_rows(
    files: OpenFiles,
    target: Path,
    copies: Sequence[Copy],
    on_bytes: OnBytes | None = None,
) -> Iterator[int]:
    """Copy the rows of copies, which alternate in the target where there are several; yield bytes written.

    `on_bytes` is called with all of these bytes, in order. Damaged if a source ends before, Unwritable if the disk is
    full.
    """
    length, at, rows = sum(copy.length for copy in copies), copies[0].there, copies[0].rows
    joined = min(copy.length for copy in copies) < _GATHERED
    mapped = max(1, STEP // sum(copy.step for copy in copies))
    for first in range(0, rows, mapped):
        last = min(first + mapped, rows)
        reaches = [(copy.path, copy.here + first * copy.step, (last - first - 1) * copy.step) for copy in copies]
        for copy, (path, start, reach) in zip(copies, reaches, strict=True):
            files.load(path, start, reach + copy.length)
        together = max(1, _JOINED // length) if joined else last - first
        for begin in range(first, last, together):
            end = min(begin + together, last)
            data = _alternating([_rows(files.view(copy.path), copy, begin, end) for copy in copies])
            buffers = [b"".join(data)] if joined else data
            write(files, target, at + begin * length, buffers, [copy.path for copy in copies], on_bytes)
            yield length * (end - begin)
        for copy, (path, start, reach) in zip(copies, reaches, strict=True):
            files.forget(path, start, reach + copy.length)


def _rows(view: memoryview, copy: Copy, begin: int, end: int) -> list[memoryview]:
    starts = range(copy.here + begin * copy.step, copy.here + end * copy.step, copy.step)
    return [view[start : start + copy.length] for start in starts]


def _alternating(rows: Sequence[list[memoryview]]) -> Iterable[memoryview]:
    """Return the first of each, then the second of each, and so on."""
    return rows[0] if len(rows) == 1 else chain.from_iterable(zip(*rows, strict=True))


def zeros(count: int) -> list[memoryview]:
    """Return pieces of that many bytes, all zeros."""
    whole, rest = divmod(count, len(ZEROS))
    return [*[ZEROS] * whole, ZEROS[:rest]]


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


def write(
    files: OpenFiles,
    target: Path,
    at: int,
    data: Iterable[bytes | bytearray | memoryview],
    sources: Sequence[Path] = (),
    on_bytes: OnBytes | None = None,
) -> None:
    """Write contiguous buffers, one after the other, at `at`; Unwritable if the disk is full.

    Args:
        files: open files.
        target: the file, which exists.
        at: the first byte.
        data: the buffers, of bytes; at most 1,024 of them within 512 KiB (the system's IOV_MAX).
        sources: the files that these are in maps of. Damaged if one has ended, or cannot be read from its disk.
        on_bytes: callback with all bytes, in order, while they are in the processor's cache.
    """
    descriptor, blocks, lock = files.write_fd(target), files.blocks, files.write_lock(target)
    for piece, size in _pieces(data, at, _BLOCKS[0]):
        started = time.thread_time()
        try:
            with lock:
                end = at
                for part, count in _pieces(piece, at, blocks.size) if blocks.size < size else [(piece, size)]:
                    _write_all(descriptor, part, count, end)
                    end += count
        except OSError as error:
            if error.errno != errno.EFAULT or not sources:
                raise unwritable(target, error) from None
            for path in sources:
                files.check_size(path, len(files.view(path)))
            raise Damaged(sources[0], "cannot be read while it is copied") from None
        blocks.took(size, time.thread_time() - started)
        at += size
        if on_bytes is not None:
            on_bytes(piece)


def _pieces(
    data: Iterable[bytes | bytearray | memoryview], at: int, block: int
) -> Iterator[tuple[list[memoryview], int]]:
    """Yield buffers in lists that end at multiples of `block` in a file, and the bytes of each list.

    `at` is where they begin.
    """
    views = [memoryview(each) for each in data]
    ends = list(accumulate(map(len, views)))
    first, done = 0, 0
    while ends and done < ends[-1]:
        end = min(done + block - (at + done) % block, ends[-1])
        last = bisect_left(ends, end, first)
        count = len(views[last]) - (ends[last] - end)
        yield [*views[first:last], views[last][:count]], end - done
        views[last] = views[last][count:]
        first, done = last + (not views[last]), end


def _write_all(descriptor: int, buffers: list[memoryview], size: int, at: int) -> None:
    """Write buffers of `size` bytes, one after the other, by one system call unless it stops early."""
    count = os.pwritev(descriptor, buffers, at)
    while count < size:
        buffers = _after(buffers, count)
        at, size = at + count, size - count
        count = os.pwritev(descriptor, buffers, at)


def _after(buffers: list[memoryview], count: int) -> list[memoryview]:
    """Return what follows the first `count` bytes."""
    for number, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[number + 1 :]]
        count -= len(buffer)
    return []


def is_hole(files: OpenFiles, path: Path, at: int, count: int) -> bool:
    """Return whether a range was never written: its zeros need not be copied to an unwritten target."""
    begin, _ = _next_data(files.read_fd(path), at, at + count)
    return begin >= at + count


def allocated(paths: Iterable[Path]) -> int:
    """Return the bytes that files occupy on disk: an upper bound for a copy that keeps their holes."""
    return sum(os.stat(path).st_blocks * 512 for path in paths)
