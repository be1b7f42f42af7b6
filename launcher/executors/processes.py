"""Who descends from a process that we started, so that all of it can be ended, and nothing else."""

import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, nearest first; empty where /proc does not tell."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may hold spaces; the parent is the second field after it.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    queue = list(children.get(pid, []))
    while queue:
        process = queue.pop(0)
        found.append(process)
        queue += children.get(process, [])
    return found


def kill_all(pids: list[int]) -> None:
    """Kill processes; those that have ended already are no fault."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
