"""`launch run`: checks, plans and starts a job, and reports how it ended."""

import dataclasses
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from launcher.cli.multirun import through
from launcher.cli.options import composed, parse, parser, print_json
from launcher.cli.refusal import NotDone, Refusal, refusal_of
from launcher.cli.start import Finished, Ready, check_start, is_queued, start, submit_sweep
from launcher.compose import ComposeError, compose, sweep
from launcher.convert.offer import offered
from launcher.executors.failure import CannotStart
from launcher.job import Job, Origin, output_dir, with_values
from launcher.job.finding import Finding
from launcher.job.secret import without_secrets
from launcher.outputs.free import free_folder
from launcher.pipeline import DATA_PATH, Outcome, Refused, judge
from launcher.plan import LaunchPlan
from launcher.plan.executor import get_executor
from launcher.report.text_page import print_lines
from launcher.runtime import choose, planned

_DATA_MISSING = "DATA-MISSING"


class _NotStarted(NotDone):
    """A job that is not started: one sentence, and the findings that explain why."""

    rule = "RUN-START"

    def __init__(self, job: Job, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(f"{job.name or 'job'} not started: {message}", findings=findings, job=job)


_Failure = ComposeError | Refused | _NotStarted


def main(words: list[str]) -> int:
    """Run a job, or with -m one job after another for each combination of swept values."""
    made = parser("run", "Check a job and start it.", "launch +recipe=tiny_qwen3_moe backend={cuda} parallel.tp=2")
    made.add_argument(
        "-m", "--multirun", action="store_true", help="one job for each combination (a=1,2 b=3,4); Slurm: an array"
    )
    made.add_argument("--wait", action="store_true", help="with a queue: show the job's output and wait for its end")
    options = parse(made, words)
    return (_sweep if options.multirun else _single)(options)


def _single(options: Namespace) -> int:
    (job,) = _with_output_dirs([composed(options)])
    finished = _start(_ready(job), options)
    if options.json:
        print_json(finished.tree)
    return finished.code


def _sweep(options: Namespace) -> int:
    """Compose, check and plan every job first; the sweep starts only if none of them is refused."""
    words, launcher = through(options.overrides, wait=options.wait)
    combinations = sweep(words, options.config_dir)
    jobs = list(_all_ready(combinations, options))
    if any(not isinstance(job, Ready) for job in jobs):
        return _refuse_together(combinations, jobs, options)
    queued = [job for job in jobs if isinstance(job, Ready) and is_queued(job)]
    if launcher or (queued and len(queued) == len(jobs) and not options.wait):
        return _submit_sweep(combinations, [job for job in jobs if isinstance(job, Ready)], options, launcher)
    trees: list[dict[str, Any]] = []
    codes: list[int] = []
    stopped, first = 0, ""
    for number, (words, ready) in enumerate(zip(combinations, jobs, strict=True), start=1):
        assert isinstance(ready, Ready)
        if stopped:
            trees.append({**_head(number, words), "ok": False, "message": "not started: the sweep was interrupted"})
            continue
        finished = _start_one_of(number, words, ready, len(jobs), options, first)
        first = first or str(finished.tree.get("id", ""))
        trees.append({**_head(number, words), **finished.tree})
        codes.append(finished.code)
        stopped = finished.code if finished.interrupted or _is_sweep_stopped(ready, finished) else 0
    if options.json:
        print_json(trees)
    elif stopped and len(codes) < len(jobs):
        print(f"launch: interrupted; {len(jobs) - len(codes)} of {len(jobs)} jobs not started", file=sys.stderr)
    return stopped or next((code for code in codes if code), 0)


def _submit_sweep(combinations: list[list[str]], jobs: list[Ready], options: Namespace, launcher: str) -> int:
    """Submit the whole sweep to the queue and return the exit code."""
    try:
        finished = submit_sweep(jobs, options, launcher)
    except CannotStart as error:
        raise _NotStarted(jobs[0].outcome.job, str(error)) from None
    if options.json:
        heads = (_head(number, words) for number, words in enumerate(combinations, start=1))
        print_json([{**head, **each.tree} for head, each in zip(heads, finished, strict=True)])
    return 0


def _is_sweep_stopped(ready: Ready, finished: Finished) -> bool:
    """Return whether a user asked the whole sweep to stop while this job of it ran."""
    from launcher.executors.requests import requested

    request = requested(str(finished.tree.get("id", "")), Path(ready.plan.output_dir).absolute())
    return request is not None and request.sweep


def _start_one_of(number: int, words: list[str], ready: Ready, count: int, options: Namespace, sweep: str) -> Finished:
    if not options.json:
        _print_head(number, words, count)
    try:
        return _start(ready, options, sweep)
    except _NotStarted as failure:
        if not options.json:
            _failure_refusal(failure).show()
        return Finished(code=1, interrupted=False, tree=_failure_refusal(failure).tree)


def _all_ready(combinations: Iterable[list[str]], options: Namespace) -> Iterator[Ready | _Failure]:
    """Yield the plan of every job of a sweep, or why it cannot be planned."""
    made: list[Job | ComposeError] = []
    for words in combinations:
        try:
            made.append(compose(words, options.config_dir))
        except ComposeError as error:
            made.append(error)
    placed = iter(_with_output_dirs([job for job in made if isinstance(job, Job)]))
    for job in made:
        try:
            yield _ready(next(placed)) if isinstance(job, Job) else job
        except (Refused, _NotStarted) as failure:
            yield failure


def _ready(job: Job) -> Ready:
    """Check and plan a job, and look for anything that prevents it from starting here.

    Raises:
        Refused: there is no such backend or version.
        _NotStarted: the job is refused, or cannot run here.
    """
    from launcher.rehearse.refusal import RehearsalRefused

    outcome = judge(job)
    if not outcome.ok:
        raise _NotStarted(job, "the job is refused" + _with_conversion(outcome), outcome.findings)
    choice = choose(job, outcome.backend)
    if choice.runtime is None:
        raise _NotStarted(job, _cannot_run(outcome, choice.reason), outcome.findings)
    if choice.runtime == "native":
        _check_native(job, outcome)
        _check_weights(job, outcome)
    outcome = dataclasses.replace(outcome, job=dataclasses.replace(outcome.job, runtime=choice.runtime))
    try:
        plan = planned(outcome, resumes=get_executor(job.cluster.executor).resumes)
        check_start(plan)
        if choice.runtime == "native":
            _preflight(job, outcome, plan)
    except RehearsalRefused as error:
        raise _NotStarted(job, "cannot be rehearsed", [*outcome.findings, *error.findings]) from None
    except CannotStart as error:
        raise _NotStarted(job, str(error), outcome.findings) from None
    return Ready(outcome=outcome, plan=plan)


def _check_native(job: Job, outcome: Outcome) -> None:
    """Refuse what the backend would only detect after start-up: no data, no backend."""
    missing_data = [finding for finding in outcome.findings if finding.rule == _DATA_MISSING]
    if missing_data and DATA_PATH not in os.environ:
        raise _NotStarted(job, missing_data[0].message, outcome.findings)
    too_large = _too_large(job)
    if too_large is not None:
        raise _NotStarted(job, "it exceeds device memory (estimate.enforce=false starts it anyway)", [too_large])
    _preflight(job, outcome, None)


def _check_weights(job: Job, outcome: Outcome) -> None:
    """Refuse a start on this machine from missing converted weights, and report how to create them."""
    offer = offered(outcome.job, outcome.backend, outcome.version)
    if offer is not None and get_executor(job.cluster.executor).one_machine:
        message = f"{offer.folder} does not exist, and {outcome.backend.title} would start without it"
        raise _NotStarted(job, message + _with_conversion(outcome), outcome.findings)


def _with_conversion(outcome: Outcome) -> str:
    offer = offered(outcome.job, outcome.backend, outcome.version)
    return "" if offer is None else f"\n  {offer.why}; works: {offer.text}"


def _preflight(job: Job, outcome: Outcome, plan: LaunchPlan | None) -> None:
    """Refuse errors that `launch doctor` finds, and print its warnings; with a plan, those of its hosts."""
    from launcher.doctor.check import ERROR, WARNING
    from launcher.doctor.examine import of_hosts, of_job

    checks = of_job(outcome, forced=job.runtime == "native") if plan is None else of_hosts(outcome, plan)
    wrong = [check for check in checks if check.verdict == ERROR]
    if wrong:
        reason = "\n  ".join(check.line() for check in wrong)
        not_installed = any(check.found.endswith("is missing") for check in wrong)
        raise _NotStarted(
            job, _cannot_run(outcome, reason) if not_installed else f"launch doctor finds\n  {reason}", outcome.findings
        )
    for check in checks:
        if check.verdict == WARNING:
            print_lines([f"launch doctor: {check.line()}"], sys.stderr)


def _too_large(job: Job) -> Finding | None:
    """Return the finding that the job exceeds its hardware's memory by more than the estimate's own error."""
    if job.hardware.name is None:
        return None
    from launcher.estimate import refusal

    return refusal(job)


def _cannot_run(outcome: Outcome, reason: str) -> str:
    return (
        f"{outcome.backend.title} {outcome.version} cannot run here: {reason}\n"
        f"  works: {outcome.backend.install_hint or 'install it'}{_of_nodes(outcome.job)} · launch dry-run … · "
        "runtime=rehearsal rehearse.shrink=true (the same job, scaled down to this machine)"
    )


def _of_nodes(job: Job) -> str:
    """Return how the nodes' own environment is named, where it is not this machine's."""
    executor = get_executor(job.cluster.executor)
    if executor.here:
        return ""
    image = " · cluster.container=IMAGE" if executor.containers else ""
    return f" · cluster.python=FOLDER/bin/python of the environment that the nodes have{image}"


def _start(ready: Ready, options: Namespace, sweep: str | None = None) -> Finished:
    """Start a job and wait for its end, or submit it to its queue.

    Raises:
        _NotStarted: a file or a process cannot be made, or the queue refuses it.
    """
    try:
        return start(ready, options, sweep)
    except CannotStart as error:
        raise _NotStarted(ready.outcome.job, str(error)) from None


def _refuse_together(combinations: list[list[str]], jobs: Sequence[Ready | _Failure], options: Namespace) -> int:
    """Report why each refused job is refused, start none, and return the exit code."""
    failures = [job for job in jobs if not isinstance(job, Ready)]
    trees = []
    for number, (words, job) in enumerate(zip(combinations, jobs, strict=True), start=1):
        if isinstance(job, Ready):
            tree = {"ok": False, "message": "not started: other jobs of the sweep are refused", "findings": []}
        else:
            tree = _failure_refusal(job).tree
            if not options.json:
                _print_head(number, words, len(jobs))
                _failure_refusal(job).show()
        trees.append({**_head(number, words), **tree})
    if options.json:
        print_json(trees)
    else:
        print(f"launch: {len(failures)} of {len(jobs)} jobs refused; none was started", file=sys.stderr)
    return 1 if all(isinstance(failure, _NotStarted) for failure in failures) else 2


def _head(number: int, words: list[str]) -> dict[str, Any]:
    return {"job": number, "overrides": without_secrets(words)}


def _print_head(number: int, words: list[str], count: int) -> None:
    print(f"# job {number} of {count}: {' '.join(without_secrets(words))}", file=sys.stderr)


def _failure_refusal(failure: _Failure) -> Refusal:
    refusal = refusal_of(failure)
    assert refusal is not None
    return refusal


def _with_output_dirs(jobs: Sequence[Job]) -> list[Job]:
    """Give every job its own folder, so that no file of an earlier run, or of another job, is changed.

    A folder that was given is kept; where several jobs share one, each gets a numbered folder below it.
    """
    given = [job.output_dir for job in jobs if job.output_dir is not None]
    shared = len(set(given)) < len(given)
    taken: set[str] = set()
    placed = []
    for number, job in enumerate(jobs, start=1):
        if job.output_dir is None:
            folder = free_folder(Path(output_dir(job)), taken)
        else:
            folder = f"{job.output_dir}/{number}" if shared else job.output_dir
        taken.add(folder)
        changed = folder != job.output_dir
        placed.append(with_values(job, {"output_dir": folder}, Origin(kind="derived")) if changed else job)
    return placed
