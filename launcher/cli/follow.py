"""Follows a run that another process executes: its log as it grows, and its state."""

import time
from collections.abc import Callable

from launcher.executors.record import Record
from launcher.observe.logs import fetch, read_lines, sources
from launcher.observe.state import State, state_of

_ASK_SECONDS = 2.0
# On a shared disk, the last lines of a file may appear shortly after the queue reports the end of the job.
_LATE_SECONDS = 1.0


def still_going(record: Record) -> Callable[[], bool]:
    """Return a function that checks whether a run may still write; it polls the queue every two seconds at most."""
    asked, going = 0.0, True

    def ask() -> bool:
        nonlocal asked, going
        if going and time.monotonic() - asked >= _ASK_SECONDS:
            asked, going = time.monotonic(), not state_of(record, deep=False).ended
            fetch(record)
            if not going:
                time.sleep(_LATE_SECONDS)
        return going

    return ask


def wait_for(record: Record, *, quiet: bool) -> State:
    """Show a run's output until it ends, and return how it ended."""
    going = still_going(record)
    if quiet:
        while going():
            time.sleep(_ASK_SECONDS / 4)
    else:
        for line in read_lines(sources(record), follow=going):
            print(line, flush=True)
    return state_of(record)
