"""Logs of a run: of all nodes or of one rank, once or followed; the last lines, those since a time, or some of them."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from launcher.executors.log_parts import rotated
from launcher.executors.log_times import offset_since
from launcher.executors.record import Record
from launcher.observe.log_file import LogFile
from launcher.plan.executor import find_executor
from launcher.records import dataclass

_POLL_SECONDS = 0.3
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d{1,9})([smhd])")


class NoSuchRank(ValueError):
    """The run has no rank of that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The lines of logs to show.

    Attributes:
        grep: only lines that match this pattern.
        tail: of each log only so many, the last ones; None: all.
        since: only lines written after this time, in seconds since 1970.
    """

    grep: re.Pattern[str] | None = None
    tail: int | None = None
    since: float | None = None

    def keeps(self, line: str) -> bool:
        """Return whether a line matches the pattern."""
        return self.grep is None or self.grep.search(line) is not None


def moment(text: str) -> float:
    """Return the seconds since 1970 of a time: `10m` ago (s, m, h, d), or a date and time in ISO 8601 (default: local).

    Raises:
        ValueError: it is neither.
    """
    found = _AGO.fullmatch(text.strip())
    if found is None:
        return datetime.fromisoformat(text.strip()).timestamp()
    return (datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})).timestamp()


def fetch(record: Record) -> None:
    """Copy a run's newest log lines to its directory if its queue keeps them elsewhere."""
    executor = find_executor(record.executor)
    if executor is not None:
        executor.fetch(record.handle)


def _own_logs(record: Record) -> tuple[str, ...]:
    executor = find_executor(record.executor)
    return () if executor is None else executor.log_files


def sources(record: Record, rank: int | None = None) -> list[LogFile]:
    """Return the files that hold the output of a run, or of one of its ranks.

    Raises:
        NoSuchRank: the run has fewer ranks.
    """
    found = _sources(record, rank)
    folders = {folder: rotated(folder) for folder in {file.path.parent for file in found}}
    for file in found:
        file.older = [(part, 0) for part in folders[file.path.parent].get(file.path.name, ())]
    return found


def _sources(record: Record, rank: int | None) -> list[LogFile]:
    folder = Path(record.folder)
    if rank is None:
        several = record.nodes > 1
        found = [
            LogFile(path=folder / "logs" / f"node{node}.log", label=f"node{node}: " if several else "")
            for node in range(record.nodes)
        ]
        return [*found, *(LogFile(path=folder / "logs" / name) for name in _own_logs(record))]
    world = record.nodes * record.devices_per_node
    if not 0 <= rank < world:
        raise NoSuchRank(f"run {record.id} has ranks 0 to {world - 1}, not {rank}")
    if record.rank_log:
        return [LogFile(path=folder / record.rank_log.replace("{rank}", str(rank)))]
    node, local = divmod(rank, record.devices_per_node)
    return [LogFile(path=folder / "logs" / f"node{node}.log", rank=rank, rank_is_first=local == 0)]


def skip_before(files: Sequence[LogFile], since: float) -> list[Path]:
    """Let files begin where they were written after a time; return those of which that is not recorded."""
    unknown = []
    for file in files:
        parts, file.older, begun = file.older, [], 0.0
        for part, _ in parts:
            written = _time(part)
            if written >= since:
                offset, known = offset_since(file.path, since, part, begun)
                file.older.append((part, offset))
                unknown += [] if known else [part]
            begun = written
        offset, known = offset_since(file.path, since, begun=begun)
        file.skip_to(offset)
        unknown += [] if known else [file.path]
    return unknown


def _time(part: Path) -> float:
    try:
        return part.stat().st_mtime
    except OSError:
        return 0.0


def read_lines(
    files: Sequence[LogFile], wanted: Wanted | None = None, *, follow: Callable[[], bool] | None = None
) -> Iterator[str]:
    """Yield lines of logs, each with the name of its node where there are several.

    Args:
        follow: returns whether more lines may follow; None: only existing lines.
    """
    wanted = wanted or Wanted()
    tail = wanted.tail
    while True:
        more = follow is not None and follow()
        for file in files:
            if tail is not None:
                for line in file.last_lines(tail, wanted.keeps, last=not more):
                    yield file.label + line
            for line in file.read(last=not more):
                if wanted.keeps(line):
                    yield file.label + line
        tail = None
        if not more:
            return
        time.sleep(_POLL_SECONDS)
