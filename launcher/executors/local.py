"""Runs a one-node plan on this machine: own process group, free port, log file, clean stop."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, check_free, claim, resolved, write
from launcher.executors.output import Output
from launcher.executors.port import on_free_port
from launcher.executors.processes import Process, descendants, identified, kill_all
from launcher.executors.stop import Stop
from launcher.plan import LaunchPlan, NodePlan
from launcher.plan.shell import LAUNCH_DIR, OPTIONAL, references

_LOOK_SECONDS = 0.5
_OUTPUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit code of the processes; 128 + signal if interrupted.
        log: where their output is.
        interrupted: whether a signal asked for the end.
        log_problem: why the log is not complete (disk full); empty if it is.
    """

    code: int
    log: Path
    interrupted: bool = False
    log_problem: str = ""


def check(plan: LaunchPlan) -> None:
    """Look for everything that would keep a plan from starting here; nothing is written.

    Raises:
        CannotStart: several nodes, a reference that is not set, a program that is not there, an output folder in use.
    """
    if len(plan.nodes) != 1:
        raise CannotStart(
            f"this job has {len(plan.nodes)} nodes, and this is one machine: "
            "launch dry-run --format shell writes the script to run on each of them"
        )
    environ = _environ()
    missing = [name for name in references(plan) if name not in environ]
    if missing:
        raise CannotStart(f"{', '.join(missing)} not set in the environment: the plan refers to it")
    for node in (*plan.prepare, plan.nodes[0]):
        _check_program(node, plan, environ)
    check_free(Path(plan.output_dir))


def run(plan: LaunchPlan, *, quiet: bool = False) -> Ended:
    """Write the plan's files, start node 0's command here, log its output, show it unless `quiet`, and wait for it.

    Ctrl-C once (or SIGTERM, or a lost terminal) asks the processes to stop cleanly, twice kills them; either way none
    is left.

    Raises:
        CannotStart: as `check` says, or a file or process cannot be made; what this run wrote is removed again.
    """
    check(plan)
    environ = _environ()
    folder = Path(plan.output_dir)
    log = folder / "logs" / "node0.log"
    written = Written()
    with Stop() as stop:
        try:
            claim(folder, written)
            write(plan, environ, written)
            _make_log(log, written)
            return _steps(plan, environ, log, quiet, stop)
        except CannotStart as error:
            written.undo()
            kept = "; what its preparation wrote is kept" if plan.prepare and written.remains(folder) else ""
            raise CannotStart(f"{error}{kept}") from None


def _environ() -> dict[str, str]:
    return {**dict.fromkeys(OPTIONAL, ""), **os.environ, LAUNCH_DIR: os.getcwd()}


def _check_program(node: NodePlan, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
    """Refuse a program or working directory that is not there, unless the plan itself makes it."""
    workdir, program = Path(resolved(node.workdir, environ)), resolved(node.argv[0], environ)
    output = Path(plan.output_dir).absolute()
    if not workdir.is_dir() and not workdir.absolute().is_relative_to(output):
        raise CannotStart(f"{program} cannot be started: its working directory {workdir} does not exist")
    if os.path.dirname(program):
        place = (workdir / program).absolute()
        made_here = {Path(file.path).absolute() for file in plan.files}
        if place in made_here or place.is_relative_to(output) or shutil.which(place):
            return
        why = "is not executable" if place.exists() else "does not exist"
        raise CannotStart(f"{program} cannot be started: {place} {why}")
    if shutil.which(program, path=_environment(node, environ)["PATH"]) is None:
        raise CannotStart(
            f"{program} cannot be started: there is no such program on the PATH; install it, or extend PATH"
        )


def _make_log(log: Path, written: Written) -> None:
    try:
        written.folder(log.parent)
        written.file(log)
        log.touch()
    except OSError as error:
        raise CannotStart(f"{log} cannot be written: {error.strerror or error}") from None


def _steps(plan: LaunchPlan, environ: Mapping[str, str], log: Path, quiet: bool, stop: Stop) -> Ended:
    for node in plan.prepare:
        ended = _start(node, environ, log, quiet, stop)
        if ended.code or ended.interrupted:
            return ended
    return _start(on_free_port(plan.nodes[0]), environ, log, quiet, stop)


def _environment(node: NodePlan, environ: Mapping[str, str]) -> dict[str, str]:
    env = {**environ, **{key: resolved(value, environ) for key, value in node.env.items()}}
    # The interpreter's own scripts (torchrun) must be found even where its environment is not activated.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    return env


def _start(node: NodePlan, environ: Mapping[str, str], log: Path, quiet: bool, stop: Stop) -> Ended:
    argv = [resolved(word, environ) for word in node.argv]
    if stop.received:
        return Ended(code=128 + stop.received[0], log=log, interrupted=True)
    try:
        process = subprocess.Popen(
            argv,
            env=_environment(node, environ),
            cwd=resolved(node.workdir, environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotStart(f"{argv[0]} cannot be started: {error.strerror or error}") from None
    stop.watch(process)
    output = Output(process, log, quiet=quiet)
    code = _wait(process, stop)
    output.finish(_OUTPUT_SECONDS)
    if stop.received:
        return Ended(code=128 + stop.received[0], log=log, interrupted=True, log_problem=output.problem)
    return Ended(code=code if code >= 0 else 128 - code, log=log, log_problem=output.problem)


def _wait(process: "subprocess.Popen[bytes]", stop: Stop) -> int:
    below: set[Process] = set()
    try:
        while True:
            try:
                return process.wait(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                # Those that lost their parent since the last look are no descendants any more, but still ours.
                below = {*(child for child in below if identified(child.pid) == child), *descendants(process.pid)}
                if stop.overdue():
                    stop.kill()
    finally:
        # Ranks have sessions of their own (torchrun): what was below us at the last look must not outlive us.
        kill_all(below)
