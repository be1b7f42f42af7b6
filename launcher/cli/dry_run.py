"""`launch dry-run`: shows exactly what would run, and the origin of every value."""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from launcher.cli.explain_variables import VARIABLES
from launcher.cli.multirun import Answer, add_option, answered
from launcher.cli.options import composed, parse, parser
from launcher.cli.refusal import NotDone, WrongUse
from launcher.convert.offer import Offer, offered
from launcher.job import Job, Origin, as_tree, output_dir, with_values
from launcher.mapping.environment import Explained, explained
from launcher.pipeline import Outcome, judge
from launcher.plan import LaunchPlan
from launcher.plan.executor import Place, get_executor
from launcher.plan.shell import one_line, script, settled
from launcher.report.findings import print_findings
from launcher.runtime import choose, planned

FORMATS = ("text", "shell", "argv", "yaml", "json", "submit")


def main(words: list[str]) -> int:
    """Show a job's native arguments and plan; exit 1 if it would be refused."""
    made = parser(
        "dry-run", "Show exactly what would run.", "launch dry-run +recipe=qwen3_moe backend={cuda} --format shell"
    )
    made.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="shell: a script; argv: one line per node; yaml: the job; "
        "submit: what is submitted to the queue (cluster=kubernetes: the manifest)",
    )
    made.add_argument("--all", action="store_true", help="every argument and variable, with its field and origin")
    made.add_argument("--why", metavar="NAME", help="where one argument, field or variable comes from")
    made.add_argument("--render", metavar="DIR", help="also write the files that start it without this program to DIR")
    add_option(made)
    options = parse(made, _joined(words))
    options.json = options.json or options.format == "json"
    if (options.all or options.why) and (options.json or options.format != "text"):
        flag = "--all" if options.all else "--why"
        raise WrongUse(f"{flag} is for the text output; the others have every argument", "--json")
    return answered(options, _shown)


def _joined(words: list[str]) -> list[str]:
    """Return the arguments with `--why --flag` as one, which argparse would take for two options."""
    at = words.index("--why") if "--why" in words else len(words)
    if words[at + 1 : at + 2] and words[at + 1].startswith("--"):
        return [*words[:at], f"--why={words[at + 1]}", *words[at + 2 :]]
    return words


def _shown(options: argparse.Namespace) -> Answer:
    """Show one job in the requested form."""
    job = composed(options)
    if options.multirun and not (options.has_own_folder and job.output_dir):
        job = _with_own_folder(job, options.number)
    outcome = judge(job)
    code = 0 if outcome.ok else 1
    if options.format == "yaml" and not options.json:
        _yaml(job)
        print_findings(outcome.findings, outcome.job)
        return Answer(code=code, tree=None)
    plan = planned(outcome)
    if options.multirun:
        # A sweep's jobs share a name; a started run has its own id, so each gets one here.
        own = dataclasses.replace(plan.start, name=f"{plan.start.name}-{options.number}")
        plan = dataclasses.replace(plan, start=own)
    if options.render is not None and outcome.ok:
        folder = f"{options.render}/{options.number}" if options.multirun else options.render
        render(plan, folder, outcome)
    if options.json:
        return Answer(code=code, tree=as_json(outcome, plan))
    if options.why:
        from launcher.cli.dry_run_why import show_why

        show_why(options.why, outcome, _environment(outcome, plan))
        return Answer(code=code, tree=None)
    if options.format == "text":
        _text(outcome, plan, every=options.all)
        return Answer(code=code, tree=None)
    if outcome.ok:
        # A refused job has no script, so that output piped into a file cannot be run.
        _print(options.format, outcome, plan)
    sys.stdout.flush()
    print_findings(outcome.findings, outcome.job)
    return Answer(code=code, tree=None)


def _with_own_folder(job: Job, number: int) -> Job:
    """Give a job of a sweep its own folder, as `run -m` does if the folder does not exist yet."""
    if job.output_dir is not None:
        folder = f"{job.output_dir}/{number}"
    else:
        folder = output_dir(job) if number == 1 else f"{output_dir(job)}-{number}"
    return with_values(job, {"output_dir": folder}, Origin(kind="derived"))


