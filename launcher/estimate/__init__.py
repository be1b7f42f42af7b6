"""Estimates memory, step time and parameter counts of a job without a device."""

from launcher.estimate.estimate import CannotEstimate, estimate, estimate_many, one_line, refusal
from launcher.estimate.result import Change, Estimate, StageMemory, StepTime

__all__ = [
    "CannotEstimate",
    "Change",
    "Estimate",
    "StageMemory",
    "StepTime",
    "estimate",
    "estimate_many",
    "one_line",
    "refusal",
]
