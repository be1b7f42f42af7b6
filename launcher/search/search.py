"""The search: estimates memory and time of valid layouts and keeps the fastest that fit.

For one layout, less recomputation is never slower and never needs less memory. So each layout is estimated without it;
only where that does not fit, and is still fast enough, the least recomputation that fits is searched.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

from launcher.balance.from_job import UNEVEN, layers_of
from launcher.estimate.as_run import overruled_by_validation
from launcher.estimate.check import problems
from launcher.estimate.estimate import quick
from launcher.estimate.kin import memory_margin
from launcher.estimate.result import Estimate
from launcher.job import Job, Value, with_values
from launcher.pipeline_schedule.layout import CannotSplit
from launcher.search import by_stage, points
from launcher.search.bound import READS, Floor
from launcher.search.found import Candidate, Found, closest
from launcher.search.partial import Partial
from launcher.search.refine import REFINED, SHORT, refine, settle
from launcher.search.space import Space, axes_of, promise, space_of
from launcher.search.switches import Switching
from launcher.search.uneven import shared
from launcher.search.validity import ValidityCache

# Minimum share of a step that uneven stages must save to be tried; error factor of that share.
_LITTLE, _MORE = 0.002, 1.1
_OFF: tuple[Value, ...] = (False,)
# What the memory depends on that recomputation and a smaller micro-batch cannot free.
_STANDING = (
    *("parallel.tp", "parallel.pp", "parallel.vpp", "parallel.cp", "parallel.ep", "parallel.etp"),
    *("parallel.distributed_optimizer", "offload.optimizer", "optimizer.precision_aware", *UNEVEN),
)
# Maximum number of sets of recomputed parts that are estimated for one point.
_SETS = 8


class Search:
    """One search, which can be stopped and resumed.

    Args:
        validity: validity of points around the job whose strategy is searched.
        user_job: the user's job, whose values candidates change; None: the job of `validity`.
        top: candidates to show.
        watch: called with the results so far after every layout.
    """

    def __init__(
        self,
        validity: ValidityCache,
        top: int = 10,
        watch: Callable[[Found], None] | None = None,
        user_job: Job | None = None,
    ) -> None:
        self.validity, self.top, self.watch = validity, top, watch
        # The best are compared and refined in equal number, however few are shown.
        self.kept_best = max(top, REFINED)
        self.job: Job = validity.job
        self.user_job = user_job or validity.job
        self.space: Space = space_of(self.job, lambda path: all(judge.expresses(path) for judge in validity.judges))
        self.layouts = list(self.space.layouts())
        self.switching = Switching(self.job, validity.judges, axes_of(self.job), frozenset(points.own(self.job)))
        self.partial = Partial(validity.judges, frozenset(points.own(self.job)), (*READS, *self.switching.in_layers))
        self.floor = Floor(self.job, self.switching.in_layers, self.switching.fastest)
        self.found = Found()
        self.own: Candidate | None = None
        self.margin = memory_margin(self.job)
        self._split: dict[tuple[int, int], list[dict[str, Value]]] = {}
        self._settings: dict[tuple[tuple[str, str], ...], dict[str, Value]] = {}
        self._begun, self._before, self._plain, self._recomputed = time.monotonic(), 0.0, 0.0, False
        # Whether the last point or its uneven split does not fit as it is.
        self._burdened = True
        sizes = ("parallel.tp", "parallel.cp", "parallel.ep", "parallel.etp", "batch.micro_batch_size")
        switched = [path for path in points.own(self.job) if path not in sizes and path not in UNEVEN]
        self._parts = tuple(switched), ("parallel.pp", "parallel.sequence_parallel", *sizes)
        self._asked: tuple[set[tuple[Value, ...]], ...] = (set(), set())
        # Stages and sizes with which nothing fits, whatever is recomputed.
        self._hopeless: set[tuple[Value, ...]] = set()

    def run(self, done: int = 0, found: Found | None = None) -> Iterator[int]:
        """Process the layouts and yield the number done after each, so that the caller can stop at any time.

        Args:
            done: layouts done by an earlier search of the same job.
            found: results of that search.
        """
        self.layouts.sort(key=promise)
        self.found = found or self.found
        self._before, self.validity.refusals = self.found.seconds, Counter(self.found.refusals)
        weight = self.space.per_layout * self._depths() * self.switching.combinations
        self.found.points = len(self.layouts) * weight
        for number, layout in enumerate(self.layouts[done:], start=done + 1):
            self._layout(layout)
            self.found.settled = number * weight
            self._account()
            yield number
        if self.found.best:
            settle(self)
            refine(self)
            self.found.best = self.found.best[: self.top]
        else:
            self._tighten()
        self.found.complete = True
        self._account()

    def _tighten(self) -> None:
        """Recompute everything in the closest candidates, so that they show the smallest excess memory."""
        if self.space.recompute:
            for candidate in list(self.found.nearest):
                self._also({**candidate.point, **points.everything()})
        self.found.nearest = [self.in_full(each) for each in self.found.nearest]
        self.found.nearest.sort(key=lambda each: (each.peak, each.order))

    def _account(self) -> None:
        self.found.seconds = self._before + time.monotonic() - self._begun
        self.found.refusals, self.found.asked = dict(self.validity.refusals.most_common()), self.validity.asked
        if self.watch is not None:
            self.watch(self.found)

    def _depths(self) -> int:
        """Return the number of recomputations of a layout: none, all, every number of layers, every set of parts."""
        return 2 + (self.job.model.num_hidden_layers or 0) + len(self.partial) if self.space.recompute else 1

    def in_full(self, candidate: Candidate) -> Candidate:
        """Return a candidate with every micro-batch of its step simulated."""
        return self.estimated(candidate.point, exact=True) or candidate

    def rank_own(self, point: dict[str, Value]) -> None:
        """Estimate the user's own layout, and prune only what is slower than it, so that its rank is known.

        Raises:
            CannotSplit: its layers cannot be spread so.
        """
        self.own = self._candidate(point, quick(with_values(self.job, point), exact=True))

    # -- one layout
    def _layout(self, layout: dict[str, Value]) -> None:
        choices = self.space.choices
        recompute = points.nothing_recomputed() if self.space.recompute else points.kept(self.job)
        pp, vpp = int(str(layout["parallel.pp"])), int(str(layout["parallel.vpp"] or 1))
        splits = self._splits(pp, vpp)
        # With one tensor-parallel rank sequence parallelism has no effect: one value is enough.
        alone = layout["parallel.tp"] == 1
        for sequence_parallel in _OFF if alone else choices["parallel.sequence_parallel"]:
            for sharded in choices["parallel.distributed_optimizer"]:
                base = {
                    **layout,
                    **recompute,
                    "parallel.sequence_parallel": sequence_parallel,
                    "parallel.distributed_optimizer": sharded,
                }
                sizes = len(choices["batch.micro_batch_size"]) * self._depths()
                if self.validity.knows_all_with(base, sizes * self.switching.combinations):
                    continue
                for switches in self.switching.chosen(base):
                    whole = {**base, **switches}
                    if not self.validity.knows_all_with(whole, sizes):
                        self._micro_batches(whole, splits)

    def _splits(self, pp: int, vpp: int) -> list[dict[str, Value]]:
        """Return the encodings of the even split into these stages and chunks, cached."""
        found = self._split.get((pp, vpp))
        if found is None:
            found = list(points.stage_splits(self.job, pp, vpp, uneven=self.space.stages))
            self._split[pp, vpp] = found
        return found

    def _micro_batches(self, base: dict[str, Value], splits: list[dict[str, Value]]) -> None:
        """Try the micro batch sizes in increasing order; where one does not fit, no larger one does."""
        sizes = self.space.choices["batch.micro_batch_size"]
        for number, micro_batch in enumerate(sizes):
            point = {**base, "batch.micro_batch_size": micro_batch}
            if self.floor.computing(point) >= self._slowest():
                self.found.too_slow += self._depths()
                continue
            fits = self._fastest_that_fits(point, splits)
            if fits is False:
                self.found.too_big += (len(sizes) - number) * self._depths()
                return

    def _uneven(self, point: dict[str, Value], fits: bool) -> bool:
        """Try the split with the most even work, unless it cannot help; return whether it fits."""
        work = self.floor.work(point) if self.space.stages else None
        pp, vpp = int(str(point["parallel.pp"])), int(str(point["parallel.vpp"] or 1))
        if work is None or pp == 1:
            return False
        counts, plain = shared(work, pp, vpp), points.nearly_even(len(work.layers), pp, vpp)
        if counts is None or counts == plain:
            return False
        longest = max(work.of_stages(plain, pp))
        share = 1 - max(work.of_stages(counts, pp)) / longest
        if (fits and share < _LITTLE) or (1 - _MORE * max(0.0, share)) * self._plain >= self._slowest():
            return False
        for split in points.written(self.job, counts, pp):
            whole = {**point, **split}
            if self.validity.knows(whole, 0):
                continue
            found = self._relieved(whole)
            if not self.validity.knows(whole, 0):
                return found
        return False

    def _fastest_that_fits(self, point: dict[str, Value], splits: list[dict[str, Value]]) -> bool | None:
        """Try switches that save time and cost memory, the fastest first, until one needs no relief.

        Returns:
            Whether any fits; None: as `_encoded`.
        """
        found: bool | None = None
        for switches in self.switching.fastest_first(point):
            self._burdened = True
            fits = self._encoded({**point, **switches}, splits)
            if not self._burdened:
                return True
            found = fits if found is None else found or bool(fits)
        return found

    def _encoded(self, point: dict[str, Value], splits: list[dict[str, Value]]) -> bool | None:
        """Try a point in the first encoding that the rules accept; free switches are on where they allow it.

        Returns:
            Whether it fits; None: no encoding is accepted, or it cannot be among the best.
        """
        whole: dict[str, Value] = {}
        for free in self.switching.free(point):
            changeable = False
            for split in splits:
                whole = {**point, **free, **split}
                if not self.validity.knows(whole, 0):
                    if self.floor(whole) >= self._slowest():
                        self.found.too_slow += self._depths()
                        return None
                    if not self._asks_first(whole) or self.validity.accepts(whole, 0):
                        fits = self._relieved(whole)
                        burdened = not fits or self._recomputed
                        fits = self._uneven(whole, fits) or fits
                        if not self.validity.knows(whole, 0):
                            self._burdened = burdened or self._recomputed
                            return fits
                changeable = changeable or self.validity.depends(whole, self.switching.free_paths)
            if not changeable:
                break
        # A point counts as rejected once, whatever the number of its encodings.
        self.validity.knows(whole, self._depths())
        return None

    def _asks_first(self, point: dict[str, Value]) -> bool:
        """Return whether the rules are asked before the estimate: where a part of the point is new to them.

        Most rules read either sizes or switches. A refusal is then known for all points with the same values; the
        others are asked about where they fit. Refusals of a job with `backend.args` cannot be remembered.
        """
        parts = [tuple([point[path] for path in paths]) for paths in self._parts]
        seen = [part in known for part, known in zip(parts, self._asked, strict=True)]
        for part, known in zip(parts, self._asked, strict=True):
            known.add(part)
        return bool(self.job.backend.args) or not all(seen)

    def _relieved(self, point: dict[str, Value]) -> bool:
        """Find what costs the least time with which a point fits: recomputation, offloading, or both."""
        fits, plain = self._recomputation(point), self._plain
        if (fits and not self._recomputed) or self._plain >= (1 + SHORT) * self._slowest():
            return fits
        for relief in self.switching.relief(point):
            fits = self._recomputation({**point, **relief}) or fits
        self._plain = plain
        return fits

    def _recomputation(self, point: dict[str, Value]) -> bool:
        """Find the least recomputation with which a point fits; return False only if none is known to fit."""
        standing = self._standing_key(point)
        self._plain = 0.0
        if standing in self._hopeless:
            return False
        plain = self._also(point)
        if plain is not None and plain.standing > self.found.limit:
            self._hopeless.add(standing)
        self._plain = plain.step_s if plain is not None else 0.0
        self._recomputed = plain is not None and not plain.fits
        if plain is None or plain.fits:
            return True
        if not self.space.recompute or plain.standing > self.found.limit:
            return False
        if plain.step_s >= (1 + SHORT) * self._slowest():
            self.found.too_slow += self._depths()
            return True
        some = self._in_part(plain)
        if some is not None:
            # A few layers in full may cost less than parts of every layer.
            few = self._also({**point, **points.in_block(1)})
            if few is not None and few.step_s < some.step_s:
                self._by_stage(few if few.fits else self._depth(point))
            self._by_stage(some)
            return True
        most = self._also({**point, **points.everything()}, timed=False)
        if most is None:
            return True
        if most.fits:
            self._by_stage(self._depth(point) or most)
        return most.fits

    def _by_stage(self, candidate: Candidate | None) -> None:
        """Recompute only as many layers of each stage as it needs, where the backends count them per chunk."""
        if candidate is None or candidate.point["parallel.pp"] == 1:
            return
        if all(judge.expresses(by_stage.path_of(candidate.point)) for judge in self.validity.judges):
            point = by_stage.least(self.job, candidate.point, self._fitting_stages)
            if point is not None:
                self._also(point)

    def _fitting_stages(self, point: dict[str, Value]) -> list[bool] | None:
        try:
            answer = quick(with_values(self.job, point), most=0)
        except CannotSplit:
            return None
        self.found.estimates += 1
        return [each.peak_reserved + answer.outside <= self.found.limit for each in answer.stages]

    def _in_part(self, plain: Candidate) -> Candidate | None:
        """Return the fastest found recomputation of parts of every layer with which a point fits."""
        best: Candidate | None = None
        tried: set[str] = set()
        for expected, freed, values in self.partial.least(plain, self.found.limit, self.estimated):
            if expected >= min(best.step_s if best else math.inf, (1 + SHORT) * self._slowest()) or len(tried) == _SETS:
                break
            # Sets of the same time and memory are the same parts under other names: one that is accepted is enough.
            name = f"{expected:.9g} {freed:.9g}"
            found = self._also({**plain.point, **values}, timed=False) if name not in tried else None
            if found is None:
                continue
            tried.add(name)
            if found.fits and (best is None or found.step_s < best.step_s):
                best = found
        return best

    def _standing_key(self, point: dict[str, Value]) -> tuple[Value, ...]:
        """Return what the memory of weights, gradients and optimizer depends on."""
        return tuple([point[path] for path in _STANDING if path in point])

    def _depth(self, point: dict[str, Value]) -> Candidate | None:
        """Find the fewest recomputed layers that fit, by bisection; None: all layers are needed, or a rule refuses."""
        low, high = 0, max(layers_of(with_values(self.job, point)))
        best: Candidate | None = None
        while high - low > 1:
            middle = (low + high) // 2
            found = self._also({**point, **points.in_block(middle)}, timed=False)
            if found is None:
                return best
            low, high, best = (low, middle, found) if found.fits else (middle, high, best)
        return best

    def _slowest(self) -> float:
        """Return the step time that a candidate must be below to be among the best, or before the user's layout."""
        if len(self.found.best) < self.kept_best:
            return float("inf")
        own = (1 + SHORT) * self.own.step_s if self.own is not None and self.own.fits else 0.0
        return max(self.found.best[-1].step_s, own)

    def _also(self, point: dict[str, Value], *, timed: bool = True) -> Candidate | None:
        """Estimate a point and record it; None: the rules refuse it, or it cannot be estimated.

        The rules are checked only where it fits: most points do not.

        Args:
            timed: its time is needed where it does not fit, too.
        """
        if self.validity.knows(point):
            return None
        candidate = self.estimated(point, timed)
        if candidate is not None and candidate.fits and not self.validity.accepts(point):
            return None
        return self.kept(candidate)

    def estimated(self, point: dict[str, Value], timed: bool = True, *, exact: bool = False) -> Candidate | None:
        job = with_values(self.job, point)
        try:
            # What validation leaves costs as much as an estimate: only what is reported is estimated with it.
            settled = with_values(job, self._overruled(job, point)) if exact else job
            answer = quick(settled, exact=exact, most=None if timed else self.found.limit)
        except CannotSplit:
            return None
        self.found.estimates += 1
        return self._candidate(point, answer)

    def _overruled(self, job: Job, point: dict[str, Value]) -> dict[str, Value]:
        """Return the values that validation leaves instead of the job's, cached for splits of the same layout."""
        key = tuple(sorted((path, str(value)) for path, value in point.items() if path not in UNEVEN))
        if key not in self._settings:
            self._settings[key] = {each.path: each.after for each in overruled_by_validation(job)}
        return self._settings[key]

    def kept(self, candidate: Candidate | None) -> Candidate | None:
        if candidate is None:
            return None
        if candidate.fits:
            # With several chunks a stage a short simulation may be far too short: nothing is pruned for such a time.
            if candidate.point["parallel.vpp"] not in (None, 1) and self._is_among_best(candidate):
                candidate = self.in_full(candidate)
            self._keep(candidate)
        elif not self.found.best:
            nearest = closest([*self.found.nearest, candidate])
            if candidate not in nearest or self.validity.accepts(candidate.point, 0):
                self.found.nearest = nearest
        return candidate

    def _candidate(self, point: dict[str, Value], answer: Estimate) -> Candidate:
        assert answer.capacity is not None
        self.found.capacity = answer.capacity
        self.found.limit = round(answer.outside + (answer.capacity - answer.outside) / self.margin)
        peak = answer.fullest.peak_reserved + answer.outside
        return Candidate(
            values=points.changed(self.user_job, point),
            point=point,
            step_s=answer.time.step_s if answer.time else math.inf,
            peak=peak,
            stage=answer.fullest.stage,
            standing=answer.outside
            + max(each.weights + each.gradients + each.optimizer + each.workspace for each in answer.stages),
            fits=peak <= self.found.limit,
            mfu=answer.mfu or 0.0,
            bubble_s=answer.time.bubble_s if answer.time else 0.0,
            tokens_per_s_per_device=answer.tokens_per_s_per_device or 0.0,
        )

    def _is_among_best(self, candidate: Candidate) -> bool:
        return len(self.found.best) < self.kept_best or candidate.step_s < self.found.best[-1].step_s

    def _keep(self, candidate: Candidate) -> None:
        found = self.found
        found.fitting.append(candidate)
        if self._is_among_best(candidate):
            if refusing := problems(with_values(self.job, candidate.point)):
                self.validity.refusals[refusing[0].rule] += 1
                return
            # Of one layout, only the best stages and recomputation are reported.
            layout = points.layout_of(candidate.point)
            same = next((each for each in found.best if points.layout_of(each.point) == layout), None)
            if same is not None and same.order <= candidate.order:
                return
            rest = [each for each in found.best if each is not same]
            found.best = sorted([*rest, candidate], key=lambda each: each.order)[: self.kept_best]
