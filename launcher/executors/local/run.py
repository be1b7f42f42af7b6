"""Runs a plan on this machine: own process group, free port, log file, clean stop, restarts from its checkpoint."""

import itertools
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.executors import evidence, private
from launcher.executors.end_reasons import BY_SIGTERM, PREEMPTED, RESTART_WAITS, TERMINAL_LOST
from launcher.executors.error_files import RANKS
from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, check_free, claim, resolved, write, write_as_is
from launcher.executors.output import Output
from launcher.executors.port import BIND_ERROR, MOST_BINDS, is_free, on_free_port, port_of, release, reserve
from launcher.executors.processes import Process, descendants, identified, kill_all
from launcher.executors.progress import LOG_TAIL, Progress, last_checkpoint
from launcher.executors.record import (
    HEARTBEAT_SECONDS,
    RUN,
    STATUS,
    read_request,
    withdraw_request,
    write_causes,
    write_exit,
    write_heartbeat,
    write_status,
)
from launcher.executors.render import torchrun_environment
from launcher.executors.stop import Stop
from launcher.executors.watchdog import Watchdog
from launcher.plan import LaunchPlan, NodePlan, PlanFile
from launcher.plan.executor import Ended
from launcher.plan.shell import LAUNCH_DIR, OPTIONAL, WRONG_IN_FILE, fits_in_file, references, references_of, settled
from launcher.plan.start import LONGEST_WAIT, RESUME
from launcher.records import dataclass
from launcher.syntax import is_count

