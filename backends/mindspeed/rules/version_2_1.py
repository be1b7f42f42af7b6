"""Settings that only MindSpeed-LLM 2.1.0 rejects; its validators were replaced in 2.2.0."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import MINDSPEED, OLD, OLD_ARGUMENTS, says
from launcher.rules.registry import RuleContext, Violation, lift, rule
from launcher.rules.table import declare

declare(
    (
        says(
            "MS-MTP-CP-OLD",
            "mtp-num-layers>0 & context-parallel-size>1",
            "",
            "Multi-token prediction has no context parallelism.",
            f"{OLD_ARGUMENTS}:1481",
        ),
        says(
            "MS-MTP-POSITIONS-OLD",
            "mtp-num-layers>0 & !use-rotary-position-embeddings",
            "position-embedding-type=rope|none",
            "Multi-token prediction shifts positions, which only rotary (or no) embeddings allow.",
            f"{OLD_ARGUMENTS}:1482",
        ),
        says(
            "MS-MOE-CAPACITY-OLD",
            "moe-expert-capacity-factor?",
            "moe-token-dispatcher-type=alltoall & moe-router-load-balancing-type=aux_loss|none",
            "Tokens are dropped by the all-to-all dispatcher, under aux_loss or no balancing.",
            "Megatron-LM core_r0.8.0 transformer_config.py __post_init__",
        ),
        says(
            "MS-EXTENDED-TP-OLD",
            "moe-extended-tp",
            "moe-token-dispatcher-type=allgather",
            "Splitting experts over tensor- and expert-parallel ranks works with the allgather dispatcher.",
            "Megatron-LM core_r0.8.0 transformer_config.py __post_init__",
        ),
        says(
            "MS-TP-PP-DP-OLD",
            "use-tp-pp-dp-mapping & context-parallel-size>1",
            "",
            "This order of ranks has no context parallelism.",
            "Megatron-LM core_r0.8.0 arguments.py validate_args",
        ),
        says(
            "MS-TP-PP-DP-EXPERTS-OLD",
            "use-tp-pp-dp-mapping & expert-model-parallel-size>1",
            "",
            "This order of ranks has no expert parallelism.",
            "Megatron-LM core_r0.8.0 arguments.py:552 validate_args",
        ),
        says(
            "MS-NEAT-PACK-OLD",
            "neat-pack",
            "reset-position-ids",
            "Packed samples count their positions anew.",
            f"{OLD_ARGUMENTS}:977",
        ),
        says(
            "MS-GLM-ROPE-OLD",
            "use-glm-rope & use-fused-rotary-pos-emb",
            "",
            "GLM's rotary positions have no fused kernel.",
            f"{OLD_ARGUMENTS}:988",
        ),
        says(
            "MS-ALIBI-WINDOW-OLD",
            "position-embedding-type=alibi & sliding-window?",
            "",
            "ALiBi excludes an attention window.",
            f"{OLD_ARGUMENTS}:990",
        ),
        says(
            "MS-ALIBI-PADDING-OLD",
            "position-embedding-type=alibi & tokenizer-padding-side=left",
            "",
            "ALiBi excludes padding on the left.",
            f"{OLD_ARGUMENTS}:992",
        ),
        says(
            "MS-MLA-RANK-OLD",
            "multi-head-latent-attention",
            "kv-lora-rank? & v-head-dim? & qk-rope-head-dim? & qk-nope-head-dim?",
            "Latent attention needs the sizes of all its parts.",
            f"{OLD_ARGUMENTS}:1093-1099",
        ),
        says(
            "MS-YARN-LENGTH-OLD",
            "rope-scaling-type=yarn",
            "rope-scaling-original-max-position-embeddings?",
            "YaRN needs the length before stretching.",
            f"{OLD_ARGUMENTS}:1116",
        ),
        says(
            "MS-FUSED-MLP-OLD",
            "use-fused-mlp",
            "swiglu & sequence-parallel or swiglu & lora-fusion",
            "The fused feed-forward network is SwiGLU's under sequence parallelism or fused LoRA.",
            f"{OLD_ARGUMENTS}:1423-1426",
        ),
        says(
            "MS-O2-BF16-OLD",
            "o2-optimizer",
            "bf16",
            "Half-precision optimizer states belong to bf16 training.",
            f"{OLD_ARGUMENTS}:1453",
        ),
        says(
            "MS-O2-GRADIENT-OLD",
            "o2-gradient",
            "bf16 & no-gradient-accumulation-fusion",
            "Half-precision gradients belong to bf16 training without fused accumulation.",
            f"{OLD_ARGUMENTS}:1453-1456",
        ),
        says(
            "MS-FUSED-RMSNORM-OLD",
            "use-fused-rmsnorm",
            "normalization=RMSNorm",
            "The fused kernel is RMSNorm's.",
            f"{OLD_ARGUMENTS}:1462",
        ),
        says(
            "MS-FUSED-SWIGLU-OLD",
            "use-fused-swiglu",
            "swiglu",
            "The fused kernel is SwiGLU's.",
            f"{OLD_ARGUMENTS}:1468",
        ),
        says(
            "MS-FUSED-ROPE-OLD",
            "use-fused-rotary-pos-emb & !use-rotary-position-embeddings",
            "position-embedding-type=rope",
            "The fused kernel is that of rotary positions.",
            f"{OLD_ARGUMENTS}:1473",
        ),
        says(
            "MS-MLA-DIVIDE-CP-OLD",
            "mla-fa-divide-qk & context-parallel-size>1",
            "",
            "Attention on separate parts of queries and keys has no context parallelism.",
            f"{OLD_ARGUMENTS}:1379",
        ),
        says(
            "MS-MLA-DIVIDE-PACKED-OLD",
            "mla-fa-divide-qk",
            "reset-position-ids",
            "Attention on separate parts of queries and keys is written for packed samples.",
            f"{OLD_ARGUMENTS}:1381",
        ),
        says(
            "MS-SLICES-OLD",
            "output-layer-slice-num<1",
            "",
            "The output layer is computed in at least one slice.",
            f"{OLD_ARGUMENTS}:1171",
        ),
        says(
            "MS-SLICES-TP-OLD",
            "output-layer-slice-num>1 & tensor-model-parallel-size>1",
            "",
            "The output layer is sliced only where it is not split by tensor parallelism.",
            f"{OLD_ARGUMENTS}:1174",
        ),
    ),
    backends=MINDSPEED,
    until=OLD,
)


# Mock data is switched off before Megatron's checks (training/arguments.py:1280).
for _id in ("MLM-DATA-ONE-SOURCE", "MLM-DATA-ONE-SOURCE-MOCK"):
    lift(_id, "mindspeed", lambda facts: facts.version == OLD)


@rule(
    "MS-SLICES-VOCABULARY-OLD",
    source=f"{OLD_ARGUMENTS}:1176-1178",
    reads="output-layer-slice-num padded-vocab-size vocab-size",
    backends=MINDSPEED,
    until=OLD,
)
def slices_divide_vocabulary(facts: RuleContext) -> Iterator[Violation]:
    """The vocabulary size is divisible by the number of output layer slices."""
    slices, size = facts.number("output-layer-slice-num", 1), facts.number("padded-vocab-size")
    size = size or facts.number("vocab-size")
    if slices > 1 and size and size % slices:
        yield Violation(
            message=f"a vocabulary of {size} is not divisible by output_layer_slice_num {slices}",
            flags=("output-layer-slice-num", "padded-vocab-size"),
        )


@rule(
    "MS-YARN-FACTOR-OLD",
    source=f"{OLD_ARGUMENTS}:1121",
    reads="rope-scaling-original-max-position-embeddings max-position-embeddings rope-scaling-factor rope-scaling-type",
    backends=MINDSPEED,
    until=OLD,
)
def yarn_factor_is_the_ratio(facts: RuleContext) -> Iterator[Violation]:
    """YaRN's factor is max_position_embeddings / original_max_position_embeddings."""
    original, longest = (
        facts.number("rope-scaling-original-max-position-embeddings"),
        facts.number("max-position-embeddings"),
    )
    factor = facts.flag("rope-scaling-factor")
    if facts.flag("rope-scaling-type") != "yarn" or not original or not longest or factor is None:
        return
    if longest / original != float(factor):
        yield Violation(
            message=f"rope_scaling.factor {factor} is not max_position_embeddings {longest} / {original}",
            flags=("rope-scaling-factor", "max-position-embeddings"),
        )


@rule(
    "MS-PAD-MULTIPLE-OLD",
    source=f"{OLD_ARGUMENTS}:1037",
    reads="tensor-model-parallel-size context-parallel-size pad-to-multiple-of variable-seq-lengths",
    backends=MINDSPEED,
    until=OLD,
)
def padding_divides_by_ranks(facts: RuleContext) -> Iterator[Violation]:
    """Sequences of different length are padded to a multiple of tp x cp."""
    size = facts.number("tensor-model-parallel-size", 1) * facts.number("context-parallel-size", 1)
    multiple = facts.number("pad-to-multiple-of", 8)
    if facts.flag("variable-seq-lengths") and facts.number("context-parallel-size", 1) > 1 and multiple % size:
        yield Violation(
            message=f"pad_to_multiple_of {multiple} is not a multiple of tp × cp = {size}",
            flags=("pad-to-multiple-of", "tensor-model-parallel-size", "context-parallel-size"),
        )
