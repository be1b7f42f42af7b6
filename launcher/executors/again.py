"""Starts a run again in its folder: the same files, a new attempt, from the last complete checkpoint."""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from launcher.executors import private
from launcher.executors.begin import run_conductor, submit_one
from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, write_as_is
from launcher.executors.forwarded_env import ASSIGNED
from launcher.executors.local.run import check_references
from launcher.executors.processes import identified
from launcher.executors.record import RECORD, RUN, STATUS, Record, now, withdraw_request, write_record, write_status
from launcher.executors.register import entry_of, remember
from launcher.executors.register_end import register_end
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Ended, Place, get_executor


def check_again(plan: LaunchPlan) -> None:
    """Check for what would prevent a plan from starting again; nothing is written.

    Raises:
        CannotStart: with the reason.
    """
    executor = get_executor(plan.start.executor)
    missing = "" if executor.own_environment else check_references(plan, () if executor.here else ASSIGNED)
    if missing:
        raise CannotStart(missing)
    executor.check_again(plan)


def run_again(record: Record, plan: LaunchPlan, launch_dir: str, attempt: int, *, quiet: bool) -> Ended:
    """Start a run of this machine, or of its hosts, again in the foreground and wait for its end.

    Raises:
        CannotStart: it could not be started; it is then as it was.
    """
    before, record = record, _by_this_process(record)
    place = Place(id=record.id, folder=record.folder, launch_dir=launch_dir)
    files = [PlanFile(path=f"{record.folder}/{RUN}/{RECORD}", content=record.as_json())]
    executor = get_executor(plan.start.executor)
    folder = Path(record.folder)
    with contextlib.chdir(launch_dir), _restored(before):
        check_again(plan)
        remember(record.id, folder, record.as_tree())
        ended = executor.run(plan, place, files, quiet=quiet, first=attempt)
        if ended is None:
            withdraw_request(folder)
            ended = run_conductor(plan, place, files, quiet=quiet, again=True)
    register_end(record, ended.state)
    return replace(ended, log=Path(launch_dir) / ended.log)


def submit_again(record: Record, plan: LaunchPlan, launch_dir: str, attempt: int) -> Record:
    """Submit the rendered files of a run again and return its record with the new handle.

    Raises:
        CannotStart: the queue refuses it, with its message; the run is then as it was.
    """
    folder, executor = Path(record.folder), get_executor(plan.start.executor)
    place = Place(id=record.id, folder=record.folder, launch_dir=launch_dir)
    with contextlib.chdir(launch_dir), _restored(record):
        check_again(plan)
        write_as_is(executor.prepare_again(plan, place, record.handle, attempt), Written())
        # Its first attempt follows the last one that is written down, here as after a requeue.
        write_status(folder, "queued", None, attempt=attempt - 1)
        handle = submit_one(plan, place).handle
    record = replace(_by_this_process(record), handle={**record.handle, **handle})
    withdraw_request(folder)
    write_record(record)
    remember(record.id, folder, record.as_tree())
    return record


def _by_this_process(record: Record) -> Record:
    own = identified(os.getpid())
    return replace(record, host=socket.gethostname(), pid=os.getpid(), start=own.start if own else 0, submitted=now())


@contextlib.contextmanager
def _restored(record: Record) -> Iterator[None]:
    """Let a run that could not be started again be as it was."""
    run, entry = Path(record.folder) / RUN, entry_of(record.id)
    before = {path: private.read(path) for path in (run / RECORD, run / STATUS) if path.exists()}
    try:
        yield
    except CannotStart:
        for path, text in before.items():
            private.write(path, text)
        if entry is not None:
            kept, folder = entry.record or record.as_tree(), Path(record.folder)
            remember(record.id, folder, kept, entry.state, code=entry.code, why=entry.why, at=entry.at)
        raise
