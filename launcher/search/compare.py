"""The user's own layout among those of a search: its rank, and what separates it from the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from launcher.search.refine import SHORT
from launcher.search.search import Search

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
        rank: its place in the list of all layouts by step time, from 1, whatever part of the list is shown; None: it
            does not fit, or the search was stopped.
        winner: the fastest layout; None: the user's is, or none fits.
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
    limit = own.step_s * (1 - 1e-9)
    faster = list(_faster(search, limit)) if own.fits else []
    winner = min((*faster, *found.best[:1]), key=lambda each: each.order, default=None)
    if winner is not None and own.fits and winner.step_s >= limit:
        winner = None
    return Comparison(
        own=own,
        rank=1 + len(faster) if own.fits and found.complete else None,
        winner=winner,
        terms=_terms(search.job, own, winner) if winner else {},
        values=_values(own, winner) if winner else {},
    )


def _faster(search: Search, limit: float) -> Iterator[Candidate]:
    """Yield one candidate of each layout that takes less time than this with every micro-batch simulated."""
    layouts: dict[object, list[Candidate]] = {}
    for each in sorted(search.found.fitting, key=lambda one: one.order):
        if (1 - SHORT) * each.step_s < limit:
            layouts.setdefault(layout_of(each.point), []).append(each)
    for candidates in layouts.values():
        timed = (search.in_full(each) for each in candidates)
        legal = (each for each in timed if each.step_s < limit and not problems(with_values(search.job, each.point)))
        found = next(legal, None)
        if found is not None:
            yield found


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
