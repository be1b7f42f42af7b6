"""The user's own layout among those of a search: its rank, and what separates it from the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from launcher.estimate.check import problems
from launcher.estimate.estimate import quick
from launcher.job import Job, Value, with_values
from launcher.job.finding import Finding
from launcher.pipeline import judge
from launcher.records import dataclass
from launcher.search.found import Candidate
from launcher.search.points import layout_of
from launcher.search.search import SHORT, Search

TERMS = {
    "forward_s": "forward",
    "backward_s": "backward",
    "bubble_s": "bubble",
    "exposed_comm_s": "exposed communication",
    "optimizer_s": "optimizer",
}
"""Parts of a step that add up to it, and their names for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout beside the winner of a search that has ended.

    Attributes:
        own: the user's layout.
        rank: its place among all layouts by step time, from 1; None: it does not fit, or the search was stopped.
        winner: the fastest other layout; None: the user's is the fastest, or none fits.
        terms: seconds of each part of a step, own and the winner's.
        values: what differs, own and the winner's.
    """

    own: Candidate
    rank: int | None
    winner: Candidate | None
    terms: Mapping[str, tuple[float, float]]
    values: Mapping[str, tuple[Value, Value]]


def errors_of(job: Job) -> list[Finding]:
    """Return why a layout cannot run at all, or cannot be estimated; [] where it can."""
    return [*(each for each in judge(job).findings if each.severity == "error"), *problems(job)]


def comparison(search: Search) -> Comparison:
    """Return the user's layout beside the winner of a search that kept it (`Search.own`)."""
    own, found = search.own, search.found
    assert own is not None
    best: dict[object, Candidate] = {}
    for each in sorted((*found.fitting, *found.best), key=lambda one: one.order):
        best.setdefault(layout_of(each.point), each)
    # A short simulation may be wrong by 1 %: what is that near is simulated in full, where the same step differs by
    # rounding only.
    near = [each for each in best.values() if abs(each.step_s / own.step_s - 1) <= SHORT]
    best |= {layout_of(each.point): search.in_full(each) for each in near}
    limit = own.step_s * (1 - 1e-9)
    others = [each for layout, each in best.items() if layout != layout_of(own.point) or each.step_s < limit]
    faster = [each for each in others if each.step_s < limit]
    winner = min(faster if own.fits else others, key=lambda each: each.order, default=None)
    return Comparison(
        own=own,
        rank=1 + len(faster) if own.fits and found.complete else None,
        winner=winner,
        terms=_terms(search.job, own, winner) if winner else {},
        values=_values(own, winner) if winner else {},
    )


def _terms(job: Job, own: Candidate, winner: Candidate) -> dict[str, tuple[float, float]]:
    times = [quick(with_values(job, each.point), exact=True).time for each in (own, winner)]
    trees = [asdict(time) for time in times if time is not None]
    return {name: (trees[0][name], trees[1][name]) for name in TERMS} if len(trees) == len(times) else {}


def _values(own: Candidate, winner: Candidate) -> dict[str, tuple[Value, Value]]:
    paths = dict.fromkeys((*own.point, *winner.point))
    pairs = {path: (own.point.get(path), winner.point.get(path)) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def comparison_tree(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data, for --json."""
    return {
        "compared": {
            "step_s": found.own.step_s,
            "peak_reserved": found.own.peak,
            "fits": found.own.fits,
            "rank": found.rank,
            "fastest_step_s": found.winner.step_s if found.winner else found.own.step_s,
            "terms": {name: {"own": mine, "fastest": its} for name, (mine, its) in found.terms.items()},
            "values": {path: {"own": mine, "fastest": its} for path, (mine, its) in found.values.items()},
        }
    }
