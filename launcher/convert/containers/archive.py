"""The zip archive of torch.save: uncompressed entries, 64-byte alignment; strict reader, layout with sparse holes.

Format: PKWARE APPNOTE 6.3.9; torch/csrc: caffe2/serialize/inline_container.cc (alignment by an "FB" extra field).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from launcher.convert.containers.errors import Damaged, Unsupported, shown, unwritable
from launcher.convert.containers.files import read_exactly, write_all
from launcher.records import dataclass, record

ALIGNMENT = 64
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<4sIQI")
_LONG, _SHORT = 0xFFFFFFFF, 0xFFFF
_CRC_IN_LOCAL, _CRC_IN_CENTRAL = 14, 16
_READ = 1 << 20
_TAIL = 4096
# Upper bounds, above any real checkpoint, on what is read at once, whatever sizes a file (or a hole) declares.
_MOST_DIRECTORY = 2**28
_MOST_ENTRY = 2**30
_DATE = 33  # 1 January 1980, the earliest zip date; torch writes no date either


@record()
class Entry:
    """One stored entry.

    Attributes:
        name: path without the archive's folder.
        at, size: position of its data in the file.
        crc: CRC-32 of the data, as recorded in the directory.
        header_at, record_at: file offsets of its header and of its directory record.
    """

    name: str
    at: int
    size: int
    crc: int
    header_at: int
    record_at: int


@record()
class Piece:
    """An entry to lay out: its data, or only its size if a hole is left for it."""

    name: str
    size: int
    data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An archive's layout: the bytes around the holes, the offset of every entry's data, the total size."""

    pieces: list[tuple[int, bytes]]
    places: dict[str, int]
    size: int


