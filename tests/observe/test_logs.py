"""`launch logs`: the last lines, those since a time, those that match; logs that are rotated while followed."""

import bz2
import gzip
import lzma
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.executors.log_parts import rotated
from launcher.executors.log_times import LogTimes, offset_since, times_file
from launcher.observe.log_file import LogFile
from launcher.observe.logs import Wanted, moment, read_lines, skip_before
from tests.cli.test_runs import overrides  # noqa: F401
from tests.commands import in_terminal
from tests.conftest import Launch

LINES = [f"line {number} {'x' * (number % 90)}" for number in range(60_000)]
LONG = "b" * 3_000_000


def log(folder: Path, text: str) -> LogFile:
    (folder / "node0.log").write_text(text)
    return LogFile(path=folder / "node0.log")


TAILS = {
    "a few": ("\n".join(LINES) + "\n", Wanted(tail=3), LINES[-3:]),
    "without a line break at the end": ("\n".join(LINES), Wanted(tail=2), LINES[-2:]),
    "more than there are": ("one\n\ntwo\n", Wanted(tail=9), ["one", "", "two"]),
    "none at all": ("", Wanted(tail=9), []),
    "of those that match": ("\n".join(LINES), Wanted(tail=2, grep=re.compile("^line [12]7 ")), [LINES[17], LINES[27]]),
    "far from the end": ("\n".join(LINES), Wanted(tail=1, grep=re.compile("^line 5 ")), [LINES[5]]),
    "a line longer than what is read at once": (f"a\n{LONG}\nc\n", Wanted(tail=2), [LONG, "c"]),
}  # fmt: skip


@pytest.mark.parametrize("case", TAILS.values(), ids=TAILS)
def test_the_last_lines_are_shown(tmp_path: Path, case: tuple[str, Wanted, list[str]]):
    text, wanted, expected = case
    assert list(read_lines([log(tmp_path, text)], wanted)) == expected


def test_the_last_lines_of_one_rank_are_shown(tmp_path: Path):
    file = log(tmp_path, "".join(f"[rank{number % 8}] {number}\n{number}\n" for number in range(1000)))
    file.rank = 3
    assert list(read_lines([file], Wanted(tail=2))) == ["987", "995"]


def followed(file: LogFile, wanted: Wanted, *steps: Callable[[], object]) -> list[str]:
    """Return the lines that following shows while a log is changed, one step between two looks."""
    left = list(steps)

    def more() -> bool:
        if left:
            left.pop(0)()
        return bool(left)

    return list(read_lines([file], wanted, follow=more))


def nothing() -> None:
    """Let a look pass."""


@pytest.mark.slow
def test_following_begins_with_the_last_lines_and_survives_rotation(tmp_path: Path):
    path = tmp_path / "node0.log"
    file = log(tmp_path, "old 1\nold 2\nhal")

    def rename() -> None:
        path.write_text("old 1\nold 2\nhalf of it\nbefore the rotation\n")
        path.rename(tmp_path / "node0.log.1")
        path.write_text("in the new file\n")

    def truncate() -> None:
        os.truncate(path, 0)
        with path.open("a") as stream:
            stream.write("again\n")

    def grow() -> None:
        with path.open("a") as stream:
            stream.write("more")

    assert followed(file, Wanted(tail=1), nothing, rename, truncate, grow, nothing) == [
        *("old 2", "half of it", "before the rotation", "in the new file", "again", "more"),
    ]


def test_lines_since_a_time_are_those_that_were_written_after_it(tmp_path: Path):
    path = tmp_path / "node0.log"
    path.write_text("first\nsecond\nthird\n")
    times_file(path).parent.mkdir()
    times_file(path).write_text("1000 6\n2000 13\n")
    os.utime(path, (3000, 3000))
    shown = {}
    for since in (500, 1500, 2500, 3500):
        file = LogFile(path=path)
        assert skip_before([file], since) == []
        shown[since] = list(read_lines([file]))
    assert shown == {500: ["first", "second", "third"], 1500: ["second", "third"], 2500: ["third"], 3500: []}
    times_file(path).write_text("500 900\n1000 6\n")  # rotated between the two
    assert offset_since(path, 1500) == (6, True)
    times_file(path).unlink()
    assert skip_before([LogFile(path=path)], 2500) == [path]
    assert skip_before([LogFile(path=path)], 3500) == []


