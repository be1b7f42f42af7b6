"""gpt-oss: windows in every second layer, clamped activations and biases of experts that no kernel fuses."""

from typing import Any

import pytest

from launcher.estimate import estimate
from launcher.estimate.result import Estimate, StepTime
from tests.estimate.estimate_jobs import MOE, job_with

TOKENS, LAYERS, HIDDEN, MICRO_BATCHES = 4096, 16, 2048, 8
EXPERTS = {**MOE, "first_k_dense_replace": 0, "shared_expert_intermediate_size": None, "hidden_act": "quick_geglu"}
# Each token goes to four experts; of the sixteen a rank has two, and as many tokens as it sends.
ROWS = 4 * TOKENS
FIGURES = {
    "host_launch_us": 0.0,
    "kernel_latency_us": 0.0,
    "attention_overhead_us": 0.0,
    "memory_efficiency": 1.0,
    "attention_efficiency": 1.0,
}


def answer(**model: Any) -> Estimate:
    return estimate(
        job_with(model=model, hardware=FIGURES, parallel={"ep": 8 if "num_experts" in model else 1}), changes=False
    )


def time(**model: Any) -> StepTime:
    found = answer(**model).time
    assert found is not None
    return found


def test_a_window_halves_attention_in_every_second_layer() -> None:
    """1024 keys of a causal mean of 2048: 896 of the window, and the rest of a tile of 128."""
    dense = {"num_hidden_layers": LAYERS}
    window = {**dense, "sliding_window": 896}
    every, second = time(**window), time(**window, window_attn_skip_freq=2)
    pairs = 2 * 16 * (128 + 128) * TOKENS**2  # two operations a pair and dimension, keys and values of 16 heads
    assert time(**dense).forward_s - second.forward_s == pytest.approx(MICRO_BATCHES * LAYERS / 2 * pairs / 2 / 1e15)
    assert second.forward_s - every.forward_s == pytest.approx(MICRO_BATCHES * LAYERS / 2 * pairs / 2 / 1e15)


def test_short_windows_are_bound_by_memory() -> None:
    shorter, short = (time(sliding_window=keys, num_hidden_layers=LAYERS) for keys in (1, 2))
    assert shorter.forward_s == short.forward_s


def test_experts_clamp_their_activations_outside_of_the_kernel() -> None:
    plain, clamped = answer(**EXPERTS), answer(**EXPERTS, swiglu_limit=7.0)
    given = ROWS * 2 * 1024 * 2
    assert clamped.fullest.activations - plain.fullest.activations == LAYERS * given
    seconds = MICRO_BATCHES * LAYERS * given / 3e12
    before, after = time(**EXPERTS), time(**EXPERTS, swiglu_limit=7.0)
    assert after.forward_s - before.forward_s == pytest.approx(4 * seconds)
    assert after.backward_s - before.backward_s == pytest.approx(5 * seconds)


def test_recomputed_activations_keep_no_clamped_copy() -> None:
    def activations(limit: float | None) -> float:
        model = {**EXPERTS, "swiglu_limit": limit}
        recompute = {"granularity": "selective", "modules": ["moe_act"]}
        job = job_with(model=model, hardware=FIGURES, parallel={"ep": 8}, recompute=recompute)
        return estimate(job, changes=False).fullest.activations

    # It comes back in the backward of one layer.
    assert activations(7.0) - activations(None) <= 2 * ROWS * 2 * 1024 * 2


def test_biases_of_experts_are_added_one_by_one_in_fp32() -> None:
    before, after = time(**EXPERTS), time(**EXPERTS, linear_bias=True)
    seconds = MICRO_BATCHES * LAYERS * ROWS * HIDDEN / 3e12
    assert after.forward_s - before.forward_s == pytest.approx(28 * seconds)
    assert after.backward_s - before.backward_s == pytest.approx(36 * seconds)
