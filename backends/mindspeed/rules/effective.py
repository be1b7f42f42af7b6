"""What MindSpeed-LLM's features set beside the changes that other tables tell: masks, fusions, shared experts."""

from dataclasses import replace

from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, OLD, OLD_ARGUMENTS, SINCE
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext, Setting
from launcher.rules.table import declare

_BASIC = f"{LLM}/megatron_basic/training_basic.py"
_WIDTH, _OLD_WIDTH = "moe-ffn-hidden-size", "moe-intermediate-size"
_SHARED, _COUNT = "moe-shared-expert-intermediate-size", "n-shared-experts"
_FUSED, _FUSED_OLD = "moe-permute-fusion", "use-fused-moe-token-permute-and-unpermute"
_REPEAT = "kv-head-repeat-before-uly-alltoall"


def _sets(id: str, when: str, values: dict[str, Setting], doc: str, source: str, reads: str = "") -> Rule:
    return Rule(
        id=id, when=when, sets=values, doc=doc, source=source, severity="change", reads=reads, flags=tuple(values)
    )


def _older_width(facts: RuleContext) -> Value:
    """Return the expert width by its deprecated name; None where it is not given so."""
    return None if facts.native is None or not facts.native.has(_OLD_WIDTH) else facts.native.get(_OLD_WIDTH)


def _width_given_twice(facts: RuleContext) -> str:
    old, now = _older_width(facts), facts.flag(_WIDTH)
    if old is None or now is None or old == now:
        return ""
    return f"moe_ffn_hidden_size {now} → {old}: the deprecated --{_OLD_WIDTH} wins"


def _makes_masks(facts: RuleContext) -> bool:
    """Return whether attention masks are made where data are loaded."""
    packed = bool(facts.flag("reset-attention-mask"))
    general = facts.flag("attention-mask-type") == "general" and not packed
    unfused = facts.flag("position-embedding-type") == "alibi" and not facts.flag("use-flash-attn")
    kept = general or unfused or facts.flag("tokenizer-padding-side") == "left"
    return kept and not (packed and facts.flag("attention-mask-type") == "causal")


def _makes_old_masks(facts: RuleContext) -> bool:
    """Return the same of 2.1.0, which reads the type of the mask by its older name."""
    packed = bool(facts.flag("reset-attention-mask"))
    unfused = facts.flag("position-embedding-type") == "alibi" and not facts.flag("use-flash-attn")
    kept = packed or unfused or facts.flag("tokenizer-padding-side") == "left"
    return kept and not (packed and facts.flag("cp-attention-mask-type") == "causal")


def _swapped(facts: RuleContext) -> str:
    core = "input_layernorm,self_attention,pre_cross_attn_layernorm"
    return core if facts.flag("use-mcore-models") else "input_norm,self_attention,post_attention_norm"


