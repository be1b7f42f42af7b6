"""`launch balance --yaml`: pipelines of MindFormers YAMLs by Taylor's memory constants and measured ratios."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.balance.profile import BadTable, Measured, read_table
from launcher.balance.taylor import Ratios
from launcher.balance.taylor_files import Pipeline, candidates, read_memory, read_pipeline, row_of
from launcher.cli.options import print_json, writable, write_file
from launcher.cli.refusal import NotDone, WrongUse
from launcher.job.finding import Finding
from launcher.outputs.kinds import NEW, Kind, table

if TYPE_CHECKING:
    from launcher.balance.taylor_solve import TaylorAnswer

_RULE = "BALANCE"
# Where Taylor stores the constants of its dry runs, below the folder that it is started in.
STORED = Path("pipeline_output", "memory_info")
_COLUMNS = (
    *("test", "layers", "micro", "dp", "tp", "pp", "ep", "vp"),
    *("objective", "moe_bw", "cost", "offset", "recompute"),
)
RESULTS: Kind = table("a table of balanced pipelines", *_COLUMNS)


def constants_of(options: argparse.Namespace) -> list[str]:
    """Return where memory constants come from: `--memory`, else Taylor's own folder; none: there are none."""
    given: list[str] = list(options.memory)
    return given or ([str(STORED)] if STORED.is_dir() else [])


def refuse_wrong(options: argparse.Namespace) -> None:
    """Refuse options that need Taylor's files, and files that are not there.

    Raises:
        WrongUse: with what works.
    """
    if options.yaml is None:
        given = {"--memory": options.memory, "--corrected": options.corrected, "--moe-bw": options.moe_bw}
        for flag, value in given.items():
            if value:
                raise WrongUse(f"{flag}: needs --yaml FILE, the MindFormers YAML that Taylor's constants are for")
        return
    if not Path(options.yaml).exists():
        raise WrongUse(f"--yaml {options.yaml}: there is no such file or folder")
    for item in options.memory:
        if "=" not in item and not Path(item).exists():
            works = "--memory act_mem=738,layer_mem=7230,…"
            raise WrongUse(f"--memory {item}: there is no such file or folder", works)
    if options.moe_bw is not None and not 0 < options.moe_bw < float("inf"):
        raise WrongUse(f"--moe-bw {options.moe_bw:g}: must be above 0")
    many = Path(options.yaml).is_dir()
    if many:
        writable("-o", options.output, RESULTS, ".csv")
    else:
        writable("-o", options.output, NEW, ".yaml", ".yml")
    if many and options.profile_result is None:
        works = "--profile-result FILE.csv"
        raise WrongUse(f"--yaml {options.yaml}: a folder needs the measured times of its YAMLs", works)
    for flag in ("plot", "mps"):
        if getattr(options, flag) is not None:
            raise WrongUse(f"--{flag}: not with Taylor's memory constants")


def balance_yaml(options: argparse.Namespace, constants: Sequence[str]) -> int:
    """Balance one YAML, or those of a folder by cost; return 0 with a split, 1 where none fits.

    Raises:
        NotDone: a file holds no usable figures.
    """
    try:
        pairs = _pairs(options)
        memory = [(read_memory(constants, pipeline), pipeline, row) for pipeline, row in pairs]
    except BadTable as error:
        raise NotDone(findings=[_finding(text) for text in error.mistakes]) from None
    answers: list[TaylorAnswer] = []
    failed: list[tuple[Pipeline, str]] = []
    for (values, source), pipeline, row in memory:
        answer = _solved(options, pipeline, row, values)
        if isinstance(answer, str):
            failed.append((pipeline, answer))
            continue
        answers.append(answer)
        if not options.json:
            _show(answer, options, source)
    answers.sort(key=lambda answer: answer.cost_ms if answer.cost_ms is not None else answer.objective)
    for pipeline, reason in failed:
        print(f"launch balance: {pipeline.name}: {reason}", file=sys.stderr)
    if Path(options.yaml).is_dir() and answers and not options.json:
        print("\n" + "\n".join(_ranking(answers)))
    if options.output and answers:
        _write(options, answers)
    if options.json:
        trees = [answer.as_tree() for answer in answers]
        print_json({"candidates": trees} if Path(options.yaml).is_dir() else trees[0] if trees else {"ok": False})
    return 0 if answers else 1


def _pairs(options: argparse.Namespace) -> list[tuple[Pipeline, Measured | None]]:
    """Return the pipelines and their measured times."""
    path = Path(options.yaml)
    pipelines = candidates(path) if path.is_dir() else [read_pipeline(path)]
    if options.profile_result is None:
        return [(pipeline, None) for pipeline in pipelines]
    rows = read_table(Path(options.profile_result), dense=any(each.dense_layers for each in pipelines)).rows
    pairs = [(pipeline, row_of(rows, pipeline)) for pipeline in pipelines]
    lacking = [pipeline for pipeline, row in pairs if row is None]
    if lacking and (len(lacking) == len(pairs)):
        known = "; ".join(row.name for row in rows[:5])
        names = ", ".join(pipeline.name for pipeline in lacking[:5])
        raise BadTable([f"{options.profile_result}: nothing was measured for {names}; there is {known}"])
    for pipeline in lacking:
        print(f"launch balance: {pipeline.name}: no row in {options.profile_result}: left out", file=sys.stderr)
    return [(pipeline, row) for pipeline, row in pairs if row is not None]


