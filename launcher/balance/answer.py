"""`launch balance` from job to answer: posed, solved, written in the backend's terms, estimated again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from launcher.balance.express import Expressed, Inexpressible, counts_each_chunk, express
from launcher.balance.from_job import Posed, even_split, pose, split_values
from launcher.balance.problem import Problem, Split
from launcher.balance.schedule import schedule
from launcher.balance.solve import Balanced, Infeasible, balance
from launcher.balance.timing import simulate
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
        times: seconds of a step, split evenly and as answered, by measured times where some were given.
        measured: whether some were.
        expressed: the split in the terms of the job's backend; None: the job has no backend.
    """

    posed: Posed
    balanced: Balanced
    job: Job
    after: Estimate
    times: tuple[float, float]
    measured: bool
    expressed: Expressed | Inexpressible | None

    def as_tree(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        problem, split = self.posed.problem, self.balanced.split
        stages = problem.stages
        before, after = self.posed.before, self.after
        tree: dict[str, Any] = {
            "layers": _by_virtual(split.layers(), stages),
            "recomputed": _by_virtual(split.in_mode(problem, "full"), stages),
            "before": {"step_s": self.times[0], "peak_reserved": [s.peak_reserved for s in before.stages]},
            "after": {"step_s": self.times[1], "peak_reserved": [s.peak_reserved for s in after.stages]},
            "measured": self.measured,
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

    each = recompute and counts_each_chunk(job)
    for _ in range(_CORRECTIONS):
        balanced, problem = _solve(problem, solve, each=each)
        changed = with_values(posed.start, split_values(posed.start, problem, balanced.split))
        after = estimate(changed, changes=False)
        over = _over(after)
        if not any(over):
            break
        problem = replace(problem, limits=tuple(limit - more for limit, more in zip(problem.limits, over, strict=True)))
    else:
        worst = max(range(problem.stages), key=over.__getitem__)
        raise Infeasible("no split that the estimate accepts", worst, over[worst])
    even = even_split(posed)
    return Answer(
        posed=replace(posed, problem=problem),
        balanced=balanced,
        job=changed,
        after=after,
        times=(
            _corrected(posed.before, posed.problem, problem, even),
            _corrected(after, posed.problem, problem, balanced.split),
        ),
        measured=reshape is not None,
        expressed=express(job, problem, balanced.split) if job.backend.name else None,
    )


def _corrected(answer: Estimate, estimated: Problem, posed: Problem, split: Split) -> float:
    """Return the seconds of a step whose pipeline takes the posed times instead of the estimated ones.

    What follows the pipeline (reduction, optimizer) stays as estimated.
    """
    assert answer.time is not None
    if all(getattr(estimated, name) == getattr(posed, name) for name in ("kinds", "fixed", "transfer")):
        return answer.time.step_s
    steps = schedule(posed.stages, posed.chunks, posed.micro_batches, posed.few_in_flight)
    new, old = (
        simulate(problem, steps, [*chain.from_iterable(split.durations(problem))]) for problem in (posed, estimated)
    )
    return answer.time.step_s + new - old


def _over(after: Estimate) -> list[float]:
    """Return by how many bytes each stage is above the device's memory."""
    assert after.capacity is not None
    return [max(0.0, stage.peak_reserved + after.outside - after.capacity) for stage in after.stages]


def _solve(problem: Problem, solve: Callable[[Problem, bool], Balanced], *, each: bool) -> tuple[Balanced, Problem]:
    """Solve quickly with every number of recomputed layers a chunk, then the best of them as well as was asked for.

    Neither fewest nor most is best in general: what is recomputed costs time, what is not may force an uneven split.

    Args:
        each: every chunk has a number of its own, so that one program finds all of them.
    """
    if each or all(len(kind.modes) == 1 for kind in problem.kinds):
        problem = replace(problem, in_order=each)
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
