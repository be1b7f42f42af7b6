"""Ends the processes of a run on this machine when the program that started it is killed."""

import contextlib
import subprocess
from pathlib import Path
from types import TracebackType

from launcher.executors.end_reasons import STARTER_KILLED
from launcher.executors.render import GRACE_SECONDS
from launcher.executors.shell_bodies import shell_body


class Watchdog:
    """A process that outlives this one and then ends the run's processes, found by the run's mark, never by name.

    Args:
        status: the run's status file, in which it writes that the run was ended.
    """

    def __init__(self, run_id: str, status: Path, *, enabled: bool = True) -> None:
        self._run_id, self._status, self._enabled = run_id, status, enabled
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _args(self) -> tuple[str, ...]:
        return self._run_id, str(GRACE_SECONDS), str(self._status.absolute()), STARTER_KILLED

    def __enter__(self) -> "Watchdog":
        if self._enabled:
            # Without bash or /proc there is no watchdog; the run itself does not depend on it.
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    ["bash", "-c", shell_body("watchdog"), "watchdog", *self._args],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._report(b"end\n")
            with contextlib.suppress(OSError):  # it has ended before
                self._process.communicate()

    def watch(self, group: int) -> None:
        """Send the process group that runs now to the watchdog."""
        self._report(f"{group}\n".encode())

    def _report(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it was killed: the run goes on without it
                self._process.stdin.write(line)
                self._process.stdin.flush()
