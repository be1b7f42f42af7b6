"""Defaults that Megatron-LM computes: rules that require these values are lifted, and the defaults are reported."""

from collections.abc import Iterator

from backends.megatron_lm.rules.versions import BACKENDS, EVERY, SINCE_12, arguments, config
from launcher.job.width import megatron_width
from launcher.rules.registry import RuleContext, Violation, lift, rule
from launcher.rules.training import GROUP_SCORES, group_scores_differ


def _ffn(facts: RuleContext) -> int:
    """Return Megatron-LM's default width of the feed-forward network."""
    return megatron_width(facts.number("hidden-size"), gated=bool(facts.flag("swiglu")))


def _has_shape(facts: RuleContext) -> bool:
    sizes = ("num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings")
    return all(facts.flag(name) for name in sizes) and _has_tokenizer(facts)


def _has_tokenizer(facts: RuleContext) -> bool:
    """Return whether a tokenizer defines the vocabulary size; Megatron-LM's own entry point has a default tokenizer."""
    return bool(facts.flag("tokenizer-type")) or (facts.backend == BACKENDS[0] and facts.existing)


def _has_batch(facts: RuleContext) -> bool:
    return facts.existing and bool(facts.flag("micro-batch-size"))


def _visited(facts: RuleContext) -> int:
    return facts.number("moe-router-group-topk")


# Megatron-LM checks the arguments for every model: see MLM-EXPERT-BIAS.
lift("MOE-BIAS-SIGMOID", "megatron_lm", lambda facts: facts.existing)
# A separate encoder uses additional devices: see MLM-ENCODER.
for _id in ("PAR-WORLD", "PAR-EXPERT-WORLD"):
    lift(_id, "megatron_lm", lambda facts: facts.number("encoder-pipeline-model-parallel-size") > 0)
for _backend in BACKENDS:
    # The two warm-up arguments are compared only if a training length is set (arguments.py:634).
    lift("LR-WARMUP-TWICE", _backend, lambda facts: not facts.flag("train-iters") and not facts.flag("train-samples"))
    lift("REQ-MODEL", _backend, _has_shape)
    # Groups without moe-router-group-topk are ignored; see MLM-GROUPS-UNUSED.
    lift("MOE-GROUPS", _backend, lambda facts: facts.given("moe-router-num-groups") != bool(_visited(facts)))
    lift("MOE-TOPK", _backend, lambda facts: facts.number("moe-router-topk") <= facts.number("num-experts"))


@rule(
    "MLM-FFN-DEFAULT",
    source=arguments(665, 797),
    reads="tokenizer-type ffn-hidden-size hidden-size swiglu max-position-embeddings num-attention-heads num-layers",
    severity="change",
    backends=BACKENDS,
    versions=EVERY,
)
def feed_forward_has_a_width(facts: RuleContext) -> Iterator[Violation]:
    """Without ffn-hidden-size, the feed-forward width is four times hidden_size (8/3 times with SwiGLU)."""
    if _has_shape(facts) and not facts.flag("ffn-hidden-size"):
        yield Violation(
            message=f"intermediate_size not set → {_ffn(facts)}",
            fields=("model.intermediate_size",),
            flags=("ffn-hidden-size",),
        )


@rule(
    "MLM-TOPK-DEFAULT",
    source="Megatron-LM arguments.py --moe-router-topk",
    reads="num-experts moe-router-topk",
    severity="change",
    backends=BACKENDS,
)
def tokens_visit_two_experts(facts: RuleContext) -> Iterator[Violation]:
    """Without moe-router-topk, each token is routed to two experts."""
    if facts.number("num-experts") and not facts.given("moe-router-topk"):
        yield Violation(
            message=f"num_experts_per_tok not set → {facts.number('moe-router-topk')}",
            fields=("model.num_experts_per_tok",),
            flags=("moe-router-topk",),
        )


@rule(
    "MLM-GLOBAL-BATCH-DEFAULT",
    source=arguments(422, 498),
    reads="job.imported.backend micro-batch-size job.parallel.dp global-batch-size",
    severity="change",
    backends=BACKENDS,
)
def global_batch_is_one_round(facts: RuleContext) -> Iterator[Violation]:
    """A command line without a global batch size runs one micro-batch on every data-parallel rank."""
    micro, dp = facts.number("micro-batch-size"), facts.job.parallel.dp
    if _has_batch(facts) and not facts.flag("global-batch-size") and dp:
        yield Violation(
            message=f"global_batch_size not set → {micro * dp} (micro_batch_size {micro} × dp {dp})",
            fields=("batch.global_batch_size",),
            flags=("global-batch-size",),
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
