"""Fused kernels and attention backend."""

from launcher.job.layout import CudaGraph
from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, MODEL_PARALLEL_CONFIG, TRANSFORMER_CONFIG
from launcher.records import dataclass

_ASCEND = "Ascend MindSpeed features"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Fused kernels and implementations; most affect speed and rounding only."""

    attention_backend: str | None = option(
        None,
        "Implementation of attention.",
        source=f"{TRANSFORMER_CONFIG}.attention_backend",
        choices=("flash", "fused", "unfused", "local", "auto"),
    )
    attention_mask: str | None = option(
        None,
        "Causal mask: inside the kernel, by the loader, or from the tokens, which hides padding; none: plain.",
        source="MindFormers use_attn_mask_compression",
        choices=("compressed", "full", "tokens"),
        affects_training=True,
    )
    transformer_impl: str | None = option(
        None, "Layer library.", source=f"{ARGUMENTS} --transformer-impl", choices=("transformer_engine", "local")
    )
    masked_softmax_fusion: bool | None = option(
        None, "Fused masked softmax.", source=f"{TRANSFORMER_CONFIG}.masked_softmax_fusion"
    )
    bias_activation_fusion: bool | None = option(
        None, "Fused bias and activation (SwiGLU).", source=f"{TRANSFORMER_CONFIG}.bias_activation_fusion"
    )
    bias_dropout_fusion: bool | None = option(
        None, "Fused bias and dropout.", source=f"{TRANSFORMER_CONFIG}.bias_dropout_fusion"
    )
    rope_fusion: bool | None = option(None, "Fused rotary embedding.", source=f"{TRANSFORMER_CONFIG}.apply_rope_fusion")
    rmsnorm_fusion: bool | None = option(None, "Fused RMSNorm.", source=f"{_ASCEND} --use-fused-rmsnorm")
    gradient_accumulation_fusion: bool | None = option(
        None,
        "Accumulate weight gradients inside the GEMM.",
        source=f"{MODEL_PARALLEL_CONFIG}.gradient_accumulation_fusion",
    )
    cross_entropy_fusion: bool = option(
        False,
        "Fused cross entropy; Megatron-core's native one rounds the gradient of the logits to bf16, also in fp32.",
        source=f"{MODEL_PARALLEL_CONFIG}.cross_entropy_loss_fusion; fused_cross_entropy.py:82 @core_v0.16.1",
        affects_training=True,
    )
    cross_entropy_fusion_impl: str | None = option(
        None,
        "Implementation of the fused cross entropy.",
        source=f"{MODEL_PARALLEL_CONFIG}.cross_entropy_fusion_impl",
        choices=("native", "te"),
    )
    qkv_concat: bool | None = option(
        None,
        "One matrix for query, key and value (MLA: for both down projections).",
        source="MindFormers qkv_concat, mla_qkv_concat",
    )
    persist_layer_norm: bool | None = option(
        None, "Apex's persistent kernel of LayerNorm.", source=f"{TRANSFORMER_CONFIG}.persist_layer_norm"
    )
    te_rng_tracker: bool | None = option(
        None, "Transformer Engine's random states, required by CUDA graphs.", source=f"{ARGUMENTS} --te-rng-tracker"
    )
    inference_rng_tracker: bool | None = option(
        None,
        "No separate random states for parallel regions: ranks use the same weights and dropout for their parts.",
        source=f"{TRANSFORMER_CONFIG}.inference_rng_tracker",
        affects_training=True,
    )
    use_fused_mhc: bool | None = option(
        None, "Hyper-connections in fused kernels.", source=f"{TRANSFORMER_CONFIG}.use_fused_mhc"
    )
    clone_scatter_output_in_embedding: bool | None = option(
        None,
        "Copy a rank's share of the embedding's output, so that the whole can be freed.",
        source=f"{TRANSFORMER_CONFIG}.clone_scatter_output_in_embedding",
    )
    cuda_graph: CudaGraph = CudaGraph()
    empty_cache_level: int | None = option(
        None,
        "Release unused device memory: 1 each step, 2 more often.",
        source=f"{ARGUMENTS} --empty-unused-memory-level",
        minimum=0,
    )
    deterministic: bool | None = option(
        None, "Only deterministic kernels.", source=f"{TRANSFORMER_CONFIG}.deterministic_mode"
    )
    manual_gc_interval: int | None = option(
        None,
        "Collect Python garbage every n steps instead of at random.",
        unit="iterations",
        source=f"{ARGUMENTS} --manual-gc-interval",
        minimum=0,
    )
    sparse_mode: int | None = option(
        None,
        "Scores that CANN's fused attention computes: 0 the mask's, 2 those of a compressed causal mask, 4 a band.",
        source="CANN npu_fusion_attention sparse_mode",
        minimum=0,
        affects_training=True,
    )
    manual_gc_eval: bool | None = option(
        None, "Collect garbage around evaluations too.", source=f"{ARGUMENTS} --no-manual-gc-eval"
    )
