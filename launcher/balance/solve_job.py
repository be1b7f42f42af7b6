"""Runs `launch balance`: poses and solves the problem of a job, encodes the split and estimates it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from launcher.balance.choices import Choice, Taken, choices_of
from launcher.balance.encode import Expressed, Inexpressible, express
from launcher.balance.from_job import Posed, even_split, recompute_values, split_values
from launcher.balance.problem import Problem, Split
from launcher.balance.solve import Balanced, Infeasible, balance_any
from launcher.balance.timing import seconds as seconds_of
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.estimate.result import Estimate
from launcher.job import Job, Value, with_values
from launcher.records import dataclass

# Maximum number of corrections of the limits by the estimate of the solution.
_CORRECTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A balanced job.

    Attributes:
        given: the job as it was given.
        posed: the problem, and the even split it is compared with.
        balanced: the solver's answer.
        job: the job with the split, as Megatron-core accepts it.
        after: its estimate.
        times: seconds of a step, with the even and the balanced split, by measured times where given.
        measured: whether measured times were given.
        expressed: the split encoded for the job's backend; None: the job has no backend.
        part: values of the partial recomputation of a layer.
        limits: why the backend does not support some recomputation, which was therefore not chosen.
    """

    given: Job
    posed: Posed
    balanced: Balanced
    job: Job
    after: Estimate
    times: tuple[float, float]
    measured: bool
    expressed: Expressed | Inexpressible | None
    part: Mapping[str, Value]
    limits: tuple[str, ...]

    @property
    def unchanged(self) -> Estimate | None:
        """Return the estimate of the job as it was given; None: its own split is none that can be estimated."""
        try:
            return estimate(self.given, changes=False)
        except CannotEstimate:
            return None

    @property
    def in_part(self) -> tuple[int, ...]:
        """Return layers per chunk that are recomputed in part."""
        problem, split = self.posed.problem, self.balanced.split
        full = split.in_mode(problem, "full")
        if self.part and problem.covered is not None:
            return tuple(layers - again for layers, again in zip(split.layers(), full, strict=True))
        return split.in_mode(problem, "selective")

    def as_tree(self) -> dict[str, Any]:
        """Return the output of `--json`."""
        problem, split = self.posed.problem, self.balanced.split
        stages = problem.stages
        unchanged, before, after = self.unchanged, self.posed.before, self.after
        tree: dict[str, Any] = {
            "layers": _by_virtual(split.layers(), stages),
            "recomputed": _by_virtual(split.in_mode(problem, "full"), stages),
            "recomputed_in_part": _by_virtual(self.in_part, stages),
            "parts": dict(self.part) if any(self.in_part) else {},
            "limits": list(self.limits),
            "job": unchanged and _figures(unchanged.time.step_s if unchanged.time else None, unchanged),
            "before": _figures(self.times[0], before),
            "after": _figures(self.times[1], after),
            "measured": self.measured,
            "outside": after.outside,
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


def _figures(step: float | None, figures: Estimate) -> dict[str, Any]:
    return {"step_s": step, "peak_reserved": [stage.peak_reserved for stage in figures.stages]}


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
        gap: relative gap to the proven bound at which to stop.
        quick: local search only, with the bound of the linear program.
        recompute: also choose recomputation; otherwise the job's is kept.
        empty_ends: the first and the last chunk may have no layers.
        reshape: changes the problem before it is solved (measured ratios instead of estimated times).
        watch: called with the best time and the bound whenever the best changes.

    Raises:
        Infeasible: no split fits.
        CannotEstimate, BadProblem: the job's pipeline cannot be balanced.
    """
    posed, choices, taken = choices_of(job, recompute=recompute, empty_ends=empty_ends)
    if reshape is not None:
        choices = [replace(choice, problem=reshape(choice.problem)) for choice in choices]
    for _ in range(_CORRECTIONS):
        problems = [choice.problem for choice in choices]
        number, balanced = balance_any(problems, seconds=seconds, gap=gap, quick=quick, watch=watch)
        choice = choices[number]
        problem = choice.problem
        again = recompute_values(problem, balanced.split, choice.part) if recompute else {}
        changed = with_values(posed.start, split_values(posed.start, balanced.split, again))
        after = estimate(changed, changes=False)
        over = _over(after)
        if not any(over):
            break
        choices = [_tighter(each, over) for each in choices]
    else:
        worst = max(range(problem.stages), key=over.__getitem__)
        raise Infeasible("no split that the estimate accepts", worst, over[worst])
    return _answer(job, posed, choice, balanced, changed, after, again, taken, reshape)


def _tighter(choice: Choice, over: list[float]) -> Choice:
    """Return a choice with limits reduced by the estimated excess over the device's memory."""
    limits = tuple(limit - more for limit, more in zip(choice.problem.limits, over, strict=True))
    return replace(choice, problem=replace(choice.problem, limits=limits))


def _answer(
    job: Job,
    posed: Posed,
    choice: Choice,
    balanced: Balanced,
    changed: Job,
    after: Estimate,
    again: Mapping[str, Value],
    taken: Taken,
    reshape: Callable[[Problem], Problem] | None,
) -> Answer:
    before = posed.problem if reshape is None else reshape(posed.problem)
    return Answer(
        given=job,
        posed=replace(posed, problem=choice.problem),
        balanced=balanced,
        job=changed,
        after=after,
        times=(
            _corrected(posed.before, posed.problem, before, even_split(posed)),
            _corrected(after, choice.estimated, choice.problem, balanced.split),
        ),
        measured=reshape is not None,
        expressed=express(job, balanced.split, again) if job.backend.name else None,
        part=choice.part,
        limits=taken.why,
    )


def _corrected(answer: Estimate, estimated: Problem, posed: Problem, split: Split) -> float:
    """Return the seconds of a step with the pipeline times of `posed` instead of the estimated ones.

    The time after the pipeline (reduction, optimizer) stays as estimated.
    """
    assert answer.time is not None
    if all(getattr(estimated, name) == getattr(posed, name) for name in ("kinds", "fixed", "transfer")):
        return answer.time.step_s
    return answer.time.step_s + seconds_of(posed, split) - seconds_of(estimated, split)


def _over(after: Estimate) -> list[float]:
    """Return the bytes by which each stage exceeds the device's memory."""
    assert after.capacity is not None
    return [max(0.0, stage.peak_reserved + after.outside - after.capacity) for stage in after.stages]
