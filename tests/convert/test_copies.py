"""Ranges of files that should be copies are compared wherever pieces end, and ends of files are noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.convert.containers.errors import Damaged
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.copies import _PIECE, Copied, compare_copies

SIZE = 2 * _PIECE + 100


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two files: the second holds the first one's bytes, 10 bytes later."""
    data = os.urandom(SIZE)
    (tmp_path / "original").write_bytes(data)
    (tmp_path / "copy").write_bytes(bytes(10) + data)
    return tmp_path / "original", tmp_path / "copy"


def _compared(pair: tuple[Path, Path], *ranges: tuple[int, int]) -> tuple[list[int], bytes]:
    """Compare ranges (first byte, bytes) of the original; return the differing elements of each, and all bytes read."""
    original, copy = pair
    copies = [Copied(path=original, here=at, there=at + 10, count=length, size=2) for at, length in ranges]
    seen, advanced = bytearray(), list[int]()
    with OpenFiles() as files:
        compare_copies(files, copy, 10, SIZE, copies, seen.extend, advanced.append)
    assert sum(advanced) == sum(length for _, length in ranges)
    return [each.wrong for each in copies], bytes(seen)


def test_equal_ranges_are_equal_and_every_byte_is_passed_on_once(pair):
    wrong, seen = _compared(pair, (0, SIZE), (0, 4), (_PIECE - 2, 4), (SIZE - 2, 2))
    assert wrong == [0, 0, 0, 0]
    assert seen == pair[0].read_bytes()


@pytest.mark.parametrize("at", [0, 2, _PIECE - 2, _PIECE, 2 * _PIECE - 2, 2 * _PIECE, SIZE - 2])
def test_a_different_byte_is_found_in_each_range_that_holds_it(at, pair):
    with pair[1].open("r+b") as file:
        file.seek(10 + at + 1)
        byte = file.read(1)
        file.seek(10 + at + 1)
        file.write(bytes([byte[0] ^ 1]))
    others = (0, at), (at + 2, SIZE - at - 2)
    assert _compared(pair, (0, SIZE), (at, 2), *others)[0] == [1, 1, 0, 0]


def test_differing_elements_are_counted(pair):
    pair[1].write_bytes(bytes(10) + bytes(byte ^ 1 for byte in pair[0].read_bytes()))
    assert _compared(pair, (0, SIZE))[0] == [SIZE // 2]


@pytest.mark.parametrize("which", [0, 1], ids=["original", "copy"])
@pytest.mark.parametrize("cut", [1, 100, SIZE])
def test_a_truncated_file_is_named(cut, which, pair):
    os.truncate(pair[which], pair[which].stat().st_size - cut)
    with pytest.raises(Damaged, match="truncated") as error:
        _compared(pair, (0, SIZE))
    assert pair[which].name in str(error.value)


def test_zeros_where_the_original_ended_are_no_copy(pair):
    """A file that grew by a hole reads as zeros: they are compared like any other bytes."""
    os.truncate(pair[0], SIZE - 100)
    os.truncate(pair[0], SIZE)
    assert 0 < _compared(pair, (0, SIZE))[0][0] <= 50
