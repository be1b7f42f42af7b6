"""`launch estimate`: memory use and speed, computed from the job that would be started."""

import argparse
import sys
from pathlib import Path

from launcher.cli.also_refused import note_refused, refused_by
from launcher.cli.multirun import Answer, add_option, answered
from launcher.cli.not_estimated import not_estimated
from launcher.cli.options import composed, parse, parser, writable
from launcher.cli.plot import drawable, plotted
from launcher.cli.refusal import WrongUse
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.outputs.kinds import PICTURE, TRACE
from launcher.report.text_page import page_of


def main(words: list[str]) -> int:
    """Estimate a job; exit 0 with a result (whether or not it fits), 1 for a job that cannot run, 2 for usage."""
    made = parser(
        "estimate",
        "Memory per pipeline stage and time of one step, without a device.",
        "launch estimate +recipe=qwen3_moe hardware=h100_80g cluster.nodes=4 --plot estimate.html",
    )
    made.add_argument("--why", action="store_true", help="also memory by kind of every stage, and what was assumed")
    made.add_argument("--plot", metavar="FILE", help="draw memory and pipeline: .html, .svg or .png")
    made.add_argument("--trace", metavar="FILE.json", help="write the pipeline for Perfetto or chrome://tracing")
    add_option(made)
    options = parse(made, words)
    for flag, file, kind, endings in (
        ("--plot", options.plot, PICTURE, (".html", ".svg", ".png")),
        ("--trace", options.trace, TRACE, (".json",)),
    ):
        if file is not None and options.multirun:
            raise WrongUse(f"{flag} draws one job; leave out -m")
        writable(flag, file, kind, *endings)
    drawable(options.plot)
    return answered(options, _estimated)


def _estimated(options: argparse.Namespace) -> Answer:
    """Estimate one job, print the result as text, and write the requested files."""
    job = composed(options)
    try:
        answer = estimate(job, timeline=bool(options.plot or options.trace))
    except CannotEstimate as error:
        raise not_estimated(error, job) from None
    refused = refused_by(job)
    if not options.json:
        from launcher.cli.estimate_screen import screen
        from launcher.cli.estimate_why import why_lines

        page = page_of(sys.stdout)
        lines = [*screen(job, answer, page, why=options.why), *(why_lines(answer, page) if options.why else ())]
        print("\n".join(lines))
        note_refused("estimate", {"this job": refused})
    if options.trace:
        from launcher.estimate.trace import write_trace

        write_trace(Path(options.trace), job, answer)
    if options.plot:
        from launcher.report.figures import memory_chart, timeline_chart

        timeline = timeline_chart(answer)
        charts = [memory_chart(answer), *([timeline] if timeline is not None else [])]
        plotted(options.plot, charts, f"{job.name or 'job'}: estimate")
    return Answer(code=0, tree={**answer.as_tree(), "refused_by": refused})
