"""Checks of Megatron-LM's `validate_args` under ms-swift 3.x, which checks little itself."""

from backends.megatron.rules.terms import BACKENDS, THREE
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare

_ARGS = "Megatron-LM core_v0.12.1 arguments.py"
_CHUNKS = "num_layers_per_virtual_pipeline_stage"
_STAGES = "num_virtual_stages_per_pipeline_rank"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")


def _chunk_fault(facts: RuleContext) -> str | None:
    size, pp, layers = facts[_CHUNKS], facts["pipeline_model_parallel_size"], facts.job.model.num_hidden_layers
    if pp < 2:
        return f"needs pp of at least 2, not {pp}"
    if facts["decoder_first_pipeline_num_layers"] is not None or facts["decoder_last_pipeline_num_layers"] is not None:
        return "cannot be combined with first or last stage layers: give the number of chunks instead"
    if layers is not None and (layers % pp or (layers // pp) % size):
        return f"{layers} layers on pp {pp} are not whole chunks of {size}"
    return None


SEED = (
    Rule(
        id="SW-CHUNKS-TWICE",
        doc="Chunks are given by their number or by their size.",
        source=f"{_ARGS}:429",
        fields=("parallel.vpp",),
        when=f"{_CHUNKS}!=None & {_STAGES}!=None",
        message=f"{_CHUNKS} and {_STAGES} both given: keep one",
        until=THREE,
    ),
    Rule(
        id="SW-CHUNK-LAYERS",
        doc="Chunks of a given size fill every stage, and there are several stages.",
        source=f"{_ARGS}:434-461",
        flags=(_CHUNKS, "pipeline_model_parallel_size"),
        when=f"{_CHUNKS}!=None",
        check=lambda facts: _chunk_fault(facts) and f"{_CHUNKS} {facts[_CHUNKS]}: {_chunk_fault(facts)}",
        reads="job.model.num_hidden_layers decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers",
        until=THREE,
    ),
    Rule(
        id="SW-FP8-DISTRIBUTED",
        doc="FP8 weights are gathered by the distributed optimizer.",
        source=f"{_ARGS}:551",
        when="fp8_param_gather & use_distributed_optimizer=False",
        message="precision.fp8_param_gather needs parallel.distributed_optimizer",
        since="3.6",
        until=THREE,
    ),
    Rule(
        id="SW-GROUPED-BF16",
        doc="The grouped kernel of experts multiplies in bf16 only.",
        source=f"{_ARGS}:713",
        flags=("moe_grouped_gemm", "bf16", "torch_dtype"),
        fields=("moe.grouped_gemm", "precision.dtype"),
        when="moe_grouped_gemm & job.model.is_moe & job.precision.dtype!=bf16",
        message="moe.grouped_gemm needs bf16, not {job.precision.dtype}",
        until="3.6.99",
    ),
    Rule(
        id="SW-EP-FP16",
        doc="Expert parallelism does not train in fp16.",
        source=f"{_ARGS}:854",
        flags=("expert_model_parallel_size", "fp16"),
        fields=("parallel.ep", "precision.dtype"),
        when="expert_model_parallel_size>1 & job.precision.dtype=fp16",
        message="ep {expert_model_parallel_size} cannot train in fp16",
        until="3.6.99",
    ),
    Rule(
        id="SW-DETERMINISTIC",
        doc="The fused cross entropy gives other bits each time.",
        source=f"{_ARGS}:877",
        when="deterministic_mode & cross_entropy_loss_fusion",
        message="kernels.deterministic cannot be combined with kernels.cross_entropy_fusion",
        until=THREE,
    ),
    Rule(
        id="SW-DETERMINISTIC-FLASH",
        doc="The flash attention of the old switch gives other bits each time.",
        source=f"{_ARGS}:877",
        when="deterministic_mode & use_flash_attn",
        message="kernels.deterministic cannot be combined with use_flash_attn",
        until=THREE,
    ),
    Rule(
        id="SW-DETERMINISTIC-NCCL",
        doc="Deterministic reductions need an algorithm of NCCL that is chosen by name.",
        source=f"{_ARGS}:880",
        flags=("deterministic_mode",),
        fields=("kernels.deterministic", "backend.env"),
        when="deterministic_mode",
        check=lambda facts: "NCCL_ALGO" not in facts.job.backend.env,
        reads="job.backend.env",
        message="kernels.deterministic needs NCCL_ALGO: Tree, Ring, CollnetDirect, CollnetChain or ^NVLS",
        severity="warning",
        until=THREE,
    ),
    Rule(
        id="SW-DISTRIBUTE-TP",
        doc="Kept activations spread over tensor-parallel ranks under full recompute, without sequence parallelism.",
        source=f"{_ARGS}:736-746; megatron-core 0.12.1 transformer_config.py:717",
        fields=("recompute.distribute_saved_activations", "parallel.tp", "parallel.sequence_parallel"),
        when="job.recompute.distribute_saved_activations",
        then="tensor_model_parallel_size!=1 & recompute_granularity=full & !sequence_parallel",
        message="recompute.distribute_saved_activations needs tp above 1, full recompute and no sequence_parallel",
        until=THREE,
    ),
    Rule(
        id="SW-HEADS-HIDDEN",
        doc="Without a head size of its own, the width is a whole number of heads.",
        source=f"{_ARGS}:680",
        flags=("hidden_size", "num_attention_heads", "kv_channels"),
        fields=("model.hidden_size", "model.num_attention_heads", "model.head_dim"),
        when="job.model.hidden_size? & job.model.num_attention_heads? & job.model.head_dim=None & !job.model.is_mla",
        check=lambda facts: (facts.job.model.hidden_size or 0) % (facts.job.model.num_attention_heads or 1),
        message="hidden_size {job.model.hidden_size} is not a multiple of {job.model.num_attention_heads} heads",
    ),
)

declare(SEED, backends=BACKENDS)
