"""Who descends from a process that we started, so that all of it can be ended, and nothing else."""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Places in /proc/PID/stat after the name in parentheses, which may hold spaces; see proc_pid_stat(5), fields 3, 4, 22.
_STATE, _PARENT, _START = 0, 1, 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process and no other: its number, and when it started (clock ticks since boot), for numbers are reused."""

    pid: int
    start: int


def identified(pid: int) -> Process | None:
    """Return the process that has this number now; None if there is none, it has ended, or /proc does not tell."""
    fields = _stat(pid)
    # A zombie has ended: only its parent has not asked yet.
    return None if fields is None or fields[_STATE] == "Z" else Process(pid=pid, start=int(fields[_START]))


def descendants(pid: int) -> list[Process]:
    """Return the processes below `pid`, nearest first; empty where /proc does not tell."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        number = int(entry.name)
        fields = _stat(number)
        if fields is not None:
            children.setdefault(int(fields[_PARENT]), []).append(Process(pid=number, start=int(fields[_START])))
    found: list[Process] = []
    queue = list(children.get(pid, []))
    while queue:
        process = queue.pop(0)
        found.append(process)
        queue += children.get(process.pid, [])
    return found


def kill_all(processes: Iterable[Process]) -> None:
    """Kill processes; those that have ended are no fault, and a foreign one that got a number since is left alone."""
    for process in processes:
        if identified(process.pid) != process:
            continue
        try:
            os.kill(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _stat(pid: int) -> list[str] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > _START else None
