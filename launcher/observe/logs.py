"""Logs of a run: of all nodes or of one rank, once or followed, optionally filtered."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from launcher.executors import private
from launcher.executors.record import Record
from launcher.plan.executor import find_executor

_MARK = re.compile(r"^\[rank(\d+)\] (.*)$", re.DOTALL)
_POLL_SECONDS = 0.3


class NoSuchRank(ValueError):
    """The run has no rank of that number."""


@dataclass(slots=True)
class _Source:
    """One file that is read from where the last read ended."""

    path: Path
    label: str
    rank: int | None = None
    rank_is_first: bool = False
    offset: int = 0
    rest: bytes = b""
    lines: list[str] = field(default_factory=list)

    def read(self, *, last: bool) -> Iterator[str]:
        """Yield the complete lines that are new; at the very end also one without its line break."""
        try:
            with private.open_to_read(self.path) as stream:
                stream.seek(self.offset)
                chunk = stream.read()
        except OSError:
            return
        self.offset += len(chunk)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        if last and self.rest:
            lines, self.rest = [*lines, self.rest], b""
        for line in lines:
            text = self._own(line.decode("utf-8", "replace"))
            if text is not None:
                yield text

    def _own(self, line: str) -> str | None:
        if self.rank is None:
            return line
        mark = _MARK.match(line)
        if mark is None:
            return line if self.rank_is_first else None
        return mark[2] if int(mark[1]) == self.rank else None


def fetch(record: Record) -> None:
    """Copy a run's newest log lines to its directory if its queue keeps them elsewhere."""
    executor = find_executor(record.executor)
    if executor is not None:
        executor.fetch(record.handle)


def _own_logs(record: Record) -> tuple[str, ...]:
    executor = find_executor(record.executor)
    return () if executor is None else executor.log_files


def sources(record: Record, rank: int | None = None) -> list[_Source]:
    """Return the files that hold the output of a run, or of one of its ranks.

    Raises:
        NoSuchRank: the run has fewer ranks.
    """
    folder = Path(record.folder)
    if rank is None:
        several = record.nodes > 1
        found = [
            _Source(path=folder / "logs" / f"node{node}.log", label=f"node{node}: " if several else "")
            for node in range(record.nodes)
        ]
        return [*found, *(_Source(path=folder / "logs" / name, label="") for name in _own_logs(record))]
    world = record.nodes * record.devices_per_node
    if not 0 <= rank < world:
        raise NoSuchRank(f"run {record.id} has ranks 0 to {world - 1}, not {rank}")
    if record.rank_log:
        return [_Source(path=folder / record.rank_log.replace("{rank}", str(rank)), label="")]
    node, local = divmod(rank, record.devices_per_node)
    return [_Source(path=folder / "logs" / f"node{node}.log", label="", rank=rank, rank_is_first=local == 0)]


def read_lines(
    files: list[_Source], *, grep: re.Pattern[str] | None = None, follow: Callable[[], bool] | None = None
) -> Iterator[str]:
    """Yield lines of logs, each with the name of its node where there are several.

    Args:
        grep: only lines that match this pattern.
        follow: returns whether more lines may follow; None: only existing lines.
    """
    while True:
        more = follow is not None and follow()
        for source in files:
            for line in source.read(last=not more):
                if grep is None or grep.search(line):
                    yield source.label + line
        if not more:
            return
        time.sleep(_POLL_SECONDS)
