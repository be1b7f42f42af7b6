"""Row factory and helpers of the tables of what Megatron-LM's validation sets."""

import math
from collections.abc import Mapping

from backends.megatron_lm.rules.versions import BACKENDS, EVERY, ONLY_16
from launcher.rules.registry import Range, Rule, RuleContext, Setting

ALONE: Mapping[str, Range] = {"megatron_lm": (None, None)}
SIXTEEN: Mapping[str, Range] = {"megatron_lm": ONLY_16}


def sets(
    id: str,
    when: str,
    values: Mapping[str, Setting],
    doc: str,
    source: str,
    versions: Mapping[str, Range] = EVERY,
    reads: str = "",
) -> Rule:
    """Return a row that sets arguments; a bare switch that stores false is set to True to store it."""
    return Rule(
        id=id,
        when=when,
        sets=values,
        doc=doc,
        source=source,
        versions=versions,
        backends=tuple(name for name in BACKENDS if name in versions),
        severity="change",
        reads=reads,
        flags=tuple(values),
    )


def data_ranks(facts: RuleContext) -> int:
    """Return the data-parallel ranks before a split rank moves stages (arguments.py:325 @0.12.1); 0: uneven."""
    kinds = ("", "encoder-")
    sizes = [
        math.prod(
            facts.number(f"{kind}{axis}-model-parallel-size", 0 if kind else 1) for axis in ("tensor", "pipeline")
        )
        for kind in kinds
    ]
    size = sum(sizes) * facts.number("context-parallel-size", 1)
    devices = facts.job.cluster.world_size
    return devices // size if size > 0 and devices % size == 0 else 0
