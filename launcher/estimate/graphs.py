"""CUDA graphs: kernels that the host no longer starts one by one, and memory of the graphs' own pool."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from launcher.estimate.machine import Machine
from launcher.estimate.operation import Operation

# A kernel of a replayed graph takes at least 3.4 us, with its share of the launch (NVIDIA, Getting Started with CUDA
# Graphs, https://developer.nvidia.com/blog/cuda-graphs/: 20 kernels of 2.9 us each).
_LATENCY = 3.4e-6

WHOLE, LAYER = "full_iteration", "layer"
_FEED_NORMS = frozenset({"feed-forward norm", "separate feed-forward norm"})


def captured(scope: tuple[str, ...], operations: Sequence[Operation], *, shared_overlaps: bool) -> list[int]:
    """Return the places of the operations of a layer that are captured.

    Source: `cuda_graph_scope`, megatron-core 0.16.1 transformer_config.py:784 and Megatron-LM
    docs/user-guide/features/cuda_graph.md: attn and mlp (or moe) are the two halves of a layer, moe_router is the
    normalisation before it, the router, and shared experts that do not overlap with the token dispatch. The part of the
    dispatch that moe_preprocess captures is counted as started by the host.

    Args:
        scope: parts of `kernels.cuda_graph.scope`; `layer`: all of it.
        shared_overlaps: shared experts run during the token dispatch.
    """
    places = range(len(operations))
    if WHOLE in scope or LAYER in scope:
        return list(places)
    start = next((place for place in places if operations[place].name in _FEED_NORMS), len(operations))
    experts = any(op.name == "router" for op in operations)
    attends = not any(op.name == "scan" for op in operations)
    chosen: list[int] = []
    if ("attn" if attends else "mamba") in scope:
        chosen += range(start)
    if ("moe" if experts else "mlp") in scope:
        chosen += range(start, len(operations))
    elif experts and "moe_router" in scope:
        for place in places[start:]:
            op = operations[place]
            if op.name in _FEED_NORMS or op.name == "router" or (op.module == "shared" and not shared_overlaps):
                chosen.append(place)
    return chosen


@lru_cache(maxsize=256)
def in_graph(machine: Machine) -> Machine:
    """Return the machine as captured kernels see it: nothing waits for the host."""
    return replace(machine, latency=min(machine.latency, _LATENCY), launch=0.0)


def replayed(operations: Sequence[Operation], places: Sequence[int]) -> list[Operation]:
    """Return the operations with one start by the host for each run of captured ones (assumed: as that of a kernel)."""
    result = list(operations)
    for place in places:
        starts = int(place == 0 or place - 1 not in places)
        result[place] = replace(result[place], launches=starts)
    return result


def pool(operations: Sequence[Operation], places: Sequence[int]) -> float:
    """Return the most bytes that captured operations need for a moment, beyond what they keep.

    Graphs are captured in the order in which they run and share one pool with each other, but with nothing else (torch
    docs, CUDA semantics, "Graph memory management"; cuda_graphs.py, create_cudagraphs). What is kept for the backward
    is in it instead of outside; what is needed for a moment stays reserved while other kernels run.
    """
    return max(
        (max(operations[place].forward_needs, operations[place].backward_needs) for place in places), default=0.0
    )
