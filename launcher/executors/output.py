"""Copies a process's output to its log and to the screen; neither a full disk nor a lost terminal stops it."""

import subprocess
import sys
import threading
from pathlib import Path

from launcher.executors.log_times import LogTimes

_CHUNK = 65536


class Output:
    """Reads a process's output to its end in a separate thread, since a full pipe would block the process."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path | None, *, quiet: bool) -> None:
        self.problem = ""
        """Why the log is incomplete; empty if it is complete."""
        self._process = process
        self._log = log
        self._quiet = quiet
        self._times = None if log is None else LogTimes(log)
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait for the end of the output; a process that left the group may keep the pipe open for longer."""
        self._thread.join(timeout=seconds)

    def _drain(self) -> None:
        assert self._process.stdout is not None
        while chunk := self._process.stdout.read1(_CHUNK):  # type: ignore[attr-defined]
            self._write(chunk)
            if not self._quiet:
                _show(chunk)

    def _write(self, chunk: bytes) -> None:
        if self._log is None or self._times is None:
            return
        try:
            # Reopened for each chunk and unbuffered: what cannot be written is dropped, later output is still written.
            with self._log.open("ab", buffering=0) as file:
                self._times.grows(file.tell())
                rest = memoryview(chunk)
                while rest:
                    rest = rest[file.write(rest) :]
        except OSError as error:
            self.problem = self.problem or error.strerror or str(error)


def _show(chunk: bytes) -> None:
    try:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    except (OSError, ValueError, AttributeError):
        return  # the reader (head, less) or the terminal is closed; the log continues
