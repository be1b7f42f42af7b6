"""The ranking by measured times: what was measured and recomputed, and its JSON output."""

from __future__ import annotations

from typing import Any

from launcher.job import Job
from launcher.search.output import recompute_of, sizes_of
from launcher.search.rerank import Ranked, Ranking


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


def recompute_of_ranked(ranked: Ranked) -> str:
    """Return a short description of the recomputation of a candidate, which is chosen anew where it is balanced."""
    answer = ranked.answer
    if answer is None:
        return recompute_of(ranked.candidate)
    layers = sum(answer.balanced.split.in_mode(answer.posed.problem, "full"))
    return f"{layers} layers" if layers else "none"


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
