"""What MindFormers computes, where not all backends compute the same."""

from launcher.mapping.computation import Computation

_ALL = {"mindformers": (None, None)}
_NEW = {"mindformers": ("2.1.0", None)}
_LOSS = "mindformers 2.1.0 parallel_core/training_graph/loss_func.py:334; 1.6.0 :337"
_ROUTER = "mindformers 2.1.0 parallel_core/training_graph/transformer/moe/router.py"

_COMPUTATIONS = (
    # MindSpore partitions the graph, so that a sum is one over all devices.
    Computation(topic="LOSS-DP", way="all", versions=_ALL, when="@automatic", source=_LOSS),
    Computation(topic="LOSS-CP", way="usual", versions=_ALL, when="@automatic", source=_LOSS),
    Computation(topic="ATTENTION-MASK", rule="MF-MASK-ADDED", versions=_ALL),
    Computation(
        topic="ATTENTION-MASK",
        way="usual",
        versions=_ALL,
        source="mindformers 1.6.0 models/llama/llama.py:339",
    ),
    Computation(topic="LOGITS-GRADIENT", way="usual", versions=_ALL, source=f"{_LOSS}, :122"),
    Computation(topic="BALANCE-WEIGHT", way="whole", versions=_NEW, source=f"{_ROUTER}:424"),
    Computation(
        topic="BALANCE-SEQUENCE",
        way="part",
        versions=_NEW,
        when="job.moe.load_balancing_type!=global_aux_loss",
        source=f"{_ROUTER}:188, 405",
    ),
    Computation(topic="BALANCE-SEQUENCE", way="whole", versions=_NEW, source=f"{_ROUTER}:408"),
    Computation(topic="BALANCE-CHOICE", way="chosen", versions=_NEW, source=f"{_ROUTER}:350, 435"),
)


def computations() -> tuple[Computation, ...]:
    """Return MindFormers' rows."""
    return _COMPUTATIONS
