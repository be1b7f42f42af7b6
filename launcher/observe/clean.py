"""Removes what an ended run left outside its folder; the folder itself is kept."""

from collections.abc import Sequence
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.executors.record import Record
from launcher.observe.owner import not_installed, ownership_problem
from launcher.observe.state import state_of
from launcher.plan.executor import find_executor


class CannotClean(Exception):
    """The run has not ended, belongs to another user, or its machines do not respond; the message says why."""


def clean_run(record: Record) -> Sequence[str]:
    """Remove what a run left and return its names; none if nothing was left.

    Raises:
        CannotClean: nothing, or not all, could be removed.
    """
    problem = ownership_problem(record)
    if problem:
        raise CannotClean(f"{problem}: nothing was removed")
    state = state_of(record, deep=False)
    if not state.ended:
        raise CannotClean(f"run {record.id} is {state.shown}; works: launch stop {record.id}")
    executor = find_executor(record.executor)
    if executor is None:
        raise CannotClean(f"run {record.id}: {not_installed(record)}")
    try:
        return executor.clean(record.handle, Path(record.folder))
    except CannotStart as error:
        raise CannotClean(str(error)) from None
