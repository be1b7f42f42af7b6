"""Fields that Megatron-LM, a version of it, or a backend without its training loop lacks, over all topics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backends.megatron_lm import static_graph
from backends.megatron_lm.mapping import (
    attention_variants,
    checkpoint,
    data,
    fault_tolerance,
    kernels,
    logging,
    memory,
    model,
    moe,
    optimizer,
    overlap,
    parallel,
    precision,
    profiler,
    sharding,
    state_space,
    task,
    tokenizer,
    training,
)
from launcher.catalogue.versions import in_range, version_key
from launcher.mapping.rows import Gap, Row

UNSUPPORTED: Mapping[str, Gap] = {
    **static_graph.GAPS,
    **parallel.UNSUPPORTED,
    **memory.UNSUPPORTED,
    **moe.UNSUPPORTED,
    **kernels.UNSUPPORTED,
    **training.UNSUPPORTED,
    **data.UNSUPPORTED,
    **checkpoint.UNSUPPORTED,
    **logging.UNSUPPORTED,
    **profiler.UNSUPPORTED,
    **task.UNSUPPORTED,
    **attention_variants.UNSUPPORTED,
}
CAME_LATER: Mapping[str, Gap] = {
    **parallel.CAME_LATER,
    **attention_variants.CAME_LATER,
    **model.CAME_LATER,
    **state_space.CAME_LATER,
    **tokenizer.CAME_LATER,
    **optimizer.CAME_LATER,
    **precision.CAME_LATER,
    **moe.CAME_LATER,
    **sharding.CAME_LATER,
    **memory.CAME_LATER,
    **checkpoint.CAME_LATER,
}
GONE: Mapping[str, Gap] = {**state_space.GONE, **model.GONE, **moe.GONE, **overlap.GONE}
# For backends built on core 0.8.
BEFORE_0_12: Mapping[str, Gap] = {
    **training.BEFORE_0_12,
    **parallel.BEFORE_0_12,
    **sharding.BEFORE_0_12,
    **memory.BEFORE_0_12,
    **overlap.BEFORE_0_12,
    **data.BEFORE_0_12,
    **checkpoint.BEFORE_0_12,
    **logging.BEFORE_0_12,
    **profiler.BEFORE_0_12,
    **fault_tolerance.BEFORE_0_12,
}
# For backends that do not take Megatron-LM's arguments.
WITHOUT_MEGATRON_LOOP: Mapping[str, Gap] = {
    **training.WITHOUT_MEGATRON_LOOP,
    **data.WITHOUT_MEGATRON_LOOP,
    **logging.WITHOUT_MEGATRON_LOOP,
    **profiler.WITHOUT_MEGATRON_LOOP,
    **fault_tolerance.WITHOUT_MEGATRON_LOOP,
}


def unsupported(version: str, rows: Sequence[Row]) -> Mapping[str, Gap]:
    """Return the fields that a version does not take, each with the reason.

    Args:
        version: Megatron-LM's.
        rows: of all versions; their bounds say since when a version has a field, or until when.
    """
    active = [row for row in rows if in_range(version, row.since, row.until) and row.fields]
    own = {row.fields[0] for row in active}
    # A field that an active row only reads beside its own, and that has a row of its own later.
    waiting = {row.fields[0] for row in rows if len(row.fields) == 1 and row not in active} - own
    mapped = {path for row in active for path in row.fields} - waiting
    gaps = {**UNSUPPORTED, **CAME_LATER, **{path: gap for path, gap in GONE.items() if _had(path, version, rows)}}
    return {path: _dated(path, gap, version, rows) for path, gap in gaps.items() if path not in mapped}


def _had(path: str, version: str, rows: Sequence[Row]) -> bool:
    """Return whether an older version has a field."""
    return any(row.until is not None and not in_range(version, None, row.until) for row in rows if path in row.fields)


def _dated(path: str, gap: Gap, version: str, rows: Sequence[Row]) -> Gap:
    """Return a gap with the version that a field came with, and a registered version that has it."""
    later = [row.since for row in rows if path in row.fields and row.since and not in_range(version, row.since, None)]
    if not later or path not in CAME_LATER:
        return gap
    from backends.megatron_lm import BACKEND

    since = min(later, key=version_key)
    having = [each for each in BACKEND.versions if in_range(each, since, None)]
    works = [BACKEND.default_version] if BACKEND.default_version in having else having[-1:]
    return replace(
        gap, why=gap.why.format(since=since), works=(*gap.works, *(f"backend.version={each}" for each in works))
    )
