"""Runs a command and measures it: wall clock, processor, memory."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_EVERY = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: seconds of wall clock, of the processor, and the peak of resident memory in bytes."""

    wall: float
    cpu: float
    resident: int

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, CPU {self.cpu:.1f} s, resident {self.resident / 1e6:.0f} MB"


def best(runs: Sequence[Measured]) -> Measured:
    """Return the best time of several runs, and their largest memory."""
    return Measured(
        wall=min(run.wall for run in runs), cpu=min(run.cpu for run in runs), resident=max(run.resident for run in runs)
    )


def measure(
    argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, *, children: bool = False
) -> Measured:
    """Run a command to its end and measure it; what it prints goes to `log`.

    `children`: of memory take the largest resident set of it and its children. It is not the measure otherwise, since
    it begins with that of this process, from which the command is forked.

    Raises:
        SystemExit: it failed.
    """
    env = {name: value for name, value in (env or os.environ).items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("w") as output:
        started = time.monotonic()
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env)
        peak = 0
        while True:
            peak = max(peak, _resident(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(_SAMPLE_EVERY)
        wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit code {process.returncode}\n{log.read_text()[-3000:]}")
    resident = usage.ru_maxrss * 1024 if children else peak
    return Measured(wall=wall, cpu=usage.ru_utime + usage.ru_stime, resident=resident)


def _resident(pid: int) -> int:
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM")


def available_memory() -> int:
    """Return the bytes of memory that a program can have without swapping."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def _kilobytes(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)
