"""What a backend's profile changes in the estimate of one job: which terms, and by how much."""

import json
from dataclasses import replace
from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from launcher.estimate.profile import FIGURES, PLAIN, profile_of
from launcher.job import Job
from launcher.mapping.backend import backend_names, get_backend
from tests.conftest import Launch
from tests.estimate.estimate_jobs import MOE, job_with

NPU = {"hardware": {"device": "npu", "memory_gib": 64.0, "reserved_gib": None}}


def on(backend: str | None, job: Job | None = None, **args: Any) -> Job:
    """Return the job on a backend, with passed-through arguments."""
    job = job or job_with(**NPU)
    return replace(job, backend=replace(job.backend, name=backend, version=None, args=args))


def answer(backend: str | None, job: Job | None = None, **args: object) -> Estimate:
    return estimate(on(backend, job, **args), changes=False)


@pytest.mark.parametrize("name", backend_names())
def test_every_figure_is_known_and_has_a_source(name: str) -> None:
    backend = get_backend(name)
    for row in backend.profile():
        assert row.name in FIGURES
        assert row.source
    for version in backend.versions:
        job = on(name)
        found = profile_of(replace(job, backend=replace(job.backend, version=version)))
        assert found.title == f"{backend.title} {version}"


def test_a_job_without_a_backend_is_estimated_as_megatron_core() -> None:
    assert profile_of(on(None)) is PLAIN
    plain, lm = answer(None), answer("megatron_lm")
    assert plain.stages == lm.stages
    assert plain.time == lm.time


def test_mindformers_keeps_weights_in_fp32_alone_and_shards_them() -> None:
    """Adam: 8 bytes of states beside fp32 weights, 12 where main weights stand beside bf16 weights."""
    graph, torch = answer("mindformers").fullest, answer("mindspeed").fullest
    assert graph.optimizer * 12 == pytest.approx(torch.optimizer * 8, rel=1e-6)
    # bf16 weights: 2 bytes; fp32 weights sharded over eight ranks and a gathered copy in bf16: 4 / 8 + 2.
    assert graph.weights * 2 == pytest.approx(torch.weights * 2.5, rel=1e-6)


def test_mindformers_keeps_gradients_where_it_accumulates_only() -> None:
    several, one = (job_with(**NPU, batch={"global_batch_size": size}) for size in (64, 8))
    assert answer("mindformers", several).fullest.gradients == answer("mindspeed", several).fullest.gradients
    assert answer("mindformers", one).fullest.gradients * 8 == pytest.approx(
        answer("mindspeed", one).fullest.gradients, rel=1e-6
    )


def test_mindformers_has_a_pool_and_starts_no_kernel_from_python() -> None:
    """Its memory is a limit of the pool (58 GiB by default); a step of small kernels does not wait for the host."""
    small = job_with(**NPU, model={"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8})
    graph, torch = answer("mindformers", small), answer("mindspeed", small)
    assert graph.outside == 6 * 2**30
    assert graph.time is not None
    assert torch.time is not None
    assert graph.time.forward_s < torch.time.forward_s
    assert not any("host_launch_us" in line for line in graph.missing)
    assert graph.fullest.peak_reserved == graph.fullest.peak_allocated


def test_mindformers_recomputes_what_the_backward_reads() -> None:
    """The last product of a layer is added to its input, which no derivative reads: of 62.9 million weights 16.8."""
    wide = {"batch": {"micro_batch_size": 8, "global_batch_size": 64, "seq_length": 512}}
    full = job_with(**NPU, **wide, recompute={"granularity": "full", "method": "uniform", "num_layers": 1})
    graph = answer("mindformers", full).time
    eager = answer("mindformers", replace(full, graph=replace(full.graph, mode="eager"))).time
    assert graph is not None
    assert eager is not None
    assert 1 - graph.recompute_s / eager.recompute_s == pytest.approx(16.8 / 62.9, rel=0.2)


def test_mindformers_older_classes_compute_whole_capacities() -> None:
    """With a capacity factor of 1.5 their experts compute 1.5 times as many tokens; elsewhere it only limits."""
    batch = {"micro_batch_size": 4, "global_batch_size": 32}
    plain, limited = (
        job_with(**NPU, batch=batch, model={**MOE, "legacy": True}, parallel={"ep": 8}, moe={"capacity_factor": factor})
        for factor in (None, 1.5)
    )
    for backend, is_longer in (("mindformers", True), ("mindspeed", False)):
        without, with_limit = answer(backend, plain).time, answer(backend, limited).time
        assert without is not None
        assert with_limit is not None
        assert (with_limit.forward_s > 1.05 * without.forward_s) == is_longer


def test_mindformers_older_classes_compute_experts_as_ordinary_products() -> None:
    """Grouped products (0.55 of the peak where nothing is measured) are slower than ordinary ones (0.65) when large."""
    batch = {"micro_batch_size": 8, "global_batch_size": 64}
    plain, grouped = (
        job_with(**NPU, batch=batch, model={**MOE, "legacy": True}, parallel={"ep": 8}, moe={"grouped_gemm": value})
        for value in (None, True)
    )
    ordinary, together = answer("mindformers", plain).time, answer("mindformers", grouped).time
    assert ordinary is not None
    assert together is not None
    assert ordinary.forward_s < together.forward_s


def test_mindformers_older_classes_rotate_in_several_kernels() -> None:
    """Query and key of 16 + 8 heads of 128 move 26 bytes an element in fp32 and 13 in 16 bits, each way."""
    wide, narrow = (
        job_with(**NPU, model={"legacy": True}, precision={"rope_in_fp32": value}) for value in (True, False)
    )
    first, second = answer("mindformers", wide).time, answer("mindformers", narrow).time
    assert first is not None
    assert second is not None
    elements = 4096 * (16 + 8) * 128 * 16 * 8  # tokens, heads, layers, micro-batches
    assert first.forward_s - second.forward_s == pytest.approx(13 * elements / (0.75 * 3000e9), rel=0.01)


def test_mindspeed_counts_the_buffers_of_its_groups() -> None:
    """HCCL takes two buffers of 200 MiB a group: tp and pp add one each."""
    alone = answer("mindspeed").outside
    more = answer("mindspeed", job_with(**NPU, parallel={"tp": 2, "pp": 2})).outside
    assert more - alone == 2 * 400 * 2**20


def test_reused_main_weights_are_two_bytes_less() -> None:
    plain = answer("mindspeed").fullest
    reused = answer("mindspeed", None, **{"reuse-fp32-param": True}).fullest
    assert reused.optimizer * 12 == pytest.approx(plain.optimizer * 10, rel=1e-6)
    assert reused.weights == plain.weights


def test_transformer_engine_keeps_placeholders_and_mindspeed_does_not() -> None:
    engine, npu = answer("megatron_lm").fullest, answer("mindspeed").fullest
    assert engine.workspace > npu.workspace
    assert (engine.weights, engine.gradients, engine.optimizer) == (npu.weights, npu.gradients, npu.optimizer)


def test_the_answer_names_its_profile(launch: Launch) -> None:
    words = ("estimate", "+recipe=qwen3_8b", "backend=mindspeed", "hardware=ascend_910b")
    tree = json.loads(launch(*words, "--json").out)["profile"]
    assert tree["stack"] == f"MindSpeed-LLM {get_backend('mindspeed').default_version}"
    assert {name: value for name, value in tree["figures"][1].items() if name != "source"} == {
        "name": "grouped_workspaces",
        "value": 0,
    }
    assert all(figure["source"] for figure in tree["figures"])
    assert "profile of MindSpeed-LLM" in launch(*words, "--why").out
