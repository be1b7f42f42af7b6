"""Reads one log file of a run: from its end backwards, and as it grows, also when it is rotated meanwhile."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from launcher.executors import private
from launcher.executors.log_parts import open_part

_MARK = re.compile(r"^\[rank(\d{1,9})\] (.*)$", re.DOTALL)
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 16


@dataclass(slots=True, kw_only=True)
class LogFile:
    """A log file that is read from where the last read ended; what was rotated away before comes first.

    Attributes:
        older: its older parts, oldest first, each with the offset from which it is still to be read.
        unread: parts that could not be read, and why.
        label: put before every line.
        rank: only lines of this global rank; None: all.
        rank_is_first: it is its node's first rank, whose lines have no mark.
    """

    path: Path
    label: str = ""
    rank: int | None = None
    rank_is_first: bool = False
    older: list[tuple[Path, int]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    _offset: int = 0
    _inode: int | None = None
    _rest: list[bytes] = field(default_factory=list)  # of the line that has not ended, as it was read

    def skip_to(self, offset: int) -> None:
        """Begin with the line that has this offset."""
        self._offset = offset
        # A file that cannot be read yet begins at the offset itself.
        with contextlib.suppress(OSError), private.open_to_read(self.path) as stream:
            self._offset = _line_at(stream, offset)

    def read(self, *, last: bool) -> Iterator[str]:
        """Yield the complete lines that are new; at the very end also one without its line break.

        A file of another inode, or a shorter one, is a new file: the rest of the renamed one comes first.
        """
        yield from self._older_lines()
        try:
            found = os.stat(self.path)
            if found.st_ino == self._inode and found.st_size == self._offset and not last:
                return
            stream = private.open_to_read(self.path)
        except OSError:
            if last:
                yield from self._last_line()
            return
        with stream:
            found = os.fstat(stream.fileno())
            if self._inode not in (None, found.st_ino):
                yield from self._rest_of_renamed()
                self._offset = 0
            elif found.st_size < self._offset:
                self._offset, self._rest = 0, []
            self._inode = found.st_ino
            yield from self._lines(stream)
        if last:
            yield from self._last_line()

    def last_lines(self, count: int, keep: Callable[[str], bool], *, last: bool) -> list[str]:
        """Return the last lines that are to be shown and continue behind them; only as much is read as that needs.

        Args:
            last: also a last line without its line break.
        """
        found = self._last_lines(count, keep, last=last)
        parts, self.older = self.older, []
        for part, offset in reversed(parts):
            if len(found) < count:
                found += self._last_of_part(part, offset, count - len(found), keep)
        return found[::-1]

    def _last_lines(self, count: int, keep: Callable[[str], bool], *, last: bool) -> list[str]:
        """Return the last lines of the newest part, the last one first."""
        try:
            stream = private.open_to_read(self.path)
        except OSError:
            return []
        with stream:
            self._inode = os.fstat(stream.fileno()).st_ino
            end = stream.seek(0, os.SEEK_END)
            lines = _backwards(stream, self._offset, end)
            newest = next(lines, None)
            if newest is not None and newest[1] and last:
                lines = chain([newest], lines)
            elif newest is not None:
                end = newest[0]  # the line there is not complete, or has not begun
            self._offset = end
            return self._kept(lines, count, keep)

    def _last_of_part(self, part: Path, start: int, count: int, keep: Callable[[str], bool]) -> list[str]:
        """Return the last lines of an older part, the last one first."""
        with self._opened(part) as stream:
            begin, end = _line_at(stream, start), stream.seek(0, os.SEEK_END)
            lines = _backwards(stream, begin, end)
            # No line begins behind the last line break.
            return self._kept((line for line in lines if line[1] or line[0] < end), count, keep)

    def _kept(self, lines: Iterable[tuple[int, bytes]], count: int, keep: Callable[[str], bool]) -> list[str]:
        """Return the first so many lines that are to be shown."""
        texts = (self._own(raw) for _, raw in lines)
        return list(islice((text for text in texts if text is not None and keep(text)), count))

    def _older_lines(self) -> Iterator[str]:
        """Yield the lines of older parts; one that was being written goes on in the next part."""
        parts, self.older, begin = self.older, [], self._offset
        for part, offset in parts:
            with self._opened(part) as stream:
                stream.seek(_line_at(stream, offset))
                yield from self._rest_of(stream)
        self._offset = begin

    @contextlib.contextmanager
    def _opened(self, part: Path) -> Iterator[BinaryIO]:
        """Open an older part; one that cannot be read is empty, and named in `unread`."""
        try:
            stream = open_part(part)
        except OSError as error:
            self.unread.append(f"{part}: {error.strerror or error}")
            stream = BytesIO()
        with stream:
            yield stream

    def _lines(self, stream: BinaryIO) -> Iterator[str]:
        stream.seek(self._offset)
        yield from self._rest_of(stream)

    def _rest_of(self, stream: BinaryIO) -> Iterator[str]:
        while chunk := stream.read(_CHUNK):
            self._offset += len(chunk)
            end, *lines = chunk.split(b"\n")
            self._rest.append(end)
            if not lines:
                continue
            whole, self._rest = b"".join(self._rest), [lines.pop()]
            for line in (whole, *lines):
                if (text := self._own(line)) is not None:
                    yield text

    def _last_line(self) -> Iterator[str]:
        rest, self._rest = b"".join(self._rest), []
        if rest and (text := self._own(rest)) is not None:
            yield text

    def _rest_of_renamed(self) -> Iterator[str]:
        """Yield what is still to be read of the file that had this name, if it has only been renamed."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            try:
                if path.stat().st_ino != self._inode:
                    continue
                with private.open_to_read(path) as stream:
                    yield from self._lines(stream)
            except OSError:
                continue  # removed while the others are looked at
        yield from self._last_line()

    def _own(self, raw: bytes) -> str | None:
        line = raw.decode("utf-8", "replace")
        if self.rank is None:
            return line
        mark = _MARK.match(line)
        if mark is None:
            return line if self.rank_is_first else None
        return mark[2] if int(mark[1]) == self.rank else None


def _line_at(stream: BinaryIO, offset: int) -> int:
    """Return the offset of the line that has an offset."""
    before = stream.seek(max(0, offset - _LONGEST_LINE))
    return before + stream.read(offset - before).rfind(b"\n") + 1 if offset else 0


def _backwards(stream: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines between two offsets, the last one first, each with its offset and without its line break."""
    parts: list[bytes] = []  # of the line that begins before what was read, its end first
    while end > start:
        begin = max(start, end - _CHUNK)
        stream.seek(begin)
        first, *lines = stream.read(end - begin).split(b"\n")
        offset = end
        for index in range(len(lines) - 1, -1, -1):
            offset -= len(lines[index])
            yield offset, b"".join([lines[index], *reversed(parts)])
            parts = []
            offset -= 1
        parts.append(first)
        end = begin
    if parts:
        yield start, b"".join(reversed(parts))
