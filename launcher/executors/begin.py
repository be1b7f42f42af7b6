"""Starts a plan as a run: assigns an id, writes the run directory, and starts it on this machine or in a queue."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.executors import private
from launcher.executors.end_reasons import SUPERVISOR_KILLED
from launcher.executors.failure import CannotStart, NoAnswer
from launcher.executors.files import Written, check_free, claim, write_as_is
from launcher.executors.forwarded_env import ASSIGNED
from launcher.executors.local.run import Kept, check_references, run
from launcher.executors.record import RECORD, RUN, Record, read_status, record_of, write_record, write_status
from launcher.executors.register import release, remember, reserve
from launcher.executors.register_end import register_end
from launcher.job.migrations import RUN_RECORDS, versioned
from launcher.plan import LaunchPlan, NodePlan, PlanFile
from launcher.plan.executor import ENDED, Ended, Place, Submitted, get_executor
from launcher.plan.start import Start
from launcher.records import dataclass

_SUBMIT_SECONDS = 120
# A job whose submission got no answer is looked for so often.
_LOOKS, _LOOK_SECONDS = 4, 5
Through = Callable[[Sequence[tuple[LaunchPlan, Place]]], Sequence[Submitted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run with its id and folder; only the id has been written."""

    plan: LaunchPlan
    place: Place
    record: Record
    files: tuple[PlanFile, ...]


def check_start(plan: LaunchPlan) -> Sequence[str]:
    """Check for everything that would prevent a plan from starting, and return what the system warns of.

    Nothing is written.

    Raises:
        CannotStart: with the reason, and what would work.
    """
    executor = get_executor(plan.start.executor)
    if not executor.here:
        check_free(Path(plan.output_dir))
        missing = "" if executor.own_environment else check_references(plan, ASSIGNED)
        if missing:
            raise CannotStart(missing)
    return executor.preflight(plan)


def begin(
    plan: LaunchPlan, documents: Mapping[str, object], command: tuple[str, ...] = (), *, sweep: str | None = None
) -> Begun:
    """Assign an id to a run and prepare the files of its directory.

    Args:
        documents: further content to keep, by name of a JSON file (`job`, `findings`).
        command: words of the command line.
        sweep: id of the first run of its sweep; "": it is the first; None: it is in none.
    """
    folder = Path(plan.output_dir).absolute()
    place = Place(id=reserve(plan.start.name, folder), folder=str(folder), launch_dir=os.getcwd())
    record = record_of(plan, place, command)
    executor = get_executor(plan.start.executor)
    record = replace(record, handle=executor.handle(plan), sweep="" if sweep is None else sweep or place.id)
    texts = {"plan": plan.as_tree(), **documents}
    files = [PlanFile(path=f"{folder}/{RUN}/{RECORD}", content=record.as_json())]
    files += [_json(f"{folder}/{RUN}/{name}.json", _versioned(tree)) for name, tree in texts.items()]
    if not executor.here:
        files += executor.render(plan, place)
    return Begun(plan=plan, place=place, record=record, files=tuple(files))


def render_to(plan: LaunchPlan, folder: Path) -> tuple[str, ...]:
    """Write the files that start a plan without this program, and return the command that does.

    Raises:
        CannotStart: the folder is in use or cannot be written.
    """
    place = Place(id=plan.start.name, folder=str(folder.absolute()), launch_dir=os.getcwd())
    executor = get_executor(plan.start.executor)
    written = Written()
    try:
        claim(folder, written, "--render")
        write_as_is(executor.render(plan, place), written)
        if not executor.here:
            written.folder(folder.absolute() / "logs", private.FOLDER)
        return executor.command(plan, place)
    except CannotStart:
        written.undo()
        raise


def run_here(begun: Begun, *, quiet: bool) -> Ended:
    """Start a run in the foreground and wait for its end.

    Raises:
        CannotStart: it could not be started; what was written is removed and the id released.
    """
    record = begun.record
    remember(record.id, Path(record.folder), record.as_tree())
    try:
        ended = _run_here(begun, quiet=quiet)
    except CannotStart:
        release(record.id)
        raise
    register_end(record, ended.state)
    return ended


def _run_here(begun: Begun, *, quiet: bool) -> Ended:
    executor = get_executor(begun.plan.start.executor)
    ended = executor.run(begun.plan, begun.place, begun.files, quiet=quiet)
    return ended or run_conductor(begun.plan, begun.place, begun.files, quiet=quiet)


