"""What MindSpeed-LLM's training does not read of the arguments after validation, and what means the same."""

from backends.mindspeed.rules.tables import DEPRECATED_IN, LLM, MINDSPEED, OLD, SINCE
from backends.mindspeed.versions import deprecated_names
from launcher.rules.registry import Check, Rule, RuleContext
from launcher.rules.table import declare, unread

_DENSE, _EVERY, _NORM = "first-k-dense-replace", "moe-layer-freq", "norm-topk-prob"
_BLOCK = "MindSpeed-LLM 26.1.0 core/transformer/transformer_block.py:163"
_ROUTER = "core/transformer/moe/router.py"


def _every_layer(context: RuleContext) -> bool:
    """Return whether no layer is left out by the distance of MoE layers: modulo -1 is 0, as modulo 1."""
    return str(context.flag(_EVERY, 1)) in ("1", "-1")


def _all_layers(context: RuleContext) -> bool:
    return _every_layer(context) and context.flag(_DENSE, 0) in (0, -1)


def _sums_to_one(scaling: str) -> Check:
    """Return whether the weights of the chosen experts sum to one without the switch."""

    def check(context: RuleContext) -> bool:
        single = context.flag("moe-router-score-function") == "sigmoid" and context.number("moe-router-topk", 2) == 1
        return not single and context.flag(scaling) in (None, 1.0)

    return check


def _normalized(id: str, scaling: str, source: str) -> Rule:
    return unread(
        id,
        "moe-router-load-balancing-type=aux_loss|None & !moe-router-pre-softmax & moe-expert-capacity-factor=None",
        (_NORM,),
        "The weights of the selected experts already sum to one: softmax over them, without a scaling factor.",
        source,
        check=_sums_to_one(scaling),
        reads=f"moe-router-score-function moe-router-topk {scaling}",
    )


declare(
    (
        unread(
            "MS-UNREAD-BALANCED",
            "moe-router-load-balancing-type=seq_aux_loss|none|noaux_tc|sinkhorn",
            (_NORM,),
            "Routing with these losses ignores the switch: it never or always normalizes.",
            f"MindSpeed-LLM 26.1.0 {_ROUTER}:553-625; MindSpeed-LLM 2.1.0 {_ROUTER}:478-520",
        ),
        unread(
            "MS-UNREAD-MOE-LAYERS",
            "",
            (_DENSE, _EVERY),
            "With these values all layers are MoE layers, which is the default.",
            _BLOCK,
            check=_all_layers,
        ),
        unread(
            "MS-UNREAD-MOE-DISTANCE",
            "",
            (),
            "The frequency -1 has the same effect as 1.",
            _BLOCK,
            check=lambda context: _every_layer(context) and not _all_layers(context),
            reads=_DENSE,
            equivalent={_EVERY: 1},
        ),
    ),
    backends=MINDSPEED,
    phase="launch",
)
declare(
    (_normalized("MS-UNREAD-NORM-OLD", "routed-scaling-factor", f"MindSpeed-LLM 2.1.0 {_ROUTER}:478-520"),),
    backends=MINDSPEED,
    phase="launch",
    until=OLD,
)
declare(
    (
        _normalized("MS-UNREAD-NORM", "moe-router-topk-scaling-factor", f"MindSpeed-LLM 26.1.0 {_ROUTER}:553-625"),
        unread(
            "MS-UNREAD-OLD-NAMES",
            "",
            tuple(deprecated_names(DEPRECATED_IN)),
            "Deprecated names are copied to the names that replaced them.",
            f"{LLM}/arguments/deprecated_args.py:57",
        ),
        unread(
            "MS-UNREAD-SHARED-COUNT",
            "moe-shared-expert-intermediate-size?",
            ("n-shared-experts",),
            "The number of shared experts is converted to their total width.",
            f"{LLM}/moe/shared_expert.py:16",
        ),
    ),
    backends=MINDSPEED,
    phase="launch",
    since=SINCE,
)
