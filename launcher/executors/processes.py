"""Finds the descendants of a process that we started, so that all of them can be ended, and nothing else."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from launcher.records import dataclass

# Indices in /proc/PID/stat after the name in parentheses, which may hold spaces; see proc_pid_stat(5), fields 3, 4, 22.
_STATE, _PARENT, _START = 0, 1, 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, identified by its number and its start time (clock ticks since boot), since numbers are reused."""

    pid: int
    start: int


def identified(pid: int) -> Process | None:
    """Return the process that has this number now; None if there is none, it has ended, or /proc is not readable."""
    fields = _stat(pid)
    # A zombie has ended, but its parent has not waited for it yet.
    return None if fields is None or fields[_STATE] == "Z" else Process(pid=pid, start=int(fields[_START]))


def descendants(pid: int) -> list[Process]:
    """Return the descendants of `pid`, nearest first; empty if /proc is not readable."""
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


def ranks_below(pid: int) -> list[Process]:
    """Return the ranks among the descendants of a process, without those that ranks start (workers of data loaders).

    A platform may set RANK for the node, so that also what starts the ranks has it: LOCAL_RANK counts first.
    """
    below = descendants(pid)
    return _outermost(below, b"LOCAL_RANK=") or _outermost(below, b"RANK=")


def _outermost(below: Iterable[Process], sign: bytes) -> list[Process]:
    ranks: list[Process] = []
    inner: set[int] = set()
    for process in below:
        parent = (_stat(process.pid) or ["", "0"])[_PARENT]
        if int(parent) in inner:
            inner.add(process.pid)
        elif _has_variable(process.pid, sign):
            ranks.append(process)
            inner.add(process.pid)
    return ranks


def _has_variable(pid: int, sign: bytes) -> bool:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(sign) for word in words)


def runs_script_of(folder: Path) -> bool:
    """Return whether a process of this user on this machine is a shell that runs one of a run's own scripts."""
    start = f"{folder}/".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and words[0].endswith(b"bash") and words[1].startswith(start) and words[1].endswith(b".sh"):
            return True
    return False


def kill_all(processes: Iterable[Process]) -> None:
    """Kill processes; ended ones are skipped, as are unrelated ones that have reused a number."""
    signal_all(processes, signal.SIGKILL)


def signal_all(processes: Iterable[Process], number: int) -> None:
    """Signal processes; ended ones are skipped, as are unrelated ones that have reused a number."""
    for process in processes:
        if identified(process.pid) != process:
            continue
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # ended just now


def _stat(pid: int) -> list[str] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > _START else None
