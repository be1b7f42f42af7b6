"""Values that Megatron-LM fills in itself: rules that demand them are lifted, and what it fills in is shown."""

from collections.abc import Iterator

from backends.megatron_lm.rules.versions import BACKENDS, EVERY, SINCE_12, arguments, config
from launcher.rules.registry import RuleContext, Violation, lift, rule
from launcher.rules.training import GROUP_SCORES, group_scores_differ


def _ffn(facts: RuleContext) -> int:
    """Return the width that Megatron-LM gives a feed-forward network without one."""
    hidden = facts.number("hidden-size")
    return int((4 * hidden * 2 / 3) / 64) * 64 if facts.flag("swiglu") else 4 * hidden


def _has_shape(facts: RuleContext) -> bool:
    sizes = ("num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings")
    return all(facts.flag(name) for name in sizes) and _has_tokenizer(facts)


def _has_tokenizer(facts: RuleContext) -> bool:
    """Tell whether a tokenizer says how large the vocabulary is; Megatron-LM's own entry point has one by default."""
    return bool(facts.flag("tokenizer-type")) or (facts.backend == BACKENDS[0] and facts.as_written)


def _has_batch(facts: RuleContext) -> bool:
    return facts.as_written and bool(facts.flag("micro-batch-size"))


def _visited(facts: RuleContext) -> int:
    return facts.number("moe-router-group-topk")


# Read from the arguments there, whatever the model: see MLM-EXPERT-BIAS.
lift("MOE-BIAS-SIGMOID", "megatron_lm", lambda facts: facts.as_written)
# Devices of an encoder of its own come beside the others: see MLM-ENCODER.
for _id in ("PAR-WORLD", "PAR-EXPERT-WORLD"):
    lift(_id, "megatron_lm", lambda facts: facts.number("encoder-pipeline-model-parallel-size") > 0)
for _backend in BACKENDS:
    # The two ways to warm up are compared where there is something to warm up for (arguments.py:634).
    lift("LR-WARMUP-TWICE", _backend, lambda facts: not facts.flag("train-iters") and not facts.flag("train-samples"))
    lift("REQ-MODEL", _backend, _has_shape)
    # Groups without a number that a token visits are not read; see MLM-GROUPS-UNUSED.
    lift("MOE-GROUPS", _backend, lambda facts: facts.given("moe-router-num-groups") != bool(_visited(facts)))
    lift("MOE-TOPK", _backend, lambda facts: facts.number("moe-router-topk") <= facts.number("num-experts"))


@rule("MLM-FFN-DEFAULT", source=arguments(665, 797), severity="change", backends=BACKENDS, versions=EVERY)
def feed_forward_has_a_width(facts: RuleContext) -> Iterator[Violation]:
    """Without a width, the feed-forward network is four times as wide as the model (8/3 with SwiGLU)."""
    if _has_shape(facts) and not facts.flag("ffn-hidden-size"):
        yield Violation(
            message=f"intermediate_size not set → {_ffn(facts)}",
            fields=("model.intermediate_size",),
            flags=("ffn-hidden-size",),
        )


@rule("MLM-TOPK-DEFAULT", source="Megatron-LM arguments.py --moe-router-topk", severity="change", backends=BACKENDS)
def tokens_visit_two_experts(facts: RuleContext) -> Iterator[Violation]:
    """Without a number, a token visits two experts."""
    if facts.number("num-experts") and not facts.given("moe-router-topk"):
        yield Violation(
            message=f"num_experts_per_tok not set → {facts.number('moe-router-topk')}",
            fields=("model.num_experts_per_tok",),
            flags=("moe-router-topk",),
        )


@rule("MLM-GLOBAL-BATCH-DEFAULT", source=arguments(422, 498), severity="change", backends=BACKENDS)
def global_batch_is_one_round(facts: RuleContext) -> Iterator[Violation]:
    """A command line without a global batch runs one micro-batch on every data-parallel rank."""
    micro, dp = facts.number("micro-batch-size"), facts.job.parallel.dp
    if _has_batch(facts) and not facts.flag("global-batch-size") and dp:
        yield Violation(
            message=f"global_batch_size not set → {micro * dp} (micro_batch_size {micro} × dp {dp})",
            fields=("batch.global_batch_size",),
            flags=("global-batch-size",),
        )


@rule("MLM-GROUPS-UNUSED", source=config(986, 1643), severity="warning", backends=BACKENDS, versions=SINCE_12)
def groups_are_visited(facts: RuleContext) -> Iterator[Violation]:
    """Groups of experts are read only with the number of groups that a token visits."""
    if facts.given("moe-router-num-groups") and not _visited(facts):
        yield Violation(
            message="n_group without topk_group has no effect: tokens visit all groups",
            fields=("model.n_group", "model.topk_group"),
            flags=("moe-router-num-groups", "moe-router-group-topk"),
        )


@rule("MLM-GROUP-SCORES", source=GROUP_SCORES, severity="warning", backends=BACKENDS, versions=SINCE_12)
def groups_are_scored_alike(facts: RuleContext) -> Iterator[Violation]:
    """A group of experts is scored by its best topk / topk_group experts, where models count one (V2) or two (V3)."""
    message = group_scores_differ(facts.job.model) if _visited(facts) else ""
    if message:
        yield Violation(
            message=message,
            fields=("model.n_group", "model.topk_group", "model.num_experts_per_tok"),
            flags=("moe-router-num-groups", "moe-router-group-topk"),
        )
