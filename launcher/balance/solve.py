"""The best split found by decomposition, with a proven bound: an integer program that learns the schedule cut by cut.

The integer program knows layers and memory but nothing of the schedule. Each solution's schedule is timed exactly (a
linear program), and its prices become one more lower bound on the time of every other split (Benders' decomposition).
The two meet at the optimum; stopped earlier, the distance between them is the proven gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from launcher.balance.local import even, neighbours, rounded, treated
from launcher.balance.problem import Problem, Split
from launcher.balance.program import Program
from launcher.balance.schedule import Schedule, schedule
from launcher.balance.timing import Timing

if TYPE_CHECKING:
    from numpy.typing import NDArray


# How exactly the first integer program is solved, as a share of the time.
_FIRST_GAP = 0.02


class Infeasible(ValueError):
    """No split keeps every stage within its memory; `lacking` is the stage and by how much, at least."""

    def __init__(self, message: str, stage: int | None = None, lacking: float | None = None) -> None:
        super().__init__(message)
        self.stage, self.lacking = stage, lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """A split, the time of its step, and what is proven about it.

    Attributes:
        time: of one step, in the problem's unit.
        bound: no split takes less than this.
        optimal: the gap is closed; otherwise the time limit came first.
        memory: peak of each stage, of what the problem counts.
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
        """Return by what share of its time the split may be from the best one."""
        return max(0.0, 1 - self.bound / self.time) if self.time else 0.0


def balance(
    problem: Problem,
    *,
    seconds: float = 60.0,
    gap: float = 1e-4,
    quick: bool = False,
    watch: Callable[[float, float], None] | None = None,
) -> Balanced:
    """Return the split with the least step time within the memory of every stage.

    Args:
        seconds: time limit; the best split so far is returned with its gap.
        gap: distance to the bound, as a share, at which to stop.
        quick: local search alone, and the bound of the linear program.
        watch: told the best time and the bound whenever one of them has moved.

    Raises:
        Infeasible: no split fits, or none was found in time.
        BadProblem: the figures do not describe a pipeline.
    """
    problem.checked()
    search = _Search(problem, seconds=seconds, gap=gap, watch=watch)
    search.begin()
    search.relax(share=0.3)
    if not quick or search.best is None:
        search.run()
    return search.answer()


class _Search:
    def __init__(
        self, problem: Problem, *, seconds: float, gap: float, watch: Callable[[float, float], None] | None
    ) -> None:
        self.problem, self.seconds, self.gap, self.watch = problem, seconds, gap, watch
        self.begun = time.monotonic()
        self.steps: Schedule = schedule(problem.stages, problem.chunks, problem.micro_batches, problem.few_in_flight)
        self.timing, self.program = Timing(problem, self.steps), Program(problem, self.steps)
        self.prices, self.constants = np.empty((0, 2 * problem.parts)), np.empty(0)
        self.best: Split | None = None
        self.time, self.bound, self.rounds = float("inf"), 0.0, 0

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    @property
    def closed(self) -> bool:
        return self.best is not None and self.time - self.bound <= self.gap * self.time

    def consider(self, split: Split) -> float:
        """Time a split, learn from it, keep it if it is the best; return its time."""
        total = self._learn(self._durations(split))
        if total < self.time:
            self.best, self.time = split, total
            self._tell()
        return total

    def _durations(self, split: Split) -> NDArray[np.float64]:
        forward, backward = split.durations(self.problem)
        return np.array([*forward, *backward])

    def _learn(self, durations: NDArray[np.float64]) -> float:
        total, prices, constant = self.timing(durations)
        self.program.add_cut(prices, constant)
        self.prices = np.vstack([self.prices, prices])
        self.constants = np.append(self.constants, constant)
        return total

    def begin(self) -> None:
        """Begin with the even split, if it fits, and what single moves make of it."""
        self.improve(even(self.problem), 0.75 * self.seconds)

    def improve(self, layers: list[int], until: float) -> None:
        """Move single layers as long as that helps; known prices rule out most moves before they are timed."""
        split = treated(self.problem, self.steps, layers)
        if split is None:
            return
        now = self.consider(split)
        while self.left > until:
            found = [(self._floor(near), moved, near) for moved, near in neighbours(self.problem, self.steps, layers)]
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

    def _floor(self, split: Split) -> float:
        """Return the time that a split takes at least, as far as known."""
        return float((self.prices @ self._durations(split) + self.constants).max())

    def relax(self, share: float) -> None:
        """Learn with fractions of layers first: each round is a small linear program."""
        until = self.left - share * self.seconds
        while self.left > until:
            found = self.program.relaxed()
            if found is None:
                raise _infeasible(self.problem, self.steps)
            values, bound = found
            self.bound = max(self.bound, bound)
            total = self._learn(self.program.durations(values))
            if total - bound <= 0.1 * self.gap * total:
                break
        layers = rounded(self.problem, self.program.layers(values))
        if layers is not None:
            self.improve(layers, self.left - share * self.seconds)

    def run(self) -> None:
        """Alternate between the integer program and the schedule until they meet or time is up."""
        self.program.integral(True)
        while not self.closed and self.left > 0:
            # Far from the optimum a rough solution teaches as much as an exact one and costs far less.
            distance = 1 - self.bound / self.time if self.best is not None else _FIRST_GAP
            values, bound = self.program.solve(max(self.left, 0.1), max(0.5 * self.gap, 0.3 * distance))
            self.bound = min(max(self.bound, bound), self.time)
            self.rounds += 1
            if values is None:
                if bound == self.program.infinity and self.best is None:
                    raise _infeasible(self.problem, self.steps)
                return
            split = self.program.split(values)
            if self.consider(split) > self.bound * (1 + self.gap):
                self.improve(list(split.layers()), self.left - 0.1 * self.seconds)

    def _tell(self) -> None:
        if self.watch is not None:
            self.watch(self.time, self.bound)

    def answer(self) -> Balanced:
        if self.best is None:
            raise Infeasible(
                f"no split within memory was found in {self.seconds:g} s; a longer time limit may find one"
            )
        return Balanced(
            split=self.best,
            time=self.time,
            bound=self.bound,
            optimal=self.closed,
            memory=tuple(self.best.memory(self.problem, self.steps.in_flight)),
            rounds=self.rounds,
            seconds=time.monotonic() - self.begun,
        )


def _infeasible(problem: Problem, steps: Schedule) -> Infeasible:
    """Tell which stage lacks memory, and how much all limits must grow together for a split to exist."""
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
    return Infeasible(f"no split fits: stage {worst} lacks memory even in the tightest one", worst, over[worst])


def _fits(problem: Problem, steps: Schedule) -> Split | None:
    """Return any split within memory, or None."""
    program = Program(problem, steps)
    program.solver.changeColCost(program.time, 0.0)
    program.integral(True)
    values, _ = program.solve(20.0, 1.0)
    return None if values is None else program.split(values)
