"""After all layouts: the best are timed in full, and single layers are moved between their stages.

Whether a rank depends on `top`: up to `REFINED` it cannot, since the same search runs. Above, a larger `top` only
raises the time from which points are pruned (`Search._slowest`), which is never below 1.01 of the user's layout: what a
lower bound prunes is slower than that in any case. That is no proof for all that is pruned: the gain of an uneven split
and the cost of recomputed parts are expectations (`_MORE`, `Partial.least`), and with several chunks a stage only what
is among the best is timed in full before recomputations of one layout are compared. No case is known
(tests/search/test_rank.py).
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from launcher.balance.from_job import UNEVEN, layers_of, layout_text
from launcher.job import Job, Value, with_values
from launcher.search import points
from launcher.search.bound import Floor
from launcher.search.found import Candidate, Found
from launcher.search.partial import Partial
from launcher.search.space import Space
from launcher.search.uneven import moves
from launcher.search.validity import ValidityCache

SHORT = 0.01
"""Relative error of a short simulation (too long); with several chunks a stage it may also be far too short."""
REFINED = 10
"""Number of layouts in which layers are moved. It does not depend on `top`, so that the ranking does not either."""
# Number of candidates of one layout that are timed in full; maximum number of estimates for moving layers in one.
_SETTLED, _MOVES = 4, 80


class Search(Protocol):
    """What is needed of a search (`launcher.search.search`)."""

    job: Job
    found: Found
    space: Space
    floor: Floor
    partial: Partial
    validity: ValidityCache
    kept_best: int

    def estimated(self, point: dict[str, Value], timed: bool = True, *, exact: bool = False) -> Candidate | None:
        """Return the estimate of a point; None: it cannot be estimated."""

    def in_full(self, candidate: Candidate) -> Candidate:
        """Return a candidate with every micro-batch of its step simulated."""

    def kept(self, candidate: Candidate | None) -> Candidate | None:
        """Record a candidate and return it."""


def settle(search: Search) -> None:
    """Time what may be among the best with every micro-batch, and rank by that."""
    found, timed = search.found, Counter[tuple[Value, ...]]()
    before = {str(each.point): each for each in sorted(found.fitting, key=lambda each: each.order, reverse=True)}
    found.best, found.fitting = [], []
    for each in sorted(before.values(), key=lambda each: each.order):
        if len(found.best) == search.kept_best and (1 - SHORT) * each.step_s >= found.best[-1].step_s:
            break
        layout = points.layout_of(each.point)
        if timed[layout] < _SETTLED:
            timed[layout] += 1
            search.kept(search.in_full(before.pop(str(each.point))))
    found.fitting += before.values()


def refine(search: Search) -> None:
    """Move single layers between stages in the best layouts as long as that is faster."""
    for candidate in search.found.best[:REFINED] if search.space.stages else ():
        now: Candidate | None = candidate
        left = _MOVES
        while now is not None and left > 0:
            now, left = _moved(search, now, left)


def _moved(search: Search, candidate: Candidate, left: int) -> tuple[Candidate | None, int]:
    """Return a faster candidate that differs by one moved layer, and how many may still be estimated."""
    point, job = candidate.point, with_values(search.job, candidate.point)
    work, pp = search.floor.work(point), job.parallel.pp
    if work is None or pp == 1:
        return None, 0
    for counts in moves(work, layers_of(job), pp, candidate.stage):
        if left <= 0:
            break
        for less in _lighter(search, point):
            left -= 1
            layout = {**UNEVEN, "parallel.layout": layout_text(job, counts)}
            tried = search.estimated({**point, **layout, **less}, exact=True)
            if tried is None or not tried.fits or tried.step_s >= candidate.step_s:
                continue
            whole = _written(search, {**point, **less}, counts)
            found = search.kept(search.estimated(whole, exact=True)) if whole is not None else None
            if found is not None and found.fits and found.step_s < candidate.step_s:
                return found, left
    return None, left


def _lighter(search: Search, point: dict[str, Value]) -> list[dict[str, Value]]:
    """Return the next lower recomputation, if there is one, and the point's recomputation."""
    layers = point["recompute.num_layers"]
    if not search.space.recompute or point["recompute.granularity"] is None:
        return [{}]
    if point["recompute.method"] == "block" and isinstance(layers, int) and layers > 1:
        return [points.in_block(layers - 1), {}]
    return [*search.partial.lighter(point), points.nothing_recomputed(), {}]


def _written(search: Search, point: dict[str, Value], counts: tuple[int, ...]) -> dict[str, Value] | None:
    """Return the first encoding of a split that all rules accept."""
    variants_of_split = (
        {**point, **split} for split in points.written(search.job, counts, int(str(point["parallel.pp"])))
    )
    return next((whole for whole in variants_of_split if search.validity.accepts(whole, 0)), None)
