"""Checks of Megatron-LM's `validate_args` under ms-swift 3.x, which checks little itself."""

from backends.megatron.rules.view import THREE, SwiftRule, View, declare

_ARGS = "Megatron-LM core_v0.12.1 arguments.py"
_CHUNKS = "num_layers_per_virtual_pipeline_stage"
_STAGES = "num_virtual_stages_per_pipeline_rank"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")


def _chunk_fault(v: View) -> str | None:
    size, pp, layers = getattr(v, _CHUNKS), v.pipeline_model_parallel_size, v.job.model.num_hidden_layers
    if pp < 2:
        return f"needs pp of at least 2, not {pp}"
    if any(getattr(v, name) is not None for name in _ENDS):
        return "cannot be combined with first or last stage layers: give the number of chunks instead"
    if layers is not None and (layers % pp or (layers // pp) % size):
        return f"{layers} layers on pp {pp} are not whole chunks of {size}"
    return None


SEED = (
    SwiftRule(
        id="SW-CHUNKS-TWICE",
        doc="Chunks are given by their number or by their size.",
        source=f"{_ARGS}:429",
        flags=(_CHUNKS, _STAGES),
        fields=("parallel.vpp",),
        when=lambda v: getattr(v, _CHUNKS) is not None and getattr(v, _STAGES) is not None,
        say=f"{_CHUNKS} and {_STAGES} both given: keep one",
        until=THREE,
    ),
    SwiftRule(
        id="SW-CHUNK-LAYERS",
        doc="Chunks of a given size fill every stage, and there are several stages.",
        source=f"{_ARGS}:434-461",
        flags=(_CHUNKS, "pipeline_model_parallel_size"),
        when=lambda v: getattr(v, _CHUNKS) is not None and _chunk_fault(v),
        say=lambda v: f"{_CHUNKS} {getattr(v, _CHUNKS)}: {_chunk_fault(v)}",
        until=THREE,
    ),
    SwiftRule(
        id="SW-FP8-DISTRIBUTED",
        doc="FP8 weights are gathered by the distributed optimizer.",
        source=f"{_ARGS}:551",
        flags=("fp8_param_gather", "use_distributed_optimizer"),
        when=lambda v: v.fp8_param_gather and v.use_distributed_optimizer is False,
        say="precision.fp8_param_gather needs parallel.distributed_optimizer",
        since="3.6",
        until=THREE,
    ),
    SwiftRule(
        id="SW-GROUPED-BF16",
        doc="The grouped kernel of experts multiplies in bf16 only.",
        source=f"{_ARGS}:713",
        flags=("moe_grouped_gemm", "bf16", "torch_dtype"),
        fields=("moe.grouped_gemm", "precision.dtype"),
        when=lambda v: v.moe_grouped_gemm and v.job.model.is_moe and v.job.precision.dtype != "bf16",
        say=lambda v: f"moe.grouped_gemm needs bf16, not {v.job.precision.dtype}",
        until="3.6.99",
    ),
    SwiftRule(
        id="SW-EP-FP16",
        doc="Expert parallelism does not train in fp16.",
        source=f"{_ARGS}:854",
        flags=("expert_model_parallel_size", "fp16"),
        fields=("parallel.ep", "precision.dtype"),
        when=lambda v: v.expert_model_parallel_size > 1 and v.job.precision.dtype == "fp16",
        say="ep {expert_model_parallel_size} cannot train in fp16",
        until="3.6.99",
    ),
    SwiftRule(
        id="SW-DETERMINISTIC",
        doc="The fused cross entropy gives other bits each time.",
        source=f"{_ARGS}:877",
        flags=("deterministic_mode", "cross_entropy_loss_fusion"),
        when=lambda v: v.deterministic_mode and v.cross_entropy_loss_fusion,
        say="kernels.deterministic cannot be combined with kernels.cross_entropy_fusion",
        until=THREE,
    ),
    SwiftRule(
        id="SW-DETERMINISTIC-FLASH",
        doc="The flash attention of the old switch gives other bits each time.",
        source=f"{_ARGS}:877",
        flags=("deterministic_mode", "use_flash_attn"),
        when=lambda v: v.deterministic_mode and v.use_flash_attn,
        say="kernels.deterministic cannot be combined with use_flash_attn",
        until=THREE,
    ),
    SwiftRule(
        id="SW-DETERMINISTIC-NCCL",
        doc="Deterministic reductions need an algorithm of NCCL that is chosen by name.",
        source=f"{_ARGS}:880",
        flags=("deterministic_mode",),
        fields=("kernels.deterministic", "backend.env"),
        when=lambda v: v.deterministic_mode and "NCCL_ALGO" not in v.job.backend.env,
        say="kernels.deterministic needs NCCL_ALGO: Tree, Ring, CollnetDirect, CollnetChain or ^NVLS",
        severity="warning",
        until=THREE,
    ),
    SwiftRule(
        id="SW-DISTRIBUTE-TP",
        doc="Kept activations spread over tensor-parallel ranks under full recompute, without sequence parallelism.",
        source=f"{_ARGS}:736-746; megatron-core 0.12.1 transformer_config.py:717",
        flags=("tensor_model_parallel_size", "recompute_granularity", "sequence_parallel"),
        fields=("recompute.distribute_saved_activations", "parallel.tp", "parallel.sequence_parallel"),
        when=lambda v: (
            v.job.recompute.distribute_saved_activations
            and (v.tensor_model_parallel_size == 1 or v.recompute_granularity != "full" or v.sequence_parallel)
        ),
        say="recompute.distribute_saved_activations needs tp above 1, full recompute and no sequence_parallel",
        until=THREE,
    ),
    SwiftRule(
        id="SW-HEADS-HIDDEN",
        doc="Without a head size of its own, the width is a whole number of heads.",
        source=f"{_ARGS}:680",
        flags=("hidden_size", "num_attention_heads", "kv_channels"),
        fields=("model.hidden_size", "model.num_attention_heads", "model.head_dim"),
        when=lambda v: (
            v.job.model.hidden_size is not None
            and v.job.model.num_attention_heads is not None
            and v.job.model.head_dim is None
            and not v.job.model.is_mla
            and v.job.model.hidden_size % v.job.model.num_attention_heads
        ),
        say=lambda v: (
            f"hidden_size {v.job.model.hidden_size} is not a multiple of {v.job.model.num_attention_heads} heads"
        ),
    ),
)

declare(*SEED)
