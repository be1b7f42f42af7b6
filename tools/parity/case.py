"""One job that is measured."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job.

    Attributes:
        words: overrides.
        iterations: how many are trained: enough to cross what the job changes.
    """

    words: Sequence[str]
    iterations: int = 4


def unfused(*words: str, iterations: int = 4) -> Case:
    """Return a job without fused cross entropy, which rounds in bf16 on Megatron-core's native kernel."""
    return Case(words=(*words, "kernels.cross_entropy_fusion=false"), iterations=iterations)
