"""Starts a plan as a run: assigns an id, writes the run directory, and starts it on this machine or in a queue."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.executors import private
from launcher.executors.environment import Here, here, own_part
from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, check_free, claim, write_as_is
from launcher.executors.forwarded_env import ASSIGNED
from launcher.executors.local import Ended, Kept, check, check_commands, check_references, run
from launcher.executors.protocol import Submitted
from launcher.executors.record import RECORD, RUN, Record, read_record, record_of, write_record
from launcher.executors.register import release, reserve
from launcher.executors.registry import get_executor
from launcher.executors.render import Place
from launcher.executors.shared_output_dir import check_ours, continues, join
from launcher.plan import LaunchPlan, NodePlan, PlanFile
from launcher.plan.shell import script

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
    if plan.start.executor == "environment":
        place = here(plan)
        _check_continues(plan, place)
        check_commands(own_part(plan, place))
        return
    if executor is None:
        check(plan)
        return
    check_free(Path(plan.output_dir))
    # A pod's image may set variables that are missing here.
    missing = "" if plan.start.executor == "kubernetes" else check_references(plan, ASSIGNED)
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
    if plan.start.executor == "environment":
        found = here(plan)
        record = replace(record, handle={"platform": found.platform.title, **found.identity})
    texts = {"plan": plan.as_tree(), **documents}
    files = [PlanFile(path=f"{folder}/{RUN}/{RECORD}", content=record.as_json())]
    files += [_json(f"{folder}/{RUN}/{name}.json", tree) for name, tree in texts.items()]
    executor = get_executor(plan.start.executor)
    if executor is not None:
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
        if executor is not None:
            write_as_is(executor.render(plan, place), written)
            written.folder(folder.absolute() / "logs", private.FOLDER)
            return executor.command(plan, place)
        path = f"{place.folder}/{RUN}/command.sh"
        write_as_is([PlanFile(path=path, content=script(plan), mode=private.PROGRAM)], written)
        return ("bash", path)
    except CannotStart:
        written.undo()
        raise


def run_here(begun: Begun, *, quiet: bool) -> Ended:
    """Start a run in the foreground and wait for its end.

    Raises:
        CannotStart: it could not be started; what was written is removed and the id released.
    """
    plan, executor = begun.plan, get_executor(begun.plan.start.executor)
    try:
        if plan.start.executor == "environment":
            return _run_own_part(begun, quiet=quiet)
        if executor is None:
            return run(plan, quiet=quiet, kept=Kept(id=begun.place.id, files=begun.files))
        command = NodePlan(rank=0, argv=executor.command(plan, begun.place), env={"LAUNCH_ATTACHED": "1"})
        conductor = LaunchPlan(nodes=(command,), output_dir=plan.output_dir)
        return run(conductor, quiet=quiet, kept=Kept(id=begun.place.id, files=begun.files, own=False, log=""))
    except CannotStart:
        release(begun.place.id)
        raise


def _run_own_part(begun: Begun, *, quiet: bool) -> Ended:
    """Run the plan of this node; node 0 writes the run directory."""
    place = here(begun.plan)
    again = _check_continues(begun.plan, place)
    kept = Kept(
        id=begun.place.id,
        files=begun.files if place.rank == 0 else (),
        node=place.rank,
        log=f"node{place.rank}.log",
        shared=len(begun.plan.nodes) > 1 or again,
        again=again,
    )
    part = own_part(begun.plan, place)
    if again or not kept.shared:
        return run(part, quiet=quiet, kept=kept)
    marked = join(Path(begun.plan.output_dir), place)
    try:
        return run(part, quiet=quiet, kept=kept)
    except CannotStart:
        marked.undo()
        raise


def _check_continues(plan: LaunchPlan, place: Here) -> bool:
    """Return whether a platform has started this same job before; reject an output folder of another job."""
    folder = Path(plan.output_dir)
    if continues(read_record(folder), place):
        return True
    if len(plan.nodes) > 1:
        check_ours(folder, place)
    else:
        check_free(folder)
    return False


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
    assert executor is not None
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
    records = [replace(begun.record, handle=handle) for begun, handle in zip(runs, handles, strict=True)]
    for record in records:
        write_record(record)
    return records


def _output(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SUBMIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"{words[0]}: {error}") from None
    if done.returncode:
        said = " · ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise CannotStart(f"{words[0]} refuses the job: {said or f'exit code {done.returncode}'}")
    return done.stdout


def _json(path: str, tree: object) -> PlanFile:
    return PlanFile(path=path, content=json.dumps(tree, ensure_ascii=False) + "\n")
