"""Time moves the right way, and its parts add up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.estimate import estimate
from tests.estimate.estimate_jobs import MOE, job_with

FULL = {"granularity": "full", "method": "block", "num_layers": 2}
FASTER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no recomputation": ({"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}, {}),
    "overlapped gradients": ({"cluster": {"nodes": 4}}, {"cluster": {"nodes": 4}, "overlap": {"grad_reduce": True}}),
    "interleaved pipeline": ({"parallel": {"pp": 4}}, {"parallel": {"pp": 4, "vpp": 4}}),
    "more TFLOP/s": ({}, {"hardware": {"bf16_tflops": 2000.0}}),
    "faster links": ({"parallel": {"tp": 8}}, {"parallel": {"tp": 8}, "hardware": {"intra_node_gbs": 1800.0}}),
    "tp within a node": (
        {"parallel": {"tp": 4}, "cluster": {"nodes": 8, "devices_per_node": 1}},
        {"parallel": {"tp": 4}},
    ),
    "overlapped dispatch": (
        {"model": MOE, "parallel": {"ep": 8}, "hardware": {"host_launch_us": 0.0}},
        {
            "model": MOE,
            "parallel": {"ep": 8},
            "hardware": {"host_launch_us": 0.0},
            "moe": {"batch_overlap": True},
        },
    ),
    "sparse attention": ({}, {"estimate": {"attention_sparsity": 0.5}}),
    "CUDA graphs": (
        {"batch": {"seq_length": 128}},
        {"batch": {"seq_length": 128}, "hardware": {"host_launch_us": 0.0}},
    ),
    "sliding window": ({}, {"model": {"sliding_window": 512}}),
    "fp8": (
        {"hardware": {"fp8_tflops": 2000.0}},
        {"hardware": {"fp8_tflops": 2000.0}, "precision": {"fp8_format": "e4m3"}},
    ),
}


@pytest.mark.parametrize(("slower", "faster"), FASTER.values(), ids=list(FASTER))
def test_a_step_gets_shorter(slower: dict[str, Any], faster: dict[str, Any]) -> None:
    before, after = estimate(job_with(**slower)), estimate(job_with(**faster))
    assert before.time is not None
    assert after.time is not None
    assert after.time.step_s < before.time.step_s


@given(
    st.sampled_from([(1, None, None), (2, None, None), (4, 2, None), (4, 2, "dualpipev"), (2, None, "gpipe")]),
    st.sampled_from([{}, {"ep": 2, "etp": 1}, {"ep": 2, "etp": 1, "tp": 2, "sequence_parallel": True}]),
    st.sampled_from([{}, FULL, {"granularity": "selective", "modules": ["core_attn", "mlp", "moe"]}]),
    st.sampled_from([8, 32, 64]),
    st.booleans(),
)
def test_parts_of_a_step_add_up(
    pipeline: tuple[int, int | None, str | None], experts: dict[str, Any], again: dict[str, Any], size: int, p2p: bool
) -> None:
    """No second is counted twice: what recomputation repeats is computation in backward, or exposed communication."""
    pp, vpp, schedule = pipeline
    parallel = {"pp": pp, "vpp": vpp, "schedule": schedule, **experts}
    job = job_with(
        model=MOE if experts else {},
        parallel=parallel,
        recompute=again,
        batch={"global_batch_size": 4 * size},
        overlap={"p2p": p2p},
    )
    time = estimate(job, changes=False).time
    assert time is not None
    parts = time.forward_s + time.backward_s + time.bubble_s + time.exposed_comm_s + time.optimizer_s
    assert parts == pytest.approx(time.step_s, rel=1e-9)
    assert 0 <= time.recompute_s < time.backward_s
    assert (time.recompute_s > 0) == bool(again)


def test_mfu_counts_the_models_own_work_only() -> None:
    plain = estimate(job_with())
    again = estimate(job_with(recompute={"granularity": "full", "method": "uniform", "num_layers": 1}))
    assert plain.mfu is not None
    assert again.mfu is not None
    assert again.mfu < plain.mfu < 1


def test_price_gives_the_cost_of_tokens() -> None:
    answer = estimate(job_with(hardware={"price": 2.5}))
    assert answer.tokens_per_s_per_device is not None
    assert answer.cost_per_billion_tokens == pytest.approx(2.5e9 / 3600 / answer.tokens_per_s_per_device)
