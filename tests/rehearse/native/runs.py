"""Starts a backend's own command line as a native rehearsal and keeps what it printed."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.rehearse.native import NativeOnCpu, environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished process: its exit code, everything it printed, and how long it took in seconds."""

    code: int
    output: str
    seconds: float

    def check(self) -> "Run":
        """Return the run, or fail the test with the last lines where it did not end well."""
        assert self.code == 0, "\n".join(self.output.splitlines()[-40:])
        return self


def run_native(
    native: NativeOnCpu, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 600
) -> Run:
    """Run ``argv`` with what ``native`` adds to the environment, and wait for it."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("LAUNCH_REHEARSAL", "PYTEST"))}
    whole = {**base, **environment(native, {}), "OMP_NUM_THREADS": "1", **env}
    start = time.monotonic()
    result = subprocess.run(
        list(argv),
        cwd=cwd,
        env=whole,
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Run(code=result.returncode, output=result.stdout, seconds=time.monotonic() - start)
