"""`launch balance` from job to answer: posed, solved, written in the backend's terms, estimated again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from launcher.balance.express import Expressed, Inexpressible, express
from launcher.balance.from_job import Posed, pose, split_values
from launcher.balance.problem import Problem
from launcher.balance.solve import Balanced, Infeasible, balance
from launcher.estimate.estimate import estimate
from launcher.estimate.result import Estimate
from launcher.job import Job, with_values

# How often limits are corrected by what the estimate of the answer says, before giving up.
_CORRECTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A balanced job.

    Attributes:
        posed: the problem, and the even split it is compared with.
        balanced: the solver's answer.
        job: the job with the split, as Megatron-core would take it.
        after: its estimate.
        expressed: the split in the terms of the job's backend; None: the job has no backend.
    """

    posed: Posed
    balanced: Balanced
    job: Job
    after: Estimate
    expressed: Expressed | Inexpressible | None

    def as_tree(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        problem, split = self.posed.problem, self.balanced.split
        stages = problem.stages
        before, after = self.posed.before, self.after
        tree: dict[str, Any] = {
            "layers": _by_virtual(split.layers(), stages),
            "recomputed": _by_virtual(split.in_mode(problem, "full"), stages),
            "before": {"step_s": _seconds(before), "peak_reserved": [s.peak_reserved for s in before.stages]},
            "after": {"step_s": _seconds(after), "peak_reserved": [s.peak_reserved for s in after.stages]},
            "capacity": after.capacity,
            "pipeline_s": self.balanced.time,
            "bound_s": self.balanced.bound,
            "gap": self.balanced.gap,
            "optimal": self.balanced.optimal,
            "solver_s": self.balanced.seconds,
        }
        if isinstance(self.expressed, Expressed):
            tree["how"] = self.expressed.how
            tree["overrides"] = self.expressed.values
        elif self.expressed is not None:
            tree["inexpressible"] = dict(self.expressed.refused)
        return tree


def _by_virtual(parts: tuple[int, ...], stages: int) -> list[list[int]]:
    """Return figures per chunk as rows of stages, one row for each virtual chunk."""
    return [list(parts[start : start + stages]) for start in range(0, len(parts), stages)]


def _seconds(answer: Estimate) -> float | None:
    return answer.time.step_s if answer.time else None


def balance_job(
    job: Job,
    *,
    seconds: float = 60.0,
    gap: float = 1e-3,
    quick: bool = False,
    recompute: bool = True,
    empty_ends: bool = False,
    reshape: Callable[[Problem], Problem] | None = None,
    watch: Callable[[float, float], None] | None = None,
) -> Answer:
    """Return the layers of each stage, and how many are recomputed, that take the least time within memory.

    Args:
        seconds: time limit of the solver.
        gap: distance to the proven bound, as a share, at which to stop.
        quick: local search alone, with the bound of the linear program.
        recompute: also choose recomputation; otherwise what the job says stays.
        empty_ends: the first and the last chunk may go without layers.
        reshape: changes the problem before it is solved (measured ratios instead of estimated times).
        watch: told the best time and the bound whenever the best has moved.

    Raises:
        Infeasible: no split fits.
        CannotEstimate, BadProblem: the job is not one whose pipeline could be balanced.
    """
    posed = pose(job, recompute=recompute, empty_ends=empty_ends)
    problem = reshape(posed.problem) if reshape is not None else posed.problem

    def solve(asked: Problem, roughly: bool) -> Balanced:
        return balance(asked, seconds=seconds, gap=gap, quick=quick or roughly, watch=watch)

    for _ in range(_CORRECTIONS):
        balanced, problem = _solve(problem, solve)
        changed = with_values(posed.start, split_values(posed.start, problem, balanced.split))
        after = estimate(changed, changes=False)
        over = _over(after)
        if not any(over):
            break
        problem = replace(problem, limits=tuple(limit - more for limit, more in zip(problem.limits, over, strict=True)))
    else:
        worst = max(range(problem.stages), key=over.__getitem__)
        raise Infeasible("no split that the estimate accepts", worst, over[worst])
    expressed = express(job, problem, balanced.split) if job.backend.name else None
    return Answer(
        posed=replace(posed, problem=problem), balanced=balanced, job=changed, after=after, expressed=expressed
    )


def _over(after: Estimate) -> list[float]:
    """Return by how many bytes each stage is above the device's memory."""
    assert after.capacity is not None
    return [max(0.0, stage.peak_reserved + after.outside - after.capacity) for stage in after.stages]


def _solve(problem: Problem, solve: Callable[[Problem, bool], Balanced]) -> tuple[Balanced, Problem]:
    """Solve quickly with every number of recomputed layers a chunk, then the best of them as well as was asked for.

    A job says one number of recomputed layers for all chunks. Neither fewest nor most is best in general: what is
    recomputed costs time, what is not may force an uneven split.
    """
    if all(len(kind.modes) == 1 for kind in problem.kinds):
        return solve(problem, False), problem
    best: tuple[float, Problem] | None = None
    tightest: Infeasible | None = None
    for covered in range(2 * -(-problem.layers // problem.parts) + 1):
        asked = replace(problem, covered=covered)
        try:
            found = solve(asked, True)
        except Infeasible as error:
            tightest = error
            continue
        if best is None or found.time < best[0]:
            best = found.time, asked
        elif max(found.split.layers()) <= covered:
            break
    if best is None:
        assert tightest is not None
        raise tightest
    return solve(best[1], False), best[1]
