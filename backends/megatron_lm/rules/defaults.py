"""Rules that Megatron-LM's own defaults lift, and what it does with expert groups."""

from collections.abc import Iterator

from backends.megatron_lm.rules.versions import BACKENDS, SINCE_12, arguments, config
from launcher.rules.registry import Rule, RuleContext, Violation, lift, lower, rule
from launcher.rules.table import declare
from launcher.rules.training import GROUP_SCORES, group_scores_differ


def _has_shape(facts: RuleContext) -> bool:
    sizes = ("num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings")
    return all(facts.flag(name) for name in sizes) and _has_tokenizer(facts)


def _has_tokenizer(facts: RuleContext) -> bool:
    """Return whether a tokenizer defines the vocabulary size; Megatron-LM's own entry point has a default tokenizer."""
    return bool(facts.flag("tokenizer-type")) or (facts.backend == BACKENDS[0] and facts.existing)


def _visited(facts: RuleContext) -> int:
    return facts.number("moe-router-group-topk")


# Megatron-LM checks the arguments for every model: see MLM-EXPERT-BIAS.
lift("MOE-BIAS-SIGMOID", "megatron_lm", lambda facts: facts.existing)
# A separate encoder uses additional devices: see MLM-ENCODER.
for _id in ("PAR-WORLD", "PAR-EXPERT-WORLD"):
    lift(_id, "megatron_lm", lambda facts: facts.number("encoder-pipeline-model-parallel-size") > 0)
for _backend in BACKENDS:
    # MLM-SET-SP says so of the argument.
    lift("PAR-SP-TP", _backend, lambda facts: True)
    # The two warm-up arguments are compared only if a training length is set (arguments.py:634).
    lift("LR-WARMUP-TWICE", _backend, lambda facts: not facts.flag("train-iters") and not facts.flag("train-samples"))
    lift("REQ-MODEL", _backend, _has_shape)
    # Groups without moe-router-group-topk are ignored; see MLM-GROUPS-UNUSED.
    lift("MOE-GROUPS", _backend, lambda facts: facts.given("moe-router-num-groups") != bool(_visited(facts)))
    lift("MOE-TOPK", _backend, lambda facts: facts.number("moe-router-topk") <= facts.number("num-experts"))


declare(
    (
        Rule(
            id="MLM-TOPK-DEFAULT",
            when="num-experts>0 & !moe-router-topk?",
            message="num_experts_per_tok not set → {moe-router-topk}",
            doc="Without moe-router-topk, each token is routed to two experts.",
            source="Megatron-LM arguments.py --moe-router-topk",
            severity="change",
            flags=("moe-router-topk",),
            fields=("model.num_experts_per_tok",),
        ),
    ),
    backends=BACKENDS,
)


@rule(
    "MLM-GROUPS-UNUSED",
    source=config(986, 1643),
    reads="moe-router-num-groups moe-router-group-topk",
    severity="warning",
    backends=BACKENDS,
    versions=SINCE_12,
)
def groups_are_visited(facts: RuleContext) -> Iterator[Violation]:
    """Expert groups take effect only with moe-router-group-topk, the number of groups selected per token."""
    if facts.given("moe-router-num-groups") and not _visited(facts):
        yield Violation(
            message="n_group without topk_group has no effect: tokens visit all groups",
            fields=("model.n_group", "model.topk_group"),
            flags=("moe-router-num-groups", "moe-router-group-topk"),
        )


@rule(
    "MLM-GROUP-SCORES",
    source=GROUP_SCORES,
    reads="moe-router-group-topk job.model.num_experts_per_tok job.model.n_group job.model.topk_group "
    "job.model.scoring_func",
    severity="warning",
    backends=BACKENDS,
    versions=SINCE_12,
)
def groups_are_scored_alike(facts: RuleContext) -> Iterator[Violation]:
    """Megatron scores an expert group by its best topk / topk_group experts; DeepSeek-V2 uses the best one, V3 two."""
    message = group_scores_differ(facts.job.model) if _visited(facts) else ""
    if message:
        yield Violation(
            message=message,
            fields=("model.n_group", "model.topk_group", "model.num_experts_per_tok"),
            flags=("moe-router-num-groups", "moe-router-group-topk"),
        )


@rule(
    "MLM-GROUP-ONE",
    source=config(1001, 1658),
    reads="moe-router-num-groups moe-router-group-topk num-experts",
    backends=BACKENDS,
    versions=SINCE_12,
)
def one_group_is_visited_once(facts: RuleContext) -> Iterator[Violation]:
    """A token visits no more expert groups than there are; one group is all experts, and no field says it."""
    groups, visited = facts.number("moe-router-num-groups"), _visited(facts)
    if facts.flag("num-experts") and groups == 1 and visited > groups:
        flags = ("moe-router-num-groups", "moe-router-group-topk")
        yield Violation(message=f"--moe-router-group-topk {visited} is more than the one group", flags=flags)


for _backend in BACKENDS:
    lower(
        "MLM-DETERMINISTIC-NCCL",
        _backend,
        "the shell that starts a script may set it",
        when=lambda facts: facts.existing,
    )


@rule(
    "MLM-DETERMINISTIC-NCCL",
    source=arguments(881, 1078),
    reads="deterministic-mode job.backend.env",
    backends=BACKENDS,
)
def reductions_are_fixed(facts: RuleContext) -> Iterator[Violation]:
    """Deterministic training needs a fixed NCCL_ALGO in the environment."""
    known = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS")
    if facts.flag("deterministic-mode") and facts.job.backend.env.get("NCCL_ALGO") not in known:
        yield Violation(
            message=f"--deterministic-mode needs NCCL_ALGO in the environment, one of {', '.join(known)}",
            fields=("kernels.deterministic", "backend.env.NCCL_ALGO"),
            flags=("deterministic-mode",),
        )