_LOOK_SECONDS = 0.5
_OUTPUT_SECONDS = 5.0
# Exit code of timeout(1) for a command that exceeded its limit.
_HUNG = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Identity and records of a run.

    Attributes:
        id: run id that marks all its processes.
        files: files of the run directory, written as they are.
        node: node rank of this machine.
        own: this program restarts the command and records its end; otherwise the command does both.
        log: name of the log file for the command's output; "": the command writes its logs itself.
        shared: other nodes use the same folder and the plan's port, so neither is changed.
        again: started again in its folder: training resumes from the last checkpoint.
        first: number of the first attempt.
    """

    id: str
    files: Sequence[PlanFile] = ()
    node: int = 0
    own: bool = True
    log: str = "node0.log"
    shared: bool = False
    again: bool = False
    first: int = 0


def check(plan: LaunchPlan, *, again: bool = False) -> None:
    """Check for everything that would prevent a plan from starting here; nothing is written.

    Args:
        again: in the folder of an earlier start.

    Raises:
        CannotStart: several nodes, an unset reference, a missing program, a port chosen by the user that is taken,
            an output folder in use.
    """
    if len(plan.nodes) != 1:
        raise CannotStart(
            f"this job has {len(plan.nodes)} nodes, and this is one machine: "
            "launch dry-run --format shell writes the script to run on each of them"
        )
    check_commands(plan)
    port = plan.start.port
    if port is not None and not is_free(port):
        raise CannotStart(f"port {port} is in use: choose another cluster.master_port, or leave it unset")
    if not again:
        check_free(Path(plan.output_dir))


def check_commands(plan: LaunchPlan) -> None:
    """Check the programs and variables of a plan's commands.

    Raises:
        CannotStart: one of them is missing.
    """
    environ = _environ()
    missing = check_references(plan)
    if missing:
        raise CannotStart(missing)
    for node in (*plan.prepare, plan.nodes[0]):
        _check_program(node, plan, environ)


def check_references(plan: LaunchPlan, given: Sequence[str] = ()) -> str:
    """Return unset variables that the plan references, or values that a file cannot hold, as a message; "" if none.

    Args:
        given: names that may be unset.
    """
    environ = _environ()
    missing = [name for name in references(plan) if name not in environ and name not in given]
    if missing:
        return f"{', '.join(missing)} not set in the environment: the plan refers to it"
    for file in plan.files:
        for name in references_of(file):
            if not fits_in_file(environ.get(name, "")):
                return f"{name} {WRONG_IN_FILE} {file.path} refers to it"
    return ""


def run(plan: LaunchPlan, *, quiet: bool = False, kept: Kept | None = None) -> Ended:
    """Write the plan's files, start node 0's command here, log its output, show it unless `quiet`, and wait for it.

    Ctrl-C once (or SIGTERM, or a lost terminal) asks the processes to stop cleanly, twice kills them; either way none
    remains, nor does any if this program is killed.

    Raises:
        CannotStart: as in `check`, or a file or process cannot be created; what this run wrote is removed again.
    """
    kept = kept or Kept(id=f"unnamed-{os.getpid()}")
    if kept.shared:
        check_commands(plan)
    else:
        check(plan, again=kept.again)
    folder = Path(plan.output_dir)
    environ = _environ()
    written = Written()
    with (
        Stop(plan.start.save_seconds, passes_interrupt=not kept.own) as stop,
        Watchdog(_mark(kept, folder), folder / RUN / STATUS, enabled=kept.own) as watchdog,
    ):
        try:
            if kept.shared or kept.again:
                written.folder(folder)
            else:
                claim(folder, written)
            write(plan, environ, written)
            write_as_is(kept.files, written)
            log = folder / "logs" / kept.log if kept.log else None
            if log is not None:
                _make_log(log, written)
                if kept.own:
                    written.folder(_ranks_folder(plan, kept), private.FOLDER)
            return _attempts(
                _Run(plan=plan, environ=environ, log=log, quiet=quiet, stop=stop, kept=kept, watchdog=watchdog)
            )
        except CannotStart as error:
            written.undo()
            rest = "; files that the preparation wrote are kept" if plan.prepare and written.remains(folder) else ""
            raise CannotStart(f"{error}{rest}") from None


def _ranks_folder(plan: LaunchPlan, kept: Kept) -> Path:
    return (Path(plan.output_dir) / "logs" / RANKS / f"node{kept.node}").absolute()


def _mark(kept: Kept, folder: Path) -> str:
    """Return a mark that identifies this run's processes: ids alone repeat across state folders."""
    return f"{kept.id}.{zlib.crc32(str(folder.absolute()).encode()):08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """State shared by all steps of one run."""

    plan: LaunchPlan
    environ: Mapping[str, str]
    log: Path | None
    quiet: bool
    stop: Stop
    kept: Kept
    watchdog: Watchdog


def _environ() -> dict[str, str]:
    return {**dict.fromkeys(OPTIONAL, ""), **os.environ, LAUNCH_DIR: os.getcwd()}


def _check_program(node: NodePlan, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
    """Reject a missing program or working directory, unless the plan itself creates it."""
    workdir, program = Path(resolved(node.workdir, environ)), _argv(node, plan, environ)[0]
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
    if shutil.which(program, path=_environment(node, environ, plan.start.python)["PATH"]) is None:
        raise CannotStart(
            f"{program} cannot be started: there is no such program on the PATH; install it, or extend PATH"
        )


def _make_log(log: Path, written: Written) -> None:
    try:
        written.folder(log.parent, private.FOLDER)
        written.file(log)
        log.touch(private.FILE)
    except OSError as error:
        raise CannotStart(f"{log} cannot be written: {error.strerror or error}") from None


def _attempts(run: _Run) -> Ended:
    """Start the command, and restart it from its last checkpoint as often as the plan allows."""
    if run.kept.own:
        withdraw_request(Path(run.plan.output_dir))
    folder, allowed = Path(run.plan.output_dir), run.plan.start.max_restarts if run.kept.own else 0
    restarts = binds = 0
    for attempt in itertools.count(run.kept.first):
        if run.kept.own and run.kept.files:
            write_status(folder, "running", None, attempt=attempt, restarts=restarts)
        start, logged = evidence.begun(run.environ), _size(run.log)
        ended, hung = _attempt(run, attempt)
        if run.kept.own and (run.kept.files or run.kept.shared):
            with suppress(OSError):  # a full disk, a folder that is gone: the run's status counts
                if ended.code and not ended.interrupted:
                    write_causes(folder, attempt, run.kept.node, evidence.causes(start, run.environ))
                write_exit(folder, attempt, run.kept.node, ended.code, stopped=ended.interrupted)
        ended = replace(ended, restarts=restarts)
        if not ended.code or ended.interrupted:
            break
        if binds < MOST_BINDS and _lost_its_port(run, logged):
            binds += 1
            _print(run, "its port was taken meanwhile; once more with another")
            continue
        if restarts >= allowed:
            break
        restarts += 1
        _print(run, f"attempt {attempt} failed (exit code {ended.code}); restart {ended.restarts + 1} of {allowed}")
        _wait_to_restart(run, attempt, ended)
    if run.kept.own and run.kept.files:
        why = "hung" if hung else _signalled(folder, ended)
        write_status(folder, ended.state, ended.code, attempt=attempt, restarts=ended.restarts, why=why)
    return ended


def _size(log: Path | None) -> int:
    try:
        return 0 if log is None else log.stat().st_size
    except OSError:
        return 0


def _lost_its_port(run: _Run, since: int) -> bool:
    """Return whether the log, from a place on, ends with an error of a port that was free when it was chosen."""
    if not run.kept.own or run.kept.shared or run.plan.start.port is not None or run.log is None:
        return False
    try:
        with run.log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - LOG_TAIL))
            return re.search(BIND_ERROR.encode(), file.read()) is not None
    except OSError:
        return False


def _signalled(folder: Path, ended: Ended) -> str:
    """Return why a run was stopped if `launch stop` did not ask for it; "" otherwise."""
    whys = {128 + signal.SIGTERM: PREEMPTED % BY_SIGTERM, 128 + signal.SIGHUP: TERMINAL_LOST}
    return "" if not ended.interrupted or read_request(folder) is not None else whys.get(ended.code, "")


def _wait_to_restart(run: _Run, attempt: int, ended: Ended) -> None:
    """Wait before a restart, each twice as long as the one before; a signal ends the wait."""
    start = run.plan.start
    seconds = min(start.restart_seconds * 2**ended.restarts, LONGEST_WAIT)
    until = time.monotonic() + seconds
    if seconds and run.kept.files:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        why = RESTART_WAITS % (at, ended.restarts + 1, start.max_restarts, ended.code)
        write_status(Path(run.plan.output_dir), "running", None, attempt=attempt, restarts=ended.restarts, why=why)
    while time.monotonic() < until and not run.stop.received:
        time.sleep(_LOOK_SECONDS)


def _attempt(run: _Run, attempt: int) -> tuple[Ended, bool]:
    """Prepare and run once; also return whether the command was ended because it hung."""
    plan, environ = run.plan, dict(run.environ)
    if run.kept.own:
        environ["LAUNCH_RUN"] = f"{_mark(run.kept, Path(plan.output_dir))}/{run.kept.node}/{attempt}"
        ranks = _ranks_folder(plan, run.kept)
        if ranks.is_dir():
            environ |= torchrun_environment(plan.start, str(ranks), attempt)
    again = plan.resume is not None and (attempt > 0 or run.kept.again)
    found = last_checkpoint(plan.watch, environ[LAUNCH_DIR]) if again else None
    if found is not None and plan.resume is not None:
        _print(run, f"resumes from {found}")
        plan, environ = plan.resume, {**environ, RESUME: found}
        write(plan, environ, Written())
    if attempt == 0 or found is not None:
        for node in plan.prepare:
            ended, _ = _start(node, environ, run, None)
            if ended.code or ended.interrupted:
                return ended, False
    limits = (run.plan.start.hang_seconds, run.plan.start.startup_seconds)
    progress = Progress(Path(plan.output_dir), run.plan.watch, *limits) if run.kept.own else None
    mark = _mark(run.kept, Path(plan.output_dir))
    fixed = plan.start.port
    if not run.kept.own or run.kept.shared:
        return _start(plan.nodes[0], environ, run, progress)
    # Later attempts have written output that a failed start would remove: there the bind itself tells.
    if fixed is not None and not reserve(fixed, mark) and attempt == run.kept.first:
        raise CannotStart(f"port {fixed} is reserved by a run that starts now: choose another cluster.master_port")
    node = plan.nodes[0] if fixed is not None else on_free_port(plan.nodes[0], mark)
    try:
        return _start(node, environ, run, progress)
    finally:
        port = port_of(node)
        if port is not None and is_count(port):
            release(int(port), mark)


def _print(run: _Run, text: str) -> None:
    if not run.quiet:
        print(f"launch: {text}", flush=True)
    if run.log is not None:
        with suppress(OSError), run.log.open("a", encoding="utf-8") as file:  # a full disk
            file.write(f"launch: {text}\n")


def _argv(node: NodePlan, plan: LaunchPlan, environ: Mapping[str, str]) -> list[str]:
    """Return the words of a command; `python` is the job's, else this one, which may have no such name (`python3`)."""
    argv = [resolved(word, environ) for word in node.argv]
    is_nameless = plan.start.python is None and shutil.which("python", path=os.path.dirname(sys.executable)) is None
    return [sys.executable, *argv[1:]] if argv[0] == "python" and is_nameless else argv


