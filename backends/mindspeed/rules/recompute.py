"""Recomputation and swapping on Ascend (MindSpeed-LLM parameter guide §26), including recomputation in pipeline "
"bubbles."""

from collections.abc import Iterator

from launcher.rules.registry import Rule, RuleContext, Violation, lower, rule
from launcher.rules.table import declare

_MINDSPEED = ("mindspeed",)
_OLD = "MindSpeed-LLM 2.1.0 training/arguments.py"
_RIPIPE = "MindSpeed 26.1.0 features_manager/pipeline_parallel/ripipe_schedules_feature.py"
_FEATURES = "MindSpeed 26.1.0 features_manager"
_GONE = "it stopped checking this in 2.2.0, and with uniform the runtime reads the number as layers fully recomputed"
_NOTHING = "it stopped checking this in 2.2.0; without chunks and recomputation the switch does nothing"
_VPP = "num-layers-per-virtual-pipeline-stage"

_SEED = (
    Rule(
        id="MS-RC-ACTIVATION-UNIFORM",
        when="recompute-activation-function & recompute-method=uniform",
        doc="Recomputing the activation function counts layers per stage, which the uniform method does not.",
        source=f"MindSpeed-LLM parameter guide §26.2; {_OLD}:1012",
        message="recompute.activation excludes recompute.method=uniform",
        stricter=True,
        enforced_until="2.1.0",
        reason=_GONE,
    ),
    Rule(
        id="MS-RC-ACTIVATION-SELECTIVE",
        when="recompute-activation-function & recompute-granularity=selective",
        doc="Recomputing the activation function excludes selective recomputation, which recomputes attention.",
        source=f"MindSpeed-LLM parameter guide §26.2; {_OLD}:1014",
        message="recompute.activation excludes recompute.granularity=selective",
        stricter=True,
        enforced_until="2.1.0",
        reason="it stopped checking this in 2.2.0, but the two are not made for each other",
    ),
    Rule(
        id="MS-RC-NORM-UNIFORM",
        when="recompute-norm & recompute-method=uniform",
        doc="Recomputing the norms counts layers per stage, which the uniform method does not.",
        source=f"MindSpeed-LLM parameter guide §26.3; {_OLD}:1018",
        message="recompute.norm excludes recompute.method=uniform",
        stricter=True,
        enforced_until="2.1.0",
        reason=_GONE,
    ),
    Rule(
        id="MS-RC-NORM-SELECTIVE",
        when="recompute-norm & recompute-granularity=selective",
        doc="Recomputing the norms excludes selective recomputation, which recomputes attention.",
        source=f"MindSpeed-LLM parameter guide §26.3; {_OLD}:1020",
        message="recompute.norm excludes recompute.granularity=selective",
        stricter=True,
        enforced_until="2.1.0",
        reason="it stopped checking this in 2.2.0, but the two are not made for each other",
    ),
    Rule(
        id="MS-RC-NORM-LEGACY",
        when="recompute-norm & use-legacy-models",
        doc="Recomputing the norms is written for Megatron-core models only.",
        source=f"MindSpeed-LLM parameter guide §26.3; {_OLD}:1022",
        stricter=True,
        enforced_until="2.1.0",
        reason="it stopped checking this in 2.2.0; legacy layers do not have the switch",
    ),
)
declare(_SEED, backends=_MINDSPEED)

_WAS = (
    Rule(
        id="MS-RC-NORM-MCORE-OLD",
        when="recompute-norm",
        then="use-mcore-models",
        doc="Recomputing the norms is written for Megatron-core models only.",
        source=f"{_OLD}:1022",
    ),
    Rule(
        id="MS-RC-ADVANCE-SELECTIVE-OLD",
        when="recompute-in-advance & recompute-granularity=selective",
        doc="Recomputing in advance excludes selective recomputation.",
        source=f"{_OLD}:1413",
    ),
    Rule(
        id="MS-RC-ADVANCE-ONE-LAYER-OLD",
        when="recompute-in-advance",
        then=f"{_VPP}=1 & pipeline-model-parallel-size>1",
        doc="Recomputing in advance needs the interleaved schedule with chunks of one layer.",
        source=f"{_OLD}:1417",
    ),
    Rule(
        id="MS-SWAP-LORA-NORM-OLD",
        when="swap-attention & lora-target-modules & !use-fused-rmsnorm",
        doc="Swapping attention in LoRA training needs the fused RMSNorm.",
        source=f"{_OLD}:995",
    ),
)
declare(_WAS, backends=_MINDSPEED, until="2.1.0")