PACKED = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


@pytest.fixture
def turned(tmp_path: Path) -> LogFile:
    """A log of ten lines in three parts, rotated at 1000 and 2000; line 8 began in the second one."""
    path = tmp_path / "node0.log"
    parts = {f"{path}.2.gz": "1\n2\n3\n", f"{path}.1": "4\n5\n6\n7\nei", str(path): "ght\n9\n10\n"}
    for number, (name, text) in enumerate(parts.items(), start=1):
        Path(name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        os.utime(name, (1000 * number, 1000 * number))
    for other in ("node0.log.bak", "node0.logs", "node01.log.1"):
        (tmp_path / other).write_text("of another log\n")
    return LogFile(path=path, older=[(part, 0) for part in rotated(tmp_path)["node0.log"]])


def test_a_rotated_log_is_shown_whole(turned: LogFile):
    assert list(read_lines([turned])) == ["1", "2", "3", "4", "5", "6", "7", "eight", "9", "10"]


@pytest.mark.parametrize("count", range(1, 13))
def test_the_last_lines_of_a_rotated_log_are_found_in_its_older_parts(turned: LogFile, count: int):
    lines = ["1", "2", "3", "4", "5", "6", "7", "ei", "ght", "9", "10"]
    assert list(read_lines([turned], Wanted(tail=count))) == lines[-count:]


def test_the_last_lines_that_match_are_found_in_older_parts(turned: LogFile):
    assert list(read_lines([turned], Wanted(tail=2, grep=re.compile("[35]")))) == ["3", "5"]


def test_lines_since_a_time_before_the_rotation_are_shown(turned: LogFile):
    rows = times_file(turned.path)
    rows.parent.mkdir()
    rows.write_text("500 2\n900 4\n1500 4\n1800 6\n2500 4\n")
    whole, shown = list(turned.older), {}
    for since in (100, 950, 1200, 1600, 2200, 2700, 3500):
        file = LogFile(path=turned.path, older=list(whole))
        assert skip_before([file], since) == []
        shown[since] = list(read_lines([file]))
    assert shown == {
        100: ["1", "2", "3", "4", "5", "6", "7", "eight", "9", "10"],
        950: ["3", "4", "5", "6", "7", "eight", "9", "10"],
        1200: ["4", "5", "6", "7", "eight", "9", "10"],
        1600: ["6", "7", "eight", "9", "10"],
        2200: ["ght", "9", "10"],
        2700: ["9", "10"],
        3500: [],
    }


def test_what_follows_a_rotated_log_comes_after_all_of_its_parts(turned: LogFile):
    def grow() -> None:
        with turned.path.open("a") as stream:
            stream.write("11\n")

    assert followed(turned, Wanted(tail=4), nothing, grow, nothing) == ["ei", "ght", "9", "10", "11"]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_part_that_cannot_be_read_is_named(tmp_path: Path, suffix: str):
    path, part = tmp_path / "node0.log", tmp_path / f"node0.log-20261128{suffix}"
    path.write_text("new\n")
    part.write_bytes(PACKED[suffix](b"old\n"))
    assert list(read_lines([LogFile(path=path, older=[(part, 0)])])) == ["old", "new"]
    part.write_bytes(PACKED[suffix](b"old\n")[:-3])
    file = LogFile(path=path, older=[(part, 0), (tmp_path / "node0.log.1.zst", 0)])
    assert list(read_lines([file]))[-1] == "new"
    assert [str(part) in file.unread[0], "its format .zst cannot be read" in file.unread[1]] == [True, True]


def test_the_reason_of_a_failure_is_found_in_a_log_that_was_rotated_since(
    launch: Launch,
    overrides: tuple[str, ...],  # noqa: F811
    tmp_path: Path,
):
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text("#!/usr/bin/env bash\necho \"KeyError: 'layers'\"\nexit 1\n")
    assert launch("run", *overrides).code == 1
    log = tmp_path / "out/logs/node0.log"
    log.rename(f"{log}.1")
    log.touch()
    assert launch("logs", "out", "--tail", "1").out == "KeyError: 'layers'\n"
    assert f"evidence: {log}.1:1" in launch("status", "out").out


def test_a_time_within_a_line_shows_the_line(tmp_path: Path):
    file = log(tmp_path, "first\nsecond\n")
    file.skip_to(9)
    assert list(read_lines([file], Wanted(tail=5))) == ["second"]


def test_what_writes_a_log_keeps_when_it_grew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "node0.log"
    times = LogTimes(path)
    for number, now in enumerate((1000, 1003, 5000, 5001, 5020)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        times.grows(5 * number)
    # What was written up to 1003 is 10 bytes; up to 5001 it is 20.
    assert times_file(path).read_text().splitlines() == ["1000 5", "1003 10", "5001 20"]


MOMENTS = {"90s": 90, "10m": 600, "2h": 7200, "1d": 86400}


def test_times_are_written_as_an_age_or_as_a_date():
    for text, seconds in MOMENTS.items():
        assert moment(text) == pytest.approx(time.time() - seconds, abs=5)
    assert moment("1970-01-01T00:01:00Z") == 60
    assert moment("1970-01-01T01:01:00+01:00") == 60


WRONG = {
    "--tail 0": ("--tail", "0", "at least 1"),
    "--tail x": ("--tail", "x", "invalid int value"),
    "--since yesterday": ("--since", "yesterday", "neither a time ago nor a date"),
    "--since 99999999999d": ("--since", "999999999d", "neither a time ago nor a date"),
}


@pytest.mark.slow
def test_logs_take_tail_since_and_grep_together(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):  # noqa: F811
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text("#!/usr/bin/env bash\nfor i in 1 2 3 4; do echo a $i; echo '[rank1]' b $i; done\n")
    assert launch("run", *overrides).code == 0
    assert launch("logs", "out", "--tail", "2").out == "a 4\n[rank1] b 4\n"
    assert launch("logs", "out", "-f", "--tail", "2", "--rank", "1").out == "b 3\nb 4\n"
    assert launch("logs", "out", "--tail", "1", "--grep", "a [23]", "--since", "1h").out == "a 3\n"
    assert launch("logs", "out", "--since", "2100-01-01T00:00").out == ""
    for name, (option, value, message) in WRONG.items():
        done = launch("logs", "out", option, value)
        assert (done.code, message in done.err) == (2, True), (name, done)


@pytest.mark.slow
def test_a_terminal_gets_the_colours_of_a_log_and_obeys_nothing_else(
    launch: Launch,
    overrides: tuple[str, ...],  # noqa: F811
    tmp_path: Path,
):
    line = "\x1b[1;31mred\x1b[0m\t1%\r2% \x1b]0;title\x07 \x1b[2J \x9b2J"
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text(f"#!/usr/bin/env bash\nprintf '%s\\n' '{line}'\n")
    assert launch("run", *overrides).code == 0
    assert launch("logs", "out").out == f"{line}\n".replace("\r", "\n")  # as Python reads a text
    shown = in_terminal(80, "logs", str(tmp_path / "out"), cwd=tmp_path)
    assert shown == "\x1b[1;31mred\x1b[0m\t1%\r2% \\x1b]0;title\\x07 \\x1b[2J \\x9b2J\r\n"


def test_a_line_of_many_chunks_is_one_line(tmp_path: Path):
    file = log(tmp_path, "")
    chunk = b"x" * (1 << 20)
    with file.path.open("wb") as stream:
        for _ in range(64):
            stream.write(chunk)
        stream.write(b"\nnext\nlast")
    first, second, third = read_lines([file])
    assert (len(first), second, third) == (64 << 20, "next", "last")


def test_the_times_of_a_long_run_are_its_last_ones(tmp_path: Path):
    path = tmp_path / "node0.log"
    path.write_text("x" * 1000)
    times_file(path).parent.mkdir()
    times_file(path).write_text("".join(f"{1_000_000_000 + 10 * row} 10\n" for row in range(400_000)))
    assert offset_since(path, 1_003_999_000) == (10, True)
    times_file(path).write_text(f"{'1' * 5000} 5\n5 {'1' * 5000}\n")
    assert offset_since(path, 1_003_999_000) == (0, False)
