"""Integer program for the layers of each kind, mode and chunk, with cuts that bound the step time from below.

HiGHS solves it (highspy: MIT, wheels for every platform, one package; SciPy's `milp` is the same solver without warm
starts, row changes or MPS files).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from launcher.balance.problem import Problem, Split
from launcher.pipeline_schedule.bounds import busiest_stage
from launcher.pipeline_schedule.precedence import Precedence

if TYPE_CHECKING:
    from numpy.typing import NDArray

Terms = list[tuple[int, float]]


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what a library's constructor writes to the standard output off it: since 1.16 HiGHS announces itself there.

    It would break `--json`. The text waits in the buffer of C's library, so that is flushed before the output returns.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            yield
            ctypes.CDLL(None).fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class Program:
    """Variables and constraints of one problem in a HiGHS model; `add_cut` tightens the bound on its objective."""

    def __init__(self, problem: Problem, steps: Precedence) -> None:
        import highspy

        self.problem, self.highspy = problem, highspy
        with _silent():
            self.solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.setOptionValue("output_flag", False)
        self.infinity = highspy.kHighsInf
        self.width = 0
        self.integers: list[int] = []
        parts = range(problem.parts)
        # number[kind][mode][chunk] is the column that counts those layers.
        self.number = [
            [[self.column(kind.count, f"{kind.name}_{mode.name}_{c}") for c in parts] for mode in kind.modes]
            for kind in problem.kinds
        ]
        self._counts()
        self._order()
        self._modes()
        self._memory(steps)
        self.growth, self.base = self._durations()
        self.time = self.column(self.infinity, "step_time", integer=False)
        self.solver.changeColCost(self.time, 1.0)
        self.load = self._loads()

    # -- building blocks
    def column(self, most: float, name: str, *, integer: bool = True) -> int:
        """Add a variable from 0 to `most` and return its number."""
        self.solver.addVar(0.0, most)
        self.solver.passColName(self.width, name)
        if integer:
            self.integers.append(self.width)
        self.width += 1
        return self.width - 1

    def row(self, low: float, high: float, terms: Terms) -> None:
        """Add the constraint low ≤ Σ value × column ≤ high."""
        columns = np.array([column for column, _ in terms], dtype=np.int32)
        values = np.array([value for _, value in terms], dtype=float)
        self.solver.addRow(low, high, len(terms), columns, values)

    def _most(self, terms: Terms, high: float) -> None:
        self.row(-self.infinity, high, terms)

    def _of_kind(self, kind: int, chunk: int) -> list[int]:
        return [mode[chunk] for mode in self.number[kind]]

    def _of_chunk(self, chunk: int) -> list[int]:
        return [column for kind in range(len(self.number)) for column in self._of_kind(kind, chunk)]

    # -- constraints
    def _counts(self) -> None:
        problem = self.problem
        for index, kind in enumerate(problem.kinds):
            columns = [column for chunk in range(problem.parts) for column in self._of_kind(index, chunk)]
            self.row(kind.count, kind.count, [(column, 1.0) for column in columns])
        for chunk in range(problem.parts):
            if problem.fewest and chunk not in problem.may_be_empty:
                self.row(problem.fewest, self.infinity, [(column, 1.0) for column in self._of_chunk(chunk)])

    def _order(self) -> None:
        """Keep kinds in the model's order: once a later kind has begun, no earlier one follows."""
        problem = self.problem
        for border in range(1, len(problem.kinds)):
            begun = [self.column(1, f"begun{border}_{chunk}") for chunk in range(problem.parts)]
            for chunk in range(problem.parts):
                if chunk:
                    self._most([(begun[chunk - 1], 1.0), (begun[chunk], -1.0)], 0)
                for index, kind in enumerate(problem.kinds):
                    terms = [(column, 1.0) for column in self._of_kind(index, chunk)]
                    if index >= border:
                        self._most([*terms, (begun[chunk], -float(kind.count))], 0)
                    elif chunk:
                        self._most([*terms, (begun[chunk - 1], float(kind.count))], kind.count)

    def _modes(self) -> None:
        problem = self.problem
        names = [mode.name for kind in problem.kinds for mode in kind.modes[1:]]
        for chunk in range(problem.parts):
            if problem.one_mode_a_chunk and len(set(names)) > 1:
                self._exclusive(chunk, sorted(set(names)))
            if problem.covered is not None:
                self._covered(chunk, problem.covered)
            elif problem.in_order:
                self._in_order(chunk)

    def _exclusive(self, chunk: int, names: list[str]) -> None:
        used = {name: self.column(1, f"uses_{name}_{chunk}") for name in names}
        for index, kind in enumerate(self.problem.kinds):
            for position, mode in enumerate(kind.modes[1:], start=1):
                self._most([(self.number[index][position][chunk], 1.0), (used[mode.name], -float(kind.count))], 0)
        self._most([(column, 1.0) for column in used.values()], 1)

    def _covered(self, chunk: int, covered: int) -> None:
        """Recompute the first `covered` layers of the chunk and no other."""
        kept = [kind[0][chunk] for kind in self.number]
        again = [mode[chunk] for kind in self.number for mode in kind[1:]]
        enough = self.column(1, f"covered_{chunk}")
        layers = float(self.problem.layers)
        self._most([(column, 1.0) for column in again], covered)
        self._most([*((column, 1.0) for column in kept), (enough, -layers)], 0)
        self.row(0, self.infinity, [*((column, 1.0) for column in again), (enough, -float(covered))])
        self._in_order(chunk)

    def _in_order(self, chunk: int) -> None:
        """Allow a mode for a later kind only where every earlier layer of the chunk has that mode or a later one."""
        layers = float(self.problem.layers)
        for later in range(1, len(self.number)):
            for mode in range(1, len(self.number[later])):
                less = [each[chunk] for kind in self.number[:later] for each in kind[:mode]]
                through = self.column(1, f"through{later}_{mode}_{chunk}")
                self._most([*((column, 1.0) for column in less), (through, layers)], layers)
                self._most([*((each[chunk], 1.0) for each in self.number[later][mode:]), (through, -layers)], 0)

    def _memory(self, steps: Precedence) -> None:
        problem = self.problem
        for stage in range(problem.stages):
            for numbers in steps.in_flight[stage]:
                terms: Terms = []
                limit = problem.limits[stage]
                for virtual, live in enumerate(numbers):
                    chunk = virtual * problem.stages + stage
                    limit -= live * problem.fixed_of(chunk).keeps
                    for kind, modes in zip(problem.kinds, self.number, strict=True):
                        for mode, columns in zip(kind.modes, modes, strict=True):
                            terms.append((columns[chunk], kind.memory + live * mode.keeps))
                self._most(terms, limit)

    def _durations(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return forward and backward times of all chunks as linear functions of the columns."""
        problem, parts = self.problem, self.problem.parts
        growth, base = np.zeros((2 * parts, self.width)), np.zeros(2 * parts)
        for chunk in range(parts):
            base[chunk], base[parts + chunk] = problem.fixed_of(chunk).forward, problem.fixed_of(chunk).backward
            for kind, modes in zip(problem.kinds, self.number, strict=True):
                for mode, columns in zip(kind.modes, modes, strict=True):
                    growth[chunk, columns[chunk]] = kind.forward
                    growth[parts + chunk, columns[chunk]] = mode.backward
        return growth, base

    def _loads(self) -> int:
        """Return the column of the longest stage time per micro-batch, which bounds the step (`busiest_stage`)."""
        load = self.column(self.infinity, "load", integer=False)
        parts, stages = self.problem.parts, self.problem.stages
        for stage in range(stages):
            chunks = [*range(stage, parts, stages), *range(parts + stage, 2 * parts, stages)]
            terms = self.growth[chunks].sum(axis=0)
            row: Terms = [(int(column), -float(terms[column])) for column in np.flatnonzero(terms)]
            self.row(float(self.base[chunks].sum()), self.infinity, [*row, (load, 1.0)])
        self.row(0.0, self.infinity, [(self.time, 1.0), (load, -busiest_stage(1.0, self.problem.micro_batches))])
        return load

    # -- solving
    def durations(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return forward and backward times of all chunks at a solution."""
        return np.asarray(self.growth @ values[: self.growth.shape[1]] + self.base)

    def add_cut(self, prices: NDArray[np.float64], constant: float) -> None:
        """Bound the step's time from below by prices × durations + constant."""
        terms = prices @ self.growth
        columns = np.flatnonzero(np.abs(terms) > 1e-9 * max(1.0, float(np.abs(terms).max())))
        row: Terms = [(int(column), -float(terms[column])) for column in columns]
        self.row(float(prices @ self.base) + constant, self.infinity, [*row, (self.time, 1.0)])

    def integral(self, on: bool) -> None:
        """Require integer layers, or allow fractions for a quick bound."""
        kind = self.highspy.HighsVarType.kInteger if on else self.highspy.HighsVarType.kContinuous
        for column in self.integers:
            self.solver.changeColIntegrality(column, kind)

    def solve(self, seconds: float, gap: float) -> tuple[NDArray[np.float64] | None, float]:
        """Solve; return the best values (None: there are none) and a proven lower bound of the step's time."""
        self.solver.setOptionValue("time_limit", max(0.05, float(seconds)))
        self.solver.setOptionValue("mip_rel_gap", float(gap))
        self.solver.run()
        info, status = self.solver.getInfo(), self.solver.getModelStatus()
        if status in (self.highspy.HighsModelStatus.kInfeasible, self.highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return None, self.infinity
        bound = max(info.mip_dual_bound, 0.0)
        if info.primal_solution_status != int(self.highspy.SolutionStatus.kSolutionStatusFeasible):
            return None, bound
        return np.array(self.solver.getSolution().col_value), bound

    def least_load(self, seconds: float, gap: float) -> tuple[NDArray[np.float64] | None, float]:
        """Minimise the longest stage with integer layers; return the solution and a lower bound of the step's time.

        Fractional layers weaken the bound of the linear program most. This program of the longest stage alone is
        solved in seconds, and its bound is kept as a constraint.
        """
        self.integral(True)
        self.solver.changeColCost(self.time, 0.0)
        self.solver.changeColCost(self.load, 1.0)
        values, bound = self.solve(seconds, gap)
        self.solver.changeColCost(self.time, 1.0)
        self.solver.changeColCost(self.load, 0.0)
        if bound < self.infinity:
            # The solver's bound holds within its tolerances.
            self.solver.changeColBounds(self.load, (1 - 1e-7) * bound, self.infinity)
        return values, busiest_stage(bound, self.problem.micro_batches)

    def relaxed(self, seconds: float) -> tuple[NDArray[np.float64] | None, float]:
        """Solve with fractional layers; return values (None: none in time) and a lower bound of the step's time."""
        self.integral(False)
        # The clock of linear programs continues from run to run, that of integer programs restarts.
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + max(0.05, seconds))
        self.solver.run()
        status = self.solver.getModelStatus()
        if status in (self.highspy.HighsModelStatus.kInfeasible, self.highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return None, self.infinity
        if status != self.highspy.HighsModelStatus.kOptimal:
            return None, 0.0
        return np.array(self.solver.getSolution().col_value), float(self.solver.getInfo().objective_function_value)

    def layers(self, values: NDArray[np.float64]) -> list[float]:
        """Return layers per chunk, fractions included."""
        return [float(sum(values[column] for column in self._of_chunk(c))) for c in range(self.problem.parts)]

    def split(self, values: NDArray[np.float64]) -> Split:
        """Return a solution as layers per chunk."""
        return Split(
            counts=tuple(
                tuple(tuple(round(float(values[column])) for column in columns) for columns in kind)
                for kind in self.number
            )
        )
