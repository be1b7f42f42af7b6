"""The weight of routers' auxiliary losses where sequences are split over ranks, in every dialect of Megatron-core."""

from collections.abc import Callable

from backends.megatron_lm.rules.versions import BACKENDS, UNTIL_15, UNTIL_18
from launcher.catalogue.versions import in_range
from launcher.rules.registry import Range, Rule, RuleContext
from launcher.rules.table import declare

BALANCE_SHARE = (
    "Where sequences are split over ranks, these average their shares of the routers' auxiliary losses and do not add "
    "them, so that the losses weigh less than their coefficients say."
)
_ROUTER, _SCHEDULES = "megatron/core/transformer/moe/router.py", "megatron/core/pipeline_parallel/schedules.py"
# A rank multiplies the loss by its own tokens, and gradients are divided by all: tp × cp shares.
PER_TOKEN = f"Megatron-LM core_v0.16.1 {_ROUTER}:466, corrected in core_v0.19.0 :604"
# Gradients are averaged over context-parallel ranks, and the loss is not multiplied by their number: cp shares.
PER_RANK = f"core_v0.15.3 {_SCHEDULES}:271"
_TYPES = frozenset({"aux_loss", "seq_aux_loss", "global_aux_loss"})
_NAMES = ("moe-aux-loss-coeff", "calculate-per-token-loss", "tensor-model-parallel-size", "context-parallel-size")
_TYPE = "moe-router-load-balancing-type"
FIELDS = ("moe.aux_loss_coeff", "precision.calculate_per_token_loss", "parallel.tp", "parallel.cp")
# MindSpeed-LLM 2.2 and later are built on core 0.12.1, and replace other functions of both files only.
_SHARED: dict[str, Range] = {"megatron_lm": (None, UNTIL_18), "mindspeed": ("2.2", None)}
_SHARED_OVER_CP: dict[str, Range] = {"megatron_lm": (None, UNTIL_15), "mindspeed": ("2.2", None)}


def balance_share(spelled: Callable[[str], str] = str) -> Callable[[RuleContext], str]:
    """Return the check of a dialect.

    Args:
        spelled: how the dialect writes the name of an argument of Megatron-LM.
    """
    coefficient, per_token, tp, cp = (spelled(name) for name in _NAMES)

    def check(context: RuleContext) -> str:
        if not context.job.model.is_moe or not _TYPES & set(context.items(spelled(_TYPE))):
            return ""
        if not any(isinstance(each, float | int) and each > 0 for each in context.items(coefficient)):
            return ""
        over_cp, over_tp = context.number(cp, 1), context.number(tp, 1)
        if not context.flag(per_token):
            versions = _SHARED_OVER_CP.get(context.backend or "")
            is_shared = versions is not None and in_range(context.version or "", *versions)
            return _message(f"cp {over_cp}", over_cp) if is_shared else ""
        return _message(f"tp {over_tp} × cp {over_cp} with the loss per token", over_tp * over_cp)

    return check


def _message(split: str, shares: int) -> str:
    if shares <= 1:
        return ""
    return (
        f"{split}: the routers' auxiliary losses weigh 1/{shares} of their coefficients; moe.aux_loss_coeff times "
        f"{shares} restores the weight"
    )


def reads_of_balance_share(spelled: Callable[[str], str] = str) -> str:
    """Return what the check reads."""
    return " ".join((*(spelled(name) for name in (*_NAMES, _TYPE)), "job.model.is_moe"))


declare(
    (
        Rule(
            id="MLM-BALANCE-SHARE",
            doc=BALANCE_SHARE,
            source=f"{PER_TOKEN}; {PER_RANK}; measured: docs/rehearsal.md",
            check=balance_share(),
            reads=reads_of_balance_share(),
            flags=_NAMES,
            fields=FIELDS,
            severity="warning",
            phase="launch",
        ),
    ),
    backends=BACKENDS,
    versions=_SHARED,
)
