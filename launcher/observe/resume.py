"""Whether a run can be started again from its last complete checkpoint, and by whom: one program at a time."""

import errno
import fcntl
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.executors import private
from launcher.executors.failure import CannotStart
from launcher.executors.progress import last_checkpoint
from launcher.executors.record import PLAN, RUN, Record, read_exits, read_status
from launcher.observe.owner import not_installed, ownership_problem
from launcher.observe.state import state_of
from launcher.outputs.free import free_path
from launcher.plan import LaunchPlan
from launcher.plan.executor import Executor, Place, find_executor
from launcher.plan.stored import WrongPlan, plan_from
from launcher.records import dataclass

_LOCK = "resume.lock"
# Of file systems without locks, such as Lustre that is mounted without `flock`.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class CannotResume(Exception):
    """The run goes on, has nothing to go on from, or cannot be started again; the message says why, and what works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A run that can be started again.

    Attributes:
        launch_dir: folder in which it was started.
        attempt: number of the attempt that begins.
        checkpoint: folder of its last complete checkpoint; where only its nodes see it, the folder in which they look.
        sought: its nodes look for the checkpoint there.
    """

    record: Record
    executor: Executor
    plan: LaunchPlan
    launch_dir: str
    attempt: int
    checkpoint: str
    sought: bool = False


@contextmanager
def resumption(record: Record) -> Iterator[Resumption]:
    """Check that a run can be started again; in the context no other `launch resume` can start it.

    Raises:
        CannotResume: with the reason.
    """
    if record.gone or not (Path(record.folder) / RUN).is_dir():
        raise CannotResume(f"run {record.id}: its folder {record.folder} is gone, with its plan{_anew(record)}")
    if problem := ownership_problem(record):
        raise CannotResume(f"{problem}: nothing was started")
    with _alone(record):
        yield _resumption(record)


@contextmanager
def _alone(record: Record) -> Iterator[None]:
    """Lock the run, where its file system has locks; the lock ends with this process, whatever ends it."""
    path = Path(record.folder) / RUN / _LOCK
    with open(path, "w", encoding="utf-8", opener=private.opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotResume(f"run {record.id} is being resumed by another launch resume") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield


def _resumption(record: Record) -> Resumption:
    folder = Path(record.folder)
    executor = _executor(record)
    state = state_of(record, deep=False)
    if not state.ended:
        raise CannotResume(f"run {record.id} is {state.shown}; works: launch stop {record.id}, then resume it")
    if state.state == "done":
        raise CannotResume(f"run {record.id} is done: there is nothing left to train{_anew(record)}")
    plan = _plan(record, executor)
    launch_dir = _launch_dir(record, plan)
    if plan.resume is None or plan.watch.checkpoints is None:
        raise CannotResume(f"run {record.id} saves no checkpoint from which it could go on{_anew(record)}")
    try:
        sought = executor.nodes_checkpoint(plan, Place(id=record.id, folder=record.folder, launch_dir=launch_dir))
    except CannotStart as error:
        raise CannotResume(f"run {record.id}: {error}{_anew(record)}") from None
    checkpoint = sought or last_checkpoint(plan.watch, launch_dir)
    if checkpoint is None:
        place = os.path.join(launch_dir, plan.watch.checkpoints)
        raise CannotResume(f"run {record.id}: there is no complete checkpoint in {place}{_anew(record)}")
    ended = [end.attempt for end in read_exits(folder)]
    attempt = max([*ended, int(read_status(folder).get("attempt", 0))]) + 1
    return Resumption(
        record=record,
        executor=executor,
        plan=plan,
        launch_dir=launch_dir,
        attempt=attempt,
        checkpoint=checkpoint,
        sought=bool(sought),
    )


def _executor(record: Record) -> Executor:
    executor = find_executor(record.executor)
    if executor is None:
        raise CannotResume(f"run {record.id}: {not_installed(record)}")
    if not executor.resumes:
        why = executor.no_resume or f"{executor.title} does not start a run again"
        raise CannotResume(f"run {record.id}: {why}{_anew(record)}")
    return executor


def _plan(record: Record, executor: Executor) -> LaunchPlan:
    path = Path(record.folder) / RUN / PLAN
    try:
        return plan_from(json.loads(private.read(path)), executor.stored_settings)
    except (OSError, WrongPlan, ValueError, RecursionError) as error:
        raise CannotResume(f"run {record.id}: {path} is not its plan ({error}){_anew(record)}") from None


def _launch_dir(record: Record, plan: LaunchPlan) -> str:
    """Return the folder in which the run was started, to which its relative paths refer."""
    found = record.launch_dir or os.getcwd()
    if not Path(found).is_dir():
        raise CannotResume(f"run {record.id}: {found}, in which it was started, is gone")
    if os.path.realpath(Path(found, plan.output_dir)) != os.path.realpath(record.folder):
        raise CannotResume(
            f"run {record.id} is in {record.folder}, and was started as output_dir={plan.output_dir}"
            + (f" in {found}: it was moved" if record.launch_dir else ": resume it in the folder where it was started")
        )
    return found


def _anew(record: Record) -> str:
    """Return the command that starts the job anew, as the end of a message; "" where it would start a whole sweep."""
    words = [word for word in record.command[1:] if not word.startswith("output_dir=")]
    free = free_path(Path(record.folder))
    if record.sweep or not words or free is None:
        return ""
    return f"; works: {shlex.join(['launch', *words, f'output_dir={free}'])} (anew)"
