"""`launch estimate`: will it fit, how fast will it be, computed from the job that would be started."""

import sys
from pathlib import Path

from launcher.cli.options import composed, guarded, parse, parser, print_json
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.job import Job


def main(words: list[str]) -> int:
    """Estimate a job; exit 0 with an answer (whether or not it fits), 1 for a job that cannot run, 2 for usage."""
    made = parser(
        "estimate",
        "Memory per pipeline stage and time of one step, without a device.",
        "launch estimate +recipe=qwen3_moe hardware=h100_80g cluster.nodes=4 --plot estimate.html",
    )
    made.add_argument("--plot", metavar="FILE", help="draw memory and pipeline: .html, .svg or .png")
    made.add_argument("--trace", metavar="FILE.json", help="write the pipeline for Perfetto or chrome://tracing")
    options = parse(made, words)

    def body() -> int:
        job = composed(options)
        wrong = _wrong_file(options.plot, options.trace)
        if wrong:
            print(f"launch estimate: {wrong}", file=sys.stderr)
            return 2
        try:
            answer = estimate(job, timeline=bool(options.plot or options.trace))
        except CannotEstimate as error:
            return _refuse(error, job, as_json=options.json)
        if options.json:
            print_json(answer.as_tree())
        else:
            from launcher.estimate.screen import screen

            print(screen(job, answer))
        if options.trace:
            from launcher.estimate.trace import write_trace

            write_trace(Path(options.trace), job, answer)
        if options.plot:
            from launcher.estimate.plot import write_plot

            trouble = write_plot(Path(options.plot), job, answer)
            if trouble:
                print(f"launch estimate: {trouble}", file=sys.stderr)
                return 1
        return 0

    return guarded(body, as_json=options.json)


def _wrong_file(plot: str | None, trace: str | None) -> str | None:
    for name, text, allowed in (("--plot", plot, (".html", ".svg", ".png")), ("--trace", trace, (".json",))):
        if text is None:
            continue
        if Path(text).suffix not in allowed:
            return f"{name} {text}: the name must end in {' or '.join(allowed)}"
        if not Path(text).absolute().parent.is_dir():
            return f"{name} {text}: there is no folder {Path(text).parent}"
    return None


def _refuse(error: CannotEstimate, job: Job, *, as_json: bool) -> int:
    if as_json:
        print_json({"ok": False, "findings": [finding.as_tree() for finding in error.findings]})
        return 1
    from launcher.report.findings import print_findings

    print_findings(error.findings, job)
    return 1
