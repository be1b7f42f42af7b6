"""`launch run`: check, plan, start, and say how it ended."""

import dataclasses
import json
import sys
from argparse import Namespace
from pathlib import Path

from launcher.cli.options import guarded, parse, parser, print_json
from launcher.compose import compose, sweep
from launcher.executors.failure import CannotStart
from launcher.job import Job, Origin, output_dir, with_values
from launcher.pipeline import Outcome, judge
from launcher.report.findings import print_findings
from launcher.runtime import choose, planned


def main(words: list[str]) -> int:
    """Run a job, or with -m one job after another for each combination of swept values."""
    made = parser("run", "Check a job and start it.", "launch +recipe=tiny_qwen3_moe backend=megatron parallel.tp=2")
    made.add_argument("-m", "--multirun", action="store_true", help="sweep: one job for each combination (a=1,2 b=3,4)")
    options = parse(made, words)

    def body() -> int:
        jobs = sweep(options.overrides, options.config_dir) if options.multirun else [options.overrides]
        codes = []
        for number, job_words in enumerate(jobs, start=1):
            if len(jobs) > 1:
                print(f"# job {number} of {len(jobs)}: {' '.join(job_words)}", file=sys.stderr)
            codes.append(_one(job_words, options))
            if codes[-1] == 130:
                break
        return next((code for code in codes if code), 0)

    return guarded(body, as_json=options.json)


def _one(words: list[str], options: Namespace) -> int:
    job = _with_output_dir(compose(words, options.config_dir))
    outcome = judge(job)
    choice = choose(job, outcome.backend)
    if not options.json:
        print_findings(outcome.findings, job)
    if not outcome.ok:
        return _refused(job, [finding.as_tree() for finding in outcome.findings], "the job is refused", options)
    if choice.runtime is None:
        message = (
            f"{outcome.backend.title} {outcome.version} cannot run here: {choice.reason}\n"
            f"  works: {outcome.backend.install_hint or 'install it'} · launch dry-run … · "
            "runtime=rehearsal rehearse.shrink=true (the same job, scaled down to this machine)"
        )
        return _refused(job, [], message, options)
    job = dataclasses.replace(outcome.job, runtime=choice.runtime)
    return _start(dataclasses.replace(outcome, job=job), options)


def _start(outcome: Outcome, options: Namespace) -> int:
    from launcher.executors.local import run
    from launcher.rehearse.refusal import RehearsalRefused

    try:
        plan = planned(outcome)
        if not options.json:
            for line in (f"runs: {plan.what}", *(f"  {note}" for note in plan.notes), f"output: {plan.output_dir}"):
                print(line, flush=True)
        ended = run(plan, quiet=options.json)
    except RehearsalRefused as error:
        if not options.json:
            print_findings(error.findings, outcome.job)
        return _refused(outcome.job, [finding.as_tree() for finding in error.findings], "cannot be rehearsed", options)
    except CannotStart as error:
        return _refused(outcome.job, [], str(error), options)
    result = _result(Path(plan.output_dir))
    if options.json:
        print_json({"ok": ended.code == 0, "exit_code": ended.code, "log": str(ended.log), "result": result})
    elif ended.code:
        print(f"launch: ended with exit code {ended.code}; log: {ended.log}", file=sys.stderr)
    return ended.code if ended.code in (0, 130, 143) else 1


def _refused(job: Job, findings: list[dict[str, object]], message: str, options: Namespace) -> int:
    if options.json:
        print_json({"ok": False, "message": message, "findings": findings})
    else:
        print(f"launch: {job.name or 'job'} not started: {message}", file=sys.stderr)
    return 1


def _with_output_dir(job: Job) -> Job:
    """Give a run without `output_dir` a folder of its own: nothing of an earlier run is touched."""
    if job.output_dir is not None:
        return job
    first = Path(output_dir(job))
    folder, number = first, 1
    while folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return with_values(job, {"output_dir": str(folder)}, Origin(kind="derived"))


def _result(folder: Path) -> object:
    try:
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
