"""How far an estimate may be from a run: the errors of the measured runs that are most like it.

`kin.json` beside this module is written by ``python -m tools.bench.estimate_accuracy --errors FILE``: one line a
measured run, with its relative errors (estimate / measured - 1).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from launcher.job import Job
from launcher.job.number_formats import format_of
from launcher.records import dataclass

_FILE = Path(__file__).with_name("kin.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What makes two runs kin.

    Attributes:
        hardware: name of the device.
        device: its kind (`cuda`, `npu`).
        precision: name of the number format of matrix products (`launcher.job.number_formats`).
        experts: whether the model has experts.
    """

    hardware: str
    device: str
    precision: str
    experts: bool


# From the nearest kin to the furthest: what they have in common.
_NEAREST: tuple[tuple[str, ...], ...] = (
    ("hardware", "precision", "experts"),
    ("hardware", "experts"),
    ("device", "precision", "experts"),
    ("device", "experts"),
)
_LEAST = 3
"""Runs from which a spread is computed."""
# Quantiles of 95 % of Student's t by degrees of freedom, over that of the normal distribution (1.645): how much wider
# an interval is for a spread that is itself estimated from few runs.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
_Z95 = 1.645
# Standard deviation of a normal distribution over its median distance from the middle.
_NORMAL = 1.4826
# Errors have longer tails than a normal distribution: with these factors 90 % of the measured runs lie in the range
# that all others give (tests/estimate/test_kin.py).
_TAILS: Mapping[str, float] = {"memory": 2.0, "time": 2.3}
# Runs of one job differ by so much: no spread is smaller.
_REPEATS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Errors of the nearest measured kin, as a normal distribution of log(measured / estimate).

    Attributes:
        middle, deviation: of the logarithm; the deviation is widened for the number of runs.
        runs: how many runs.
        common: what they have in common with the job.
    """

    middle: float
    deviation: float
    runs: int
    common: tuple[str, ...]

    def factor(self, probability: float) -> float:
        """Return the factor on the estimate that a run does not exceed with this probability."""
        return math.exp(statistics.NormalDist(self.middle, self.deviation).inv_cdf(probability))

    def below(self, factor: float) -> float:
        """Return the probability that a run needs at most `factor` times the estimate."""
        return statistics.NormalDist(self.middle, self.deviation).cdf(math.log(factor)) if factor > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Where a run is with 90 % probability: factors on the estimate.

    Attributes:
        low, high: factors.
        runs: measured runs from which they are computed.
        common: what these have in common with the job.
    """

    low: float
    high: float
    runs: int
    common: tuple[str, ...]

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def likeness(job: Job) -> Likeness:
    """Return what makes a job kin to others."""
    return Likeness(
        hardware=job.hardware.name or "",
        device=str(job.hardware.device),
        precision=format_of(job.precision).name,
        experts=bool(job.model.is_moe),
    )


def spread(job: Job, quantity: str) -> Spread | None:
    """Return the errors of the nearest kin of a job; None: no run that is like it was measured.

    Args:
        quantity: `memory` or `time`.
    """
    return _spread(likeness(job), quantity)


def fit_probability(job: Job, reserved: int, available: int) -> float | None:
    """Return the probability that a peak fits; None: no run that is like the job was measured.

    Args:
        reserved: estimated peak in bytes.
        available: bytes of the device that are left to the framework's allocator.
    """
    found = spread(job, "memory")
    return None if found is None else found.below(available / reserved)


def range_of(job: Job, quantity: str) -> Range | None:
    """Return the range of a quantity with 90 % probability; None: no run like it was measured."""
    found = spread(job, quantity)
    if found is None:
        return None
    return Range(low=found.factor(0.05), high=found.factor(0.95), runs=found.runs, common=found.common)


@cache
def measured() -> Sequence[Mapping[str, Any]]:
    """Return the measured runs, each with the fields of `Likeness` and its errors."""
    rows: Sequence[Mapping[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return rows


@cache
def _spread(own: Likeness, quantity: str) -> Spread | None:
    return spread_of(measured(), own, quantity)


def spread_of(rows: Sequence[Mapping[str, Any]], own: Likeness, quantity: str) -> Spread | None:
    """Return the errors of the nearest kin among `rows`; None: there are too few."""
    wanted = asdict(own)
    for common in _NEAREST:
        logs = [
            -math.log1p(row[quantity])
            for row in rows
            if row[quantity] is not None and all(row[name] == wanted[name] for name in common)
        ]
        if len(logs) >= _LEAST:
            return _distribution(logs, common, _TAILS[quantity])
    return None


def _distribution(logs: Sequence[float], common: tuple[str, ...], tails: float) -> Spread:
    count, middle = len(logs), statistics.median(logs)
    quantile = _T95[count - 2] if count - 2 < len(_T95) else _Z95
    # Published tables contradict each other by factors in single rows, which do not move the median of the distances.
    own = max(_NORMAL * statistics.median(abs(each - middle) for each in logs), _REPEATS)
    # The interval of one more run, not of the middle.
    deviation = tails * own * math.sqrt(1 + 1 / count) * quantile / _Z95
    return Spread(middle=middle, deviation=deviation, runs=count, common=common)


def memory_margin(job: Job) -> float:
    """Return the factor that memory must leave to the errors of the estimate; 1 where no run like it was measured."""
    found = spread(job, "memory")
    if job.search.fit_probability is None or found is None:
        return 1.0
    return max(1.0, found.factor(job.search.fit_probability))
