"""Compares recorded output with what a command prints, and records it anew.

`…` in a recorded line stands for any text in that line; a line that is only `…` stands for any number of lines. Times,
ports, paths and numbers that differ from run to run are elided like this, and so is what a reader need not see.
"""

import difflib
import re
from collections.abc import Sequence

ANY = "…"
# What differs from run to run: elided where output is recorded anew.
VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?"), ANY),
    (re.compile(r"(?<=MASTER_PORT=)\d+|(?<=--master_port )\d+|(?<=\bport )\d{4,5}\b"), ANY),
    # A rehearsal's log, and what `launch status` says of it: last digits and speed depend on the machine.
    (re.compile(r"(?<=loss \d\.\d)\d+"), ANY),
    (re.compile(r"(?<=to \d\.\d)\d+(?= in \d+ iterations)"), ANY),
    (re.compile(r"(?<=\| )grad norm .*|(?<=iterations, ).*s, .*tokens/s"), ANY),
    (re.compile(r"(?<=^loss        \d\.\d).*|(?<=^step        ).*|(?<=^speed       ).*"), ANY),
    (re.compile(r"(?<=Z by ).*|(?<=exit        attempt 0, node 0 on )\S+(?=:)"), ANY),
    # A Kubernetes object's name, from the folder.
    (re.compile(r"(?<=: qwen3-8b-)[0-9a-f]{6}\b"), ANY),
    # Lines of our own files: they move with every commit.
    (re.compile(r"(?<![\w/])((?:recipes|conf|launcher|backends)/[\w/.]+:)\d+"), rf"\1{ANY}"),
    # How long it took.
    (re.compile(r"(?<=\()[\d.]+ s(?=\))|(?<= in )\d+ s( \(\d+ MB/s\))?|(?<=estimated, )[\d.]+ s"), ANY),
    # What is installed here.
    (re.compile(r"(?<=# cannot run on this machine ).*|[\d.]+(?= GiB free on)"), ANY),
)


def agrees(recorded: Sequence[str], printed: Sequence[str]) -> bool:
    """Return whether printed lines are what is recorded."""
    pattern = "".join(r"(?:.*\n)*?" if line == ANY else _pattern(line) + r"\n" for line in recorded)
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def recorded_anew(recorded: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return what to record of printed lines, elided where the record was, as far as its lines are found again."""
    if agrees(recorded, printed):
        return list(recorded)
    lines = [without_varying(line.rstrip()) for line in printed]
    parts = _split(recorded)
    if len(parts) == 1:
        return [_like(recorded, line) for line in lines]
    first, *middle, last = parts
    kept = lines[: len(first)]
    place = len(kept)
    for part in middle:
        start = _found(part, lines, place)
        kept += [ANY, *lines[start : start + len(part)]]
        place = start + len(part)
    return [
        _like(recorded, line) for line in [*kept, ANY, *(lines[max(place, len(lines) - len(last)) :] if last else [])]
    ]


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split(ANY))


def without_varying(line: str) -> str:
    """Return a printed line with what differs from run to run elided."""
    for pattern, replacement in VARYING:
        line = pattern.sub(replacement, line)
    return line


def _split(lines: Sequence[str]) -> list[list[str]]:
    """Return the parts of a record between its lines `…`."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == ANY:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _found(part: Sequence[str], lines: Sequence[str], place: int) -> int:
    """Return where a part of the record begins in the new lines: at the line most like its first."""
    scores = [difflib.SequenceMatcher(None, part[0] if part else "", line).ratio() for line in lines[place:]]
    return place + scores.index(max(scores)) if scores else place


def _like(recorded: Sequence[str], line: str) -> str:
    """Return the recorded line that a printed one still agrees with, for its elisions, or the printed one."""
    return next((old for old in recorded if ANY in old and old != ANY and re.fullmatch(_pattern(old), line)), line)
