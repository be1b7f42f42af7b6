"""Result types of an estimate, and their JSON form."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launcher.estimate.kin import Range
from launcher.estimate.profile import PLAIN, Profile
from launcher.notebook import Shown
from launcher.pipeline_schedule.simulation import Event

# What a stage keeps, in the order in which it is shown: fields of StageMemory.
MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of one pipeline stage on its fullest rank, in bytes."""

    stage: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int
    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One optimizer step, in seconds; the parts are those of the slowest stage and add up to `step_s`.

    `recompute_s` is a part of `backward_s`; communication that recomputation repeats is in `exposed_comm_s` alone.
    """

    step_s: float
    forward_s: float
    backward_s: float
    bubble_s: float
    exposed_comm_s: float
    optimizer_s: float
    recompute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the job that makes it fit, with its cost."""

    overrides: tuple[str, ...]
    peak_reserved: int
    step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """What the job would need if the experts of one device got `factor` times the mean tokens; bytes and seconds."""

    factor: float
    peak_reserved: int
    step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Shown):
    """Memory, time and parameters of a job.

    Attributes:
        fits: whether reserved memory of the fullest stage plus `outside` is within the device's memory; None where
            that is not known.
        capacity: bytes of one device; None where the hardware file does not set it.
        outside: bytes of it outside the framework's allocator (context, communication buffers).
        time, mfu, tokens_per_s_per_device: None where the hardware's peak is not known.
        cost_per_billion_tokens: in the unit of `hardware.price`.
        parameters: total, active, and per stage on one rank.
        changes: the cheapest computed changes that make the job fit, where it does not.
        imbalance: what unequal routing would cost, where balanced routing is assumed.
        missing: every assumed figure.
        timeline: steps of all stages, where asked for.
        memory_range, time_range: where a run is, by the errors of measured runs that are like it; None: there are none.
        profile: what the job's training stack keeps and does.
        fit_probability: that it fits, by the same runs; None: there are none, or the device's memory is not known.
    """

    fits: bool | None
    stages: tuple[StageMemory, ...]
    capacity: int | None
    outside: int
    time: StepTime | None
    mfu: float | None
    tokens_per_s_per_device: float | None
    tflops_per_device: float | None
    cost_per_billion_tokens: float | None
    parameters: Mapping[str, Any]
    missing: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    imbalance: Imbalance | None = None
    timeline: tuple[Event, ...] = ()
    memory_range: Range | None = None
    time_range: Range | None = None
    fit_probability: float | None = None
    profile: Profile = PLAIN

    @property
    def fullest(self) -> StageMemory:
        """The stage with the highest peak."""
        return max(self.stages, key=lambda stage: stage.peak_reserved)

    def as_tree(self) -> dict[str, Any]:
        """Return the estimate as plain data (the contract of DESIGN)."""
        return {
            "fits": self.fits,
            "memory": {
                "per_stage": [asdict(stage) for stage in self.stages],
                "capacity": self.capacity,
                "outside": self.outside,
            },
            "time": asdict(self.time) if self.time else None,
            "mfu": self.mfu,
            "tflops_per_device": self.tflops_per_device,
            "tokens_per_s_per_device": self.tokens_per_s_per_device,
            "cost_per_billion_tokens": self.cost_per_billion_tokens,
            "parameters": dict(self.parameters),
            "changes": [asdict(change) for change in self.changes],
            "imbalance": asdict(self.imbalance) if self.imbalance else None,
            "missing": list(self.missing),
            "memory_range": self.memory_range.as_tree() if self.memory_range else None,
            "time_range": self.time_range.as_tree() if self.time_range else None,
            "fit_probability": self.fit_probability,
            "profile": self.profile.as_tree(),
        }