class Archive:
    """An archive inside a file (`start`, `length`); reads the directory at once, entries on request."""

    def __init__(self, descriptor: int, path: Path, start: int, length: int, what: str | None = None) -> None:
        self.descriptor = descriptor
        self.path = path
        self.start = start
        self.length = length
        self.what = what
        self.entries = self._entries()

    def read(self, name: str) -> bytes:
        """Read an entry and check its CRC-32."""
        entry = self.entries.get(name)
        if entry is None:
            raise self._damaged(f"{name} is missing in the archive")
        if entry.size > _MOST_ENTRY:
            raise self._damaged(f"{name} is too large", expected=f"at most {_MOST_ENTRY} bytes", found=entry.size)
        data = read_exactly(self.descriptor, self.path, entry.at, entry.size, name)
        found = zlib.crc32(data)
        if found != entry.crc:
            raise self._damaged(f"{name} is corrupt", expected=f"CRC {entry.crc:08x}", found=f"{found:08x}")
        return data

    def _damaged(self, problem: str, *, expected: object = None, found: object = None) -> Damaged:
        return Damaged(self.path, problem, tensor=self.what, expected=expected, found=found)

    def _entries(self) -> dict[str, Entry]:
        count, at, size = self._directory()
        data = read_exactly(self.descriptor, self.path, self.start + at, size, "the directory of the archive")
        entries: dict[str, Entry] = {}
        folder: str | None = None
        position = 0
        for _ in range(count):
            name, entry, position = self._entry(data, position, at)
            head, _, rest = name.partition("/")
            folder = head if folder is None else folder
            if head != folder or not rest or rest in entries:
                raise self._damaged(f"its entry {shown(name)} is not one of torch.save")
            entries[rest] = replace(entry, name=rest)
        if position != size:
            raise self._damaged("the directory of the archive is corrupt", expected=f"{size} bytes", found=position)
        self._check_no_overlap(entries, at)
        return entries

    def _directory(self) -> tuple[int, int, int]:
        """Locate the directory through the end record; return its entry count, offset and size."""
        tail_at = max(0, self.length - _TAIL)
        tail = read_exactly(
            self.descriptor, self.path, self.start + tail_at, self.length - tail_at, "the archive's end"
        )
        found = tail.rfind(b"PK\x05\x06")
        if found < 0 or len(tail) - found < _END.size:
            raise self._damaged("truncated or no archive of torch.save: the zip's directory at its end is missing")
        _, _, _, _, count, size, at, comment = _END.unpack_from(tail, found)
        end_at = tail_at + found
        if end_at + _END.size + comment != self.length:
            raise self._damaged("bytes after the end of the archive", expected=end_at + _END.size, found=self.length)
        if _LONG in (size, at) or count == _SHORT:
            count, size, at, end_at = self._directory_64(end_at)
        if at + size > end_at or size > _MOST_DIRECTORY:
            raise self._damaged("the directory of the archive lies outside of it", expected=end_at, found=at + size)
        return count, at, size

    def _directory_64(self, end_at: int) -> tuple[int, int, int, int]:
        locator_at = end_at - _LOCATOR_64.size
        if locator_at < 0:
            raise self._damaged("the zip64 record of the archive is missing")
        raw = read_exactly(self.descriptor, self.path, self.start + locator_at, _LOCATOR_64.size, "the zip64 record")
        magic, _, record_at, _ = _LOCATOR_64.unpack(raw)
        if magic != b"PK\x06\x07" or record_at + _END_64.size > locator_at:
            raise self._damaged("the zip64 record of the archive is missing")
        raw = read_exactly(self.descriptor, self.path, self.start + record_at, _END_64.size, "the zip64 record")
        magic, _, _, _, _, _, _, count, size, at = _END_64.unpack(raw)
        if magic != b"PK\x06\x06":
            raise self._damaged("the zip64 record of the archive is corrupt")
        return count, size, at, record_at

    def _entry(self, data: bytes, position: int, directory_at: int) -> tuple[str, Entry, int]:
        if position + _CENTRAL.size > len(data):
            raise self._damaged("the directory of the archive is cut off")
        fields = _CENTRAL.unpack_from(data, position)
        magic, flags, method, crc, packed, size, names, extras, comments, at = (
            *(fields[index] for index in (0, 3, 4, 7, 8, 9, 10, 11, 12)),
            fields[16],
        )
        end = position + _CENTRAL.size + names + extras + comments
        if magic != b"PK\x01\x02" or end > len(data):
            raise self._damaged("the directory of the archive is corrupt")
        raw_name = data[position + _CENTRAL.size :][:names]
        name = raw_name.decode("utf-8", "replace")
        size, packed, at = self._wide(data[position + _CENTRAL.size + names :][:extras], size, packed, at)
        if method != 0 or flags & 1:
            raise Unsupported(self.path, f"its entry {shown(name)} is compressed or encrypted", works="torch.save")
        if packed != size:
            raise self._damaged(f"its entry {shown(name)} has two sizes", expected=size, found=packed)
        data_at = self._data_at(name, raw_name, at, directory_at)
        if data_at + size > self.start + directory_at:
            found = f"only {self.start + directory_at - data_at}"
            raise self._damaged(f"its entry {shown(name)} is cut off", expected=f"{size} bytes", found=found)
        record_at = self.start + directory_at + position
        entry = Entry(name=name, at=data_at, size=size, crc=crc, header_at=self.start + at, record_at=record_at)
        return name, entry, end

    def _wide(self, extra: bytes, size: int, packed: int, at: int) -> tuple[int, int, int]:
        """Replace values above 32 bits by those of the zip64 extra field, in its fixed order."""
        if _LONG not in (size, packed, at):
            return size, packed, at
        place = 0
        while place + 4 <= len(extra):
            kind, count = struct.unpack_from("<HH", extra, place)
            if kind == 1:
                values = [int.from_bytes(extra[place + 4 + 8 * index :][:8], "little") for index in range(count // 8)]
                wide = [values.pop(0) if value == _LONG and values else value for value in (size, packed, at)]
                return wide[0], wide[1], wide[2]
            place += 4 + count
        return size, packed, at

    def _data_at(self, name: str, raw_name: bytes, at: int, directory_at: int) -> int:
        if at + _LOCAL.size + len(raw_name) > directory_at:
            raise self._damaged(f"its entry {shown(name)} lies outside of the archive")
        raw = read_exactly(
            self.descriptor, self.path, self.start + at, _LOCAL.size + len(raw_name), "an entry's header"
        )
        fields = _LOCAL.unpack_from(raw)
        if fields[0] != b"PK\x03\x04" or raw[_LOCAL.size :] != raw_name:
            raise self._damaged(f"the header of its entry {shown(name)} is corrupt")
        return self.start + at + _LOCAL.size + int(fields[9]) + int(fields[10])

    def _check_no_overlap(self, entries: dict[str, Entry], directory_at: int) -> None:
        end = self.start
        for entry in sorted(entries.values(), key=lambda entry: (entry.at, entry.size)):
            if entry.at < end:
                raise self._damaged(f"its entry {shown(entry.name)} overlaps another", expected=end, found=entry.at)
            end = entry.at + entry.size


def lay_out(folder: str, pieces: Sequence[Piece], *, start: int = 0) -> Layout:
    """Lay out an archive that begins at byte `start` of a file, a multiple of 64.

    Sizes and offsets of 4 GiB and more use zip64. The CRC-32 of a hole is written as 0 until `seal` computes it.
    """
    assert start % ALIGNMENT == 0
    written: list[tuple[int, bytes]] = []
    places: dict[str, int] = {}
    directory = bytearray()
    at = 0
    for piece in pieces:
        name = f"{folder}/{piece.name}".encode()
        crc = zlib.crc32(piece.data) if piece.data is not None else 0
        header = _local_header(name, piece.size, crc, at)
        directory += _central_header(name, piece.size, crc, at)
        places[piece.name] = start + at + len(header)
        written.append((start + at, header if piece.data is None else header + piece.data))
        at += len(header) + piece.size
    end = _end(len(pieces), len(directory), at)
    written.append((start + at, bytes(directory) + end))
    return Layout(pieces=written, places=places, size=at + len(directory) + len(end))


def _local_header(name: bytes, size: int, crc: int, at: int) -> bytes:
    wide = size >= _LONG
    extra = struct.pack("<HHQQ", 1, 16, size, size) if wide else b""
    gap = -(at + _LOCAL.size + len(name) + len(extra)) % ALIGNMENT
    gap += ALIGNMENT if 0 < gap < 4 else 0
    if gap:
        extra += b"FB" + struct.pack("<H", gap - 4) + b"Z" * (gap - 4)
    short = _LONG if wide else size
    version = 45 if wide else 20
    return _LOCAL.pack(b"PK\x03\x04", version, 0, 0, 0, _DATE, crc, short, short, len(name), len(extra)) + name + extra


def _central_header(name: bytes, size: int, crc: int, at: int) -> bytes:
    values = ([size, size] if size >= _LONG else []) + ([at] if at >= _LONG else [])
    extra = struct.pack("<HH", 1, 8 * len(values)) + struct.pack(f"<{len(values)}Q", *values) if values else b""
    short, version = min(size, _LONG), 45 if values else 20
    return (
        _CENTRAL.pack(
            *(b"PK\x01\x02", version, version, 0, 0, 0, _DATE, crc, short, short),
            *(len(name), len(extra), 0, 0, 0, 0, min(at, _LONG)),
        )
        + name
        + extra
    )


def _end(count: int, size: int, at: int) -> bytes:
    wide = count >= _SHORT or size >= _LONG or at >= _LONG
    end = _END.pack(b"PK\x05\x06", 0, 0, min(count, _SHORT), min(count, _SHORT), min(size, _LONG), min(at, _LONG), 0)
    if not wide:
        return end
    record = _END_64.pack(b"PK\x06\x06", _END_64.size - 12, 45, 45, 0, 0, count, count, size, at)
    return record + _LOCATOR_64.pack(b"PK\x06\x07", 0, at + size, 1) + end


@cache
def _crc32() -> Callable[[bytes | memoryview, int], int]:
    """Return a hardware CRC-32, five times as fast as zlib's; zlib's where isal is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.crc32
    return isal_zlib.crc32


class Checksum:
    """CRC-32 of an entry's data, computed while it is written and still in the processor's cache."""

    def __init__(self) -> None:
        self.value = 0
        self._crc32 = _crc32()

    def add(self, pieces: Sequence[memoryview]) -> None:
        """Add pieces of bytes, in order."""
        crc32, value = self._crc32, self.value
        for piece in pieces:
            value = crc32(piece, value)
        self.value = value


def seal(path: Path, known: Mapping[int, int] | None = None) -> None:
    """Write the CRC-32 of every entry laid out as a hole, once its data is written; idempotent.

    torch.load does not check it (its miniz is built without the check); Python's zipfile and `unzip -t` do.

    Args:
        path: the file.
        known: position of an entry's data to its CRC-32; the data of other entries is read.
    """
    known = known or {}
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        archive = Archive(descriptor, path, 0, os.fstat(descriptor).st_size)
        for entry in archive.entries.values():
            crc = known[entry.at] if entry.at in known else _crc_of(descriptor, path, entry)
            if crc != entry.crc:
                data = struct.pack("<I", crc)
                write_all(descriptor, data, entry.header_at + _CRC_IN_LOCAL)
                write_all(descriptor, data, entry.record_at + _CRC_IN_CENTRAL)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        os.close(descriptor)


def _crc_of(descriptor: int, path: Path, entry: Entry) -> int:
    crc, end = 0, entry.at + entry.size
    for start in range(entry.at, end, _READ):
        crc = _crc32()(read_exactly(descriptor, path, start, min(_READ, end - start), entry.name), crc)
    return crc
