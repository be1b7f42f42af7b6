"""What validation sets since Megatron-LM 0.17: types of Megatron FSDP, maximal update parameterization, saving."""

from backends.megatron_lm.rules.effective.tables import sets
from backends.megatron_lm.rules.versions import PLAIN, SINCE_17, UNTIL_18, configured, validated
from launcher.job import Value
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare

_V = "0.17.1"
_SEVENTEEN = {"megatron_lm": (SINCE_17, None)}
_MAIN_PARAMS, _MAIN_GRADS, _COMM = (
    f"megatron-fsdp-{name}-dtype" for name in ("main-params", "main-grads", "grad-comm")
)
_WIDTH, _OUTPUT = "mup-width-mult", "mup-output-mult"


def _width(context: RuleContext) -> float:
    hidden = context.number("hidden-size")
    return hidden / (context.number("mup-base-hidden-size") or hidden or 1)


def _output(context: RuleContext) -> Value:
    given, width = context.flag(_OUTPUT), _width(context)
    return 1.0 / width if given in (None, 1.0) and width != 1.0 else given


declare(
    (
        sets(
            "MLM-SET-SKIP-TRAIN-17",
            "skip-train & !perform-rl-step",
            {"no-load-optim": True},
            "Without training no optimizer state is read.",
            validated(_V, 1476),
            _SEVENTEEN,
        ),
        sets(
            "MLM-SET-ASYNC-STRATEGY",
            "!async-save",
            {"async-strategy": "mcore"},
            "The strategy is that of asynchronous saving only.",
            validated(_V, 1444),
            _SEVENTEEN,
        ),
        *(
            sets(
                f"MLM-SET-MFSDP-{name}",
                f"{flag}=auto",
                {flag: None},
                "The value auto means the type of the model's weights and gradients.",
                validated(_V, line),
                _SEVENTEEN,
            )
            for name, flag, line in (
                ("PARAMS", _MAIN_PARAMS, 923),
                ("GRADS", _MAIN_GRADS, 924),
                ("COMM", _COMM, 925),
            )
        ),
        sets(
            "MLM-SET-MFSDP-COMM-BF16",
            "grad-reduce-in-bf16",
            {_COMM: "bf16"},
            "Gradients that are reduced in bf16 are so in Megatron FSDP, too.",
            validated(_V, 927),
            {"megatron_lm": (SINCE_17, UNTIL_18)},
        ),
        sets(
            "MLM-SET-MUP-BASE",
            "use-mup & !mup-base-hidden-size?",
            {"mup-base-hidden-size": "{hidden-size}"},
            "Without a base the model is its own.",
            configured(_V, 1751),
            _SEVENTEEN,
        ),
        sets(
            "MLM-SET-MUP-WIDTH",
            "use-mup & hidden-size?",
            {_WIDTH: _width, _OUTPUT: _output},
            "The multipliers follow from the width of the model and of its base.",
            configured(_V, "1754, 1766"),
            _SEVENTEEN,
            "hidden-size mup-base-hidden-size mup-output-mult",
        ),
    ),
    backends=PLAIN,
)
