"""Row factory and helpers of the tables of what Megatron-LM's validation sets."""

import math
from collections.abc import Mapping
from dataclasses import replace

from backends.megatron_lm.rules.versions import BACKENDS, EVERY, ONLY_16, SINCE_13, SINCE_14, SINCE_15, UNTIL_17
from launcher.mapping.rows import UnreadArgs
from launcher.rules import table
from launcher.rules.registry import Range, Rule, RuleContext, Setting

ALONE: Mapping[str, Range] = {"megatron_lm": (None, None)}
SINCE_THIRTEEN: Mapping[str, Range] = {"megatron_lm": (SINCE_13, None)}
SINCE_FOURTEEN: Mapping[str, Range] = {"megatron_lm": (SINCE_14, None)}
SINCE_FIFTEEN: Mapping[str, Range] = {"megatron_lm": (SINCE_15, None)}
SIXTEEN: Mapping[str, Range] = {"megatron_lm": ONLY_16}
UNTIL_SEVENTEEN: Mapping[str, Range] = {"megatron_lm": (ONLY_16[0], UNTIL_17)}


def sets(
    id: str,
    when: str,
    values: Mapping[str, Setting],
    doc: str,
    source: str,
    versions: Mapping[str, Range] = EVERY,
    reads: str = "",
    unread: tuple[str, ...] = (),
) -> Rule:
    """Return a row of arguments that are set, of the backends that the versions name."""
    found = table.sets(id, when, values, doc, source, versions=versions, reads=reads, unread=unread)
    return _of_their_backends(found)


def unread(
    id: str,
    when: str,
    flags: str,
    doc: str,
    source: str,
    versions: Mapping[str, Range] = EVERY,
    equivalent: Mapping[str, Setting] | None = None,
) -> Rule:
    """Return a row of arguments that training does not read, of the backends that the versions name."""
    found = table.unread(id, when, flags, doc, source, equivalent=equivalent, versions=versions, phase="launch")
    return _of_their_backends(found)


def unread_args(id: str, args: UnreadArgs, versions: Mapping[str, Range] = EVERY) -> Rule:
    """Return a row of arguments that the mapping reads and training does not."""
    return unread(id, args.when, " ".join(args.flags), args.why, args.source, versions)


def _of_their_backends(row: Rule) -> Rule:
    return replace(row, backends=tuple(name for name in BACKENDS if name in row.versions))


def data_ranks(context: RuleContext) -> int:
    """Return the data-parallel ranks before a split rank moves stages (arguments.py:325 @0.12.1); 0: uneven."""
    kinds = ("", "encoder-")
    sizes = [
        math.prod(
            context.number(f"{kind}{axis}-model-parallel-size", 0 if kind else 1) for axis in ("tensor", "pipeline")
        )
        for kind in kinds
    ]
    size = sum(sizes) * context.number("context-parallel-size", 1)
    devices = context.job.cluster.world_size
    return devices // size if size > 0 and devices % size == 0 else 0