# The switch has no effect in an existing script (core/transformer/mlp.py:49 and transformer_block.py:586 @26.1.0).
lower("MS-RC-PER-RANK", "mindspeed", "the switch does nothing there", since="2.2.0", when=lambda facts: facts.existing)


@rule(
    "MS-RC-PER-RANK",
    source=f"MindSpeed-LLM parameter guide §26.1; {_OLD}:1008",
    reads="enable-recompute-layers-per-pp-rank recompute-granularity recompute-method "
    "num-layers-per-virtual-pipeline-stage swap-attention recompute-activation-function",
    backends=_MINDSPEED,
    stricter=True,
    enforced_until="2.1.0",
    reason=_NOTHING,
)
def layers_per_rank_need_chunks(facts: RuleContext) -> Iterator[Violation]:
    """Counting recomputed layers per stage requires chunks (vpp) and layers to recompute or swap."""
    if not facts.flag("enable-recompute-layers-per-pp-rank"):
        return
    block = facts.flag("recompute-granularity") is not None and facts.flag("recompute-method") == "block"
    names = ("parallel.vpp", "parallel.pp")
    if not facts.flag(_VPP):
        yield Violation(
            message="recompute.per_pp_rank needs the interleaved schedule (parallel.vpp, pp above 1)",
            fields=("recompute.per_pp_rank", *names),
            flags=("enable-recompute-layers-per-pp-rank", _VPP),
        )
    if not (block or facts.flag("swap-attention") or facts.flag("recompute-activation-function")):
        yield Violation(
            message="recompute.per_pp_rank counts nothing: it needs recompute.method=block, recompute.activation or "
            "offload.attention",
            fields=("recompute.per_pp_rank", "recompute.method", "recompute.activation", "offload.attention"),
            flags=("enable-recompute-layers-per-pp-rank", "recompute-method", "recompute-activation-function"),
        )


def _range_fault(facts: RuleContext, flag: str) -> Iterator[Violation]:
    if facts.flag(flag) is None:
        return
    count, layers = facts.number(flag), facts.number("num-layers")
    if count < 0 or (layers and count > layers):
        yield Violation(message=f"--{flag} {count} is outside 0 … {layers} (the layers)", flags=(flag, "num-layers"))


@rule(
    "MS-RC-ACTIVATION-LAYERS",
    source=f"{_FEATURES}/recompute/activation_function.py:21-24",
    reads="num-layers recompute-activation-function-num-layers",
    backends=_MINDSPEED,
    since="26.1.0",
)
def activation_layers_exist(facts: RuleContext) -> Iterator[Violation]:
    """The number of layers whose activation function is recomputed is between 0 and all layers."""
    yield from _range_fault(facts, "recompute-activation-function-num-layers")


@rule(
    "MS-RC-NORM-LAYERS",
    source=f"{_FEATURES}/recompute/norm_function.py:21-24",
    reads="num-layers recompute-norm-num-layers",
    backends=_MINDSPEED,
    since="26.1.0",
)
def norm_layers_exist(facts: RuleContext) -> Iterator[Violation]:
    """The number of layers whose norms are recomputed is between 0 and all layers."""
    yield from _range_fault(facts, "recompute-norm-num-layers")


@rule(
    "MS-RC-BUBBLE-LAYERS",
    source=f"{_RIPIPE}:62",
    reads="recompute-num-layers recompute-in-bubble enable-recompute-layers-per-pp-rank num-layers "
    "pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage",
    backends=_MINDSPEED,
    since="26.1.0",
)
def bubble_chooses_layers(facts: RuleContext) -> Iterator[Violation]:
    """Recomputation in bubbles selects the number of layers; a given number must equal the selected one."""
    given = facts.number("recompute-num-layers")
    if not facts.flag("recompute-in-bubble") or not given:
        return
    per_rank = facts.flag("enable-recompute-layers-per-pp-rank")
    stage = facts.number("num-layers") // max(1, facts.number("pipeline-model-parallel-size", 1))
    wanted = stage if per_rank else facts.number(_VPP)
    if given != wanted:
        yield Violation(
            message=f"recompute.in_bubble excludes recompute.num_layers {given}: it chooses {wanted or 'itself'}",
            flags=("recompute-num-layers", "recompute-in-bubble"),
        )


