"""Checks of Megatron-LM's `validate_args` under ms-swift 3.x, which checks little itself."""

from backends.megatron.rules.terms import BACKENDS, THREE
from launcher.rules.registry import RuleContext
from launcher.rules.table import checked, declare, needs, never

_ARGS = "Megatron-LM core_v0.12.1 arguments.py"
_CHUNKS = "num_layers_per_virtual_pipeline_stage"
_STAGES = "num_virtual_stages_per_pipeline_rank"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")


def _chunk_fault(context: RuleContext) -> str | None:
    size, pp, layers = context[_CHUNKS], context["pipeline_model_parallel_size"], context.job.model.num_hidden_layers
    if pp < 2:
        return f"needs pp of at least 2, not {pp}"
    if (
        context["decoder_first_pipeline_num_layers"] is not None
        or context["decoder_last_pipeline_num_layers"] is not None
    ):
        return "cannot be combined with first or last stage layers: set the number of chunks instead"
    if layers is not None and (layers % pp or (layers // pp) % size):
        return f"{layers} layers on pp {pp} are not divisible into chunks of {size}"
    return None


# fmt: off
SEED = (
    never("SW-CHUNKS-TWICE", f"{_CHUNKS}!=None & {_STAGES}!=None",
          "Chunks are given by their number or by their size.", f"{_ARGS}:429", until=THREE, fields=("parallel.vpp",),
          message=f"{_CHUNKS} and {_STAGES} are both set: keep one"),
    checked("SW-CHUNK-LAYERS",
            lambda context: _chunk_fault(context) and f"{_CHUNKS} {context[_CHUNKS]}: {_chunk_fault(context)}",
            "Chunks of a given size fill every stage, and there are several stages.", f"{_ARGS}:434-461",
            when=f"{_CHUNKS}!=None", until=THREE, flags=(_CHUNKS, "pipeline_model_parallel_size"),
            reads="job.model.num_hidden_layers decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers"),
    never("SW-FP8-DISTRIBUTED", "fp8_param_gather & use_distributed_optimizer=False",
          "FP8 weights are gathered by the distributed optimizer.", f"{_ARGS}:551", since="3.6", until=THREE,
          message="precision.fp8_param_gather needs parallel.distributed_optimizer"),
    never("SW-GROUPED-BF16", "moe_grouped_gemm & job.model.is_moe & job.precision.dtype!=bf16",
          "The grouped kernel of experts multiplies in bf16 only.", f"{_ARGS}:713", until="3.6.99",
          flags=("moe_grouped_gemm", "bf16", "torch_dtype"), fields=("moe.grouped_gemm", "precision.dtype"),
          message="moe.grouped_gemm needs bf16, not {job.precision.dtype}"),
    never("SW-EP-FP16", "expert_model_parallel_size>1 & job.precision.dtype=fp16",
          "Expert parallelism does not train in fp16.", f"{_ARGS}:854", until="3.6.99",
          flags=("expert_model_parallel_size", "fp16"), fields=("parallel.ep", "precision.dtype"),
          message="ep {expert_model_parallel_size} does not support fp16"),
    never("SW-DETERMINISTIC", "deterministic_mode & cross_entropy_loss_fusion",
          "The fused cross entropy is not deterministic.", f"{_ARGS}:877", until=THREE,
          message="kernels.deterministic cannot be combined with kernels.cross_entropy_fusion"),
    never("SW-DETERMINISTIC-FLASH", "deterministic_mode & use_flash_attn",
          "The flash attention of the deprecated switch is not deterministic.", f"{_ARGS}:877", until=THREE,
          message="kernels.deterministic cannot be combined with use_flash_attn"),
    checked("SW-DETERMINISTIC-NCCL", lambda context: "NCCL_ALGO" not in context.job.backend.env,
            "Deterministic reductions need an algorithm of NCCL that is chosen by name.", f"{_ARGS}:880",
            when="deterministic_mode", until=THREE, severity="warning", flags=("deterministic_mode",),
            fields=("kernels.deterministic", "backend.env"), reads="job.backend.env",
            message="kernels.deterministic needs NCCL_ALGO: Tree, Ring, CollnetDirect, CollnetChain or ^NVLS"),
    needs("SW-DISTRIBUTE-TP", "job.recompute.distribute_saved_activations",
          "tensor_model_parallel_size!=1 & recompute_granularity=full & !sequence_parallel",
          "Saved activations are distributed over tp ranks under full recompute, without sequence parallelism.",
          f"{_ARGS}:736-746; megatron-core 0.12.1 transformer_config.py:717", until=THREE,
          fields=("recompute.distribute_saved_activations", "parallel.tp", "parallel.sequence_parallel"),
          message="recompute.distribute_saved_activations needs tp above 1, full recompute and no sequence_parallel"),
    checked("SW-HEADS-HIDDEN",
            lambda context: (context.job.model.hidden_size or 0) % (context.job.model.num_attention_heads or 1),
            "Without head_dim, hidden_size is divisible by the number of heads.", f"{_ARGS}:680",
            when="job.model.hidden_size? & job.model.num_attention_heads? & job.model.head_dim=None & "
            "!job.model.is_mla", flags=("hidden_size", "num_attention_heads", "kv_channels"),
            fields=("model.hidden_size", "model.num_attention_heads", "model.head_dim"),
            message="hidden_size {job.model.hidden_size} is not a multiple of {job.model.num_attention_heads} heads"),
)
# fmt: on

declare(SEED, backends=BACKENDS)
