"""Ranks candidates again by measured times; each is balanced with the measurements of its layout, if there are any."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from launcher.balance.encode import Expressed
from launcher.balance.from_job import layer_times, layers_of
from launcher.balance.local import treated
from launcher.balance.measured import with_measured
from launcher.balance.problem import BadProblem
from launcher.balance.profile import Measured, Table, sizes_of
from launcher.balance.solve import Infeasible
from launcher.balance.solve_job import Answer, balance_job
from launcher.balance.timing import seconds
from launcher.job import Job, Value, with_values
from launcher.pipeline_schedule.order import DUALPIPEV
from launcher.pipeline_schedule.precedence import precedence
from launcher.records import dataclass
from launcher.search.found import Candidate, Found
from launcher.search.points import nothing_recomputed

# Time limit in seconds of one balance: its local search and the bound of the linear program.
_SECONDS = 20.0
# Relative gap above which a balance is reported as unproven.
_FAR = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate with its measurement.

    Attributes:
        step_s: seconds of a step, by measured times where available.
        peak: bytes on the fullest device; measured where `row` says so.
        row: the measurement; None: all figures are the estimate's.
        answer: the balanced pipeline; None: the candidate's own stages are as good, or nothing was measured.
        why: the reason that it was not balanced, or does not fit.
        fits: whether its peak is within the device's memory.
    """

    candidate: Candidate
    step_s: float
    peak: float
    fits: bool
    row: Measured | None = None
    answer: Answer | None = None
    why: str | None = None

    @property
    def order(self) -> tuple[bool, float, str]:
        """Sort candidates that fit by time, before those that do not."""
        return not self.fits, self.step_s, self.candidate.order[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Candidates, the fastest first, and the lines of the table that no candidate matches."""

    ranked: tuple[Ranked, ...]
    unmatched: tuple[Measured, ...]


def rerank(job: Job, found: Found, table: Table) -> Ranking:
    """Return the best candidates, and the best one for each measured layout, by measured times.

    Args:
        job: the job that was searched.
    """
    chosen = list(found.best)
    unmatched = []
    for row in table.rows:
        fitting = [each for each in found.fitting if row.is_of(sizes_of(with_values(job, each.point)))]
        if not fitting:
            unmatched.append(row)
            continue
        best = min(fitting, key=lambda each: each.order)
        if best not in chosen:
            chosen.append(best)
    ranked = [_ranked(job, candidate, table, found.capacity) for candidate in chosen]
    return Ranking(ranked=tuple(sorted(ranked, key=lambda each: each.order)), unmatched=tuple(unmatched))


def _ranked(job: Job, candidate: Candidate, table: Table, capacity: int) -> Ranked:
    own = with_values(job, candidate.point)
    row = table.row_of(sizes_of(own))
    if row is None:
        return Ranked(candidate=candidate, step_s=candidate.step_s, peak=candidate.peak, fits=True)
    peak = row.peak.at(own.parallel.ep) if row.peak is not None else float(candidate.peak)
    if peak > capacity:
        why = f"measured {peak / 2**30:.1f} GiB, the device has {capacity / 2**30:g}"
        return Ranked(candidate=candidate, step_s=candidate.step_s, peak=peak, fits=False, row=row, why=why)
    answer, reason = _balanced(own, row)
    seconds = _own(own, candidate, row)
    if answer is None or answer.times[1] >= seconds:
        return Ranked(candidate=candidate, step_s=seconds, peak=peak, fits=True, row=row, why=reason)
    if row.peak is None:
        peak = answer.after.fullest.peak_reserved + answer.after.outside
    gap = answer.balanced.gap
    reason = f"short time limit: launch balance may find up to {100 * gap:.0f} % less time" if gap > _FAR else None
    return Ranked(candidate=candidate, step_s=answer.times[1], peak=peak, fits=True, row=row, answer=answer, why=reason)


def _balanced(job: Job, row: Measured) -> tuple[Answer | None, str | None]:
    """Return the balanced pipeline of a candidate, or why there is none (both None: one stage).

    A candidate without recomputation stays without it.
    """
    if job.parallel.pp == 1:
        return None, None
    try:
        again, reshape = job.recompute.granularity is not None, partial(with_measured, row=row)
        return balance_job(job, seconds=_SECONDS, quick=True, recompute=again, reshape=reshape), None
    except (BadProblem, Infeasible) as error:
        return None, f"not balanced: {error}"


def _own(job: Job, candidate: Candidate, row: Measured) -> float:
    """Return the seconds of a step with the candidate's stages and recomputation."""
    if job.parallel.schedule == DUALPIPEV:
        return candidate.step_s
    recompute, layers = job.recompute, layers_of(job)
    again = 0
    if recompute.granularity == "full":
        again = (recompute.num_layers or 1) if recompute.method == "block" else max(layers)
    estimated = replace(layer_times(with_values(job, nothing_recomputed())), covered=again)
    split = treated(estimated, precedence(estimated.schedule), layers)
    assert split is not None
    return candidate.step_s + seconds(with_measured(estimated, row), split) - seconds(estimated, split)


def strategy_of(best: Ranked, values: dict[str, Value]) -> dict[str, Value]:
    """Return the values to write for a candidate, with the balanced stages where the backend accepts them."""
    answer = best.answer
    if answer is None or not isinstance(answer.expressed, Expressed):
        return values
    return {**values, **answer.expressed.values}
