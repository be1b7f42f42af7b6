"""Finds the root error among many ranks: the earliest one that is not a consequence of another rank's exit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.executors.record import Exit, Record, read_exits
from launcher.job.secret import redacted
from launcher.observe.reasons import REASONS, Reason

_READ = 4_000_000
_RANK = re.compile(r"^\[rank(\d+)\]:? ?(.*)")
# torch elastic's summary, "Root Cause (first observed failure)": these lines follow it.
_ROOT_CAUSE = "Root Cause (first observed failure)"
_SUMMARY = {
    "rank": re.compile(r"^\s*rank\s*:\s*(\d+)"),
    "host": re.compile(r"^\s*host\s*:\s*(\S+)"),
    "code": re.compile(r"^\s*exitcode\s*:\s*(-?\d+)"),
}
# Lines that quote an error, or come from the program that monitors the ranks.
_ECHO = re.compile(r"torch\.distributed\.elastic|torch/distributed/elastic|torch/distributed/run\.py|^\s+File \"")
_ERRORS_SINCE = re.compile(r"^launch: attempt \d+ failed|^launch: resumes from ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run failed.

    Attributes:
        rank: global rank that failed first; None if only its node is known.
        node, host: of that rank.
        code: exit code of the node.
        reason: name in the table, "" if no log line matches.
        message: log line with the error.
        meaning: explanation of the reason.
        fields: canonical fields that affect it.
    """

    rank: int | None
    node: int
    host: str
    code: int
    reason: str = ""
    message: str = ""
    meaning: str = ""
    fields: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the failure as a few lines of text."""
        who = f"rank {self.rank} on {self.host}" if self.rank is not None else f"node {self.node} ({self.host})"
        lines = [f"failed first: {who}, exit code {self.code}" + (f": {self.meaning}" if self.meaning else "")]
        if self.message:
            lines.append(f"  {self.message[:300]}")
        if self.fields:
            lines.append(f"  change: {' · '.join(self.fields)}")
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A log line with an error: its rank, text and reason."""

    rank: int | None
    text: str
    reason: Reason


def first_failure(record: Record) -> Failure | None:
    """Return what failed first in a run's last attempt; None if nothing did."""
    folder = Path(record.folder)
    exits = read_exits(folder)
    last = max((end.attempt for end in exits), default=0)
    failed = [end for end in exits if end.attempt == last and end.code and end.how != "stopped"]
    if not failed:
        return None
    found = [failure for end in failed for failure in _of_node(record, folder, end)]
    primary = [item for item in found if item[1] is not None and not item[1].consequence]
    known = [item for item in found if item[1] is not None]
    return (primary or known or found)[0][0]


def _of_node(record: Record, folder: Path, end: Exit) -> Iterator[tuple[Failure, Reason | None]]:
    """Yield why a node failed: from a log line of its ranks, else only from its exit code."""
    text = _text(folder / "logs" / f"node{end.node}.log")
    rank, lines = _summary_rank(text), list(_error_lines(text, end.node * record.devices_per_node))
    for number in range(record.devices_per_node if record.rank_log else 0):
        own = end.node * record.devices_per_node + number
        path = folder / record.rank_log.replace("{rank}", str(own))
        lines += _error_lines(_text(path), own)
    chosen = _chosen(lines, rank)
    if chosen is None:
        yield Failure(rank=rank, node=end.node, host=end.host, code=end.code), None
        return
    yield (
        Failure(
            rank=chosen.rank if rank is None or not chosen.reason.consequence else rank,
            node=end.node,
            host=end.host,
            code=end.code,
            reason=chosen.reason.name,
            message=redacted(chosen.text),
            meaning=chosen.reason.meaning,
            fields=chosen.reason.fields,
        ),
        chosen.reason,
    )


def _chosen(lines: list[_Line], rank: int | None) -> _Line | None:
    """Return the most informative line: not a consequence, specific, of the rank in the summary, first."""
    order = {reason.name: place for place, reason in enumerate(REASONS)}
    general = order["assertion"]

    def key(item: tuple[int, _Line]) -> tuple[bool, bool, bool, int]:
        place, line = item
        return (
            line.reason.consequence,
            order[line.reason.name] > general,
            rank is not None and line.rank != rank,
            place,
        )

    return min(enumerate(lines), key=key)[1] if lines else None


def _error_lines(text: str, first_rank: int) -> Iterator[_Line]:
    """Yield the lines of a node's log that match the table; lines without a rank prefix are of its first rank."""
    for raw in text.splitlines():
        if _ECHO.search(raw):
            continue
        marked = _RANK.match(raw)
        rank, line = (int(marked[1]), marked[2]) if marked else (first_rank, raw)
        again = _RANK.match(line)
        line = again[2] if again else line  # torch prefixes the lines of an uncaught exception itself
        for reason in REASONS:
            if reason.pattern.search(line):
                yield _Line(rank=rank, text=line.strip(), reason=reason)
                break


def _summary_rank(text: str) -> int | None:
    """Return the rank that torch elastic reports as the first failure on its node."""
    _, found, after = text.rpartition(_ROOT_CAUSE)
    match = next((match for line in after.splitlines()[:8] if (match := _SUMMARY["rank"].match(line))), None)
    return int(match[1]) if found and match else None


def _text(path: Path) -> str:
    """Return the end of a log, from the last attempt on."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _READ))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _ERRORS_SINCE.match(line)]
    return "\n".join(lines[starts[-1] + 1 :]) if starts else text
