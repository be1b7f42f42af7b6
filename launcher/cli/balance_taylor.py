"""`launch balance --yaml`: pipelines of YAMLs that Taylor reads by Taylor's memory constants and measured ratios."""

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
from launcher.cli.notes import print_remark
from launcher.cli.options import print_json, writable, write_file
from launcher.cli.refusal import NotDone, WrongUse
from launcher.job.finding import Finding
from launcher.outputs.kinds import NEW, Kind, table
from launcher.report.text_page import Page, page_of
from launcher.report.text_table import table as table_text
from launcher.terminal import counted

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
                raise WrongUse(f"{flag}: needs --yaml FILE, the YAML of the training that Taylor's constants are for")
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
    page = page_of(sys.stdout)
    answers: list[TaylorAnswer] = []
    failed: list[tuple[Pipeline, str]] = []
    for (values, source), pipeline, row in memory:
        answer = _solved(options, pipeline, row, values)
        if isinstance(answer, str):
            failed.append((pipeline, answer))
            continue
        answers.append(answer)
        if not options.json:
            print("\n".join(_lines(answer, options, source, page)))
    answers.sort(key=lambda answer: answer.cost_ms if answer.cost_ms is not None else answer.objective)
    for pipeline, reason in failed:
        print_remark("balance", f"{pipeline.name}: {reason}")
    if Path(options.yaml).is_dir() and answers and not options.json:
        print("\n" + "\n".join(_ranking(answers, page)))
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
        print_remark("balance", f"{pipeline.name}: no row in {options.profile_result}: left out")
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


def _lines(answer: TaylorAnswer, options: argparse.Namespace, source: str, page: Page) -> Iterator[str]:
    """Yield one balanced pipeline in Taylor's terms, its objective first."""
    from launcher.balance.taylor_solve import even_split
    from launcher.cli.balance_screen import proof

    pipeline, solved, ratios = answer.pipeline, answer.balanced, answer.ratios
    cost = f", cost {answer.cost_ms:.4g} ms" if answer.cost_ms is not None else ""
    title = f"{pipeline.name}: objective {answer.objective:.2f} (forward of a MoE layer = 1){cost}"
    objective, fits = even_split(answer)
    even = f"even layers, all recomputed: {objective:.2f}" + ("" if fits else ", which does not fit")
    yield from page.join([title, proof(solved), even, f"solved in {solved.seconds:.1f} s"], "", "  ", sign="; ")
    layers = f"{pipeline.dense_layers} dense and {pipeline.moe_layers} MoE layers (prediction layers among them)"
    chunks = f"{counted(pipeline.stages, 'stage')} x {counted(pipeline.chunks, 'chunk')}"
    yield from page.join([chunks, f"{pipeline.micro_batches} micro-batches", layers], "", "  ", sign=", ")
    yield from page.wrap(f"memory constants: {source}", "", "  ")
    dense = "" if options.corrected else " (dense layers: 1, as Taylor counts them)"
    texts = [f"dense/MoE {ratios.dense:g}", f"backward/forward {ratios.backward:g}", f"head {ratios.head:g}"]
    yield from page.join([*texts, f"recomputation {ratios.recompute:g}{dense}"], "ratios: ", "  ", sign=", ")
    one = pipeline.chunks == 1
    yield from page.wrap(f"offset: {answer.offset[0] if one else answer.offset}", "", "  ")
    yield from page.wrap(f"recompute: {answer.recompute[0] if one else answer.recompute}", "", "  ")
    pairs = zip(solved.memory, answer.problem.limits, strict=True)
    peaks = [f"{used:.0f}/{limit:.0f}" for used, limit in pairs]
    yield from page.join(peaks, "MB of the limit by stage: ", "  ", sign=", ")


def _ranking(answers: Sequence[TaylorAnswer], page: Page) -> list[str]:
    rows = []
    for answer in answers:
        sizes, cost = answer.pipeline.sizes(), "" if answer.cost_ms is None else f"{answer.cost_ms:.1f}"
        layout = [*(str(sizes[name]) for name in ("dp", "tp", "pp", "ep")), str(answer.pipeline.chunks)]
        rows.append([*layout, f"{answer.objective:.2f}", cost, answer.pipeline.name])
    return table_text(page, rows, ["dp", "tp", "pp", "ep", "vp", "objective", "cost ms", "file"], right=range(7))


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
