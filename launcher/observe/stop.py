"""Stops runs through the program that started it or its queue; never signals an unidentified process."""

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.executors.processes import identified
from launcher.executors.record import Record, write_status
from launcher.executors.requests import ask, withdraw
from launcher.observe.owner import is_same_process, not_installed, ownership_problem
from launcher.observe.state import State, states_of
from launcher.plan.executor import Executor, find_executor, get_executor


class CannotStop(Exception):
    """The run belongs to another user or no longer runs; the message says why."""


def stop_run(record: Record) -> None:
    """Request a run to stop.

    Raises:
        CannotStop: the run has ended, belongs to another user, or is on another machine.
    """
    (problem,) = stop_runs([record])
    if problem:
        raise CannotStop(problem)


def stop_runs(records: Sequence[Record], *, sweep: bool = False) -> list[str]:
    """Request runs to stop, those of a queue by one command; return for each why it was not, "" if it was.

    Args:
        sweep: what started them starts none of their sweep after them.
    """
    states = states_of(records)
    problems = [_problem(record, state) for record, state in zip(records, states, strict=True)]
    queued: dict[str, list[int]] = {}
    for index, record in enumerate(records):
        executor = find_executor(record.executor)
        if problems[index] or executor is None:
            continue
        if executor.foreground:
            problems[index] = _stop_here(record, sweep)
        else:
            queued.setdefault(record.executor, []).append(index)
    for indices in queued.values():
        found = _stop_queued([(records[index], states[index]) for index in indices], sweep)
        for index, problem in zip(indices, found, strict=True):
            problems[index] = problem
    return problems


def _problem(record: Record, state: State) -> str:
    """Return why a run cannot be stopped from here; "" if it can."""
    executor = find_executor(record.executor)
    if state.ended:
        return f"run {record.id} has ended: {state.shown}"
    if problem := ownership_problem(record):
        return f"{problem}: nothing was stopped"
    if executor is None:
        return f"run {record.id}: {not_installed(record)}"
    if not executor.foreground:
        return ""
    if record.host != socket.gethostname():
        return f"run {record.id} was started on {record.host}: launch stop {record.id} works there"
    is_there = identified(record.pid) == record.process
    if not is_there and state.why:  # its script ends it already
        return f"run {record.id}: {state.why}"
    if not is_there or not is_same_process(record):
        return f"run {record.id}: process {record.pid} is no longer the one that started it"
    return ""


def _stop_here(record: Record, sweep: bool) -> str:
    """Signal the program that started a run; return why it cannot be, "" if it was."""
    asked = ask(record, sweep=sweep)  # before the first signal: how a run ends says who ended it
    try:
        os.kill(record.pid, signal.SIGTERM)
    except OSError as error:  # it has ended meanwhile
        if asked:
            withdraw(record)
        return f"run {record.id}: process {record.pid}: {error.strerror}"
    return ""


def _stop_queued(runs: Sequence[tuple[Record, State]], sweep: bool) -> list[str]:
    """Request runs of one queue to stop; return for each why it was not, "" if it was."""
    asked = [ask(record, sweep=sweep) for record, _ in runs]
    problems = _cancel(get_executor(runs[0][0].executor), [record for record, _ in runs])
    for (record, state), was_asked, problem in zip(runs, asked, problems, strict=True):
        if problem and was_asked:
            withdraw(record)
        elif not problem and state.state == "queued" and not record.gone:
            with contextlib.suppress(OSError):  # another user's folder, or a full disk: the queue has its end
                write_status(Path(record.folder), "stopped", None, why="before it started")
    return problems


def _cancel(executor: Executor, records: Sequence[Record]) -> list[str]:
    """Cancel jobs of a queue together; if it refuses that, one after another, to know which it refuses."""
    try:
        executor.stop_all([record.handle for record in records])
    except CannotStart as error:
        if len(records) == 1:
            return [str(error)]
        return [problem for record in records for problem in _cancel(executor, [record])]
    return [""] * len(records)
