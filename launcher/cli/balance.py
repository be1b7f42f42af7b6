"""`launch balance`: distributes layers and recomputation over pipeline stages for the least step time."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.balance.problem import BadProblem, Problem
from launcher.balance.profile import BadTable, Measured, read_table, sizes_of, two_kinds
from launcher.cli import balance_taylor
from launcher.cli.also_refused import note_refused, refused_by
from launcher.cli.not_estimated import not_estimated
from launcher.cli.notes import print_remark
from launcher.cli.options import composed, parse, parser, print_json, readable, writable, write_file
from launcher.cli.plot import drawable, plotted
from launcher.cli.refusal import NotDone, WrongUse
from launcher.cli.taylor_job import job_of_yaml
from launcher.cli.taylor_words import translated
from launcher.estimate.estimate import CannotEstimate
from launcher.job import Job, Value, fields, value_at, with_values
from launcher.job.finding import Finding
from launcher.job.secret import without_secrets
from launcher.outputs.kinds import JOB, PICTURE, PROGRAM
from launcher.report.text_page import page_of, redraw
from launcher.terminal import can_redraw

if TYPE_CHECKING:
    from launcher.balance.solve_job import Answer
    from launcher.report.figures import Chart

_RULE = "BALANCE"
# Numbers of stages that are tried where a job has one.
_STAGES = (2, 4, 8, 16)
_MOST_HARDWARE = 3
_RATIOS = (
    ("--layer-ratio", "dense", "forward of a dense layer over that of a MoE layer (Taylor's dmratio)"),
    ("--b-ratio", "backward", "backward of a layer over its forward (bfratio)"),
    ("--head-loss", "head", "forward of output layer and loss over that of a MoE layer (hratio)"),
    ("--ra-ratio", "recompute", "full recomputation of a layer over its forward (re_grow_ration)"),
)


def main(words: list[str]) -> int:
    """Balance a job's pipeline; exit 0 with a split, 1 where none fits or the job cannot run, 2 for usage."""
    made = parser(
        "balance",
        "Layers of each pipeline stage and chunk, and how many are recomputed, for the least step time within memory.",
        "launch balance +recipe=deepseek_v3 backend={npu} hardware=ascend_910c -o balanced.yaml",
    )
    _options(made)
    taylor = translated("balance", words)
    options = parse(made, taylor.words)
    for note in taylor.notes:
        _print_error(note)
    balance_taylor.refuse_wrong(options)
    _refuse_wrong(options)
    if options.yaml is None:
        return _balance(composed(options), options)
    constants = balance_taylor.constants_of(options)
    if constants:
        if options.overrides:
            raise WrongUse(f"{options.overrides[0]}: with memory constants only the YAML is read", "leave it out")
        return _with_solver(lambda: balance_taylor.balance_yaml(options, constants))
    if Path(options.yaml).is_dir():
        raise WrongUse(
            f"--yaml {options.yaml}: a folder needs memory constants of its layouts",
            f"--memory FOLDER, with Taylor's files such as {balance_taylor.STORED}/layers3_59_….txt",
        )
    return _balance(job_of_yaml(options.yaml, options.overrides, options.config_dir), options)


def _with_solver(solve: Callable[[], int]) -> int:
    try:
        import launcher.balance.solve  # noqa: F401
    except ModuleNotFoundError as error:
        raise NotDone(f"needs {error.name}", "pip install 'launch-llm[search]'") from None
    return solve()


