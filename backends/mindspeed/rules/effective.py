"""What MindSpeed-LLM's features set beside the changes that other tables tell: masks, fusions, shared experts."""

from collections.abc import Mapping
from dataclasses import replace

from backends.mindspeed.rules.tables import DEPRECATED_IN, FEATURES, LLM, MINDSPEED, OLD, OLD_ARGUMENTS, SINCE
from backends.mindspeed.versions import deprecated_names
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare, sets

_BASIC = f"{LLM}/megatron_basic/training_basic.py"
_WIDTH, _OLD_WIDTH = "moe-ffn-hidden-size", "moe-intermediate-size"
_SHARED, _COUNT = "moe-shared-expert-intermediate-size", "n-shared-experts"
_FUSED, _FUSED_OLD = "moe-permute-fusion", "use-fused-moe-token-permute-and-unpermute"
_REPEAT = "kv-head-repeat-before-uly-alltoall"


# Rule and line of each deprecated argument that is copied over its new name, even where that is given, too.
# Source: MindSpeed-LLM 26.1.0 features_manager/arguments/deprecated_args.py
_COPIED: Mapping[str, tuple[str, int]] = {
    "cp-attention-mask-type": ("MS-MASK-TYPE-TWICE", 70),
    _OLD_WIDTH: ("MS-EXPERT-WIDTH-TWICE", 75),
    "qk-rope-head-dim": ("MS-ROPE-HEAD-TWICE", 97),
    "qk-nope-head-dim": ("MS-NOPE-HEAD-TWICE", 102),
    "rope-scaling-beta-fast": ("MS-BETA-FAST-TWICE", 112),
    "rope-scaling-beta-slow": ("MS-BETA-SLOW-TWICE", 117),
}


def _written(context: RuleContext, name: str) -> Value:
    """Return the value that is given by this name, deprecated or not; None where it is not given so."""
    return None if context.native is None or not context.native.has(name) else context.native.get(name)


def _copied(old: str) -> Rule:
    """Return the rule of a deprecated argument that takes effect although its new name is given, too."""
    id, line = _COPIED[old]
    new = deprecated_names(DEPRECATED_IN)[old]

    def check(context: RuleContext) -> str:
        given, now = _written(context, old), context.flag(new)
        if not given or now is None or given == now:
            return ""
        return f"{new.replace('-', '_')} {now} → {given}: the deprecated --{old} takes precedence"

    doc = f"If --{old} and --{new} are both given, the deprecated one takes effect."
    setting = sets(
        id,
        "",
        {new: lambda context: _written(context, old)},
        doc,
        f"{LLM}/arguments/deprecated_args.py:{line}",
        reads="*",
    )
    return replace(setting, check=check, reports_unwritten=True, flags=(new, old))


def _makes_masks(context: RuleContext) -> bool:
    """Return whether attention masks are made where data are loaded."""
    packed = bool(context.flag("reset-attention-mask"))
    mask = _written(context, "attention-mask-type") or "causal"  # the deprecated name is copied later
    unfused = context.flag("position-embedding-type") == "alibi" and not context.flag("use-flash-attn")
    kept = (mask == "general" and not packed) or unfused or context.flag("tokenizer-padding-side") == "left"
    return kept and not (packed and mask == "causal")


def _makes_old_masks(context: RuleContext) -> bool:
    """Return the same of 2.1.0, which reads the type of the mask by its older name."""
    packed = bool(context.flag("reset-attention-mask"))
    unfused = context.flag("position-embedding-type") == "alibi" and not context.flag("use-flash-attn")
    kept = packed or unfused or context.flag("tokenizer-padding-side") == "left"
    return kept and not (packed and context.flag("cp-attention-mask-type") == "causal")


def _makes_masks_2_2(context: RuleContext) -> bool:
    """Return the same of 2.2 and 2.3: a general mask counts with packed samples only."""
    packed = bool(context.flag("reset-attention-mask"))
    mask = _written(context, "attention-mask-type") or "causal"
    unfused = context.flag("position-embedding-type") == "alibi" and not context.flag("use-flash-attn")
    kept = (packed and mask == "general") or unfused or context.flag("tokenizer-padding-side") == "left"
    ulysses = context.flag("context-parallel-algo") == "ulysses_cp_algo" and context.version != "2.2.0"
    return kept and not (packed and (mask == "causal" or ulysses))


def _loses_scaling(context: RuleContext) -> str:
    """Return what the deprecated name of the scaling factor sets, where the new name is not given."""
    given = _written(context, "routed-scaling-factor")
    if not given or _written(context, "moe-router-topk-scaling-factor"):
        return ""
    now = _written(context, "topk-group")
    return f"routed_scaling_factor {given} → {now}, that of --topk-group: write --moe-router-topk-scaling-factor"


def _swapped(context: RuleContext) -> str:
    core = "input_layernorm,self_attention,pre_cross_attn_layernorm"
    return core if context.flag("use-mcore-models") else "input_norm,self_attention,post_attention_norm"