def render(plan: LaunchPlan, folder: str, outcome: Outcome) -> None:
    """Write the files that start a job to an empty folder and print the command that runs them.

    Raises:
        NotDone: the folder is not empty or cannot be written.
    """
    from launcher.executors.begin import render_to
    from launcher.executors.failure import CannotStart

    try:
        command = render_to(plan, Path(folder))
    except CannotStart as error:
        raise NotDone(str(error), findings=outcome.findings, job=outcome.job) from None
    print(f"launch dry-run: written to {folder}; start it with: {one_line(command)}", file=sys.stderr)


def _print(form: str, outcome: Outcome, plan: LaunchPlan) -> None:
    """Print a plan in one form.

    Raises:
        NotDone: the files that start it cannot be written yet.
    """
    from launcher.executors.failure import CannotStart

    try:
        _SHOW[form](outcome, plan)
    except CannotStart as error:
        raise NotDone(str(error), findings=outcome.findings, job=outcome.job) from None


def here(outcome: Outcome) -> str:
    """Return what `run` would do on this machine, as text; a dry run shows the cluster's command."""
    choice = choose(outcome.job, outcome.backend)
    if choice.runtime is None:
        return f"cannot run on this machine ({choice.reason}); rehearse.shrink=true rehearses it here"
    executor = outcome.job.cluster.executor
    place = "on this machine" if get_executor(executor).here else f"by {executor}"
    return f"run starts the {choice.runtime} runtime {place} ({choice.reason})"


def estimated(outcome: Outcome) -> str | None:
    """Return memory and time in one line, where the hardware is known."""
    if outcome.job.hardware.name is None:
        return None
    from launcher.estimate import one_line as line

    return line(outcome.job)


def conversion(outcome: Outcome) -> Offer | None:
    """Return the conversion that the job's weights need before it starts."""
    return offered(outcome.job, outcome.backend, outcome.version)


def as_json(outcome: Outcome, plan: LaunchPlan) -> dict[str, object]:
    """Return the dry run as plain data (the contract of DESIGN: backend, job, args, findings, plan)."""
    convert = conversion(outcome)
    return {
        "backend": {"name": outcome.backend.name, "version": outcome.version},
        "job": as_tree(outcome.job),
        "args": [
            {"flag": arg.flag, "value": arg.value, "field": arg.field, "origin": arg.origin, "where": arg.where}
            for arg in outcome.native
        ],
        "effective": [
            {"flag": each.flag, "value": each.after, "was": each.before, "rule": each.rule, "written": each.written}
            for each in outcome.effective.changes
        ],
        "environment": [dataclasses.asdict(each) for each in _environment(outcome, plan)],
        "findings": [finding.as_tree() for finding in outcome.findings],
        "plan": plan.as_tree(),
        "here": here(outcome),
        "estimate": estimated(outcome),
        "convert": convert.as_tree() if convert is not None else None,
    }


def _text(outcome: Outcome, plan: LaunchPlan, *, every: bool = False) -> None:
    from launcher.cli.dry_run_screen import show

    show(
        outcome,
        plan,
        here=here(outcome),
        estimate=estimated(outcome),
        convert=conversion(outcome),
        environment=_environment(outcome, plan),
        every=every,
    )


def _environment(outcome: Outcome, plan: LaunchPlan) -> list[Explained]:
    """Return the variables of a node, with the origin of each."""
    own = outcome.backend.environment
    return explained(plan.nodes[0].env, own, outcome.job, outcome.native, VARIABLES)


def _argv(outcome: Outcome, plan: LaunchPlan) -> None:
    shown = plan.nodes[:2]
    for node in map(settled, (*plan.prepare, *shown)):
        env = " ".join(f"{key}={one_line([value])}" for key, value in node.env.items())
        print(f"{env} {one_line(node.argv)}".strip())
    if len(plan.nodes) > len(shown):
        print(f"# … and {len(plan.nodes) - len(shown)} more nodes, the same with their own rank")


def _shell(outcome: Outcome, plan: LaunchPlan) -> None:
    print(script(plan), end="")


def _submit(outcome: Outcome, plan: LaunchPlan) -> None:
    """Print the file that starts the job, or that is submitted to its queue."""
    executor = get_executor(plan.start.executor)
    folder = os.path.abspath(plan.output_dir)
    print(executor.render(plan, Place(id=plan.start.name, folder=folder, launch_dir=os.getcwd()))[-1].content, end="")


def _yaml(job: Job) -> None:
    from launcher.importing.job_file import whole_job_yaml

    print(whole_job_yaml(job), end="")


_SHOW = {"argv": _argv, "shell": _shell, "submit": _submit}