_PARSED = (
    replace(
        _sets(
            "MS-EXPERT-WIDTH-TWICE",
            "",
            {_WIDTH: _older_width},
            "If both arguments for the expert width are given, the deprecated one takes effect.",
            f"{LLM}/arguments/deprecated_args.py:75",
            "*",
        ),
        check=_width_given_twice,
        tells_unwritten=True,
        flags=(_WIDTH, _OLD_WIDTH),
    ),
    _sets(
        "MS-SET-SHAPE-ORDER",
        "reset-attention-mask",
        {"shape-order": "TND"},
        "Packed samples are laid out token by token.",
        f"{_BASIC}:20",
    ),
    _sets(
        "MS-SET-MASKS",
        "",
        {"no-create-attention-mask-in-dataloader": lambda facts: not _makes_masks(facts)},
        "Masks are made where data are loaded only for masks that are not causal, ALiBi and padding on the left.",
        f"{_BASIC}:23",
        "reset-attention-mask attention-mask-type position-embedding-type use-flash-attn tokenizer-padding-side",
    ),
)
_CONFIGURED = (
    replace(
        _sets(
            "MS-SET-PERMUTATION",
            "",
            {_FUSED: True, _FUSED_OLD: True},
            "The fused permutation has two names.",
            f"{FEATURES}/fusions/fused_moe_permute.py:41",
            f"{_FUSED} {_FUSED_OLD}",
        ),
        check=lambda facts: facts[_FUSED] or facts[_FUSED_OLD],
    ),
    _sets(
        "MS-SET-MODULES",
        "!recompute-modules? & !tp-2d",
        {"recompute-modules": ("core_attn",)},
        "Selective recomputation is of core attention, but under --tp-2d, which has a configuration of its own.",
        "megatron-core 0.12.1 transformer_config.py:724",
    ),
    _sets(
        "MS-SET-ONE-CHUNK",
        "num-virtual-stages-per-pipeline-rank=1 & !moe-fb-overlap",
        {"no-overlap-p2p-communication": True},
        "One chunk for each stage is the plain schedule.",
        f"{FEATURES}/megatron_basic/megatron_basic.py:21",
    ),
    _sets(
        "MS-SET-TWO-STAGES",
        "pipeline-model-parallel-size=2 & num-layers-per-virtual-pipeline-stage?",
        {"no-align-param-gather": True},
        "Megatron-LM's checks are passed without chunks, which unsets what only they align.",
        f"{_BASIC}:75",
    ),
    _sets(
        "MS-SET-MUON",
        "optimizer=dist_muon",
        {"optimizer": "muon"},
        "The older name of Muon with a distributed optimizer.",
        f"{LLM}/optimizer/muon_optimizer_feature.py:112",
    ),
    replace(
        _sets(
            "MS-SET-SHARED-COUNT",
            f"!{_COUNT}? & {_SHARED}?",
            {_COUNT: lambda facts: facts.number(_SHARED) // (facts.number(_WIDTH) or facts.number("ffn-hidden-size"))},
            "The width of the shared experts becomes a number.",
            f"{FEATURES}/moe/moe_alltoall_overlap.py:49; {FEATURES}/moe/moe_allgather_overlap.py:34",
            f"moe-alltoall-overlap-comm moe-allgather-overlap-comm {_WIDTH} ffn-hidden-size",
        ),
        check=lambda facts: (
            (facts["moe-alltoall-overlap-comm"] or facts["moe-allgather-overlap-comm"])
            and (facts.number(_WIDTH) or facts.number("ffn-hidden-size"))
        ),
    ),
)
# That 2.1.0 calls data mock or not (arguments.py:1279) is no value that anything reads.
_OLD_CONFIGURED = (
    _sets(
        "MS-SET-SPLIT-OLD",
        "!split?",
        {"split": "969, 30, 1"},
        "Data without a split are for training, validation and test, mock data too.",
        f"{OLD_ARGUMENTS}:1279",
    ),
    _sets(
        "MS-SET-MASKS-OLD",
        "",
        {"no-create-attention-mask-in-dataloader": lambda facts: not _makes_old_masks(facts)},
        "Masks are made where data are loaded only for ALiBi, padding on the left and general masks of packed samples.",
        f"{OLD_ARGUMENTS}:965",
        "reset-attention-mask attention-mask-type cp-attention-mask-type position-embedding-type use-flash-attn "
        "tokenizer-padding-side",
    ),
    replace(
        _sets(
            "MS-SWAP-MODULES-OLD",
            "swap-attention & !swap-modules?",
            {"swap-modules": _swapped},
            "If no modules are given, swapping uses those of a Megatron-core layer, or of a legacy layer.",
            f"MindSpeed-LLM parameter guide §26.4; {OLD_ARGUMENTS}:1024-1028",
            "use-mcore-models",
        ),
        check=lambda facts: f"offload.modules not set → {_swapped(facts)}",
        tells_unwritten=True,
        fields=("offload.modules",),
    ),
)
declare(_OLD_CONFIGURED, backends=MINDSPEED, until=OLD, phase="config")
declare(_PARSED, backends=MINDSPEED, since=SINCE, phase="parse")
declare(_CONFIGURED, backends=MINDSPEED, since=SINCE, phase="config")
