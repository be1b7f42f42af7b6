"""Settings that only MindSpeed-LLM 2.1.0 rejects; its validators were replaced in 2.2.0."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import MINDSPEED, OLD, OLD_ARGUMENTS, excludes
from launcher.rules.registry import RuleContext, Violation, lift, rule
from launcher.rules.table import declare, needs, never

_FB = "MindSpeed 2.1.0 features_manager/pipeline_parallel/fb_overlap_feature.py"

# fmt: off
declare((
    never("MS-MTP-CP-OLD", "mtp-num-layers>0 & context-parallel-size>1",
          "Multi-token prediction does not support context parallelism.", f"{OLD_ARGUMENTS}:1481"),
    needs("MS-MTP-POSITIONS-OLD", "mtp-num-layers>0 & !use-rotary-position-embeddings",
          "position-embedding-type=rope|none",
          "Multi-token prediction shifts positions, which only rotary (or no) embeddings allow.",
          f"{OLD_ARGUMENTS}:1482"),
    needs("MS-MOE-CAPACITY-OLD", "moe-expert-capacity-factor?",
          "moe-token-dispatcher-type=alltoall & moe-router-load-balancing-type=aux_loss|none",
          "Tokens are dropped by the all-to-all dispatcher, under aux_loss or no balancing.",
          "Megatron-LM core_r0.8.0 transformer_config.py __post_init__"),
    needs("MS-EXTENDED-TP-OLD", "moe-extended-tp", "moe-token-dispatcher-type=allgather",
          "Splitting experts over tensor- and expert-parallel ranks works with the allgather dispatcher.",
          "Megatron-LM core_r0.8.0 transformer_config.py __post_init__"),
    never("MS-TP-PP-DP-OLD", "use-tp-pp-dp-mapping & context-parallel-size>1",
          "This order of ranks does not support context parallelism.",
          "Megatron-LM core_r0.8.0 arguments.py validate_args"),
    never("MS-TP-PP-DP-EXPERTS-OLD", "use-tp-pp-dp-mapping & expert-model-parallel-size>1",
          "This order of ranks does not support expert parallelism.",
          "Megatron-LM core_r0.8.0 arguments.py:552 validate_args"),
    needs("MS-NEAT-PACK-OLD", "neat-pack", "reset-position-ids",
          "Packed samples need position ids that restart with each sample.",
          f"{OLD_ARGUMENTS}:977; MindSpeed-LLM 2.2.0 features_manager/megatron_basic/training_basic.py:34",
          until="2.2.99"),
    never("MS-GLM-ROPE-OLD", "use-glm-rope & use-fused-rotary-pos-emb",
          "GLM's RoPE has no fused kernel.", f"{OLD_ARGUMENTS}:988"),
    never("MS-ALIBI-WINDOW-OLD", "position-embedding-type=alibi & sliding-window?",
          "ALiBi does not support an attention window.", f"{OLD_ARGUMENTS}:990"),
    never("MS-ALIBI-PADDING-OLD", "position-embedding-type=alibi & tokenizer-padding-side=left",
          "ALiBi does not support left padding.", f"{OLD_ARGUMENTS}:992"),
    needs("MS-MLA-RANK-OLD", "multi-head-latent-attention",
          "kv-lora-rank? & v-head-dim? & qk-rope-head-dim? & qk-nope-head-dim?",
          "Latent attention needs the sizes of all its parts.", f"{OLD_ARGUMENTS}:1093-1099"),
    needs("MS-YARN-LENGTH-OLD", "rope-scaling-type=yarn", "rope-scaling-original-max-position-embeddings?",
          "YaRN needs the original maximum length.", f"{OLD_ARGUMENTS}:1116"),
    never("MS-YARN-FACTOR-OLD", "rope-scaling-type=yarn & "
          "max-position-embeddings!={rope-scaling-factor}*{rope-scaling-original-max-position-embeddings}",
          "YaRN's factor is max_position_embeddings / original_max_position_embeddings.", f"{OLD_ARGUMENTS}:1121",
          message="rope_scaling.factor {rope-scaling-factor} is not max_position_embeddings {max-position-embeddings} "
          "/ {rope-scaling-original-max-position-embeddings}",
          flags=("rope-scaling-factor", "max-position-embeddings")),
    needs("MS-FUSED-MLP-OLD", "use-fused-mlp", "swiglu & sequence-parallel or swiglu & lora-fusion",
          "The fused MLP needs SwiGLU with sequence parallelism or with fused LoRA.",
          f"{OLD_ARGUMENTS}:1423-1426"),
    needs("MS-O2-BF16-OLD", "o2-optimizer", "bf16",
          "Optimizer states in half precision need bf16 training.", f"{OLD_ARGUMENTS}:1453"),
    needs("MS-O2-GRADIENT-OLD", "o2-gradient", "bf16 & no-gradient-accumulation-fusion",
          "Gradients in half precision need bf16 training without fused gradient accumulation.",
          f"{OLD_ARGUMENTS}:1453-1456"),
    needs("MS-FUSED-RMSNORM-OLD", "use-fused-rmsnorm", "normalization=RMSNorm",
          "The fused kernel supports RMSNorm only.", f"{OLD_ARGUMENTS}:1462"),
    needs("MS-FUSED-SWIGLU-OLD", "use-fused-swiglu", "swiglu",
          "The fused kernel supports SwiGLU only.", f"{OLD_ARGUMENTS}:1468"),
    needs("MS-FUSED-ROPE-OLD", "use-fused-rotary-pos-emb & !use-rotary-position-embeddings",
          "position-embedding-type=rope",
          "The fused kernel supports RoPE only.", f"{OLD_ARGUMENTS}:1473"),
    never("MS-MLA-DIVIDE-CP-OLD", "mla-fa-divide-qk & context-parallel-size>1",
          "Attention on separate parts of queries and keys does not support context parallelism.",
          f"{OLD_ARGUMENTS}:1379"),
    needs("MS-MLA-DIVIDE-PACKED-OLD", "mla-fa-divide-qk", "reset-position-ids",
          "Attention on separate parts of queries and keys supports packed samples only.", f"{OLD_ARGUMENTS}:1381"),
    never("MS-SLICES-OLD", "output-layer-slice-num<1",
          "The output layer is computed in at least one slice.", f"{OLD_ARGUMENTS}:1171"),
    never("MS-SLICES-TP-OLD", "output-layer-slice-num>1 & tensor-model-parallel-size>1",
          "The output layer is sliced only where it is not split by tensor parallelism.", f"{OLD_ARGUMENTS}:1174"),
    needs("MS-SLICES-FUSION-OLD", "output-layer-slice-num>1", "no-gradient-accumulation-fusion",
          "A sliced output layer with fused gradient accumulation ends in a TypeError.",
          f"{OLD_ARGUMENTS}:1182"),
    never("MS-MOE-CAPACITY-NEGATIVE-OLD", "moe-expert-capacity-factor<0",
          "A negative capacity factor ends in a TypeError: remove it to drop no tokens.",
          "MindSpeed-LLM 2.1.0 features_manager/common/moe_router.py:72"),
    needs("MS-FB-NEEDS-OLD", "moe-fb-overlap", "n-shared-experts & moe-permutation-async-comm",
          "Overlapped experts need shared experts and asynchronous permutation.", f"{_FB}:36"),
    needs("MS-FB-TP-OLD", "moe-fb-overlap & tensor-model-parallel-size>1", "moe-tp-extend-ep",
          "Overlapped experts at tp above 1 need tensor-parallel ranks as expert ranks.", f"{_FB}:39"),
    never("MS-FB-DISPATCHER-OLD", "moe-fb-overlap & moe-token-dispatcher-type=allgather",
          "Overlapped experts do not use the allgather dispatcher.", f"{_FB}:31"),
    never("MS-FB-ZERO-MEMORY-OLD", "moe-fb-overlap & moe-zero-memory=level1",
          "Overlapped experts drop activations of level 0 only.", f"{_FB}:33"),
    *excludes("MS-FB-OLD", "moe-fb-overlap",
              ("moe-alltoall-overlap-comm", "overlap-grad-reduce", "moe-zero-memory-num-layers",
               "moe-pad-expert-input-to-capacity", "recompute-in-advance"),
              "Overlapping forward and backward passes of experts", f"{_FB}:21-29"),
), backends=MINDSPEED, until=OLD)
# fmt: on


# Mock data is switched off before Megatron's checks (training/arguments.py:1280).
for _id in ("MLM-DATA-ONE-SOURCE", "MLM-DATA-ONE-SOURCE-MOCK"):
    lift(_id, "mindspeed", lambda context: context.version == OLD)


@rule(
    "MS-SLICES-VOCABULARY-OLD",
    source=f"{OLD_ARGUMENTS}:1176-1178",
    reads="output-layer-slice-num padded-vocab-size vocab-size",
    backends=MINDSPEED,
    until=OLD,
)
def slices_divide_vocabulary(context: RuleContext) -> Iterator[Violation]:
    """The vocabulary size is divisible by the number of output layer slices."""
    slices, size = context.number("output-layer-slice-num", 1), context.number("padded-vocab-size")
    size = size or context.number("vocab-size")
    if slices > 1 and size and size % slices:
        yield Violation(
            message=f"a vocabulary of {size} is not divisible by output_layer_slice_num {slices}",
            flags=("output-layer-slice-num", "padded-vocab-size"),
        )


@rule(
    "MS-PAD-MULTIPLE-OLD",
    source=f"{OLD_ARGUMENTS}:1037",
    reads="tensor-model-parallel-size context-parallel-size pad-to-multiple-of variable-seq-lengths",
    backends=MINDSPEED,
    until=OLD,
)
def padding_divides_by_ranks(context: RuleContext) -> Iterator[Violation]:
    """Sequences of different length are padded to a multiple of tp x cp."""
    size = context.number("tensor-model-parallel-size", 1) * context.number("context-parallel-size", 1)
    multiple = context.number("pad-to-multiple-of", 8)
    if context.flag("variable-seq-lengths") and context.number("context-parallel-size", 1) > 1 and multiple % size:
        yield Violation(
            message=f"pad_to_multiple_of {multiple} is not a multiple of tp × cp = {size}",
            flags=("pad-to-multiple-of", "tensor-model-parallel-size", "context-parallel-size"),
        )
