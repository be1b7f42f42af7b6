"""Rules that Megatron-LM's own defaults lift, and what it does with expert groups."""

from collections.abc import Iterator

from backends.megatron_lm.environment import ENVIRONMENT
from backends.megatron_lm.rules.versions import BACKENDS, SINCE_12, SINCE_19, arguments, config
from launcher.catalogue.versions import in_range
from launcher.rules.registry import RuleContext, Violation, lift, lower, rule
from launcher.rules.table import declare, never
from launcher.rules.training import GROUP_SCORES, group_scores_differ


def _has_shape(context: RuleContext) -> bool:
    sizes = ("num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings")
    return all(context.flag(name) for name in sizes) and _has_tokenizer(context)


def _has_tokenizer(context: RuleContext) -> bool:
    """Return whether a tokenizer defines the vocabulary size; Megatron-LM's own entry point has a default tokenizer."""
    return bool(context.flag("tokenizer-type")) or (context.backend == BACKENDS[0] and context.existing)


def _visited(context: RuleContext) -> int:
    return context.number("moe-router-group-topk")


# Megatron-LM checks the arguments for every model: see MLM-EXPERT-BIAS.
lift("MOE-BIAS-SIGMOID", "megatron_lm", lambda context: context.existing)
# A separate encoder uses additional devices: see MLM-ENCODER.
for _id in ("PAR-WORLD", "PAR-EXPERT-WORLD"):
    lift(_id, "megatron_lm", lambda context: context.number("encoder-pipeline-model-parallel-size") > 0)
for _backend in BACKENDS:
    # MLM-SET-SP says so of the argument.
    lift("PAR-SP-TP", _backend, lambda context: True)
    # The two warm-up arguments are compared only if a training length is set (arguments.py:634).
    lift(
        "LR-WARMUP-TWICE",
        _backend,
        lambda context: not context.flag("train-iters") and not context.flag("train-samples"),
    )
    lift("REQ-MODEL", _backend, _has_shape)
    # Groups without moe-router-group-topk are ignored; see MLM-GROUPS-UNUSED.
    lift("MOE-GROUPS", _backend, lambda context: context.given("moe-router-num-groups") != bool(_visited(context)))
    lift("MOE-TOPK", _backend, lambda context: context.number("moe-router-topk") <= context.number("num-experts"))


# fmt: off
declare((
    never("MLM-TOPK-DEFAULT", "num-experts>0 & !moe-router-topk?",
          "Without moe-router-topk, each token is routed to two experts.", "Megatron-LM arguments.py --moe-router-topk",
          message="num_experts_per_tok not set → {moe-router-topk}", severity="change", flags=("moe-router-topk",),
          fields=("model.num_experts_per_tok",)),
    never("MLM-GROUPS-UNUSED", "moe-router-num-groups? & !moe-router-group-topk",
          "Expert groups take effect only with moe-router-group-topk, the number of groups selected per token.",
          config(986, 1643),
          message="n_group without topk_group has no effect: tokens are routed to all groups", severity="warning",
          fields=("model.n_group", "model.topk_group"), versions=SINCE_12),
    never("MLM-GROUP-ONE", "num-experts & moe-router-num-groups=1 & moe-router-group-topk>1",
          "A token is routed to at most as many expert groups as there are; with one group that is all experts.",
          config(1001, 1658),
          message="--moe-router-group-topk {moe-router-group-topk} is above --moe-router-num-groups 1",
          flags=("moe-router-num-groups", "moe-router-group-topk"), versions=SINCE_12),
), backends=BACKENDS)
# fmt: on


@rule(
    "MLM-GROUP-SCORES",
    source=GROUP_SCORES,
    reads="moe-router-group-topk job.model.num_experts_per_tok job.model.n_group job.model.topk_group "
    "job.model.scoring_func",
    severity="warning",
    backends=BACKENDS,
    versions=SINCE_12,
)
def groups_are_scored_alike(context: RuleContext) -> Iterator[Violation]:
    """Megatron scores an expert group by its best topk / topk_group experts; DeepSeek-V2 uses the best one, V3 two."""
    message = group_scores_differ(context.job.model) if _visited(context) else ""
    if message:
        yield Violation(
            message=message,
            fields=("model.n_group", "model.topk_group", "model.num_experts_per_tok"),
            flags=("moe-router-num-groups", "moe-router-group-topk"),
        )


for _backend in BACKENDS:
    lower(
        "MLM-DETERMINISTIC-NCCL",
        _backend,
        "the shell that starts the script may set it",
        when=lambda context: context.existing,
    )


@rule(
    "MLM-DETERMINISTIC-NCCL",
    source=arguments(881, 1078),
    reads="deterministic-mode job.backend.env",
    backends=BACKENDS,
)
def reductions_are_fixed(context: RuleContext) -> Iterator[Violation]:
    """Deterministic training needs a fixed NCCL_ALGO in the environment."""
    known: tuple[str, ...] = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS")
    if not context.flag("deterministic-mode"):
        return
    started = context.backend == BACKENDS[0] and not context.existing  # then the launcher sets it
    set_here = next((each.value for each in ENVIRONMENT if each.name == "NCCL_ALGO"), None) if started else None
    given = context.job.backend.env.get("NCCL_ALGO", set_here)
    if context.backend == BACKENDS[0] and in_range(context.version or "", SINCE_19, None):
        # It sets Ring where nothing is given, and takes several (determinism.py @core_v0.19.0).
        known, parts = known[1:], str(given).split(",")
        is_fixed = given is None or all(part.strip() in known for part in parts)
    else:
        is_fixed = given in known
    if not is_fixed:
        yield Violation(
            message=f"--deterministic-mode needs NCCL_ALGO in the environment, one of {', '.join(known)}",
            fields=("kernels.deterministic", "backend.env.NCCL_ALGO"),
            flags=("deterministic-mode",),
        )
