"""Instances of the distributed optimizer: replicas of the model, and of its experts, divide among them."""

from collections.abc import Iterator

from backends.megatron_lm.rules.versions import BACKENDS, ONLY_12, PLAIN, SINCE_12, SINCE_13
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.table import declare, needs, never

_TP, _CONTEXT = "tensor-model-parallel-size", "context-parallel-size"
_EXPERTS, _EXPERT_TENSOR = "expert-model-parallel-size", "expert-tensor-parallel-size"
_INSTANCES = "num-distributed-optimizer-instances"

# fmt: off
declare((
    needs("MLM-OPT-INSTANCES-ALONE", "num-distributed-optimizer-instances>1", "use-distributed-optimizer",
          "Several instances of the distributed optimizer need the distributed optimizer.",
          "Megatron-LM core_v0.12.1 megatron/core/distributed/distributed_data_parallel.py:211; "
          "megatron-core 0.16.1 distributed/distributed_data_parallel.py:229"),
), backends=BACKENDS, versions=SINCE_12)
declare((
    never("MLM-OPT-INSTANCES-EXPERTS", "num-distributed-optimizer-instances>1 & expert-model-parallel-size>1",
          "Several instances of the distributed optimizer do not work with expert parallelism.",
          "Megatron-LM core_v0.12.1 megatron/core/distributed/distributed_data_parallel.py:208"),
), backends=BACKENDS, versions=ONLY_12)
# fmt: on


@rule(
    "MLM-OPT-INSTANCES",
    source="Megatron-LM core_v0.12.1 megatron/core/parallel_state.py:815; megatron-core 0.16.1 parallel_state.py:835 "
    "initialize_model_parallel",
    reads=f"{_INSTANCES} context-parallel-size job.parallel.dp",
    backends=BACKENDS,
    versions=SINCE_12,
)
def replicas_divide_among_optimizer_instances(context: RuleContext) -> Iterator[Violation]:
    """The replicas of the model, dp × cp, divide among the instances of the distributed optimizer."""
    instances, dp, cp = context.number(_INSTANCES, 1), context.job.parallel.dp, context.number(_CONTEXT, 1)
    if instances > 1 and dp and dp * cp % instances:
        yield Violation(
            message=f"dp {dp} × cp {cp} is not divisible by {instances} instances of the distributed optimizer",
            flags=(_INSTANCES, _CONTEXT),
            fields=("parallel.optimizer_instances", "parallel.dp", "parallel.cp"),
        )


@rule(
    "MLM-OPT-INSTANCES-EP",
    source="megatron-core 0.16.1 parallel_state.py:1264 initialize_model_parallel",
    reads=f"{_INSTANCES} num-experts context-parallel-size tensor-model-parallel-size expert-model-parallel-size "
    "expert-tensor-parallel-size job.parallel.dp",
    backends=PLAIN,
    since=SINCE_13,
)
def replicas_of_experts_divide_among_optimizer_instances(context: RuleContext) -> Iterator[Violation]:
    """The replicas of experts divide among the instances of the distributed optimizer."""
    instances, dp, tp = context.number(_INSTANCES, 1), context.job.parallel.dp, context.number(_TP, 1)
    if instances <= 1 or not dp or not context.number("num-experts"):
        return
    ranks, ep = dp * context.number(_CONTEXT, 1) * tp, context.number(_EXPERTS, 1)
    split = ep * context.number(_EXPERT_TENSOR, tp)
    # Replicas of the whole model that do not divide are MLM-OPT-INSTANCES, ranks that experts leave PAR-EXPERT-WORLD.
    if ranks // tp % instances == 0 and ranks % split == 0 and ranks // split % instances:
        yield Violation(
            message=f"ep {ep} leaves {ranks // split} replicas of experts, not divisible by {instances} instances of "
            "the distributed optimizer",
            flags=(_INSTANCES, _EXPERTS, _EXPERT_TENSOR),
            fields=("parallel.optimizer_instances", "parallel.ep", "parallel.etp", "parallel.dp"),
        )
