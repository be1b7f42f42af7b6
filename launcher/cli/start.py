"""Runs a checked plan: starts it here, or submits it to a queue, and reports how it ended and why."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli.dry_run import estimated
from launcher.executors.failure import CannotStart
from launcher.job import as_tree
from launcher.job.secret import without_secrets
from launcher.outputs.unnamed import written_below
from launcher.pipeline import Outcome
from launcher.plan import LaunchPlan
from launcher.plan.executor import Ended, get_executor, launchers
from launcher.records import dataclass
from launcher.report.findings import print_findings
from launcher.report.text_page import page_of, print_lines
from launcher.syntax import escaped

if TYPE_CHECKING:
    from launcher.executors.record import Record

# Exit codes that mean more than "failed": stopped by a hang-up, Ctrl-C or SIGTERM.
_STOPPED = (129, 130, 143)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A job that is checked and planned; nothing has been started or written."""

    outcome: Outcome
    plan: LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A job that was started: exit code of this program, whether a signal ended it, and the output of --json."""

    code: int
    interrupted: bool
    tree: dict[str, Any]


def check_start(plan: LaunchPlan) -> None:
    """Look for anything that prevents a plan from starting, and print what the system warns of; nothing is written.

    Raises:
        CannotStart: with the reason.
    """
    from launcher.executors import begin

    for warning in begin.check_start(plan):
        print_lines([escaped(f"launch: {plan.start.executor} warns: {warning}")], sys.stderr)


def start(ready: Ready, options: Namespace, sweep: str | None = None) -> Finished:
    """Start a job; wait for its end, unless it was submitted to a queue without `--wait`.

    Args:
        sweep: as of `begin`.

    Raises:
        CannotStart: a file or a process cannot be made, or a queue refuses the job.
    """
    from launcher.executors.begin import begin, run_here, submit

    if not options.json:
        announce(ready)
    begun = begin(ready.plan, documents(ready), tuple(without_secrets(sys.argv)), sweep=sweep)
    if not options.json:
        print(f"run: {begun.place.id}", flush=True)
    if is_queued(ready):
        return after_submission(submit(begun), options)
    with written_below(Path(ready.plan.output_dir)):
        ended = run_here(begun, quiet=options.json)
    return finished_here(begun.place.id, ended, Path(ready.plan.output_dir), options)


def finished_here(run_id: str, ended: Ended, folder: Path, options: Namespace) -> Finished:
    """Print how a run in the foreground ended, and why if it failed."""
    from launcher.executors.record import read_status

    tree: dict[str, Any] = {
        "id": run_id,
        "ok": ended.code == 0,
        "exit_code": ended.code,
        "log": str(ended.log),
        "restarts": ended.restarts,
    }
    if ended.log_problem:
        tree["log_problem"] = ended.log_problem
        print_lines([f"launch: the log {ended.log} is not complete: {ended.log_problem}"], sys.stderr)
    stopped = ended.interrupted or read_status(folder).get("state") == "stopped"
    return _finished(run_id, ended.code, tree, folder, options, interrupted=ended.interrupted, stopped=stopped)


def is_queued(ready: Ready) -> bool:
    """Return whether the job goes to a queue, so that it continues without this program."""
    return not get_executor(ready.plan.start.executor).foreground


def submit_sweep(jobs: Sequence[Ready], options: Namespace, launcher: str = "") -> list[Finished]:
    """Submit all jobs of a sweep to their queue, as one array where possible.

    Args:
        launcher: name of Hydra's launcher that submits them; "": none does.

    Raises:
        CannotStart: the queue refuses them.
    """
    from launcher.executors.begin import Begun, begin, submit_all

    if launcher:
        submitter = import_module(launchers()[launcher].launchers[launcher])
        submitter.check([ready.plan for ready in jobs])
    begun: list[Begun] = []
    for ready in jobs:
        first = begun[0].place.id if begun else ""
        begun.append(begin(ready.plan, documents(ready), tuple(without_secrets(sys.argv)), sweep=first))
    records = submit_all(begun, submitter.submit if launcher else None)
    alone = Namespace(**{**vars(options), "wait": False})
    return [after_submission(record, alone) for record in records]


def documents(ready: Ready) -> dict[str, object]:
    """Return the documents that a run directory keeps: resolved job and findings."""
    findings = [finding.as_tree() for finding in ready.outcome.findings]
    return {"job": as_tree(ready.outcome.job), "findings": findings}


def announce(ready: Ready) -> None:
    """Print what is about to run."""
    plan = ready.plan
    print_findings(ready.outcome.findings, ready.outcome.job)
    estimate = estimated(ready.outcome)
    notes = (f"estimate for its hardware: {estimate}",) if estimate else ()
    lines = (f"runs: {plan.what}", *(f"  {note}" for note in plan.notes), *notes, f"output: {plan.output_dir}")
    print_lines(lines, sys.stdout)


def after_submission(record: "Record", options: Namespace) -> Finished:
    """Print how to follow a submitted job; with --wait, show its output and wait for its end."""
    run_id = record.id
    tree: dict[str, Any] = {"id": run_id, "ok": True, "handle": dict(record.handle), "output_dir": record.folder}
    if not options.json:
        handle = " ".join(f"{name} {value}" for name, value in record.handle.items())
        commands = (f"launch status {run_id}", f"launch logs {run_id} -f", f"launch stop {run_id}")
        page = page_of(sys.stdout)
        submitted = page.wrap(f"submitted: {record.executor} {handle}", "", "  ")
        print("\n".join([*submitted, *page.join(commands, "follow it: ", "  ")]), flush=True)
    if not options.wait:
        return Finished(code=0, interrupted=False, tree=tree)
    from launcher.cli.follow import wait_for

    try:
        state = wait_for(record, quiet=options.json)
    except KeyboardInterrupt:
        print(f"launch: stopped waiting; the job continues: launch stop {run_id} ends it", file=sys.stderr)
        raise
    code = state.code if state.code is not None else {"done": 0, "stopped": 143}.get(state.state, 1)
    tree |= {"ok": code == 0, "exit_code": code, "state": state.state, "restarts": state.restarts}
    tree |= {"why": state.why} if state.why else {}
    return _finished(run_id, code, tree, Path(record.folder), options, stopped=state.state == "stopped")


def _finished(
    run_id: str,
    code: int,
    tree: dict[str, Any],
    folder: Path,
    options: Namespace,
    *,
    interrupted: bool = False,
    stopped: bool = False,
) -> Finished:
    """Return the end of a run; a signal's exit code is this program's only if the run was stopped, else it failed."""
    if code and not interrupted:
        tree |= _why(run_id, str(tree.get("why", "")), options)
    if code and not options.json:
        print_lines([f"launch: ended with exit code {code}; log: {tree.get('log', folder / 'logs')}"], sys.stderr)
    own = code if code == 0 or (stopped and code in _STOPPED) else 1
    return Finished(code=own, interrupted=interrupted, tree={**tree, "result": _result(folder)})


def _why(run_id: str, queue: str, options: Namespace) -> dict[str, Any]:
    """Return, and print, which rank failed first and why."""
    import dataclasses

    from launcher.observe.failure import first_failure
    from launcher.observe.find import UnknownRun, find_run

    try:
        failure = first_failure(find_run(run_id), queue)
    except UnknownRun:
        return {}
    if failure is None:
        return {}
    if not options.json:
        print_lines((f"launch: {line}" for line in failure.lines()), sys.stderr)
    return {"failure": dataclasses.asdict(failure)}


def _result(folder: Path) -> object:
    try:
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None


__all__ = ["CannotStart", "Finished", "Ready", "after_submission", "announce", "check_start", "documents", "start"]
