"""Recomputation and swapping on Ascend (MindSpeed-LLM parameter guide §26), including recomputation in pipeline "
"bubbles."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import SINCE
from launcher.rules.registry import Rule, RuleContext, Violation, lower, rule
from launcher.rules.table import declare, needs, never

_MINDSPEED = ("mindspeed",)
_OLD = "MindSpeed-LLM 2.1.0 training/arguments.py"
_RIPIPE = "MindSpeed 26.1.0 features_manager/pipeline_parallel/ripipe_schedules_feature.py"
_FEATURES = "MindSpeed 26.1.0 features_manager"
_GONE = "it stopped checking this in 2.2.0; with uniform it takes the number as that of fully recomputed layers"
_NOTHING = "it stopped checking this in 2.2.0; without chunks and recomputation the switch has no effect"
_VPP = "num-layers-per-virtual-pipeline-stage"

_SEED = (
    Rule(
        id="MS-RC-ACTIVATION-UNIFORM",
        when="recompute-activation-function & recompute-method=uniform",
        doc="Recomputing the activation function counts layers per stage, which the uniform method does not.",
        source=f"MindSpeed-LLM parameter guide §26.2; {_OLD}:1012",
        message="recompute.activation cannot be combined with recompute.method=uniform",
        stricter=True,
        enforced_until="2.1.0",
        reason=_GONE,
    ),
    Rule(
        id="MS-RC-ACTIVATION-SELECTIVE",
        when="recompute-activation-function & recompute-granularity=selective",
        doc="Recomputing the activation function excludes selective recomputation, which recomputes attention.",
        source=f"MindSpeed-LLM parameter guide §26.2; {_OLD}:1014",
        message="recompute.activation cannot be combined with recompute.granularity=selective",
        stricter=True,
        enforced_until="2.1.0",
        reason="it stopped checking this in 2.2.0, but the two are not designed to be combined",
    ),
    Rule(
        id="MS-RC-NORM-UNIFORM",
        when="recompute-norm & recompute-method=uniform",
        doc="Recomputing the norms counts layers per stage, which the uniform method does not.",
        source=f"MindSpeed-LLM parameter guide §26.3; {_OLD}:1018",
        message="recompute.norm cannot be combined with recompute.method=uniform",
        stricter=True,
        enforced_until="2.1.0",
        reason=_GONE,
    ),
    Rule(
        id="MS-RC-NORM-SELECTIVE",
        when="recompute-norm & recompute-granularity=selective",
        doc="Recomputing the norms excludes selective recomputation, which recomputes attention.",
        source=f"MindSpeed-LLM parameter guide §26.3; {_OLD}:1020",
        message="recompute.norm cannot be combined with recompute.granularity=selective",
        stricter=True,
        enforced_until="2.1.0",
        reason="it stopped checking this in 2.2.0, but the two are not designed to be combined",
    ),
    Rule(
        id="MS-RC-NORM-LEGACY",
        when="recompute-norm & use-legacy-models",
        doc="Recomputing the norms needs Megatron-core models.",
        source=f"MindSpeed-LLM parameter guide §26.3; {_OLD}:1022",
        stricter=True,
        enforced_until="2.1.0",
        reason="it stopped checking this in 2.2.0; legacy layers do not have the switch",
    ),
)
declare(_SEED, backends=_MINDSPEED)

# fmt: off
declare((
    needs("MS-RC-NORM-MCORE-OLD", "recompute-norm", "use-mcore-models",
          "Recomputing the norms needs Megatron-core models.", f"{_OLD}:1022"),
    never("MS-RC-ADVANCE-SELECTIVE-OLD", "recompute-in-advance & recompute-granularity=selective",
          "Recomputing in advance excludes selective recomputation.", f"{_OLD}:1413"),
    needs("MS-RC-ADVANCE-ONE-LAYER-OLD", "recompute-in-advance", f"{_VPP}=1 & pipeline-model-parallel-size>1",
          "Recomputing in advance needs the interleaved schedule with chunks of one layer.", f"{_OLD}:1417"),
    never("MS-SWAP-LORA-NORM-OLD", "swap-attention & lora-target-modules & !use-fused-rmsnorm",
          "Swapping attention in LoRA training needs the fused RMSNorm.", f"{_OLD}:995"),
), backends=_MINDSPEED, until="2.1.0")
# fmt: on

# The switch has no effect in an existing script (core/transformer/mlp.py:49 and transformer_block.py:586 @26.1.0).
lower(
    "MS-RC-PER-RANK",
    "mindspeed",
    "there the switch has no effect",
    since="2.2.0",
    when=lambda context: context.existing,
)


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
def layers_per_rank_need_chunks(context: RuleContext) -> Iterator[Violation]:
    """Counting recomputed layers per stage requires chunks (vpp) and layers to recompute or swap."""
    if not context.flag("enable-recompute-layers-per-pp-rank"):
        return
    block = context.flag("recompute-granularity") is not None and context.flag("recompute-method") == "block"
    names = ("parallel.vpp", "parallel.pp")
    if not context.flag(_VPP):
        yield Violation(
            message="recompute.per_pp_rank needs the interleaved schedule (parallel.vpp, pp above 1)",
            fields=("recompute.per_pp_rank", *names),
            flags=("enable-recompute-layers-per-pp-rank", _VPP),
        )
    if not (block or context.flag("swap-attention") or context.flag("recompute-activation-function")):
        yield Violation(
            message="recompute.per_pp_rank needs layers to count: recompute.method=block, recompute.activation or "
            "offload.attention",
            fields=("recompute.per_pp_rank", "recompute.method", "recompute.activation", "offload.attention"),
            flags=("enable-recompute-layers-per-pp-rank", "recompute-method", "recompute-activation-function"),
        )


@rule(
    "MS-RC-BUBBLE-LAYERS",
    source=f"{_RIPIPE}:62",
    reads="recompute-num-layers recompute-in-bubble enable-recompute-layers-per-pp-rank num-layers "
    "pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage",
    backends=_MINDSPEED,
    since=SINCE,
)
def bubble_chooses_layers(context: RuleContext) -> Iterator[Violation]:
    """Recomputation in bubbles selects the number of layers; a given number must equal the selected one."""
    given = context.number("recompute-num-layers")
    if not context.flag("recompute-in-bubble") or not given:
        return
    per_rank = context.flag("enable-recompute-layers-per-pp-rank")
    stage = context.number("num-layers") // max(1, context.number("pipeline-model-parallel-size", 1))
    wanted = stage if per_rank else context.number(_VPP)
    if given != wanted:
        yield Violation(
            message=f"recompute.in_bubble sets recompute.num_layers to {wanted or 'the layers of a chunk'}, not "
            f"{given}",
            flags=("recompute-num-layers", "recompute-in-bubble"),
        )


# fmt: off
declare((
    Rule(
    id="MS-RC-BUBBLE-CHANGE",
    when="recompute-in-bubble & recompute-granularity!=full",
    sets={
        "recompute-granularity": "full",
        "recompute-method": "block",
        "recompute-num-layers": "{" + _VPP + "}",
    },
    reports_unwritten=True,
    phase="config",
    doc="Recomputation in bubbles sets full recomputation with method block and the layers of a chunk.",
    source=f"{_RIPIPE}:66-75",
    severity="change",
    message="recompute.granularity {recompute-granularity} → full, method → block, num_layers → "
    f"{{{_VPP}}}: recompute.in_bubble sets them",
    flags=("recompute-granularity", "recompute-method", "recompute-num-layers"),
),
    needs("MS-RC-ACTIVATION-LAYERS", "recompute-activation-function-num-layers? & num-layers",
          "recompute-activation-function-num-layers>=0 & recompute-activation-function-num-layers<={num-layers}",
          "The number of layers whose activation function is recomputed is between 0 and all layers.",
          f"{_FEATURES}/recompute/activation_function.py:21-24",
          message="--recompute-activation-function-num-layers {recompute-activation-function-num-layers} is outside 0 "
          "… {num-layers} (num_layers)", flags=("recompute-activation-function-num-layers", "num-layers")),
    needs("MS-RC-NORM-LAYERS", "recompute-norm-num-layers? & num-layers",
          "recompute-norm-num-layers>=0 & recompute-norm-num-layers<={num-layers}",
          "The number of layers whose norms are recomputed is between 0 and all layers.",
          f"{_FEATURES}/recompute/norm_function.py:21-24",
          message="--recompute-norm-num-layers {recompute-norm-num-layers} is outside 0 … {num-layers} (num_layers)",
          flags=("recompute-norm-num-layers", "num-layers")),
    needs("MS-RC-BUBBLE-VPP", "recompute-in-bubble", f"pipeline-model-parallel-size>1 & {_VPP}",
          "Recomputing in bubbles needs the interleaved schedule.", f"{_RIPIPE}:64"),
    never("MS-RC-BUBBLE-SWAP", "recompute-in-bubble & swap-attention",
          "Recomputing in bubbles excludes swapping attention.", f"{_RIPIPE}:77", since="2.3"),
    never("MS-RC-BUBBLE-P2P", "recompute-in-bubble & no-overlap-p2p-communication",
          "Recomputing in bubbles needs overlapped pipeline communication.", f"{_RIPIPE}:80", since="2.3"),
    never("MS-RC-BUBBLE-SEND-RECV", "recompute-in-bubble & optimize-send-recv-comm",
          "Recomputing in bubbles and optimised pipeline communication exclude each other.",
          f"{_FEATURES}/feature.py:63"),
    never("MS-RC-ADVANCE-SEND-RECV", "recompute-in-advance & optimize-send-recv-comm",
          "Recomputing in advance and optimised pipeline communication exclude each other.",
          f"{_FEATURES}/feature.py:63"),
    needs("MS-RC-ADVANCE-VPP", "recompute-in-advance", f"pipeline-model-parallel-size>1 & {_VPP}",
          "Recomputing in advance needs the interleaved schedule.", f"{_RIPIPE}:112"),
    Rule(
    id="MS-RC-ADVANCE-CHUNK",
    when=f"recompute-in-advance & {_VPP}>1",
    doc="Recomputing in advance works with chunks of one layer, and is switched off otherwise.",
    source=f"{_RIPIPE}:113",
    severity="change",
    message=f"recompute.in_advance true → false: it needs chunks of 1 layer, not {{{_VPP}}}",
    about=("recompute-in-advance",),
    sets={"recompute-in-advance": False},
    phase="config",
),
    never("MS-SWAP-LORA", "swap-attention & lora-target-modules",
          "Swapping attention is not compatible with LoRA.", f"{_FEATURES}/memory/swap_attention.py:29"),
    Rule(
    id="MS-SWAP-MODULES",
    when="swap-attention & !swap-modules?",
    doc="The default names of swapped modules are those of legacy layers, of which only one still exists.",
    source=f"MindSpeed-LLM parameter guide §26.4; {_FEATURES}/memory/swap_attention.py:19",
    severity="change",
    message=(
        "offload.modules not set → input_norm,self_attention,post_attention_norm: of these legacy names only "
        "self_attention exists; 2.1.0 used input_layernorm,self_attention,pre_cross_attn_layernorm"
    ),
    fields=("offload.modules",),
    about=("swap-modules",),
),
), backends=_MINDSPEED, since=SINCE)

declare((
    never("MS-RC-ADVANCE-UNIFORM", "recompute-in-advance & recompute-method=uniform",
          "Recomputing in advance excludes the uniform method.", f"{_RIPIPE}:108; {_OLD}:1411"),
    needs("MS-RC-ADVANCE-LAYERS", "recompute-in-advance", "recompute-num-layers>0",
          "Recomputing in advance needs the number of layers.", f"{_RIPIPE}:110; {_OLD}:1415"),
    Rule(
    id="MS-SWAP-UNUSED",
    when="swap-modules? & !swap-attention",
    doc="Modules to swap are read only where swapping is on.",
    source=f"{_FEATURES}/memory/swap_attention.py:19",
    severity="warning",
),
), backends=_MINDSPEED)
# fmt: on