_NEW = (
    Rule(
        id="MS-RC-BUBBLE-CHANGE",
        when="recompute-in-bubble & recompute-granularity!=full",
        sets={
            "recompute-granularity": "full",
            "recompute-method": "block",
            "recompute-num-layers": "{" + _VPP + "}",
        },
        tells_unwritten=True,
        phase="config",
        doc="Recomputation in bubbles sets full recomputation with method block and the layers of a chunk.",
        source=f"{_RIPIPE}:66-75",
        severity="change",
        message="recompute.granularity {recompute-granularity} → full, method → block, num_layers → "
        f"{{{_VPP}}}: recompute.in_bubble",
        flags=("recompute-granularity", "recompute-method", "recompute-num-layers"),
    ),
    Rule(
        id="MS-RC-BUBBLE-VPP",
        when="recompute-in-bubble",
        then=f"pipeline-model-parallel-size>1 & {_VPP}",
        doc="Recomputing in bubbles needs the interleaved schedule.",
        source=f"{_RIPIPE}:64",
    ),
    Rule(
        id="MS-RC-BUBBLE-SWAP",
        when="recompute-in-bubble & swap-attention",
        doc="Recomputing in bubbles excludes swapping attention.",
        source=f"{_RIPIPE}:77",
    ),
    Rule(
        id="MS-RC-BUBBLE-P2P",
        when="recompute-in-bubble & no-overlap-p2p-communication",
        doc="Recomputing in bubbles needs overlapped pipeline communication.",
        source=f"{_RIPIPE}:80",
    ),
    Rule(
        id="MS-RC-BUBBLE-SEND-RECV",
        when="recompute-in-bubble & optimize-send-recv-comm",
        doc="Recomputing in bubbles and optimised pipeline communication exclude each other.",
        source=f"{_FEATURES}/feature.py:63",
    ),
    Rule(
        id="MS-RC-ADVANCE-SEND-RECV",
        when="recompute-in-advance & optimize-send-recv-comm",
        doc="Recomputing in advance and optimised pipeline communication exclude each other.",
        source=f"{_FEATURES}/feature.py:63",
    ),
    Rule(
        id="MS-RC-ADVANCE-VPP",
        when="recompute-in-advance",
        then=f"pipeline-model-parallel-size>1 & {_VPP}",
        doc="Recomputing in advance needs the interleaved schedule.",
        source=f"{_RIPIPE}:112",
    ),
    Rule(
        id="MS-RC-ADVANCE-CHUNK",
        when=f"recompute-in-advance & {_VPP}>1",
        doc="Recomputing in advance works with chunks of one layer, and is switched off otherwise.",
        source=f"{_RIPIPE}:113",
        severity="change",
        message=f"recompute.in_advance true → false: chunks have {{{_VPP}}} layers, not 1",
        about=("recompute-in-advance",),
        sets={"recompute-in-advance": False},
        phase="config",
    ),
    Rule(
        id="MS-SWAP-LORA",
        when="swap-attention & lora-target-modules",
        doc="Swapping attention is not compatible with LoRA.",
        source=f"{_FEATURES}/memory/swap_attention.py:29",
    ),
    Rule(
        id="MS-SWAP-MODULES",
        when="swap-attention & !swap-modules?",
        doc="The default names of swapped modules are those of legacy layers, of which only one still exists.",
        source=f"MindSpeed-LLM parameter guide §26.4; {_FEATURES}/memory/swap_attention.py:19",
        severity="change",
        message=(
            "offload.modules not set → input_norm,self_attention,post_attention_norm: of these legacy names only "
            "self_attention matches; 2.1.0 took input_layernorm,self_attention,pre_cross_attn_layernorm"
        ),
        fields=("offload.modules",),
        about=("swap-modules",),
    ),
)
declare(_NEW, backends=_MINDSPEED, since="26.1.0")

_BOTH = (
    Rule(
        id="MS-RC-ADVANCE-UNIFORM",
        when="recompute-in-advance & recompute-method=uniform",
        doc="Recomputing in advance excludes the uniform method.",
        source=f"{_RIPIPE}:108; {_OLD}:1411",
    ),
    Rule(
        id="MS-RC-ADVANCE-LAYERS",
        when="recompute-in-advance",
        then="recompute-num-layers>0",
        doc="Recomputing in advance needs the number of layers.",
        source=f"{_RIPIPE}:110; {_OLD}:1415",
    ),
    Rule(
        id="MS-SWAP-UNUSED",
        when="swap-modules? & !swap-attention",
        doc="Modules to swap are read only where swapping is on.",
        source=f"{_FEATURES}/memory/swap_attention.py:19",
        severity="warning",
    ),
)
declare(_BOTH, backends=_MINDSPEED)
