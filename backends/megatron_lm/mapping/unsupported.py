"""Fields that Megatron-LM, a version of it, or a backend without its training loop lacks, over all topics."""

from collections.abc import Mapping

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
from launcher.mapping.rows import Gap

UNSUPPORTED: Mapping[str, Gap] = {
    **static_graph.GAPS,
    **parallel.UNSUPPORTED,
    **memory.UNSUPPORTED,
    **moe.UNSUPPORTED,
    **kernels.UNSUPPORTED,
    **training.UNSUPPORTED,
    **data.UNSUPPORTED,
    **checkpoint.UNSUPPORTED,
    **profiler.UNSUPPORTED,
    **task.UNSUPPORTED,
    **attention_variants.UNSUPPORTED,
    **optimizer.UNSUPPORTED,
}
BEFORE_0_16: Mapping[str, Gap] = {
    **attention_variants.BEFORE_0_16,
    **model.BEFORE_0_16,
    **state_space.BEFORE_0_16,
    **optimizer.BEFORE_0_16,
    **precision.BEFORE_0_16,
    **moe.BEFORE_0_16,
    **sharding.BEFORE_0_16,
    **memory.BEFORE_0_16,
    **checkpoint.BEFORE_0_16,
}
BEFORE_0_13: Mapping[str, Gap] = {
    **parallel.BEFORE_0_13,
    **moe.BEFORE_0_13,
    **tokenizer.BEFORE_0_13,
    **checkpoint.BEFORE_0_13,
}
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
