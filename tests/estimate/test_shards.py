"""Sharded weights, gradients and states: what a rank keeps, what is whole for a moment, and the communication."""

from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from tests.estimate.estimate_jobs import job_with

HIDDEN, FFN, VOCAB, LAYERS = 2048, 8192, 32000, 16
# Query, key, value; output; gate and up; down; two norms.
LAYER = HIDDEN * (2048 + 2 * 1024) + 2048 * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN
REST = 2 * VOCAB * HIDDEN + HIDDEN
TOTAL = LAYERS * LAYER + REST


def sharded(stage: int | None, *, nodes: int = 1, **sections: dict[str, Any]) -> Estimate:
    parallel = {"zero_stage": stage, **sections.pop("parallel", {})}
    return estimate(job_with(parallel=parallel, cluster={"nodes": nodes}, **sections), changes=False)


def step(answer: Estimate) -> float:
    assert answer.time is not None
    return answer.time.step_s


@pytest.mark.parametrize(("stage", "parts"), [(1, (8, 8, 1)), (2, (8, 1, 1)), (3, (1, 1, 1))])
def test_each_stage_keeps_an_eighth_of_one_more(stage: int, parts: tuple[int, int, int]) -> None:
    """Stages are optim, optim_grads and optim_grads_params on eight ranks, with 2, 4 and 12 bytes a parameter."""
    kept = sharded(stage).stages[0]
    expected = [2 * TOTAL / 8 * parts[0], 4 * TOTAL / 8 * parts[1], 12 * TOTAL / 8]
    assert [kept.weights, kept.gradients, kept.optimizer] == pytest.approx(expected)


def test_weights_are_gathered_ahead_of_the_layer_that_computes() -> None:
    """Half of a unit of 300 million: three layers of 61 beyond the first, and what is outside the layers."""
    none = sharded(None).stages[0].activations
    unit = {"fsdp": {"communication_unit_size": 300_000_000}}
    assert sharded(3, parallel=unit).stages[0].activations - none == pytest.approx(
        2 * ((1 + 3) * LAYER + REST) + 4 * LAYER, abs=4
    )
    # By default half a billion ahead: eight layers. Torch: the layer, and the embedding or output layer.
    assert sharded(3).stages[0].activations - none == pytest.approx(2 * (9 * LAYER + REST) + 4 * LAYER, abs=4)
    torch = {"fsdp": {"implementation": "torch"}}
    whole = sharded(3, parallel=torch).stages[0].activations - none
    assert whole == pytest.approx(2 * (LAYER + VOCAB * HIDDEN) + 2 * LAYER, abs=4)


def test_without_the_fusion_gradients_are_copied_to_be_reduced() -> None:
    """FSDP copies what a product wrote in 16 bits into the fp32 bucket, once a micro-batch and weight."""

    def seconds(fusion: bool, stage: int) -> float:
        # Links so fast that no more of the communication hides behind longer backwards.
        fixed = {"memory_efficiency": 1.0, "memory_bandwidth_gbs": 4000.0, "intra_node_gbs": 1e9}
        fixed |= dict.fromkeys(("kernel_latency_us", "collective_latency_us", "intra_node_latency_us"), 0.0)
        kernels = {"gradient_accumulation_fusion": fusion}
        return step(sharded(stage, hardware=fixed, kernels=kernels))

    weights = LAYERS * (LAYER - 2 * HIDDEN) + VOCAB * HIDDEN
    micro_batches = 8
    copies = micro_batches * weights * (2 + 4) / 4e12
    assert seconds(False, 3) - seconds(True, 3) == pytest.approx(copies, rel=1e-6)
    assert seconds(False, 1) == seconds(True, 1)


def test_a_step_waits_for_what_no_computation_hides() -> None:
    """Between nodes of one device each; 8 micro-batches of 16 layers, so slow that all computation is hidden."""

    def seconds(gbs: float) -> float:
        links = {"inter_node_gbs": gbs, "inter_node_latency_us": 0.0, "inter_node_efficiency": 1.0}
        cluster = {"nodes": 8, "devices_per_node": 1}
        fixed = {"collective_latency_us": 0.0, "memory_gib": 80.0}
        return step(estimate(job_with(hardware={**links, **fixed}, cluster=cluster, parallel={"zero_stage": 3})))

    moved = 7 / 8 * (8 * (LAYERS * LAYER * (2 * 2 + 4) + REST * 4) + REST * 2)
    assert seconds(0.1) - seconds(0.2) == pytest.approx(moved / 0.1e9 - moved / 0.2e9, rel=1e-3)


def test_hybrid_sharding_keeps_a_copy_of_the_shards_on_each_node() -> None:
    slow = {"inter_node_gbs": 5.0}
    one, four, hybrid = (
        sharded(
            3,
            nodes=nodes,
            parallel={"optimizer_instances": instances},
            batch={"global_batch_size": 64 * nodes},
            hardware=slow,
        )
        for nodes, instances in ((1, 1), (4, 1), (4, 4))
    )
    assert hybrid.stages[0].weights == one.stages[0].weights == pytest.approx(4 * four.stages[0].weights)
    assert hybrid.stages[0].optimizer == one.stages[0].optimizer
    # Only the shares of gradients cross the nodes, once a step.
    assert step(one) < step(hybrid) < step(four)


def test_fast_links_hide_all_but_the_first_and_the_last() -> None:
    plain, whole = sharded(1), sharded(3)
    assert plain.time is not None
    assert whole.time is not None
    assert whole.time.forward_s == plain.time.forward_s
    assert step(whole) < 1.1 * step(plain)
