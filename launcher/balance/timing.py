"""The time of a step for given chunk times: simulated, or by a linear program that also gives its critical steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from launcher.balance.problem import Problem, Split
from launcher.pipeline_schedule.long_step import Middle, finish
from launcher.pipeline_schedule.precedence import Precedence
from launcher.pipeline_schedule.simulation import Pipeline

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Timing:
    """Start times of all steps, solved repeatedly for other durations (warm-started from the last solution).

    The objective is the end of the last step plus `repeated` periods. Its dual gives, for each step, how much the
    objective grows with that step's duration: a bound that holds for every split, exact for this one.
    """

    def __init__(self, problem: Problem, steps: Precedence) -> None:
        import highspy

        self.parts, self.end = problem.parts, steps.chunk_of[steps.end]
        self.solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.setOptionValue("output_flag", False)
        self.infinity = highspy.kHighsInf
        tails = [first for first, _ in steps.arcs]
        self.tail = np.array(steps.chunk_of, dtype=np.int64)[tails]
        self.delay = np.array(steps.sends, dtype=float) * problem.transfer
        self.rows: NDArray[np.int32] = np.arange(len(tails), dtype=np.int32)
        period = len(steps.chunk_of)
        for _ in range(period + 1):
            self.solver.addVar(0.0, self.infinity)
        self.solver.changeColCost(steps.end, 1.0)
        self.solver.changeColCost(period, float(steps.repeated))
        for first, second in steps.arcs:
            self._row([second, first], [1.0, -1.0])
        if steps.repeated:
            for last, before in steps.period:
                self._row([period, last, before], [1.0, -1.0, 1.0])

    def _row(self, columns: list[int], values: list[float]) -> None:
        self.solver.addRow(
            0.0, self.infinity, len(columns), np.array(columns, dtype=np.int32), np.array(values, dtype=float)
        )

    def __call__(self, durations: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], float]:
        """Return the time of a step, its growth with every duration, and the part that does not depend on them.

        Args:
            durations: forward times of all chunks, then backward times.
        """
        needed = durations[self.tail] + self.delay
        self.solver.changeRowsBounds(len(needed), self.rows, needed, np.full(len(needed), self.infinity))
        self.solver.run()
        total = self.solver.getInfo().objective_function_value + durations[self.end]
        prices = np.array(self.solver.getSolution().row_dual)[: len(needed)]
        growth = np.zeros(2 * self.parts)
        np.add.at(growth, self.tail, prices)
        growth[self.end] += 1.0
        return float(total), growth, float(prices @ self.delay)


def pipeline_of(problem: Problem, split: Split) -> Pipeline:
    """Return the pipeline of a split, ready to be simulated."""
    forward, backward = split.durations(problem)
    return Pipeline(
        schedule=problem.schedule,
        forward=tuple(forward),
        backward=tuple(backward),
        transfer=problem.transfer,
        blocking=False,
    )


def seconds(problem: Problem, split: Split) -> float:
    """Return when the last step ends if every step starts as early as it can."""
    return finish(pipeline_of(problem, split), Middle.PERIOD)
