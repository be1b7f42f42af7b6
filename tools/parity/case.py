"""One job that is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ITERATIONS = 10
"""How many are trained: schedules and loss scales change before, and parameters move away from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job.

    Attributes:
        words: overrides.
        causes: rules that say why a backend differs from the reference, by backend; they are findings of the job.
    """

    words: Sequence[str]
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def unfused(*words: str, **causes: str) -> Case:
    """Return a job without fused cross entropy, which rounds in bf16 on Megatron-core's native kernel.

    Args:
        causes: ids of rules by backend, separated by spaces.
    """
    named = {backend: tuple(rules.split()) for backend, rules in causes.items()}
    return Case(words=(*words, "kernels.cross_entropy_fusion=false"), causes=named)