def _options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "-o", "--output", metavar="FILE.yaml", help="write the split as an override file (+strategy=FILE)"
    )
    made.add_argument("--plot", metavar="FILE", help="timeline and memory before and after: .html, .svg or .png")
    made.add_argument("--mps", metavar="FILE.mps", help="write the mixed-integer program for other solvers")
    made.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds for the solver (default 60)")
    made.add_argument("--gap", type=float, default=1e-3, help="stop this close to the proven bound (default 0.001)")
    made.add_argument("--quick", action="store_true", help="only local search, with the bound of the linear program")
    made.add_argument("--keep-recompute", action="store_true", help="keep the job's recomputation")
    made.add_argument("--empty-ends", action="store_true", help="allow a first and last chunk without layers")
    made.add_argument(
        "--profile-result",
        metavar="FILE.csv",
        help="measured times; the row of this layout is used (see launch search)",
    )
    made.add_argument(
        "--yaml",
        metavar="FILE|FOLDER",
        help="instead of overrides: a MindFormers YAML, or a folder of DPx_TPx_PPx_EPx….yaml, as Taylor's options take",
    )
    made.add_argument(
        "--memory",
        action="append",
        default=[],
        metavar="FILE|NAME=MB,…",
        help="with --yaml: Taylor's memory constants; default: pipeline_output/memory_info, else the estimate",
    )
    made.add_argument("--moe-bw", type=float, metavar="MS", help="with --memory: milliseconds of a MoE layer's forward")
    made.add_argument(
        "--corrected", action="store_true", help="with --memory: dense layers take the recomputation ratio, too"
    )
    for flag, name, text in _RATIOS:
        made.add_argument(flag, dest=f"ratio_{name}", type=float, metavar="R", help=f"measured: {text}")


def _refuse_wrong(options: argparse.Namespace) -> None:
    for flag, name, _ in _RATIOS:
        ratio = getattr(options, f"ratio_{name}")
        if ratio is not None and not 0 < ratio < float("inf"):
            raise WrongUse(f"{flag} {ratio:g}: must be above 0")
    if not 0 < options.time_limit < float("inf"):
        raise WrongUse(f"--time-limit {options.time_limit:g}: must be above 0", "--time-limit 60")
    if not 0 <= options.gap < 1:
        raise WrongUse(f"--gap {options.gap:g}: must be from 0 to below 1", "--gap 0.001")
    writable("--plot", options.plot, PICTURE, ".html", ".svg", ".png")
    drawable(options.plot)
    writable("--mps", options.mps, PROGRAM, ".mps")
    if options.yaml is None or not (options.memory or Path(options.yaml).is_dir()):
        writable("-o", options.output, JOB, ".yaml", ".yml")
    readable("--profile-result", options.profile_result)


def _balance(job: Job, options: argparse.Namespace) -> int:
    try:
        from launcher.balance.solve import Infeasible
        from launcher.balance.solve_job import balance_job
    except ModuleNotFoundError as error:
        raise NotDone(f"needs {error.name}", "pip install 'launch-llm[search]'") from None
    try:
        row = _row(job, options.profile_result)
    except BadTable as error:
        raise NotDone(findings=list(map(_finding, error.mistakes)), job=job) from None
    try:
        answer = balance_job(
            job,
            seconds=options.time_limit,
            gap=options.gap,
            quick=options.quick,
            recompute=not options.keep_recompute,
            empty_ends=options.empty_ends,
            reshape=_measured(options, row),
            watch=None if options.json else _progress(),
        )
    except CannotEstimate as error:
        raise not_estimated(error, job) from None
    except (BadProblem, Infeasible) as error:
        raise NotDone(_reason(error), *_works(job), rule=_RULE) from None
    from launcher.balance.strategy import strategy
    from launcher.cli.balance_screen import screen

    values = strategy(answer)
    refused = refused_by(job if values is None else with_values(job, values))
    if not options.json:
        if can_redraw(sys.stderr):
            redraw("", sys.stderr)
        print("\n".join(screen(answer, page_of(sys.stdout))))
        if row is not None:
            print(f"measured times: {options.profile_result}:{row.line} ({row.name})")
        note_refused("balance", {"the job" if values is None else "the job with this split": refused})
    if not options.quick and not answer.balanced.optimal:
        share = 100 * answer.balanced.gap
        _print_error(
            f"warning: {options.time_limit:g} s ended before the optimum was proven: up to {share:.2g} % above the best"
        )
    if options.output and values is not None:
        values = _of_strategy(job, options.overrides) | values
        from launcher.report.strategy import strategy_text, written_text

        comment = f"launch balance {' '.join(without_secrets(options.overrides))}"
        write_file(options.output, strategy_text(values, comment), JOB)
        if not options.json:
            print(written_text(options.output, values, job))
    if values is not None:
        _write_files(options, answer)
    if options.json:
        print_json({**answer.as_tree(), "refused_by": refused})
    return 0 if values is not None else 1


