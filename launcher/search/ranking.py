"""Text and JSON output of the ranking by measured times."""

from __future__ import annotations

from typing import Any

from launcher.estimate.memory import GIB
from launcher.job import Job
from launcher.search.found import Found
from launcher.search.rerank import Ranked, Ranking
from launcher.search.screen import recompute_of, sizes_of


def ranking_screen(job: Job, found: Found, ranking: Ranking) -> str:
    """Return the candidates ranked by measured times, with the estimated times."""
    name = f"{job.name or 'job'} on {job.cluster.world_size} × {job.hardware.name or 'device'}"
    measured = sum(each.row is not None for each in ranking.ranked)
    head = [f"{name}: {measured} of {len(ranking.ranked)} candidates measured, {found.points:,} points searched"]
    rows = ["  tp  pp vpp  cp  ep etp   dp  mbs  recompute    GiB   s/step  estimated  measured"]
    rows += [_row(job, each) for each in ranking.ranked]
    notes = [f"  {number}: {each.why}" for number, each in enumerate(ranking.ranked, start=1) if each.why]
    notes += [f"  line {row.line} ({row.name}): not a candidate of this search" for row in ranking.unmatched]
    if any(each.row is None for each in ranking.ranked):
        notes.append("  not measured: the estimate's times; compare them with care")
    return "\n".join([*head, "", *rows, *(["", "notes:", *notes] if notes else [])])


def figures_of(ranked: Ranked) -> list[str]:
    """Return the columns of the table that a candidate's figures are based on."""
    if ranked.row is None:
        return []
    ratios = ["moe_bw", "bfratio", "hratio", *(["re_grow_ration"] if _recomputed(ranked) else [])]
    ratios += ["dmratio"] if ranked.row.dense is not None else []
    return ratios + (["peak memory"] if ranked.row.peak is not None else [])


def _recomputed(ranked: Ranked) -> bool:
    answer = ranked.answer
    if answer is None:
        return bool(ranked.candidate.point["recompute.granularity"] == "full")
    return answer.job.recompute.granularity == "full"


def _recompute(ranked: Ranked) -> str:
    answer = ranked.answer
    if answer is None:
        return recompute_of(ranked.candidate)
    layers = sum(answer.balanced.split.in_mode(answer.posed.problem, "full"))
    return f"{layers} layers" if layers else "none"


def _row(job: Job, ranked: Ranked) -> str:
    size, candidate = sizes_of(job, ranked.candidate), ranked.candidate
    numbers = f"{size['tp']:4}{size['pp']:4}{size['vpp']:4}{size['cp']:4}{size['ep']:4}{size['etp']:4}{size['dp']:5}"
    seconds = f"{ranked.step_s:9.4g}" if ranked.fits else f"{'-':>9}"
    figures = figures_of(ranked)
    return (
        f"{numbers}{candidate.point['batch.micro_batch_size']:5}  {_recompute(ranked):<10}{ranked.peak / GIB:6.1f}"
        f"{seconds}{candidate.step_s:11.4g}  {', '.join(figures) or 'nothing'}"
    )


def ranking_tree(job: Job, ranking: Ranking) -> dict[str, Any]:
    """Return the output that `--json` adds."""
    return {
        "ranking": [_tree(job, each) for each in ranking.ranked],
        "unmatched": [{"line": row.line, **row.sizes} for row in ranking.unmatched],
    }


def _tree(job: Job, ranked: Ranked) -> dict[str, Any]:
    answer = ranked.answer
    return {
        **sizes_of(job, ranked.candidate),
        "micro_batch_size": ranked.candidate.point["batch.micro_batch_size"],
        "step_s": ranked.step_s,
        "estimated_step_s": ranked.candidate.step_s,
        "peak": ranked.peak,
        "fits": ranked.fits,
        "measured": figures_of(ranked),
        "why": ranked.why,
        "balanced": None if answer is None else answer.as_tree(),
    }
