"""Ends what a run started here when the program that started it is killed and can do nothing itself any more."""

import contextlib
import subprocess
from types import TracebackType

from launcher.executors.render import GRACE_SECONDS, shell_body


class Guard:
    """A process beside the run that waits for the end of this one; it looks for the run's mark, never for names."""

    def __init__(self, run_id: str, *, enabled: bool = True) -> None:
        self._run_id, self._enabled = run_id, enabled
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Guard":
        if self._enabled:
            # Without bash or /proc there is no guard; the run itself is none the worse.
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    ["bash", "-c", shell_body("guard"), "guard", self._run_id, str(GRACE_SECONDS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._tell(b"")
            with contextlib.suppress(OSError):
                self._process.communicate()

    def watch(self, group: int) -> None:
        """Name the process group that runs now."""
        self._tell(f"{group}\n".encode())

    def _tell(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line)
                self._process.stdin.flush()
