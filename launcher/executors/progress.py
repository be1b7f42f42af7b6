"""Progress of a run: its last complete checkpoint, and the last log line with an iteration."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

from launcher.executors import private
from launcher.plan import Watch

_TAIL = 20000


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
    """Return the last line with an iteration in the ends of a run's logs."""
    if not iteration_line:
        return None
    pattern = re.compile(iteration_line)
    found = None
    for file in _logs(folder, rank_log):
        for line in _tail(file).splitlines():
            if pattern.search(line):
                found = line
    return found


class Progress:
    """Detects a hang: no new iteration for too long after the first one."""

    def __init__(self, folder: Path, watch: Watch, hang_seconds: float | None) -> None:
        self._folder, self._watch, self._hang_seconds = folder, watch, hang_seconds
        self._first = self._seen = self._look()
        self._since = time.monotonic()

    def silent(self) -> float:
        """Return the seconds without a new iteration if that is a hang; else 0."""
        if self._hang_seconds is None:
            return 0.0
        found = self._look()
        if found != self._seen:
            self._seen, self._since = found, time.monotonic()
        silence = time.monotonic() - self._since
        return silence if self._seen != self._first and silence > self._hang_seconds else 0.0

    def _look(self) -> str | None:
        if self._hang_seconds is None:
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
            stream.seek(max(0, size - _TAIL))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
