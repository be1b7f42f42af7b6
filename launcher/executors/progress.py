"""Progress of a run: its last complete checkpoint, and the last log line with an iteration."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

from launcher.executors import private
from launcher.executors.record import PROGRESS, RUN
from launcher.plan import Watch

# Bytes at the end of a log in which its last iteration is looked for.
LOG_TAIL = 20000
# Of nodes that print iterations so many are read, those that did last.
_NEWEST = 4


def last_checkpoint(watch: Watch, launch_dir: str) -> str | None:
    """Return the folder of the newest complete checkpoint, by the backend's own tracker file; None if there is none."""
    if watch.checkpoints is None:
        return None
    root = Path(launch_dir) / watch.checkpoints
    found: list[tuple[float, str]] = []
    for pattern, tracker in watch.trackers:
        for folder in root.glob(pattern) if pattern else (root,):
            file = folder / tracker
            if file.is_file() and file.stat().st_size:
                found.append((file.stat().st_mtime, str(folder)))
    return max(found)[1] if found else None


def last_iteration(folder: Path, iteration_line: str, rank_log: str) -> str | None:
    """Return the last line with an iteration: of the nodes that wrote down that they print some, else of all logs."""
    if not iteration_line:
        return None
    pattern = re.compile(iteration_line)
    found = None
    newest = _newest(folder)
    if newest:
        # What a node wrote may be a second old.
        return next((line for file in [*_logs_of(newest), *newest] if (line := _last(file, pattern))), None)
    for file in _logs(folder, rank_log):
        found = _last(file, pattern) or found
    return found


def likely_logs(folder: Path, rank_log: str) -> Iterator[Path]:
    """Yield the logs that may have lines with iterations, those of nodes that wrote down that they print some first."""
    yield from _logs_of(_newest(folder))
    yield from reversed(list(_logs(folder, rank_log)))


def _newest(folder: Path) -> list[Path]:
    """Return what the nodes that print iterations wrote down, the newest first."""
    return sorted((folder / RUN / PROGRESS).glob("[0-9]*"), key=_time, reverse=True)[:_NEWEST]


def _logs_of(written: list[Path]) -> list[Path]:
    return [file.parents[2] / "logs" / f"node{file.name}.log" for file in written]


def _last(file: Path, pattern: re.Pattern[str]) -> str | None:
    return next((line for line in reversed(_tail(file).splitlines()) if pattern.search(line)), None)


def _time(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


class Progress:
    """Detects a hang: no new iteration for too long, or no first one."""

    def __init__(
        self, folder: Path, watch: Watch, hang_seconds: float | None, startup_seconds: float | None = None
    ) -> None:
        self._folder, self._watch = folder, watch
        self._hang_seconds, self._startup_seconds = hang_seconds, startup_seconds
        self._first = self._seen = self._look()
        self._since = time.monotonic()

    def silent(self) -> float:
        """Return the seconds without a new iteration if that is a hang; else 0."""
        if not self._watches():
            return 0.0
        found = self._look()
        if found != self._seen:
            self._seen, self._since = found, time.monotonic()
        silence = time.monotonic() - self._since
        limit = self._startup_seconds if self._seen == self._first else self._hang_seconds
        return silence if limit is not None and silence > limit else 0.0

    def _watches(self) -> bool:
        limits = (self._hang_seconds, self._startup_seconds)
        return bool(self._watch.iteration_line) and any(limit is not None for limit in limits)

    def _look(self) -> str | None:
        if not self._watches():
            return None
        return last_iteration(self._folder, self._watch.iteration_line, self._watch.rank_log)


def _logs(folder: Path, rank_log: str) -> Iterator[Path]:
    yield from sorted((folder / "logs").glob("node*.log"))
    if rank_log:
        yield from sorted(folder.glob(rank_log.replace("{rank}", "*")))


def _tail(file: Path) -> str:
    try:
        with private.open_to_read(file) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - LOG_TAIL))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
