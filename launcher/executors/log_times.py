"""When a log grew: rows of a time and the size that it had then, since lines of most backends have no time.

`output.py` writes them on this machine, `shell/record.sh` on other nodes: `logs/times/node0`.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from launcher.executors import private
from launcher.executors.log_parts import is_compressed

TIMES = "times"
# Rows of about nine days: of a longer run the last ones.
_TAIL = 2_000_000
_DIGITS = 20
# Lines of up to so many seconds before the requested time are shown, too.
EVERY_SECONDS = 10


class LogTimes:
    """Writes the rows of one log while it grows."""

    def __init__(self, log: Path) -> None:
        self._file = times_file(log)
        self._row = self._written = 0.0

    def grows(self, size: int) -> None:
        """Take the size of the log before more is written to it.

        Raises:
            OSError: the row cannot be written.
        """
        now = time.time()
        if self._written and now - self._row >= EVERY_SECONDS:
            private.make_folder(self._file.parent)
            with open(self._file, "a", encoding="utf-8", opener=private.opener) as rows:
                rows.write(f"{int(self._written)} {size}\n")
            self._row = now
        self._written = now


def times_file(log: Path) -> Path:
    """Return the file with the rows of a log."""
    return log.parent / TIMES / log.stem


def offset_since(log: Path, since: float, part: Path | None = None, begun: float = 0.0) -> tuple[int, bool]:
    """Return from where a log was written after a time, and whether that is known.

    Not known: no row tells it, and the log was written to since; then the offset is 0.

    Args:
        since: seconds since 1970.
        part: the older part of the log that is meant; None: the log itself.
        begun: when the part before was last written to.
    """
    try:
        now = (part or log).stat()
    except OSError:
        return 0, True
    if now.st_mtime < since:
        return now.st_size, True
    if begun >= since:
        return 0, True
    rows = [row for row in _rows(times_file(log)) if begun < row[0] <= now.st_mtime]
    for index in range(len(rows) - 1, 0, -1):
        if rows[index][1] < rows[index - 1][1]:  # the log was rotated
            rows = rows[index:]
            break
    if part is None or not is_compressed(part):
        rows = [row for row in rows if row[1] <= now.st_size]
    found = bisect_right([row[0] for row in rows], since)
    return (rows[found - 1][1] if found else 0), bool(rows)


def _rows(file: Path) -> Iterator[tuple[int, int]]:
    try:
        with private.open_to_read(file) as stream:
            start = stream.seek(max(0, stream.seek(0, 2) - _TAIL))
            lines = stream.read(_TAIL).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines[1:] if start else lines:  # the first one is not complete
        at, _, size = line.partition(" ")
        if at.isdecimal() and size.isdecimal() and len(line) < 2 * _DIGITS:
            yield int(at), int(size)
