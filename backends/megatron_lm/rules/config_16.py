"""Checks that only core 0.16's TransformerConfig has: overlap of expert parallelism, offloading, layouts."""

from backends.megatron_lm.rules.effective.layout import chunks
from backends.megatron_lm.rules.plain import GRAPHS, graphs_of
from backends.megatron_lm.rules.recomputed import by_either
from backends.megatron_lm.rules.versions import (
    ONLY_16,
    PLAIN,
    SINCE_13,
    SINCE_14,
    SINCE_15,
    UNTIL_16,
    UNTIL_17,
    UNTIL_18,
    arguments,
    config,
)
from launcher.catalogue.versions import in_range
from launcher.rules.registry import RuleContext
from launcher.rules.table import checked, declare, needs, never

_OVERLAP, _STEP_GATHER = "overlap-moe-expert-parallel-comm", "overlap-param-gather-with-optimizer-step"
_LAYOUT, _CHUNKS, _CHUNK = (
    "pipeline-model-parallel-layout",
    "num-virtual-stages-per-pipeline-rank",
    "num-layers-per-virtual-pipeline-stage",
)
_STAGES = "pipeline-model-parallel-size"
_ACCOUNTED = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
_OF_CHUNKS = (
    f"{_LAYOUT} {_CHUNKS} {_CHUNK} {_STAGES} num-layers encoder-num-layers decoder-first-pipeline-num-layers "
    f"decoder-last-pipeline-num-layers {' '.join(_ACCOUNTED)}"
)


def _one_chunk(context: RuleContext) -> str:
    """Check for chunks that are given and are one on each stage, which is no interleaved schedule.

    0.13 turns only those of a layout into none (arguments.py:519 @core_v0.13.1).
    """
    flags = (_LAYOUT, _CHUNKS, _CHUNK) if in_range(context.version or "", SINCE_14, None) else (_LAYOUT,)
    given = [flag for flag in flags if context.flag(flag)]
    if not given or chunks(context) != 1:
        return ""
    return f"--{given[0]} gives one chunk of layers on each stage: the interleaved schedule needs more"


def _offloads_in_graphs(context: RuleContext) -> bool:
    return graphs_of(context)[0] not in ("none", "full_iteration") and context.number("cpu-offloading-num-layers") > 0


