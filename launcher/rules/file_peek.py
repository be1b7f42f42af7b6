"""What a data file is, from its first bytes: container, first record, columns; never the whole file."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.records import dataclass

# Bytes that are read of a file: the first record of most, the names of the first columns of the others.
_HEAD = 16 * 1024
# Signatures of containers. Source: the formats' specifications, and Megatron-core's indexed_dataset.py (_INDEX_HEADER).
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"MMIDIDX\x00\x00", "indexed"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),
    (b"\x1f\x8b", "compressed"),
    (b"\x28\xb5\x2f\xfd", "compressed"),
    (b"\xfd7zXZ\x00", "compressed"),
    (b"BZh", "compressed"),
    (b"PK\x03\x04", "compressed"),
)
KINDS: Mapping[str, str] = {
    "empty": "an empty file",
    "folder": "a folder",
    "empty folder": "an empty folder",
    "indexed": "Megatron's token files (.bin and .idx)",
    "parquet": "a Parquet file",
    "arrow": "an Arrow file",
    "compressed": "a compressed file",
    "binary": "binary data",
    "json": "JSON",
    "not json": "not JSON",
    "csv": "a CSV file",
    "text": "plain text",
}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """The beginning of a file.

    Attributes:
        kind: one of `KINDS`.
        line: line of the first record; 0: the file has no lines.
        columns: names of the first record's columns.
        complete: all of its columns were within what was read.
        record: the first record, where it was read as a whole.
        problem: why the first line is not JSON.
        spread: the first record is not one line: an array's, or written over several lines.
    """

    kind: str
    line: int = 0
    columns: tuple[str, ...] = ()
    complete: bool = True
    record: Mapping[str, Any] | None = None
    problem: str = ""
    spread: bool = False


def peek(path: str) -> Peek | None:
    """Return what a file or folder is; None: nothing is there, it cannot be read, or it is a pipe or a device."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            with os.scandir(path) as entries:
                return Peek(kind="folder" if next(entries, None) else "empty folder")
        if not stat.S_ISREG(mode):
            return None
        # Without O_NONBLOCK a pipe that took the file's place meanwhile would be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return None
            head = stream.read(_HEAD + 1) or b""
    except OSError:
        return None
    return _of_bytes(head[:_HEAD], path, cut=len(head) > _HEAD)


def _of_bytes(head: bytes, path: str, *, cut: bool) -> Peek:
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return Peek(kind=kind)
    if _is_tokens(path):
        return Peek(kind="indexed")
    if b"\x00" in head:
        return Peek(kind="binary")
    text = head.decode("utf-8-sig", errors="replace")
    start = len(text) - len(text.lstrip())
    if start == len(text):
        return Peek(kind="text" if cut else "empty")
    line = text.count("\n", 0, start) + 1
    if text[start] in "{[":
        return _of_json(text, start, line, cut=cut)
    if path.endswith(".csv"):
        header = text[start:].partition("\n")[0]
        return Peek(kind="csv", line=line, columns=tuple(name.strip().strip('"') for name in header.split(",")))
    return Peek(kind="text", line=line)


def _is_tokens(path: str) -> bool:
    """Return whether a file is the tokens of a pair of files; only its index has a signature."""
    prefix, ending = os.path.splitext(path)
    return ending == ".bin" and os.path.isfile(f"{prefix}.idx")


def _of_json(text: str, start: int, line: int, *, cut: bool) -> Peek:
    """Return the first record of lines of JSON, or of an array of records."""
    begin = start
    if text[start] == "[":
        begin = len(text) - len(text[start + 1 :].lstrip())
        line += text.count("\n", start, begin)
        if text[begin : begin + 1] != "{":
            return Peek(kind="text" if text[begin : begin + 1].isalpha() else "json", line=line, complete=False)
    try:
        record, end = _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        unfinished = error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())
        if cut and unfinished:
            return Peek(kind="json", line=line, columns=tuple(_names(text, begin)), complete=False)
        place = f"line {error.lineno}, column {error.colno}"
        return Peek(kind="not json", line=error.lineno, problem=f"{error.msg[:1].lower()}{error.msg[1:]} ({place})")
    except RecursionError:
        return Peek(kind="json", line=line, complete=False)
    spread = begin > start or "\n" in text[begin:end]
    return Peek(kind="json", line=line, columns=tuple(map(str, record)), record=record, spread=spread)


def _names(text: str, start: int) -> Iterator[str]:
    """Yield the names of an object's columns, as far as the text goes."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif depth == 1 and text[match.end() :].lstrip()[:1] == ":":
            yield token[1:-1]
        if not depth:
            return
