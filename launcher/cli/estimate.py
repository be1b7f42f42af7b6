"""`launch estimate`: will it fit, how fast will it be, computed from the job that would be started."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.cli.multirun import Answer, add_option, answered
from launcher.cli.options import composed, guarded, parse, parser
from launcher.compose import ComposeError
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.job import Job
from launcher.rules.finding import Finding, Fix


def main(words: list[str]) -> int:
    """Estimate a job; exit 0 with an answer (whether or not it fits), 1 for a job that cannot run, 2 for usage."""
    made = parser(
        "estimate",
        "Memory per pipeline stage and time of one step, without a device.",
        "launch estimate +recipe=qwen3_moe hardware=h100_80g cluster.nodes=4 --plot estimate.html",
    )
    made.add_argument("--plot", metavar="FILE", help="draw memory and pipeline: .html, .svg or .png")
    made.add_argument("--trace", metavar="FILE.json", help="write the pipeline for Perfetto or chrome://tracing")
    add_option(made)
    options = parse(made, words)
    wrong = _wrong_file(options)
    if wrong:
        print(f"launch estimate: {wrong}", file=sys.stderr)
        return 2
    return guarded(lambda: answered(options, _estimated), as_json=options.json)


def _estimated(options: argparse.Namespace) -> Answer:
    """Estimate one job, show the answer to people, and write the files that were asked for."""
    try:
        job = composed(options)
    except ComposeError as error:
        findings = _impossible(error)
        if findings is None:
            raise
        return _refuse(findings, None, as_json=options.json)
    try:
        answer = estimate(job, timeline=bool(options.plot or options.trace))
    except CannotEstimate as error:
        return _refuse(error.findings, job, as_json=options.json)
    if not options.json:
        from launcher.estimate.screen import screen

        print(screen(job, answer))
    if options.trace:
        from launcher.estimate.trace import write_trace

        write_trace(Path(options.trace), job, answer)
    trouble = ""
    if options.plot:
        from launcher.estimate.plot import write_plot

        trouble = write_plot(Path(options.plot), job, answer) or ""
        if trouble:
            print(f"launch estimate: {trouble}", file=sys.stderr)
    return Answer(code=1 if trouble else 0, tree=answer.as_tree())


def _wrong_file(options: argparse.Namespace) -> str | None:
    forms = (("--plot", options.plot, (".html", ".svg", ".png")), ("--trace", options.trace, (".json",)))
    for name, text, allowed in forms:
        if text is None:
            continue
        if options.multirun:
            return f"{name} draws one job; leave out -m"
        if Path(text).suffix not in allowed:
            return f"{name} {text}: the name must end in {' or '.join(allowed)}"
        if not Path(text).absolute().parent.is_dir():
            return f"{name} {text}: there is no folder {Path(text).parent}"
    return None


def _impossible(error: ComposeError) -> list[Finding] | None:
    """Return findings where all mistakes are about values that no job can have; None where a word is wrong."""
    findings = []
    for mistake in error.mistakes:
        value = re.fullmatch(r"(\S+) (\S+ is (?:below|not a number) .*)", mistake.what)
        if value:
            rule, field, message = "EST-VALUE", value[1], value[2]
        elif mistake.what.startswith("no hardware named"):
            rule, field, message = "EST-HARDWARE-NAME", "hardware", mistake.what
        else:
            return None
        # Nothing of what must be above zero for an estimate works at the bound of its type.
        fixes = tuple(Fix(overrides=(f"{field}={works}",)) for works in mistake.works if works != "0")
        message = f"{message} ({mistake.where})" if mistake.where else message
        findings.append(
            Finding(rule=rule, severity="error", message=message, fields=(field,), fixes=fixes, source="launch")
        )
    return findings


def _refuse(findings: Sequence[Finding], job: Job | None, *, as_json: bool) -> Answer:
    if not as_json:
        from launcher.report.findings import print_findings

        print_findings(findings, job)
    return Answer(code=1, tree={"ok": False, "findings": [finding.as_tree() for finding in findings]})
