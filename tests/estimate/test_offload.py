"""Activations on the host: bytes that leave the device, and copies that computation hides or does not."""

import pytest

from launcher.estimate import Estimate, estimate
from tests.estimate.estimate_jobs import job_with

# Of a layer: query, key, value (2048, 1024, 1024 wide) and the input of the output projection (2048), 16 bits, 4096
# tokens. Statistics of the softmax (4 bytes a token and head: 256 KiB) are below the smallest tensor that is copied.
ATTENTION = 4096 * (2048 + 1024 + 1024 + 2048) * 2
LAYERS, MICRO_BATCHES = 16, 8


def with_host(gbs: float, **offload: object) -> Estimate:
    return estimate(job_with(hardware={"host_link_gbs": gbs}, offload=offload), changes=False)


def step(answer: Estimate) -> float:
    assert answer.time is not None
    return answer.time.step_s


def test_offloaded_modules_leave_the_device_and_fast_links_hide_the_copies() -> None:
    kept = with_host(1000.0)
    moved = with_host(1000.0, modules=["core_attn", "attn_proj"])
    # The peak is at the loss, after all layers.
    assert kept.fullest.activations - moved.fullest.activations == LAYERS * ATTENTION
    assert step(moved) == step(kept)


def test_slow_links_make_each_layer_as_long_as_its_copies() -> None:
    modules = ["core_attn", "attn_proj"]
    slow, slower = (with_host(gbs, modules=modules) for gbs in (4.0, 2.0))
    seconds = ATTENTION * (1 / 2e9 - 1 / 4e9)
    assert step(slower) - step(slow) == pytest.approx(MICRO_BATCHES * LAYERS * 2 * seconds)
    assert slower.time is not None
    assert slow.time is not None
    assert slower.time.exposed_comm_s - slow.time.exposed_comm_s == pytest.approx(step(slower) - step(slow))
    assert slower.time.backward_s == slow.time.backward_s


def test_attention_as_a_whole_is_its_three_modules() -> None:
    whole = with_host(30.0, attention=True)
    parts = with_host(30.0, modules=["qkv_linear", "core_attn", "attn_proj"])
    assert (whole.stages, whole.time) == (parts.stages, parts.time)


def test_whole_layers_leave_the_device_but_for_the_weights() -> None:
    none, half, most = (with_host(1000.0, activation_layers=count) for count in (0, 8, 12))
    each = (none.fullest.activations - half.fullest.activations) / 8
    assert (half.fullest.activations - most.fullest.activations) / 4 == each
    # Input of two norms, of four products, of attention and of the activation function; statistics stay.
    kept = 4096 * 2 * (2 * 2048 + (2048 + 2048 + 2048 + 8192) + (2048 + 1024 + 1024) + 2 * 8192)
    assert each == pytest.approx(kept, rel=0.001)
    assert none.fullest.weights == most.fullest.weights
    # With twice as many layers as are offloaded, each copy has the time of two layers.
    assert step(with_host(10.0, activation_layers=8)) < step(with_host(10.0, activation_layers=15))