# fmt: off
declare((
    needs("MLM-PADDING-FP8", "moe-router-padding-for-fp8", "fp8-format? or fp4-format?",
          "Tokens are padded for FP8 and FP4 only.", config("", 1622)),
    needs("MLM-PADDING-QUANTIZATION", "moe-router-padding-for-quantization", "fp8-format? or fp4-format?",
          "Tokens are padded for FP8 and FP4 only.", config("", 1622)),
    needs("MLM-QUICK-GEGLU", "quick-geglu", "!swiglu", "Both set the activation function of the "
        "MLP.", arguments("", 1342), since=SINCE_15),
    needs("MLM-DSA-ROPE-FUSION", "experimental-attention-variant=dsa & position-embedding-type=rope", "no-rope-fusion",
          "Sparse attention does not support fused RoPE.", config("", 1991)),
    needs("MLM-GDN-FREQUENCY", "experimental-attention-variant=gated_delta_net", "linear-attention-freq?",
          "The frequency selects the layers with linear attention.", config("", 950)),
    never("MLM-GDN-CP", "experimental-attention-variant=gated_delta_net & context-parallel-size>1",
          "Linear attention does not split sequences over context-parallel ranks.", config("", 983), until=UNTIL_17),
    never("MLM-DSA-CP", "experimental-attention-variant=dsa & context-parallel-size>1",
          "Sparse attention does not split sequences over context-parallel ranks.", config("", 1988), until=UNTIL_18),
    needs("MLM-DSA-BF16", "experimental-attention-variant=dsa", "bf16",
          "The indexer of sparse attention rotates its queries and keys in BF16 only.",
          "megatron-core 0.16.1 transformer/experimental_attention_variant/dsa.py:41, in the first step"),
    never("MLM-DSA-MTP", "experimental-attention-variant=dsa & mtp-num-layers>0 & dsa-indexer-loss-coeff>0",
          "The losses of indexers are kept in a table without a row for a multi-token-prediction layer: the first step "
          "ends with an IndexError.",
          "megatron-core 0.16.1 multi_token_prediction.py:670, transformer/experimental_attention_variant/dsa.py:78",
          until=UNTIL_16),
    needs("MLM-VARIANT-TE", "experimental-attention-variant?", "transformer-impl=transformer_engine",
          "Linear and sparse attention support Transformer Engine's layers only.",
          "megatron-core 0.16.1 models/gpt/experimental_attention_variant_module_specs.py:356"),
    needs("MLM-GLU-OFFSET", "glu-linear-offset!=0.0|0 & !no-bias-swiglu-fusion & !no-bias-gelu-fusion", "quick-geglu",
          "The fused activation supports a linear offset with quick GEGLU only.", config("", 1505), since=SINCE_15),
    never("MLM-TE-ACTIVATION", "use-te-activation-func & !no-bias-swiglu-fusion & !no-bias-gelu-fusion",
          "Transformer Engine's activation function cannot be combined with bias activation fusion.", config("", 1511),
          since=SINCE_15),
    needs("MLM-BATCH-INVARIANT", "batch-invariant-mode", "attention-backend=flash",
          "Only flash attention gives results that do not depend on the batch.", config("", 1999)),
    needs("MLM-EARLY-RELEASE", "ep-overlap-early-attn-memory-release", _OVERLAP,
          "The memory of attention is released early only if expert communication is overlapped.", config("", 1922)),
    needs("MLM-INFERENCE-FUSED", "inference-fuse-tp-communication", "transformer-impl=inference_optimized",
          "Only the implementation for inference fuses this communication.", config("", 1993)),
    never("MLM-FIM-MOCK", "fim-data & mock-data",
          "Fill-in-the-middle does not support mock data.", arguments("", 1066)),
    needs("MLM-FSDP-REGISTRATION", "fsdp-manual-registration", "use-megatron-fsdp & use-nccl-ub",
          "Manual registration is a feature of Megatron FSDP with NCCL user buffers.", arguments("", 694)),
    needs("MLM-LATENT-EXPERTS", "moe-latent-size?", "moe-latent-size>0 & num-experts>0",
          "The latent size is positive, and needs experts.", arguments("", 1270)),
    needs("MLM-CAPACITY-BALANCE-16", "moe-expert-capacity-factor?",
          "moe-router-load-balancing-type=aux_loss|seq_aux_loss|global_aux_loss|none",
          "Tokens are dropped only under an auxiliary loss or no balancing.", config("", 1126), since=SINCE_15),
    needs("MLM-MOE-BIAS-ETP", "num-experts>0 & !disable-bias-linear",
          "expert-tensor-parallel-size=1 or tensor-model-parallel-size=1 & !expert-tensor-parallel-size?",
          "Experts with a bias are not split by tensor parallelism.", config("", 1589), since=SINCE_15),
    never("MLM-DENSE-MOE-WIDTH", "moe-ffn-hidden-size? & !num-experts",
          "Only MoE models have a feed-forward width of experts.", config("", 1059), until=UNTIL_17, since=SINCE_13),
    *by_either(never("MLM-RC-SHARED-OVERLAP", "recompute-granularity=selective & recompute-modules~shared_experts & "
          "moe-shared-expert-overlap & moe-shared-expert-intermediate-size?",
          "An overlapped shared expert cannot be recomputed.", config("", 1237), since=SINCE_14)),
    *by_either(needs("MLM-RC-FP8-DELAYED",
          "recompute-granularity=selective & fp8-format & recompute-modules~moe_act|layernorm", "fp8-recipe!=delayed",
          "Delayed scaling does not support recomputing these modules.", config("", 1244), since=SINCE_14)),
    *by_either(never("MLM-CPU-OFFLOAD-RC", "cpu-offloading-num-layers>0 & recompute-granularity?",
          "Activations are offloaded or recomputed, not both.", config(680, 1150))),
    checked("MLM-CUDA-GRAPH-CPU-OFFLOAD", _offloads_in_graphs,
            "CUDA graphs do not hold activations that are offloaded.", config("", 1722),
            reads=GRAPHS, flags=("cpu-offloading-num-layers", "cuda-graph-impl"),
            message="CUDA graphs do not support --cpu-offloading-num-layers"),
    never("MLM-CPU-OFFLOAD-PP", "cpu-offloading-num-layers>0 & pipeline-model-parallel-size>1",
          "Offloading the activations of layers does not support pipeline parallelism.", config(675, 1145)),
    needs("MLM-FLEX-PAD-16", "moe-token-dispatcher-type=flex & moe-pad-expert-input-to-capacity",
          "moe-flex-dispatcher-backend!=deepep",
          "DeepEP does not pad experts' inputs.", config("", 1078)),
    needs("MLM-CUDA-GRAPH-FULL", "enable-cuda-graph & recompute-granularity=full", "cuda-graph-scope=full_iteration",
          "Full recomputation supports CUDA graphs of whole iterations only.", config("", 1782), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-FULL-IMPL", "cuda-graph-impl!=none & recompute-granularity=full",
          "cuda-graph-scope=full_iteration",
          "Full recomputation supports CUDA graphs of whole iterations only.", config("", 1782), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-FULL-EXTERNAL", "external-cuda-graph & recompute-granularity=full",
          "cuda-graph-scope=full_iteration",
          "Full recomputation supports CUDA graphs of whole iterations only.", config("", 1782), until=UNTIL_17),
    needs("MLM-CUDA-GRAPH-EXPERTS", "enable-cuda-graph & expert-model-parallel-size>1",
          "moe-pad-experts-for-cuda-graph-inference",
          "Local CUDA graphs need experts' inputs of one size.", arguments("", 1159), until=UNTIL_16),
    needs("MLM-CUDA-GRAPH-EXPERTS-IMPL", "cuda-graph-impl=local & expert-model-parallel-size>1",
          "moe-pad-experts-for-cuda-graph-inference",
          "Local CUDA graphs need experts' inputs of one size.", arguments("", 1159), until=UNTIL_16),
    needs("MLM-CUDA-GRAPH-NAN", "enable-cuda-graph & cuda-graph-scope~full_iteration & !inference-dynamic-batching",
          "no-check-for-nan-in-loss-and-grad",
          "A graph of the whole iteration cannot check the loss for NaN.", arguments("", 727),
          until=UNTIL_16, since=SINCE_14),
    needs("MLM-CUDA-GRAPH-NAN-IMPL",
          "cuda-graph-impl=local & cuda-graph-scope~full_iteration & !inference-dynamic-batching",
          "no-check-for-nan-in-loss-and-grad",
          "A graph of the whole iteration cannot check the loss for NaN.", arguments("", 727),
          until=UNTIL_16, since=SINCE_15),
    never("MLM-CUDA-GRAPH-TWICE", "enable-cuda-graph & cuda-graph-impl!=none",
          "The deprecated switch and its replacement exclude each other.", arguments("", 435), since=SINCE_15),
    never("MLM-CUDA-GRAPH-TWICE-EXTERNAL", "external-cuda-graph & cuda-graph-impl!=none",
          "The deprecated switch and its replacement exclude each other.", arguments("", 435), since=SINCE_15),
    needs("MLM-FINE-OFFLOAD-MODULES", "fine-grained-activation-offloading", "offload-modules",
          "Offloading single activations needs their modules.", config("", 1272)),
    needs("MLM-FINE-OFFLOAD-ATTENTION", "fine-grained-activation-offloading & offload-modules~attn_proj",
          "offload-modules~core_attn",
          "The input of the projection is the output of core attention, so both are offloaded.", config("", 1288)),
    never("MLM-FINE-OFFLOAD-CPU", "fine-grained-activation-offloading & cpu-offloading-num-layers>0",
          "Activations are offloaded by module or by layer, not both.", config("", 1269)),
    never("MLM-LAYOUT-FIRST", "pipeline-model-parallel-layout & decoder-first-pipeline-num-layers?",
          "The layout already gives the number of layers of each stage.", config("", 1317), since=SINCE_13),
    never("MLM-LAYOUT-LAST", "pipeline-model-parallel-layout & decoder-last-pipeline-num-layers?",
          "The layout already gives the number of layers of each stage.", config("", 1317), since=SINCE_13),
    needs("MLM-LAYOUT-ACCOUNT", "pipeline-model-parallel-layout",
          "!account-for-embedding-in-pipeline-split & !account-for-loss-in-pipeline-split",
          "The layout already places embedding and loss.", config("", 1317), since=SINCE_13),
    needs("MLM-EP-OVERLAP-EP", _OVERLAP, "expert-model-parallel-size>1",
          "The overlap needs expert parallelism.", config("", 1863), since=SINCE_14),
    needs("MLM-EP-OVERLAP-DISPATCHER", _OVERLAP, "moe-token-dispatcher-type=alltoall|flex",
          "Only these dispatchers support the overlap.", config("", 1866), since=SINCE_14),
    needs("MLM-EP-OVERLAP-VPP", f"{_OVERLAP} & pipeline-model-parallel-size>1", "num-layers-per-virtual-pipeline-stage "
          "or num-virtual-stages-per-pipeline-rank or pipeline-model-parallel-layout",
          "In a pipeline the overlap needs the interleaved schedule.", config("", 1858), since=SINCE_14),
    checked("MLM-EP-OVERLAP-CHUNK", _one_chunk, "The interleaved schedule of the overlap has several chunks.",
            f"{arguments('', '526, 553')}; {config('', 1858)}", when=f"{_OVERLAP} & {_STAGES}>1", reads=_OF_CHUNKS,
            flags=(_LAYOUT, _CHUNKS, _CHUNK), since=SINCE_14),
    checked("MLM-STEP-GATHER-CHUNK", _one_chunk,
            "The interleaved schedule of weights gathered with the optimizer step has several chunks.",
            arguments("", "526, 553, 640"), when=_STEP_GATHER, reads=_OF_CHUNKS, flags=(_LAYOUT, _CHUNKS, _CHUNK),
            since=SINCE_13),
    checked("MLM-WARMUP-FLUSH-CHUNK", _one_chunk,
            "The interleaved schedule that overlaps its first and last exchanges has several chunks.",
            arguments("", "526, 553"), when="overlap-p2p-communication-warmup-flush", reads=_OF_CHUNKS,
            flags=(_LAYOUT, _CHUNKS, _CHUNK), since=SINCE_13),
    never("MLM-EP-OVERLAP-RC", f"{_OVERLAP} & recompute-granularity=full",
          "Full recomputation would repeat the overlapped communication.", config("", 1871), since=SINCE_14),
    never("MLM-EP-OVERLAP-RC-METHOD", f"{_OVERLAP} & recompute-method",
          "The overlap does not support a recompute method.", config("", 1874), since=SINCE_14),
    needs("MLM-EP-OVERLAP-HALF", _OVERLAP, "bf16 or fp16",
          "The overlap supports bf16 and fp16 only.", config("", 1882), since=SINCE_14),
    never("MLM-EP-OVERLAP-SHARED", f"{_OVERLAP} & moe-shared-expert-overlap",
          "Both overlap the shared expert: keep one.", config("", 1886), since=SINCE_14),
    never("MLM-EP-OVERLAP-MTP", f"{_OVERLAP} & mtp-num-layers>1",
          "The overlap supports one layer of multi-token prediction.", config("", 1889), since=SINCE_14),
    needs("MLM-EP-OVERLAP-MTP-PP", f"{_OVERLAP} & mtp-num-layers=1", "pipeline-model-parallel-size>1",
          "The overlap with multi-token prediction needs a pipeline.", config("", 1893), until=UNTIL_17),
    needs("MLM-DELAY-WGRAD-OVERLAP", "delay-wgrad-compute", _OVERLAP,
          "Delayed weight gradients are computed during the overlap.", config("", 1910), since=SINCE_14),
    needs("MLM-MLA-ROPE-FUSION", "multi-latent-attention & !no-rope-fusion & position-embedding-type=rope",
          "rope-type=yarn|None",
          "The fused RoPE kernel of latent attention supports YaRN only.", config("", 2068), since=SINCE_14),
), backends=PLAIN, since=ONLY_16[0])
# fmt: on