def _environment(node: NodePlan, environ: Mapping[str, str], python: str | None) -> dict[str, str]:
    env = {**environ, **{key: resolved(value, environ) for key, value in node.env.items()}}
    # The scripts of the job's Python (torchrun, msrun) must be found even if its environment is not activated.
    folders = dict.fromkeys((os.path.dirname(python or ""), os.path.dirname(sys.executable)))
    env["PATH"] = os.pathsep.join([*filter(None, folders), env.get("PATH", os.defpath)])
    return env


def _start(node: NodePlan, environ: Mapping[str, str], run: _Run, progress: Progress | None) -> tuple[Ended, bool]:
    node = settled(node)
    argv = _argv(node, run.plan, environ)
    stop, log = run.stop, run.log or Path(run.plan.output_dir) / "logs"
    if stop.received:
        return Ended(code=128 + stop.received[0], log=log, interrupted=True), False
    try:
        process = subprocess.Popen(
            argv,
            env=_environment(node, environ, run.plan.start.python),
            cwd=resolved(node.workdir, environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotStart(f"{argv[0]} cannot be started: {error.strerror or error}") from None
    stop.watch(process)
    run.watchdog.watch(process.pid)
    output = Output(process, run.log, quiet=run.quiet)
    code, hung = _wait(process, stop, progress, Path(run.plan.output_dir) if run.kept.files else None)
    output.finish(_OUTPUT_SECONDS)
    if stop.received:
        return Ended(code=128 + stop.received[0], log=log, interrupted=True, log_problem=output.problem), False
    code = _HUNG if hung else code if code >= 0 else 128 - code
    return Ended(code=code, log=log, log_problem=output.problem), hung


def _wait(
    process: "subprocess.Popen[bytes]", stop: Stop, progress: Progress | None, folder: Path | None
) -> tuple[int, bool]:
    below: set[Process] = set()
    hung, shown = False, -math.inf
    try:
        while True:
            try:
                return process.wait(timeout=_LOOK_SECONDS), hung
            except subprocess.TimeoutExpired:
                # Orphans since the last poll are no descendants any more, but still belong to the run.
                below = {*(child for child in below if identified(child.pid) == child), *descendants(process.pid)}
                if stop.overdue():
                    stop.kill()
                if folder is not None and time.monotonic() - shown > HEARTBEAT_SECONDS:
                    shown = time.monotonic()
                    write_heartbeat(folder)
                # Ranks that were asked to end save, and log no iteration meanwhile.
                if progress is not None and not hung and not stop.received and progress.silent():
                    hung = True
                    stop.ask(process)
    finally:
        # Ranks have sessions of their own (torchrun): descendants at the last poll must not outlive this process.
        kill_all(below)