_PARSED = (
    *map(_copied, _COPIED),
    sets(
        "MS-SET-SHAPE-ORDER",
        "reset-attention-mask",
        {"shape-order": "TND"},
        "Packed samples use the attention layout TND.",
        f"{_BASIC}:20",
        since="2.3",
    ),
    sets(
        "MS-SET-MASKS",
        "",
        {"no-create-attention-mask-in-dataloader": lambda context: not _makes_masks(context)},
        "The data loader creates attention masks only for general masks, ALiBi and left padding.",
        f"{_BASIC}:23",
        reads="reset-attention-mask attention-mask-type position-embedding-type use-flash-attn tokenizer-padding-side",
        since="26.0",
    ),
)
_PARSED_2_2 = (
    sets(
        "MS-SET-MASKS-2-2",
        "",
        {"no-create-attention-mask-in-dataloader": lambda context: not _makes_masks_2_2(context)},
        "The data loader creates attention masks only for ALiBi, left padding and general masks of packed samples.",
        "MindSpeed-LLM 2.2.0 features_manager/megatron_basic/training_basic.py:28; MindSpeed-LLM 2.3.0 "
        "features_manager/megatron_basic/training_basic.py:27",
        reads="reset-attention-mask attention-mask-type position-embedding-type use-flash-attn tokenizer-padding-side "
        "context-parallel-algo",
    ),
    replace(
        sets(
            "MS-SET-SCALING-2-2",
            "",
            {"moe-router-topk-scaling-factor": lambda context: _written(context, "topk-group")},
            "The deprecated --routed-scaling-factor takes the number of --topk-group, a mistake of two versions.",
            "MindSpeed-LLM 2.2.0 features_manager/arguments/deprecated_args.py:90; MindSpeed-LLM 2.3.0 "
            "features_manager/arguments/deprecated_args.py:90",
            reads="*",
        ),
        check=_loses_scaling,
        reports_unwritten=True,
        flags=("moe-router-topk-scaling-factor", "routed-scaling-factor"),
    ),
)
_CONFIGURED = (
    Rule(
        id="MS-CONVERT-TYPE",
        when="enable-hf2mg-convert & load? & !model-type-hf",
        doc="The family of converted weights is read from their config.json where it is not given.",
        source=f"{LLM}/convert_checkpoint/convert_checkpoint.py:154",
        severity="change",
        reports_unwritten=True,
        message="model_type_hf not set → the family that architectures in {load}/config.json names",
        flags=("model-type-hf",),
        since="26.0",
    ),
    replace(
        sets(
            "MS-SET-PERMUTATION",
            "",
            {_FUSED: True, _FUSED_OLD: True},
            "Each of the two names of the fused permutation sets both.",
            f"{FEATURES}/fusions/fused_moe_permute.py:41",
            reads=f"{_FUSED} {_FUSED_OLD}",
        ),
        check=lambda context: context[_FUSED] or context[_FUSED_OLD],
    ),
    sets(
        "MS-SET-MODULES",
        "!recompute-modules? & !tp-2d",
        {"recompute-modules": ("core_attn",)},
        "By default selective recomputation recomputes core attention; --tp-2d has a separate configuration.",
        "megatron-core 0.12.1 transformer_config.py:724",
    ),
    sets(
        "MS-SET-ONE-CHUNK",
        "num-virtual-stages-per-pipeline-rank=1 & !moe-fb-overlap",
        {"no-overlap-p2p-communication": True},
        "One chunk per stage is the non-interleaved schedule.",
        f"{FEATURES}/megatron_basic/megatron_basic.py:21",
    ),
    sets(
        "MS-SET-TWO-STAGES",
        "pipeline-model-parallel-size=2 & num-layers-per-virtual-pipeline-stage?",
        {"no-align-param-gather": True},
        "MindSpeed-LLM hides the chunks from Megatron-LM's validation, which then disables the alignment.",
        f"{_BASIC}:75",
    ),
    sets(
        "MS-SET-MUON",
        "optimizer=dist_muon",
        {"optimizer": "muon"},
        "The name dist_muon is the older one of Muon with a distributed optimizer.",
        f"{LLM}/optimizer/muon_optimizer_feature.py:112",
        since="26.1",
    ),
    sets(
        "MS-SET-SHARED-COUNT",
        f"!{_COUNT}? & {_SHARED}?",
        {
            _COUNT: lambda context: (
                context.number(_SHARED) // (context.number(_WIDTH) or context.number("ffn-hidden-size"))
            )
        },
        "The number of shared experts follows from their total width.",
        f"{FEATURES}/moe/moe_alltoall_mc2.py:51",
        reads=f"{_WIDTH} ffn-hidden-size",
        since="26.0",
    ),
    sets(
        "MS-SET-ULYSSES",
        "tp-2d & !use-flash-attn & context-parallel-size=1 & context-parallel-algo=megatron_cp_algo",
        {"context-parallel-algo": "ulysses_cp_algo"},
        "2-D tensor parallelism without flash attention sets Ulysses, which has no effect at cp 1.",
        f"{FEATURES}/tensor_parallel/tp_2d.py:37",
    ),
    sets(
        "MS-SET-CONFIG-FOLDER",
        "enable-hf2mg-convert & enable-mg2hf-convert & !hf-cfg-dir?",
        {"hf-cfg-dir": "{load}"},
        "Weights that are converted back get the configuration of those that training started from.",
        f"{LLM}/convert_checkpoint/convert_checkpoint.py:151",
        since="26.0",
    ),
    sets(
        "MS-SET-GLOO",
        "disable-gloo-group",
        {"disable-gloo-process-groups": True},
        "The argument sets that of Megatron-LM.",
        f"{FEATURES}/disable_gloo_group/disable_gloo_group_feature.py:41",
    ),
)
_OLD_CONFIGURED = (
    sets(
        "MS-SET-LEGACY-OLD",
        "!use-mcore-models",
        {"use-legacy-models": True},
        "Without --use-mcore-models the model is a legacy one.",
        f"{OLD_ARGUMENTS}:1499",
    ),
    sets(
        "MS-SET-MC2-OLD",
        "use-mc2",
        {"use-mc2": False},
        "MC2 is always switched off.",
        f"{OLD_ARGUMENTS}:1498",
    ),
    sets(
        "MS-SET-MOCK-OLD",
        "mock-data",
        {"mock-data": False},
        "Mock data is always switched off.",
        f"{OLD_ARGUMENTS}:1281",
    ),
    sets(
        "MS-SET-MASK-TYPE-OLD",
        "",
        {"attention-mask-type": lambda context: context.flag("cp-attention-mask-type")},
        "The type of the mask is that of --cp-attention-mask-type.",
        f"{OLD_ARGUMENTS}:1321",
        reads="cp-attention-mask-type",
    ),
    sets(
        "MS-SET-SHAPE-ORDER-OLD",
        "reset-position-ids",
        {"shape-order": "TND"},
        "Packed samples use the attention layout TND.",
        f"{OLD_ARGUMENTS}:254; MindSpeed-LLM 2.2.0 features_manager/megatron_basic/training_basic.py:21",
        until="2.2.99",
    ),
    sets(
        "MS-SET-THROUGHPUT-OLD",
        "variable-seq-lengths & log-throughput",
        {"log-throughput": False},
        "Throughput is not logged where sequences differ in length.",
        f"{OLD_ARGUMENTS}:1034",
    ),
    sets(
        "MS-SET-LOOSE-OLD",
        "schedules-method=dualpipev",
        {"load-checkpoint-loosely": True},
        "DualPipeV uses its own keys in checkpoints.",
        f"{OLD_ARGUMENTS}:246",
    ),
    sets(
        "MS-SET-GRADS-O2-OLD",
        "o2-gradient",
        {"accumulate-allreduce-grads-in-fp32": False},
        "Gradients in half precision are not accumulated in fp32.",
        f"{OLD_ARGUMENTS}:1296",
    ),
    sets(
        "MS-SET-ASYNC-OLD",
        "sequence-parallel & tensor-model-parallel-size>1",
        {"no-async-tensor-model-parallel-allreduce": True},
        "Under sequence parallelism there is no all-reduce to overlap.",
        "Megatron-LM core_r0.8.0 arguments.py:474",
    ),
    sets(
        "MS-SET-SPLIT-OLD",
        "!split?",
        {"split": "969, 30, 1"},
        "This is the default split into training, validation and test data, also of mock data.",
        f"{OLD_ARGUMENTS}:1279",
    ),
    sets(
        "MS-SET-MASKS-OLD",
        "",
        {"no-create-attention-mask-in-dataloader": lambda context: not _makes_old_masks(context)},
        "The data loader creates attention masks only for ALiBi, left padding and general masks of packed samples.",
        f"{OLD_ARGUMENTS}:965",
        reads="reset-attention-mask attention-mask-type cp-attention-mask-type position-embedding-type use-flash-attn "
        "tokenizer-padding-side",
    ),
    replace(
        sets(
            "MS-SWAP-MODULES-OLD",
            "swap-attention & !swap-modules?",
            {"swap-modules": _swapped},
            "If no modules are given, swapping uses those of a Megatron-core layer, or of a legacy layer.",
            f"MindSpeed-LLM parameter guide §26.4; {OLD_ARGUMENTS}:1024-1028",
            reads="use-mcore-models",
        ),
        check=lambda context: f"offload.modules not set → {_swapped(context)}",
        reports_unwritten=True,
        fields=("offload.modules",),
    ),
)
declare(_OLD_CONFIGURED, backends=MINDSPEED, until=OLD, phase="config")
declare(_PARSED_2_2, backends=MINDSPEED, since=SINCE, until="2.3.99", phase="parse")
declare(_PARSED, backends=MINDSPEED, since=SINCE, phase="parse")
declare(_CONFIGURED, backends=MINDSPEED, since=SINCE, phase="config")
