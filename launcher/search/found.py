"""What a search found: candidates, and why all other points were rejected."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from launcher.job import Job, Value, with_values
from launcher.notebook import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One valid point with its estimate.

    Attributes:
        values: canonical values that differ from the job's.
        step_s: seconds of one optimizer step; infinite where it does not fit and its time was not asked for.
        peak: bytes on the fullest device, everything included.
        fits: whether that is within the device's memory.
        stage: the fullest stage.
        standing: bytes that recomputation cannot free, on the stage with most of them.
        bubble_s: seconds of a step in which the busiest stage is idle.
    """

    values: dict[str, Value]
    point: dict[str, Value]
    step_s: float
    peak: int
    stage: int
    standing: int
    fits: bool
    mfu: float
    bubble_s: float
    tokens_per_s_per_device: float

    @property
    def order(self) -> tuple[float, int, str]:
        """Sort by time, then memory, then name, so that equal searches have equal answers."""
        return self.step_s, self.peak, str(sorted(self.values.items(), key=lambda item: item[0]))


@dataclass(slots=True, kw_only=True)
class Found:
    """State and results of a search.

    Attributes:
        points: points of the whole space.
        settled: points decided so far, individually or in groups.
        best: the fastest candidates that fit, best first.
        fitting: all candidates that fit and were estimated.
        nearest: candidates that do not fit, the smallest excess memory first.
        refusals: points rejected, by rule.
        too_big: points that do not fit with any recomputation.
        too_slow: points that cannot be among the best, whose estimation was skipped.
        capacity: bytes of a device.
        limit: estimated bytes up to which a candidate fits with `search.fit_probability`.
        works: where no layout was found, overrides with each of which a search finds one (`remedies`).
    """

    points: int = 0
    settled: int = 0
    estimates: int = 0
    asked: int = 0
    best: list[Candidate] = field(default_factory=list)
    fitting: list[Candidate] = field(default_factory=list)
    nearest: list[Candidate] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    too_big: int = 0
    too_slow: int = 0
    capacity: int = 0
    limit: int = 0
    works: list[str] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Shown):
    """A finished search of a job's parallel strategy.

    Attributes:
        job: the job as given, whose values the candidates change.
        found: candidates with their estimates, and why all other points were rejected.
    """

    job: Job
    found: Found

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The fastest candidates that fit, best first; empty where none fits."""
        return tuple(self.found.best)

    def job_of(self, candidate: Candidate) -> Job:
        """Return the job with the values of a candidate."""
        return with_values(self.job, candidate.values)

    @property
    def best(self) -> Job | None:
        """The job with the values of the fastest candidate; None: no candidate fits."""
        return self.job_of(self.found.best[0]) if self.found.best else None


# Number of candidates reported that do not fit.
_NEAREST = 3


def closest(candidates: list[Candidate]) -> list[Candidate]:
    """Return the few layouts with the least memory, each with the least-memory recomputation tried."""
    each: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda item: item.peak):
        plain = {path: value for path, value in candidate.point.items() if not path.startswith("recompute.")}
        each.setdefault(str(plain), candidate)
    return heapq.nsmallest(_NEAREST, each.values(), key=lambda item: (item.standing, item.peak, item.order))
