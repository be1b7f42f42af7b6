"""One job that is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job.

    Attributes:
        words: overrides.
        iterations: how many are trained: enough to cross what the job changes.
        causes: rules that say why a backend differs from the reference, by backend; they are findings of the job.
    """

    words: Sequence[str]
    iterations: int = 4
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def unfused(*words: str, iterations: int = 4, **causes: str) -> Case:
    """Return a job without fused cross entropy, which rounds in bf16 on Megatron-core's native kernel.

    Args:
        causes: ids of rules by backend, separated by spaces.
    """
    named = {backend: tuple(rules.split()) for backend, rules in causes.items()}
    return Case(words=(*words, "kernels.cross_entropy_fusion=false"), iterations=iterations, causes=named)