def _of_strategy(job: Job, overrides: Sequence[str]) -> dict[str, Value]:
    """Return what else the job's strategy file sets, since the written file takes its place."""
    from launcher.balance.from_job import RECOMPUTED, UNEVEN

    named = [word.removeprefix("+strategy=") for word in overrides if word.startswith("+strategy=")]
    files = {file for name in named for file in (name, f"strategy/{name}.yaml")}
    return {
        path: value_at(job, path)
        for path in fields()
        if job.origin(path).where.rpartition(":")[0] in files and path not in (*UNEVEN, *RECOMPUTED)
    }


def _write_files(options: argparse.Namespace, answer: object) -> None:
    from launcher.balance.solve_job import Answer

    assert isinstance(answer, Answer)
    if options.mps:
        from launcher.balance.mip_export import write_mps

        write_mps(Path(options.mps), answer.posed.problem)
    if options.plot:
        plotted(options.plot, _charts(answer), f"{answer.job.name or 'job'}: balance")


def _charts(answer: "Answer") -> "list[Chart]":
    """Return memory and pipeline of the even and the balanced split."""
    from launcher.estimate.estimate import estimate
    from launcher.report.figures import memory_chart, timeline_chart

    charts: list[Chart] = []
    for job, what in ((answer.posed.start, "before (even)"), (answer.job, "after (balanced)")):
        estimated, name = estimate(job, timeline=True, changes=False), what.partition(" ")[0]
        for chart in (memory_chart(estimated, f"memory-{name}"), timeline_chart(estimated, f"timeline-{name}")):
            if chart is not None:
                charts.append(dataclasses.replace(chart, title=f"{chart.title}, {what}"))
    return charts


def _finding(text: str) -> Finding:
    return Finding(rule=_RULE, severity="error", message=text, source="launch balance")


def _row(job: Job, file: str | None) -> Measured | None:
    """Return the measurements for the job's layout.

    Raises:
        BadTable: the file cannot be used, or has no measurement of this layout.
    """
    if file is None:
        return None
    table = read_table(Path(file), dense=two_kinds(job))
    row = table.row_of(sizes_of(job))
    if row is None:
        sizes = ", ".join(f"{name}={size}" for name, size in sizes_of(job).items())
        known = "; ".join(other.name for other in table.rows[:5])
        raise BadTable([f"{file}: nothing was measured for {sizes}; there is {known}"])
    return row


def _measured(options: argparse.Namespace, row: Measured | None) -> Callable[[Problem], Problem] | None:
    from launcher.balance.measured import with_measured, with_ratios

    given = {name: getattr(options, f"ratio_{name}") for _, name, _ in _RATIOS}
    if row is None and all(ratio is None for ratio in given.values()):
        return None
    return lambda problem: with_ratios(problem if row is None else with_measured(problem, row), **given)


def _progress() -> Callable[[float, float], None] | None:
    if not can_redraw(sys.stderr):
        return None

    def show(time: float, bound: float) -> None:
        gap = f", at most {100 * (1 - bound / time):.2f} % from the best" if bound else ""
        redraw(f"balancing: {time:.4g} s a step's pipeline{gap}", sys.stderr)

    return show


def _works(job: Job) -> Iterator[str]:
    """Yield what gives a job that cannot be balanced stages, or times and memory."""
    from launcher.estimate.hardware import timed_hardware
    from launcher.pipeline import judge

    if job.parallel.pp < 2:
        if job.backend.name is None:
            return  # no rules to try them with
        tried = ({"parallel.pp": stages} for stages in _STAGES)
        passing = (values for values in tried if judge(with_values(job, values), fixes=False).ok)
        yield from (f"parallel.pp={values['parallel.pp']}" for values in islice(passing, 1))
    elif job.hardware.bf16_tflops is None or job.hardware.memory_gib is None:
        yield from islice(timed_hardware(job), _MOST_HARDWARE)


def _reason(error: Exception) -> str:
    from launcher.balance.solve import Infeasible

    if isinstance(error, Infeasible) and error.lacking is not None:
        return f"{error}: {error.lacking / 2**30:.2f} GiB short"
    return str(error)


def _print_error(text: str) -> None:
    print_remark("balance", text)