def run_conductor(
    plan: LaunchPlan, place: Place, files: Sequence[PlanFile], *, quiet: bool, again: bool = False
) -> Ended:
    """Run the file that starts all nodes of a plan from here, and wait for its end.

    Args:
        again: in the folder of an earlier start.

    Raises:
        CannotStart: it could not be started; what was written is removed.
    """
    argv = get_executor(plan.start.executor).command(plan, place)
    node = NodePlan(rank=0, argv=argv, env={"LAUNCH_ATTACHED": "1"})
    # It waits as long as ranks may save before it ends nodes, and so must what waits for it.
    start = Start(save_seconds=plan.start.save_seconds)
    conductor = LaunchPlan(nodes=(node,), output_dir=plan.output_dir, start=start)
    ended = run(conductor, quiet=quiet, kept=Kept(id=place.id, files=files, own=False, log="", again=again))
    _record_killed(Path(place.folder), ended)
    return ended


def _record_killed(folder: Path, ended: Ended) -> None:
    """Write down the end of a file that starts all nodes and was killed before it could."""
    status = read_status(folder)
    if status.get("state") not in ENDED:
        number = {name: int(status.get(name) or 0) for name in ("attempt", "restarts")}
        with suppress(OSError):  # its folder may be gone
            write_status(folder, ended.state, ended.code, **number, why=SUPERVISOR_KILLED)


def submit(begun: Begun) -> Record:
    """Submit a run to its queue and return its record with the handle.

    Raises:
        CannotStart: the queue refuses it, with its message; what was written is removed and the id released.
    """
    return submit_all([begun])[0]


def submit_all(runs: Sequence[Begun], through: Through | None = None) -> list[Record]:
    """Submit runs to their queue, as one submission if the executor supports it.

    Args:
        through: submits the rendered runs in place of the executor.

    Raises:
        CannotStart: the queue refuses one; what was written for those not yet submitted is removed.
    """
    executor = get_executor(runs[0].plan.start.executor)
    pairs = [(begun.plan, begun.place) for begun in runs]
    together = executor.together(pairs) if len(runs) > 1 and through is None else None
    if together is None and through is None and len(runs) > 1:
        return [record for begun in runs for record in submit_all([begun])]
    written = Written()
    try:
        for begun in runs:
            folder = Path(begun.place.folder)
            claim(folder, written)
            write_as_is(begun.files, written)
            written.folder(folder / "logs", private.FOLDER)
        if through is not None:
            handles = [each.handle for each in through(pairs)]
        elif together is None:
            handles = [submit_one(runs[0].plan, runs[0].place).handle]
        else:
            write_as_is([together.file], written)
            handles = [each.handle for each in together.submitted(output_of(together.command))]
    except CannotStart:
        written.undo()
        for begun in runs:
            release(begun.place.id)
        raise
    records = [
        replace(begun.record, handle={**begun.record.handle, **handle})
        for begun, handle in zip(runs, handles, strict=True)
    ]
    for record in records:
        write_record(record)
        remember(record.id, Path(record.folder), record.as_tree())
    return records


def submit_one(plan: LaunchPlan, place: Place) -> Submitted:
    """Submit the rendered files of a run and return its job, also if the queue took it and did not say so.

    Raises:
        CannotStart: the queue refuses the job, or does not answer and does not list it.
    """
    executor, began = get_executor(plan.start.executor), time.time()
    try:
        return executor.submitted(output_of(executor.command(plan, place)))
    except NoAnswer as error:
        for _ in range(_LOOKS):
            found = executor.find_submitted(place, began)
            if found is not None:
                return found
            time.sleep(_LOOK_SECONDS)
        raise CannotStart(f"{error}, and the job is not in the queue; if it appears there later, end it") from None


def output_of(words: Sequence[str]) -> str:
    """Run the command that submits a job and return what it prints.

    Raises:
        NoAnswer: it does not end in time; the job may be submitted nevertheless.
        CannotStart: the queue refuses the job, with its message.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SUBMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{words[0]} did not answer within {_SUBMIT_SECONDS} s") from None
    except OSError as error:
        raise CannotStart(f"{words[0]}: {error}") from None
    if done.returncode:
        message = " · ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise CannotStart(f"{words[0]} refuses the job: {message or f'exit code {done.returncode}'}")
    return done.stdout


def _versioned(tree: object) -> object:
    """Return a document with its version; findings are a list, which has none."""
    return versioned(tree, RUN_RECORDS) if isinstance(tree, Mapping) else tree


def _json(path: str, tree: object) -> PlanFile:
    return PlanFile(path=path, content=json.dumps(tree, ensure_ascii=False) + "\n")
