"""Finds the best split with a proven bound: an integer program with cuts from the schedule.

The integer program models layers and memory but not the schedule. Each solution's schedule is timed exactly (a linear
program), and its prices add a lower bound on the time of every other split (Benders' decomposition). Bound and time
meet at the optimum; if stopped earlier, their distance is the proven gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from launcher.balance.local import Known, even, neighbours, rounded, treated
from launcher.balance.problem import Problem, Split
from launcher.balance.program import Program
from launcher.balance.timing import Timing
from launcher.pipeline_schedule.precedence import Precedence, precedence
from launcher.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Assumed relative distance to the optimum at the first integer program.
_FIRST_GAP = 0.02


class _NoSplit(Exception):
    """A problem has no split within memory."""


class Infeasible(ValueError):
    """No split keeps every stage within its memory; `stage` exceeds it by at least `lacking`."""

    def __init__(self, message: str, stage: int | None = None, lacking: float | None = None) -> None:
        super().__init__(message)
        self.stage, self.lacking = stage, lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """A split, the time of its step, and its proven bound.

    Attributes:
        time: of one step, in the problem's unit.
        bound: no split takes less than this.
        optimal: the gap is closed; otherwise the time limit was reached.
        memory: peak of each stage, as far as the problem counts it.
    """

    split: Split
    time: float
    bound: float
    optimal: bool
    memory: tuple[float, ...]
    rounds: int
    seconds: float

    @property
    def gap(self) -> float:
        """Return the relative gap between the time and its bound."""
        return max(0.0, 1 - self.bound / self.time) if self.time else 0.0


Watch = Callable[[float, float], None]


def balance_any(
    problems: Sequence[Problem],
    *,
    seconds: float = 60.0,
    gap: float = 1e-4,
    quick: bool = False,
    watch: Watch | None = None,
) -> tuple[int, Balanced]:
    """Return the split with the least step time within the memory of every stage, and the number of its problem.

    All problems have the same schedule. The bound holds for all of them: cuts of the schedule are shared, and problems
    whose bound is above the best split are not searched further.

    Args:
        seconds: time limit; the best split so far is returned with its gap.
        gap: relative gap to the bound at which to stop.
        quick: local search only, and the bound of the linear program and of the longest stage.
        watch: called with the best time and the bound whenever one of them changes.

    Raises:
        Infeasible: no problem has a split that fits, or none was found in time; reports the smallest excess.
        BadProblem: the figures do not describe a pipeline.
    """
    for problem in problems:
        problem.checked()
    many = _Many(seconds=seconds, gap=gap, watch=watch)
    share = 1.0 if len(problems) == 1 else 0.5
    for number, problem in enumerate(problems):
        many.add(number, problem, max(1.0, share * seconds / len(problems)))
    if not quick:
        many.finish()
    return many.answer()


class _Many:
    """Searches over problems that share a schedule: the open ones, and the bound of those ruled out."""

    def __init__(self, *, seconds: float, gap: float, watch: Watch | None) -> None:
        self.begun, self.seconds, self.gap, self.watch = time.monotonic(), seconds, gap, watch
        self.searches: dict[int, _Search] = {}
        self.learned: Learned | None = None
        self.beaten = float("inf")
        self.short: list[_Search] = []

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    @property
    def best(self) -> float:
        return min((search.time for search in self.searches.values()), default=float("inf"))

    @property
    def bound(self) -> float:
        return min([self.beaten, *(search.bound for search in self.searches.values())])

    def add(self, number: int, problem: Problem, seconds: float) -> None:
        """Search a problem roughly, unless it cannot be better than the others."""
        search = _Search(problem, seconds=min(seconds, max(self.left, 1.0)), gap=self.gap, learned=self.learned)
        self.learned, search.watch, search.stop_at = search.learned, self._report, self.best
        try:
            if self.best < float("inf") and (search.is_beaten(self.best) or self.left <= 0):
                self.beaten = min(self.beaten, search.bound)
                return
            self.searches[number] = search
            search.begin()
            search.relax(share=0.3)
            if search.best is None:
                search.run()
        except _NoSplit:
            self.searches.pop(number, None)
            self.short.append(search)

    def finish(self) -> None:
        """Continue the search with the lowest bound until the best split is proven or the time limit is reached."""
        while self.left > 0 and self.best - self.bound > self.gap * self.best:
            open_ = [each for each in self.searches.values() if each.bound < (1 - self.gap) * self.best]
            if not open_:
                return
            search = min(open_, key=lambda each: (each.time > self.best, each.bound))
            if search.stuck:
                search = min((each for each in open_ if not each.stuck), key=lambda each: each.bound, default=search)
                if search.stuck:
                    return
            search.go_on(self.left)
            search.stop_at = self.best
            search.run()

    def _report(self) -> None:
        if self.watch is not None and self.searches:
            self.watch(self.best, self.bound)

    def answer(self) -> tuple[int, Balanced]:
        if not any(search.best is not None for search in self.searches.values()):
            if self.short and not self.searches:
                # The problem that recomputes most has the smallest excess.
                most = max(self.short, key=lambda each: _depth(each.problem))
                raise _infeasible(most.problem, most.steps)
            raise Infeasible(
                f"no split within memory was found in {self.seconds:g} s; a longer time limit may find one"
            )
        number, search = min(self.searches.items(), key=lambda item: item[1].time)
        assert search.best is not None
        bound = min(self.bound, search.time)
        return number, Balanced(
            split=search.best,
            time=search.time,
            bound=bound,
            optimal=search.time - bound <= self.gap * search.time,
            memory=tuple(search.best.memory(search.problem, search.steps.in_flight)),
            rounds=sum(each.rounds for each in self.searches.values()),
            seconds=time.monotonic() - self.begun,
        )


@dataclass(slots=True)
class Learned:
    """Cuts of a schedule: lower bounds of the step, each as prices of chunk times and a constant."""

    timing: Timing
    prices: NDArray[np.float64]
    constants: NDArray[np.float64]

    def add(self, prices: NDArray[np.float64], constant: float) -> None:
        self.prices = np.vstack([self.prices, prices])
        self.constants = np.append(self.constants, constant)

    def floor(self, durations: NDArray[np.float64]) -> float:
        """Return the best known lower bound of the step time."""
        return float((self.prices @ durations + self.constants).max())


class _Search:
    """The search of one problem, which can be resumed.

    Attributes:
        stop_at: the time of another problem's split; a bound above it ends the search.
        stuck: the last integer program gave no solution.
    """

    def __init__(self, problem: Problem, *, seconds: float, gap: float, learned: Learned | None = None) -> None:
        self.problem, self.seconds, self.gap = problem, seconds, gap
        self.watch: Callable[[], None] | None = None
        self.begun = time.monotonic()
        self.steps: Precedence = precedence(problem.schedule)
        self.program = Program(problem, self.steps)
        self.learned = learned or Learned(Timing(problem, self.steps), np.empty((0, 2 * problem.parts)), np.empty(0))
        for prices, constant in zip(self.learned.prices, self.learned.constants, strict=True):
            self.program.add_cut(prices, constant)
        self.known: Known = {}
        self.best: Split | None = None
        self.time, self.bound, self.rounds = float("inf"), 0.0, 0
        self.stop_at, self.stuck = float("inf"), False

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    @property
    def closed(self) -> bool:
        return self.reached < float("inf") and self.reached - self.bound <= self.gap * self.reached

    @property
    def reached(self) -> float:
        """Return the time to improve on."""
        return min(self.time, self.stop_at)

    def go_on(self, seconds: float) -> None:
        """Restart the clock with this time limit."""
        self.begun, self.seconds = time.monotonic(), seconds

    def is_beaten(self, best: float) -> bool:
        """Return whether the linear program with the known cuts proves that no split is better than `best`."""
        _, bound = self.program.relaxed(self.seconds)
        if bound == self.program.infinity:
            raise _NoSplit
        self.bound = max(self.bound, bound)
        return self.bound >= (1 - self.gap) * best

    def consider(self, split: Split) -> float:
        """Time a split, add its cut, keep it if it is the best; return its time."""
        total = self._learn(self._durations(split))
        if total < self.time:
            self.best, self.time = split, total
            if self.watch is not None:
                self.watch()
        return total

    def _durations(self, split: Split) -> NDArray[np.float64]:
        forward, backward = split.durations(self.problem)
        return np.array([*forward, *backward])

    def _learn(self, durations: NDArray[np.float64]) -> float:
        total, prices, constant = self.learned.timing(durations)
        self.program.add_cut(prices, constant)
        self.learned.add(prices, constant)
        return total

    def begin(self) -> None:
        """Start with the even split, if it fits, improved by single moves; then with the shortest stages."""
        self.improve(even(self.problem), 0.8 * self.seconds)
        values, bound = self.program.least_load(max(0.1, min(0.4 * self.seconds, self.left)), 0.1 * self.gap)
        if values is None and bound == self.program.infinity:
            raise _NoSplit
        self.bound = max(self.bound, bound)
        if values is not None:
            split = self.program.split(values)
            self.consider(split)
            self.improve(list(split.layers()), self.left - 0.15 * self.seconds)

    def improve(self, layers: list[int], until: float) -> None:
        """Move single layers as long as that helps; known cuts rule out most moves before they are timed."""
        split = treated(self.problem, self.steps, layers, self.known)
        if split is None:
            return
        now = self.consider(split)
        while self.left > until:
            found = [
                (self.learned.floor(self._durations(near)), moved, near)
                for moved, near in neighbours(self.problem, self.steps, layers, self.known)
            ]
            better = None
            for floor, moved, near in sorted(found, key=lambda item: item[0]):
                if floor >= now or self.left <= until:
                    break
                total = self.consider(near)
                if total < now:
                    better = moved, total
                    break
            if better is None:
                return
            layers, now = better

    def relax(self, share: float) -> None:
        """Add cuts with fractional layers first: each round is a small linear program."""
        until = max(0.0, self.left - share * self.seconds)
        values: NDArray[np.float64] | None = None
        while self.left > until:
            now, bound = self.program.relaxed(self.left - until)
            if bound == self.program.infinity:
                raise _NoSplit
            self.bound = max(self.bound, bound)
            if now is None:
                break
            values = now
            total = self._learn(self.program.durations(values))
            if total - bound <= 0.1 * self.gap * total:
                break
        layers = rounded(self.problem, self.program.layers(values)) if values is not None else None
        if layers is not None:
            self.improve(layers, self.left - share * self.seconds)

    def run(self) -> None:
        """Alternate between the integer program and the schedule until the gap closes or the time limit is reached."""
        self.program.integral(True)
        while not self.closed and self.left > 0:
            # Far from the optimum a rough solution gives as good a cut as an exact one at far less cost.
            distance = 1 - self.bound / self.reached if self.reached < float("inf") else _FIRST_GAP
            values, bound = self.program.solve(max(self.left, 0.1), max(0.5 * self.gap, 0.3 * distance))
            self.bound = max(self.bound, bound)
            self.rounds += 1
            if values is None:
                if bound == self.program.infinity and self.best is None:
                    raise _NoSplit
                self.stuck = True
                return
            split = self.program.split(values)
            if self.consider(split) > self.bound * (1 + self.gap):
                self.improve(list(split.layers()), self.left - 0.1 * self.seconds)


def _depth(problem: Problem) -> float:
    """Return the maximum of layers per chunk that a problem recomputes."""
    if problem.covered is None:
        return 0.0 if all(len(kind.modes) == 1 for kind in problem.kinds) else float("inf")
    return problem.covered


def _infeasible(problem: Problem, steps: Precedence) -> Infeasible:
    """Return the stage that exceeds memory most, and by how much, when all limits grow just enough for a split."""
    from dataclasses import replace

    low, high = 0.0, max(1.0, *(abs(limit) for limit in problem.limits))
    roomy = replace(problem, limits=tuple(limit + 1e3 * high for limit in problem.limits))
    if _fits(roomy, steps) is None:
        return Infeasible("the layers cannot be spread over the chunks in this order, whatever the memory")
    while _fits(replace(problem, limits=tuple(limit + high for limit in problem.limits)), steps) is None:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        fits = _fits(replace(problem, limits=tuple(limit + middle for limit in problem.limits)), steps)
        low, high = (low, middle) if fits is not None else (middle, high)
    split = _fits(replace(problem, limits=tuple(limit + high for limit in problem.limits)), steps)
    assert split is not None
    over = [used - limit for used, limit in zip(split.memory(problem, steps.in_flight), problem.limits, strict=True)]
    worst = max(range(problem.stages), key=over.__getitem__)
    return Infeasible(f"no split fits: stage {worst} exceeds memory even in the smallest one", worst, over[worst])


def _fits(problem: Problem, steps: Precedence) -> Split | None:
    """Return any split within memory, or None."""
    program = Program(problem, steps)
    program.solver.changeColCost(program.time, 0.0)
    program.integral(True)
    values, _ = program.solve(20.0, 1.0)
    return None if values is None else program.split(values)
