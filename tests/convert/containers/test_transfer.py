"""Bytes moved between files arrive at their place and nowhere else, holes stay holes, ends of files are noticed."""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.containers.errors import Damaged
from launcher.convert.containers.files import create_sized
from launcher.convert.containers.transfer import (
    _BLOCKS,
    Copy,
    OpenFiles,
    _Blocks,
    _fallocate,
    allocated,
    copy,
    copy_rows,
    is_hole,
    write,
)
from tests.sampling import examples

SIZE = 3 * 2**20


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(random.Random(0).randbytes(SIZE))
    create_sized(target, [], SIZE)
    return source, target


@given(start=st.integers(0, 9000), count=st.integers(0, 50_000), to=st.integers(0, 9000))
@examples(50)
def test_a_range_is_copied_and_nothing_around_it(start, count, to):
    data = random.Random(1).randbytes(60_000)
    with TemporaryDirectory() as place, OpenFiles() as files:
        source, target = Path(place) / "source", Path(place) / "target"
        source.write_bytes(data)
        target.write_bytes(b"-" * 60_000)
        assert copy(files, source, start, target, to, count) == count
        assert target.read_bytes() == b"-" * to + data[start : start + count] + b"-" * (60_000 - to - count)


def collected(found: list[bytes]):
    """Return a callback that adds a copy of each piece of bytes to a list."""
    return lambda pieces: found.extend(map(bytes, pieces))


@given(
    lengths=st.lists(st.integers(1, 900), min_size=1, max_size=4)
    | st.lists(st.integers(4000, 5000), min_size=1, max_size=3)
    | st.lists(st.integers(4096, 300_000), min_size=1, max_size=3),
    between=st.integers(0, 900),
    rows=st.integers(1, 8),
    to=st.integers(0, 9000),
)
@examples(50)
def test_rows_of_several_sources_alternate_and_nothing_around_them_changes(lengths, between, rows, to):
    seen, expected = list[bytes](), b""
    with TemporaryDirectory() as place, OpenFiles() as files:
        target = Path(place) / "target"
        target.write_bytes(b"-" * SIZE * 3)
        copies, sources = [], []
        for number, length in enumerate(lengths):
            path, step = Path(place) / f"source {number}", length + between
            path.write_bytes(random.Random(number).randbytes(number + step * rows))
            sources.append(path.read_bytes())
            apart = sum(lengths) if len(lengths) > 1 else 0
            copies.append(Copy(to + sum(lengths[:number]), number, length, path, rows, step, apart))
        for row in range(rows):
            expected += b"".join(
                data[copy.here + row * copy.step :][: copy.length] for data, copy in zip(sources, copies, strict=True)
            )
        assert sum(copy_rows(files, target, copies, collected(seen))) == len(expected)
        assert target.read_bytes() == b"-" * to + expected + b"-" * (SIZE * 3 - to - len(expected))
    assert b"".join(seen) == expected


@pytest.mark.parametrize(("count", "step"), [(1000, 1500), (5000, 10_000), (700_000, 1_400_000)])
def test_rows_of_many_buffers_are_copied(count, step, pair):
    source, target = pair
    source.write_bytes(random.Random(0).randbytes(3 * SIZE))
    rows, pieces = 3 * SIZE // step, list[bytes]()
    with OpenFiles() as files:
        done = list(copy_rows(files, target, [Copy(5, 0, count, source, rows, step)], collected(pieces)))
    data = source.read_bytes()
    seen = b"".join(pieces)
    assert len(done) > 1
    assert seen == b"".join(data[step * row :][:count] for row in range(rows))
    assert target.read_bytes() == bytes(5) + seen + bytes(max(0, SIZE - 5 - len(seen)))


def stopping(monkeypatch, most, then=lambda: None):
    """Let writes stop after so many bytes, and do something after each."""
    gather = os.pwritev

    def write(file, buffers, at):
        count = gather(file, [b"".join(buffers)[:most]], at)
        then()
        return count

    monkeypatch.setattr(os, "pwritev", write)


@pytest.mark.parametrize("length", [1000, 50_000], ids=["short", "long"])
@pytest.mark.parametrize("most", [999, 4096, 60_001])
def test_a_write_that_stops_early_goes_on(length, most, pair, monkeypatch):
    source, target = pair
    stopping(monkeypatch, most)
    with OpenFiles() as files:
        list(copy_rows(files, target, [Copy(5, 0, length, source, 10, 2 * length)]))
    data = source.read_bytes()
    copied = b"".join(data[2 * length * row :][:length] for row in range(10))
    assert target.read_bytes() == bytes(5) + copied + bytes(SIZE - 5 - len(copied))


def test_a_source_that_is_truncated_while_a_write_stops_is_damaged(pair, monkeypatch):
    source, target = pair
    gather = os.pwritev
    stopping(monkeypatch, 5000, lambda: (os.truncate(source, 0), monkeypatch.setattr(os, "pwritev", gather)))
    with OpenFiles() as files, pytest.raises(Damaged, match="truncated while it was read"):
        list(copy_rows(files, target, [Copy(5, 0, 50_000, source, 10, 100_000)]))


def test_rows_beyond_the_end_of_their_file_are_an_error(pair):
    source, target = pair
    with OpenFiles() as files, pytest.raises(Damaged, match="truncated"):
        list(copy_rows(files, target, [Copy(0, SIZE - 2000, 1000, source, 2, 1001)]))