def _ratios(options: argparse.Namespace, row: Measured | None) -> Ratios:
    ratios = Ratios()
    if row is not None:
        ratios = Ratios(
            backward=row.backward,
            dense=ratios.dense if row.dense is None else row.dense,
            head=row.head,
            recompute=row.recompute,
        )
    given = {name: getattr(options, f"ratio_{name}") for name in ("backward", "dense", "head", "recompute")}
    return replace(ratios, **{name: value for name, value in given.items() if value is not None})


def _solved(
    options: argparse.Namespace, pipeline: Pipeline, row: Measured | None, memory: Mapping[str, float]
) -> TaylorAnswer | str:
    """Return the balanced pipeline, or why there is none."""
    from launcher.balance.problem import BadProblem
    from launcher.balance.solve import Infeasible
    from launcher.balance.taylor_solve import solve_taylor

    unit = options.moe_bw if options.moe_bw is not None else None if row is None else row.layer * 1e3
    try:
        return solve_taylor(
            pipeline,
            _ratios(options, row),
            memory,
            seconds=options.time_limit,
            gap=options.gap,
            quick=options.quick,
            corrected=options.corrected,
            unit_ms=unit,
        )
    except Infeasible as error:
        short = "" if error.lacking is None else f": {error.lacking:.0f} MB short on stage {error.stage}"
        return f"{error}{short}"
    except BadProblem as error:
        return str(error)


def _show(answer: TaylorAnswer, options: argparse.Namespace, source: str) -> None:
    """Print one balanced pipeline in Taylor's terms."""
    from launcher.balance.taylor_solve import even_time

    pipeline, solved = answer.pipeline, answer.balanced
    proof = f"{'proven ' if solved.optimal else 'not proven: at most '}{100 * solved.gap:.2g} %"
    print(
        f"{pipeline.name}: {pipeline.stages} stages x {pipeline.chunks} chunks, "
        f"{pipeline.micro_batches} micro-batches, "
        f"{pipeline.dense_layers} dense and {pipeline.moe_layers} MoE layers (prediction layers among them)"
    )
    print(f"memory constants: {source}")
    ratios = answer.ratios
    print(
        f"ratios: dense/MoE {ratios.dense:g}, backward/forward {ratios.backward:g}, head {ratios.head:g}, "
        f"recomputation {ratios.recompute:g}{'' if options.corrected else ' (dense layers: 1, as Taylor counts them)'}"
    )
    even = even_time(answer)
    cost = f", cost {answer.cost_ms:.4g} ms" if answer.cost_ms is not None else ""
    print(
        f"objective {answer.objective:.2f} (forward of a MoE layer = 1){cost}; {proof} above the best; "
        f"even layers, all recomputed: {even:.2f}; {solved.seconds:.1f} s"
    )
    one = pipeline.chunks == 1
    print(f"offset: {answer.offset[0] if one else answer.offset}")
    print(f"recompute: {answer.recompute[0] if one else answer.recompute}")
    peaks = ", ".join(
        f"{used:.0f}/{limit:.0f}" for used, limit in zip(solved.memory, answer.problem.limits, strict=True)
    )
    print(f"MB of the limit by stage: {peaks}")


def _ranking(answers: Sequence[TaylorAnswer]) -> Iterator[str]:
    yield f"{'dp':>4} {'tp':>3} {'pp':>3} {'ep':>4} {'vp':>3}  {'objective':>10}  {'cost ms':>10}  file"
    for answer in answers:
        sizes, cost = answer.pipeline.sizes(), "" if answer.cost_ms is None else f"{answer.cost_ms:.1f}"
        yield (
            f"{sizes['dp']:>4} {sizes['tp']:>3} {sizes['pp']:>3} {sizes['ep']:>4} {answer.pipeline.chunks:>3}  "
            f"{answer.objective:>10.2f}  {cost:>10}  {answer.pipeline.name}"
        )


def _write(options: argparse.Namespace, answers: Sequence[TaylorAnswer]) -> None:
    if Path(options.yaml).is_dir():
        write_file(options.output, _csv(answers), RESULTS)
    else:
        write_file(options.output, answers[0].yaml_text(), NEW)
    if not options.json:
        print(f"written: {options.output}")


def _csv(answers: Sequence[TaylorAnswer]) -> str:
    """Return the candidates as a table, the cheapest first; columns as in Taylor's table of results."""
    text = io.StringIO()
    made = csv.writer(text, lineterminator="\n")
    made.writerow(_COLUMNS)
    for answer in answers:
        pipeline = answer.pipeline
        made.writerow(
            [
                *(pipeline.name, answer.problem.layers, pipeline.micro_batches, pipeline.dp, pipeline.tp),
                *(pipeline.stages, pipeline.ep, pipeline.chunks, round(answer.objective, 4), answer.unit_ms),
                *(answer.cost_ms, answer.offset, answer.recompute),
            ]
        )
    return text.getvalue()


def _finding(text: str) -> Finding:
    return Finding(rule=_RULE, severity="error", message=text, source="launch balance --yaml")
