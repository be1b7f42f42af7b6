"""Settings that MindSpeed-LLM changes or ignores without an error, or that fail only in the first step."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, SINCE, changes
from launcher.rules.registry import Rule, RuleContext, Violation, lift, rule
from launcher.rules.table import declare

# Deprecated names that other rules cover, or whose meaning differs from that of the new name.
_OTHERWISE = frozenset({"use-mcore-models", "n-shared-experts", "use-rotary-position-embeddings"})
_BASIC = f"{LLM}/megatron_basic/training_basic.py"
_SHARED_WIDTH = "moe-shared-expert-intermediate-size"


def _expert_width(context: RuleContext) -> int:
    return context.number("moe-ffn-hidden-size") or context.number("ffn-hidden-size")


declare(
    (
        changes(
            "MS-LOG-THROUGHPUT",
            "no-pad-to-seq-lengths & log-throughput",
            "log_throughput true → false: FLOP/s are not computed for sequences of different length",
            "Throughput is not logged where sequences differ in length.",
            f"{LLM}/finetune/finetune.py:33",
            sets={"log-throughput": False},
            phase="parse",
        ),
        changes(
            "MS-VARIABLE-SEQ",
            "variable-seq-lengths & !no-pad-to-seq-lengths",
            "variable_seq_lengths true → false: Megatron-LM resets it unless --no-pad-to-seq-lengths is set",
            "The switch for micro-batches of different length is reset.",
            "Megatron-LM core_v0.12.1 arguments.py:618",
            sets={"variable-seq-lengths": False},
            phase="validate",
        ),
        changes(
            "MS-UNPADDED",
            "no-pad-to-seq-lengths & !variable-seq-lengths",
            "variable_seq_lengths false → true: samples are not padded",
            "Samples that are not padded make micro-batches of different length.",
            f"{LLM}/finetune/finetune.py:43",
            sets={"variable-seq-lengths": True},
            since="2.3",
        ),
        changes(
            "MS-QKV-BIAS",
            "!disable-bias-linear & !add-qkv-bias",
            "add_qkv_bias false → true: all linear layers have a bias (no --disable-bias-linear)",
            "A bias on all linear layers includes queries, keys and values.",
            "Megatron-LM core_v0.12.1 arguments.py:789",
            sets={"add-qkv-bias": True},
            phase="validate",
        ),
        changes(
            "MS-MOE-MC2-SHARED",
            "moe-alltoall-mc2 & moe-token-dispatcher-type=alltoall & moe-shared-expert-intermediate-size? & "
            "!moe-shared-expert-overlap",
            "shared_expert_overlap false → true: moe_alltoall_mc2 overlaps the shared expert, too",
            "Fused dispatch overlaps the shared expert too, where its width is given.",
            f"{FEATURES}/moe/moe_alltoall_mc2.py:44",
            sets={"moe-shared-expert-overlap": True},
            since="26.0",
        ),
        changes(
            "MS-SHARED-WIDTH",
            "n-shared-experts & !moe-shared-expert-intermediate-size?",
            "shared_expert_intermediate_size not set → {n-shared-experts} × the width of one expert",
            "The number of shared experts becomes a width.",
            f"{LLM}/moe/shared_expert.py:16",
            sets={_SHARED_WIDTH: lambda context: context["n-shared-experts"] * _expert_width(context)},
        ),
        changes(
            "MS-SLICES",
            "output-layer-slice-num>1",
            "output_layer_slice_num {output-layer-slice-num} → 1: the feature was removed",
            "Slicing of the output layer is always disabled.",
            "MindSpeed-LLM 26.1.0 training/arguments.py:179",
            sets={"output-layer-slice-num": 1},
        ),
        changes(
            "MS-MCORE-IGNORED",
            "use-mcore-models",
            "--use-mcore-models is accepted and ignored: models are Megatron-core models",
            "The argument of older versions has no effect.",
            f"{_BASIC}:18",
        ),
        changes(
            "MS-DSA-TOGETHER",
            "use-fused-lightning-indexer & !use-fused-lightning-indexer-loss",
            "use_fused_lightning_indexer_loss false → true: use_fused_lightning_indexer needs it",
            "The fused indexer switches its loss on.",
            f"{LLM}/transformer/multi_latent_attention/dsa_indexer_feature.py:92",
            sets={"use-fused-lightning-indexer-loss": True},
            since="26.1",
        ),
        changes(
            "MS-DSA-TOGETHER-LOSS",
            "use-fused-lightning-indexer-loss & !use-fused-lightning-indexer",
            "use_fused_lightning_indexer false → true: use_fused_lightning_indexer_loss needs it",
            "The fused loss switches its indexer on.",
            f"{LLM}/transformer/multi_latent_attention/dsa_indexer_feature.py:92",
            sets={"use-fused-lightning-indexer": True},
            since="26.1",
        ),
        changes(
            "MS-MUON-LAYERWISE",
            "optimizer=muon|dist_muon & use-distributed-optimizer",
            "use_distributed_optimizer true → false: Muon uses a layer-wise distributed optimizer",
            "Muon is distributed by layers.",
            f"{LLM}/optimizer/muon_optimizer_feature.py:115",
            sets={"use-distributed-optimizer": False},
            since="26.1",
        ),
        changes(
            "MS-MUON-STEP-GATHER",
            "optimizer=muon|dist_muon & overlap-param-gather-with-optimizer-step",
            "overlap_param_gather_with_optimizer_step true → false: Muon does not support it",
            "Muon does not gather weights during its step.",
            f"{LLM}/optimizer/muon_optimizer_feature.py:119",
            sets={"overlap-param-gather-with-optimizer-step": False},
            since="26.1",
        ),
        changes(
            "MS-MOE-A2A-SHARED",
            "moe-alltoall-overlap-comm & moe-token-dispatcher-type=alltoall & moe-shared-expert-intermediate-size? & "
            "!moe-shared-expert-overlap",
            "shared_expert_overlap false → true: moe_alltoall_overlap_comm overlaps the shared expert, too",
            "Overlapped dispatch overlaps the shared expert too.",
            f"{FEATURES}/moe/moe_alltoall_overlap.py:35",
            sets={"moe-shared-expert-overlap": True},
        ),
        changes(
            "MS-MTP-CP-PASSES",
            "mtp-num-layers>0 & context-parallel-size>1 & !reset-attention-mask",
            "Megatron-LM refuses multi-token prediction under context parallelism; MindSpeed-LLM bypasses the check",
            "Multi-token prediction under context parallelism is let through, though Megatron-core refuses it.",
            f"{LLM}/transformer/mtp.py:53",
            "warning",
            since="26.0",
        ),
        changes(
            "MS-TOPK-ONE",
            "num-experts>0 & moe-router-topk=1 & moe-router-score-function=softmax & !moe-router-pre-softmax & "
            "moe-router-load-balancing-type!=sinkhorn",
            "softmax over one selected expert is always 1, so the router does not learn: add --moe-router-pre-softmax "
            "(Megatron-LM refuses this; MindSpeed-LLM bypasses the check)",
            "Softmax over a single chosen expert has no gradient, and the check for it is bypassed.",
            "MindSpeed-LLM 26.1.0 core/transformer/transformer_config.py:21-30",
            "warning",
        ),
        changes(
            "MS-SPEC-QK",
            "qk-layernorm & !spec",
            "--qk-layernorm is silently ignored without --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec, "
            "and converted weights do not fit",
            "Norms of queries and keys need a layer specification that has them.",
            "MindSpeed-LLM 26.1.0 pretrain_gpt.py:57",
            "warning",
        ),
        changes(
            "MS-LOAD-RNG",
            "load & !no-load-rng & !finetune & !enable-hf2mg-convert & tensor-model-parallel-size>1",
            "resuming a checkpoint of another tp without --no-load-rng ends with exit code 0 and no training: add "
            "checkpoint.no_load_rng=true unless it was written at the same tp",
            "Random states of another tensor-parallel layout end the program without a message.",
            "MindSpeed-LLM 26.1.0, seen in a real run",
            "warning",
        ),
        changes(
            "MS-SKIP-BIAS-ADD",
            "skip-bias-add",
            "--skip-bias-add is store_false: passing it sets skip_bias_add to false",
            "The switch stores false, the opposite of its name.",
            "MindSpeed-LLM 26.1.0 parser: store_false",
            "warning",
        ),
        changes(
            "MS-INPUT-JITTER",
            "input-jitter",
            "--input-jitter is store_false: passing it sets input_jitter to false",
            "The switch stores false, the opposite of its name.",
            "MindSpeed-LLM 26.1.0 parser: store_false",
            "warning",
        ),
        changes(
            "MS-TOKENIZER-SLOW",
            "tokenizer-not-use-fast",
            "--tokenizer-not-use-fast is store_false: passing it selects the slow tokenizer, not the default one",
            "The switch stores false.",
            "MindSpeed-LLM 26.1.0 parser: store_false",
            "warning",
        ),
        changes(
            "MS-LORA-TE",
            "lora-target-modules & transformer-impl=transformer_engine",
            "LoRA needs --transformer-impl local: peft refuses transformer_engine layers when the model is built",
            "Adapters attach to the local linear layers only.",
            "peft 0.21.2 with MindSpeed-LLM 26.1.0, seen when the model is built",
            "warning",
        ),
        changes(
            "MS-STAGE-WITHOUT-TRAINER",
            "stage? & stage!=sft|dpo",
            "--stage {stage} has no trainer (only sft and dpo have one): training ends with an AttributeError",
            "Only two stages have a trainer.",
            "MindSpeed-LLM 26.1.0 tasks/posttrain/launcher.py:14",
            "warning",
            since="2.3",
        ),
        Rule(
            id="MS-TE-FLASH",
            when="transformer-impl=transformer_engine & !use-flash-attn & context-parallel-size<=1",
            then="use-flash-attn",
            doc="The transformer_engine layers (the default) fail in the first forward pass without flash attention.",
            source="MindSpeed-LLM 26.1.0, seen in a real run",
            stricter=True,
            reason="its validators accept it, but the first forward pass fails",
        ),
    ),
    backends=MINDSPEED,
    since=SINCE,
)


# The check is bypassed: biases are learned for other scores too (transformer_config.py:46, moe_router.py:79).
lift("MOE-BIAS-SIGMOID", "mindspeed", lambda context: context.version != "2.1.0")


@rule(
    "MS-OLD-NAME",
    source=f"{LLM}/arguments/deprecated_args.py",
    reads="*",
    severity="change",
    backends=MINDSPEED,
    since=SINCE,
)
def old_names_are_copied(context: RuleContext) -> Iterator[Violation]:
    """Deprecated names are copied to the names that replaced them, with a warning."""
    if context.native is None or context.catalogue is None:
        return
    found = {arg.flag: context.catalogue.get(arg.flag) for arg in context.native}
    old = {
        name: argument.renamed_to for name, argument in found.items() if argument is not None and argument.renamed_to
    }
    old = {name: new for name, new in old.items() if name not in _OTHERWISE}
    if old:
        yield Violation(
            message="deprecated arguments: " + ", ".join(f"{name} → {new}" for name, new in old.items()),
            flags=tuple(old),
        )