def test_threads_share_the_files(pair):
    source, target = pair
    with OpenFiles() as files, ThreadPoolExecutor(4) as pool:
        starts = range(0, SIZE, 10_001)
        moved = pool.map(lambda at: copy(files, source, at, target, at, min(10_001, SIZE - at)), starts)
        assert sum(moved) == SIZE
    assert target.read_bytes() == source.read_bytes()


def test_another_file_system_is_copied_to_as_well(pair):
    source, _ = pair
    shared = Path("/dev/shm")
    if not shared.is_dir() or os.stat(shared).st_dev == os.stat(source).st_dev:
        pytest.skip("no second file system here")
    with TemporaryDirectory(dir=shared) as place, OpenFiles() as files:
        create_sized(Path(place) / "target", [], SIZE)
        assert copy(files, source, 5, Path(place) / "target", 7, SIZE - 10) == SIZE - 10
        assert (Path(place) / "target").read_bytes()[7:-3] == source.read_bytes()[5:-5]


def test_holes_are_not_filled(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    create_sized(source, [(2**30, b"x" * 5000)], 2**33)
    create_sized(target, [], 2**33 + 3)
    with OpenFiles() as files:
        assert 5000 <= copy(files, source, 0, target, 3, 2**33) < 100_000
        assert is_hole(files, source, 0, 2**29)
        assert not is_hole(files, source, 2**30, 10)
        assert is_hole(files, source, 2**32, 2**32)
    assert allocated([source, target]) < 500_000
    with target.open("rb") as file:
        file.seek(2**30 + 3)
        assert file.read(5001) == b"x" * 5000 + b"\0"


def test_a_source_that_ends_before_is_damaged(pair):
    source, target = pair
    with OpenFiles() as files, pytest.raises(Damaged, match="truncated while it was read"):
        copy(files, source, 10, target, 0, SIZE)
    with OpenFiles() as files, pytest.raises(Damaged, match="cannot be opened"):
        copy(files, source.with_name("nowhere"), 10, target, 0, SIZE)


def test_a_view_is_the_file_and_outlives_its_closing(pair):
    source, target = pair
    with OpenFiles() as files:
        part = files.view(source)[100:200]
        write(files, target, 100, [part])
        assert files.view(source).readonly
    assert bytes(part) == source.read_bytes()[100:200] == target.read_bytes()[100:200]


def test_an_empty_file_has_an_empty_view(tmp_path):
    (tmp_path / "empty").touch()
    with OpenFiles() as files:
        assert files.view(tmp_path / "empty") == b""


def test_a_python_without_ctypes_writes_without_reserving(pair, monkeypatch):
    source, target = pair
    _fallocate.cache_clear()
    monkeypatch.setitem(sys.modules, "ctypes", None)
    with OpenFiles() as files:
        files.reserve(target, 0, SIZE)
        assert copy(files, source, 0, target, 0, SIZE) == SIZE
    _fallocate.cache_clear()
    assert target.read_bytes() == source.read_bytes()


def test_a_reserved_range_reads_as_zeros_and_keeps_the_size(pair):
    _, target = pair
    with OpenFiles() as files:
        files.reserve(target, 0, 2 * SIZE)
    assert target.read_bytes() == bytes(SIZE)


@pytest.mark.parametrize(
    "slow,smaller",
    [([50], 0), ([50, 51], 1), ([10, 40, 70, 100], 0), ([10, 12, 14, 16], 1), (range(50, 400), 2)],
    ids=["one", "two", "far apart", "often", "always"],
)
def test_writes_become_smaller_once_they_are_slow_again_and_again(slow, smaller):
    blocks = _Blocks()
    for number in range(400):
        blocks.took(2**20, 1e-2 if number in slow else 1e-3)
    assert blocks.size == _BLOCKS[smaller]


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("at", [0, 5, 70_000])
def test_slow_writes_are_small_and_aligned_and_of_the_same_bytes(at, rows, tmp_path, monkeypatch):
    data, target, gather, found = random.Random(0).randbytes(1_700_000), tmp_path / "target", os.pwritev, []
    target.touch()

    def write_and_note(file, buffers, begin):
        count = gather(file, buffers, begin)
        found.append((begin, begin + count))
        return count

    monkeypatch.setattr(os, "pwritev", write_and_note)
    pieces, length = list[bytes](), len(data) // rows
    with OpenFiles() as files:
        for seconds in (1e-3, *[1e-2] * 20):
            files.blocks.took(2**20, seconds)
        write(files, target, at, [data[length * row :][:length] for row in range(rows)], on_bytes=collected(pieces))
        size = files.blocks.size
    assert target.read_bytes() == bytes(at) + data == bytes(at) + b"".join(pieces)
    assert max(end - begin for begin, end in found) == size == _BLOCKS[-1]
    assert all(end % size == 0 for _, end in found[:-1])


def _resident(path):
    """Return the bytes of maps of a file that are resident."""
    parts = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return sum(int(part.partition("Rss:")[2].split()[0]) * 1024 for part in parts)


def test_many_small_ranges_do_not_stay_mapped(tmp_path):
    path, count = tmp_path / "weights", 200
    path.write_bytes(bytes(2**20) * count)
    found = {}
    for forgets in (False, True):
        with OpenFiles() as files:
            for number in range(count):
                files.load(path, number * 2**20, 4096)
                assert files.view(path)[number * 2**20] == 0
                if forgets:
                    files.forget(path, number * 2**20, 4096)
            found[forgets] = _resident(path)
    assert 0 < found[True] < found[False] / 2
