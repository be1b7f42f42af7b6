"""Starts a plan as a run: assigns an id, writes the run directory, and starts it on this machine or in a queue."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.executors import private
from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, check_free, claim, write_as_is
from launcher.executors.forwarded_env import ASSIGNED
from launcher.executors.local.run import Kept, check_references, run
from launcher.executors.record import RECORD, RUN, Record, record_of, write_record
from launcher.executors.register import release, remember, reserve
from launcher.job.migrations import RUN_RECORDS, versioned
from launcher.plan import LaunchPlan, NodePlan, PlanFile
from launcher.plan.executor import Ended, Place, Submitted, get_executor

_SUBMIT_SECONDS = 120
Through = Callable[[Sequence[tuple[LaunchPlan, Place]]], Sequence[Submitted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run with its id and folder; only the id has been written."""

    plan: LaunchPlan
    place: Place
    record: Record
    files: tuple[PlanFile, ...]


def check_start(plan: LaunchPlan) -> None:
    """Check for everything that would prevent a plan from starting; nothing is written.

    Raises:
        CannotStart: with the reason, and what would work.
    """
    executor = get_executor(plan.start.executor)
    if not executor.here:
        check_free(Path(plan.output_dir))
        missing = "" if executor.own_environment else check_references(plan, ASSIGNED)
        if missing:
            raise CannotStart(missing)
    executor.check(plan)


def begin(plan: LaunchPlan, documents: Mapping[str, object], command: tuple[str, ...] = ()) -> Begun:
    """Assign an id to a run and prepare the files of its directory.

    Args:
        documents: further content to keep, by name of a JSON file (`job`, `findings`).
        command: words of the command line.
    """
    folder = Path(plan.output_dir).absolute()
    place = Place(id=reserve(plan.start.name, folder), folder=str(folder), launch_dir=os.getcwd())
    record = record_of(plan, place, command)
    executor = get_executor(plan.start.executor)
    record = replace(record, handle=executor.handle(plan))
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
    state = "stopped" if ended.interrupted else "failed" if ended.code else "done"
    remember(record.id, Path(record.folder), record.as_tree(), state)
    return ended


def _run_here(begun: Begun, *, quiet: bool) -> Ended:
    plan, executor = begun.plan, get_executor(begun.plan.start.executor)
    ended = executor.run(plan, begun.place, begun.files, quiet=quiet)
    if ended is not None:
        return ended
    command = NodePlan(rank=0, argv=executor.command(plan, begun.place), env={"LAUNCH_ATTACHED": "1"})
    conductor = LaunchPlan(nodes=(command,), output_dir=plan.output_dir)
    return run(conductor, quiet=quiet, kept=Kept(id=begun.place.id, files=begun.files, own=False, log=""))


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
            output = _output(executor.command(runs[0].plan, runs[0].place))
            handles = [executor.submitted(output).handle]
        else:
            write_as_is([together.file], written)
            handles = [each.handle for each in together.submitted(_output(together.command))]
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


def _output(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SUBMIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
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
