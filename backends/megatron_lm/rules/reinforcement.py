"""Checks of Megatron-LM 0.16's reinforcement learning (`--perform-rl-step`): batches of one generation, memory."""

from backends.megatron_lm.rules.versions import ONLY_16, PLAIN, SINCE_15, UNTIL_16, arguments
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare, needs, never

_RL = "perform-rl-step"
_SIZES = ("grpo-prompts-per-step", "grpo-group-size", "grpo-iterations")


def _generated(context: RuleContext) -> int:
    """Return the samples of one generation, each trained on in every iteration of GRPO."""
    count = 1
    for name in _SIZES:
        count *= context.number(name)
    return count


def _whole(context: RuleContext) -> str:
    count, batch = _generated(context), context.number("global-batch-size")
    return f"{count} generated samples are not a multiple of global batch {batch}" if batch and count % batch else ""


def _on_generation(name: str) -> Rule:
    """Return the rule that an interval ends where samples are generated: those in use cannot be stored."""

    def check(context: RuleContext) -> str:
        count, batch = _generated(context), context.number("global-batch-size")
        steps = count // batch if batch else 0
        every = context.number(name)
        return (
            f"--{name} {every} is not a multiple of the {steps} steps of one generation"
            if steps and every % steps
            else ""
        )

    return Rule(
        id=f"MLM-RL-{name.upper()}",
        doc="Training stops and saves only when samples are generated: samples in use are not stored.",
        source=arguments("", 381 if name == "exit-interval" else 384),
        flags=(name, "global-batch-size", *_SIZES),
        when=f"{_RL} & {name}?",
        check=check,
        since=SINCE_15,
    )


# fmt: off
declare((
    Rule(
        id="MLM-RL-BATCH",
        doc="The samples of one generation (prompts × group × iterations) fill whole global batches.",
        source=arguments("", 373),
        flags=("global-batch-size", *_SIZES),
        when=_RL,
        check=_whole,
        since=SINCE_15,
    ),
    _on_generation("exit-interval"),
    _on_generation("save-interval"),
    needs("MLM-RL-PACKING", f"{_RL} & rl-use-sequence-packing", "micro-batch-size=1",
          "Each packed sequence is one micro-batch.", arguments("", 387)),
    never("MLM-RL-CACHE", f"{_RL} & rl-remove-kv-cache-during-training & rl-offload-kv-cache-during-training",
          "The KV cache is removed or moved to the CPU, not both.", arguments("", 340), until=UNTIL_16, since=SINCE_15),
    never("MLM-RL-PARTIAL", f"{_RL} & rl-partial-rollouts & rl-remove-kv-cache-during-training",
          "A partial rollout continues from its KV cache.", arguments("", 343), until=UNTIL_16, since=SINCE_15),
    needs("MLM-RL-OFFLOAD", f"{_RL} & rl-offload-inference-model-weights-when-idle",
          "rl-inference-model-unified-memory-level=1",
          "Idle weights are offloaded through unified memory.", arguments("", 346), until=UNTIL_16),
), backends=PLAIN, since=ONLY_16[0])
# fmt: on
