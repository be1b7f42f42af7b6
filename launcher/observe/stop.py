"""Stops a run through the program that started it or its queue; never signals an unidentified process."""

import contextlib
import getpass
import os
import signal
import socket
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.executors.processes import identified
from launcher.executors.record import Record, read_request, withdraw_request, write_request, write_status
from launcher.observe.state import state_of
from launcher.plan.executor import find_executor


class CannotStop(Exception):
    """The run belongs to another user or no longer runs; the message says why."""


def stop_run(record: Record) -> None:
    """Request a run to stop.

    Raises:
        CannotStop: the run has ended, belongs to another user, or is on another machine.
    """
    state = state_of(record, deep=False)
    if state.ended:
        raise CannotStop(f"run {record.id} has ended: {state.state}" + (f" ({state.why})" if state.why else ""))
    problem = ownership_problem(record)
    if problem:
        raise CannotStop(f"{problem}: nothing was stopped")
    executor = find_executor(record.executor)
    if executor is None:
        raise CannotStop(f"run {record.id}: its executor {record.executor!r} is not installed here")
    if not executor.foreground:
        asked = _ask(record)
        try:
            executor.stop(record.handle)
        except CannotStart as error:
            if asked:
                withdraw_request(Path(record.folder))
            raise CannotStop(str(error)) from None
        if state.state == "queued" and not record.gone:
            write_status(Path(record.folder), "stopped", None, why="before it started")
        return
    if record.host != socket.gethostname():
        raise CannotStop(f"run {record.id} was started on {record.host}: launch stop {record.id} works there")
    if identified(record.pid) != record.process:
        raise CannotStop(f"run {record.id}: process {record.pid} is no longer the one that started it")
    _ask(record)
    os.kill(record.pid, signal.SIGTERM)


def _ask(record: Record) -> bool:
    """Write the request down before the first signal, and return whether it was: how a run ends says who ended it.

    An earlier request stays: what failed after it did so because of it.
    """
    folder = Path(record.folder)
    if record.gone or read_request(folder) is not None:
        return False
    with contextlib.suppress(OSError):
        write_request(folder)
        return True
    return False


def ownership_problem(record: Record) -> str:
    """Return why a run is not this user's; "" if it is."""
    own = _user()
    return "" if record.user == own else f"run {record.id} belongs to {record.user}, and you are {own}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
