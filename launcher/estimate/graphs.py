"""CUDA graphs: what of a step is captured, and what a captured kernel costs beyond its work."""

from dataclasses import replace
from functools import lru_cache

from launcher.estimate.machine import Machine
from launcher.job import Job

# A kernel of a replayed graph takes at least 3.4 us, with its share of the launch (NVIDIA, Getting Started with CUDA
# Graphs, https://developer.nvidia.com/blog/cuda-graphs/: 20 kernels of 2.9 us each).
_LATENCY = 3.4e-6
_WHOLE = "full_iteration"
# Of a layer without a scope, everything that does not depend on the routing.
_LAYER = ("attn", "mamba", "mlp", "moe_router", "moe_preprocess")


def captured(job: Job) -> tuple[str, ...]:
    """Return the parts of a step that run as CUDA graphs, as `kernels.cuda_graph.scope` names them."""
    graph = job.kernels.cuda_graph
    if graph.impl in (None, "none"):
        return ()
    return graph.scope or _LAYER


def covers(scope: tuple[str, ...], *parts: str) -> bool:
    """Return whether one of the parts, or the whole step, is captured."""
    return _WHOLE in scope or any(part in scope for part in parts)


@lru_cache(maxsize=256)
def in_graph(machine: Machine) -> Machine:
    """Return the machine as captured kernels see it: nothing waits for the host."""
    return replace(machine, latency=min(machine.latency, _LATENCY), launch=0.0)
