"""Ends the processes of a run on this machine when the program that started it is killed."""

import contextlib
import subprocess
from types import TracebackType

from launcher.executors.render import GRACE_SECONDS
from launcher.executors.shell_bodies import shell_body


class Watchdog:
    """A process that outlives this one and then ends the run's processes, found by the run's mark, never by name."""

    def __init__(self, run_id: str, *, enabled: bool = True) -> None:
        self._run_id, self._enabled = run_id, enabled
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Watchdog":
        if self._enabled:
            # Without bash or /proc there is no watchdog; the run itself does not depend on it.
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    ["bash", "-c", shell_body("watchdog"), "watchdog", self._run_id, str(GRACE_SECONDS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._report(b"")
            with contextlib.suppress(OSError):
                self._process.communicate()

    def watch(self, group: int) -> None:
        """Send the process group that runs now to the watchdog."""
        self._report(f"{group}\n".encode())

    def _report(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line)
                self._process.stdin.flush()
