"""Will it fit, how fast will it be: memory, time and parameters of a job, computed without a device."""

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
