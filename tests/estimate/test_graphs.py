"""CUDA graphs: the host's starts of kernels go, and memory of the graphs' own pool comes."""

from dataclasses import replace
from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from launcher.estimate.result import StepTime
from tests.estimate.estimate_jobs import MOE, job_with

HOST = 50e-6
SMALL: dict[str, Any] = {
    "model": {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4},
    "batch": {"seq_length": 128, "global_batch_size": 64},
    "hardware": {"host_launch_us": HOST * 1e6, "kernel_latency_us": 0.0, "attention_overhead_us": 0.0},
}
LAYERS, MICRO_BATCHES = 16, 8


def with_graphs(*scope: str, impl: str = "transformer_engine", **sections: Any) -> Estimate:
    graph = {"impl": impl, "scope": list(scope)}
    return estimate(job_with(**{**SMALL, **sections}, kernels={"cuda_graph": graph}), changes=False)


def time(answer: Estimate) -> StepTime:
    assert answer.time is not None
    return answer.time


def starts(answer: Estimate) -> float:
    """Return the starts of a layer's forward, where each layer takes as long as the host needs."""
    return time(answer).forward_s / (MICRO_BATCHES * LAYERS * HOST)


def test_a_layer_is_started_once_instead_of_kernel_by_kernel() -> None:
    """Norm, projection, rotation, attention, projection, residual; norm, up, activation, down, residual: three each."""
    none = with_graphs(impl="none")
    # Beside the layers, of which the host's starts take all: embedding, norm, output layer and loss.
    assert starts(none) == pytest.approx(33, abs=0.5)
    assert starts(with_graphs()) == pytest.approx(1, abs=0.5)
    # The other half is started kernel by kernel: norm, up, activation, down, residual.
    assert starts(with_graphs("attn")) == pytest.approx(1 + 5 * 3, abs=0.5)
    assert time(with_graphs()).step_s < 0.1 * time(none).step_s


def test_a_whole_iteration_starts_nothing_by_itself() -> None:
    whole, layers = with_graphs("full_iteration", impl="local"), with_graphs(impl="local")
    free = with_graphs(impl="none", hardware={**SMALL["hardware"], "host_launch_us": 0.0})
    assert time(whole) == time(free)
    assert time(whole).step_s < time(layers).step_s


def test_a_router_is_captured_without_the_experts() -> None:
    none, router, both = (
        starts(with_graphs(*scope, impl=impl, model={**SMALL["model"], **MOE, "first_k_dense_replace": 0}))
        for scope, impl in (((), "none"), (("moe_router",), "local"), (("attn", "moe_router"), "local"))
    )
    # Norm (3) and router (40) in one graph, the three kernels of shared experts (9) in another; attention is 15 more.
    assert none - router == pytest.approx(3 + 40 - 1 + 9 - 1, abs=0.01)
    # Attention is next to the norm before the router: one graph more is none more.
    assert router - both == pytest.approx(6 * 3, abs=0.01)


def test_graphs_reserve_what_their_kernels_need_for_a_moment() -> None:
    """Of a layer's operations the up projection needs most: its input of 2048 and output of 16384, 4096 tokens."""
    jobs = {
        name: {"cuda_graph": {"impl": "local", "scope": scope}}
        for name, scope in (("layer", []), ("whole", ["full_iteration"]))
    }
    none = estimate(job_with(), changes=False).fullest
    layer, whole = (estimate(job_with(kernels=kernels), changes=False).fullest for kernels in jobs.values())
    up = 4096 * (2048 + 2 * 8192) * 2
    activation = 4096 * 3 * 8192 * 2
    assert layer.activations - none.activations == max(up, activation)
    # The update makes no copies here; one graph shares its pool with nothing that needs some.
    assert whole.activations == none.activations
    # 16-bit gradients are copied to fp32 in the update, which cannot use the graphs' memory: 4 bytes a parameter of 8.
    bf16 = {"grad_reduce_in_fp32": False}
    eager = estimate(job_with(precision=bf16), changes=False)
    graph = estimate(job_with(precision=bf16, kernels=jobs["whole"]), changes=False)
    copies = 4 * eager.parameters["total"] / 8
    assert graph.fullest.activations - eager.fullest.activations == pytest.approx(copies, abs=2)


@pytest.mark.parametrize(
    ("backend", "version", "captures"),
    [("mindspeed", None, False), ("megatron", "4.0.0", False), ("megatron_lm", None, True)],
)
def test_only_stacks_with_graphs_are_faster(backend: str, version: str | None, captures: bool) -> None:
    def on(impl: str) -> Estimate:
        job = job_with(**SMALL, kernels={"cuda_graph": {"impl": impl}})
        return estimate(replace(job, backend=replace(job.backend, name=backend, version=version)), changes=False)

    none, graph = on("none"), on("local")
    assert (time(graph).step_s < time(none).step_s) == captures
    assert any(note.startswith("kernels.cuda_graph.impl: ") for note in graph.missing) != captures
