"""Time moves the right way, the simulated schedule is the real one, and its short cut is exact."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from launcher.estimate import estimate
from launcher.estimate.schedule import Event, Pipeline, finish, order, simulate
from tests.estimate.estimate_jobs import MOE, job_with

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


def test_parts_of_a_step_add_up() -> None:
    time = estimate(job_with(parallel={"pp": 4, "tp": 2})).time
    assert time is not None
    parts = time.forward_s + time.backward_s + time.bubble_s + time.exposed_comm_s + time.optimizer_s
    assert parts == pytest.approx(time.step_s, rel=0.02)


def test_bubble_of_equal_stages_is_the_textbook_one() -> None:
    """1F1B without transfers: (pp - 1) of forward and backward; interleaved: a vpp-th of it."""
    pipeline = Pipeline(
        forward=((1.0,),) * 4, backward=((2.0,),) * 4, transfer=0.0, blocking=False, micro_batches=16, group=4
    )
    assert finish(pipeline, []) == pytest.approx(16 * 3 + 3 * 3)
    chunks = replace(pipeline, forward=((0.5, 0.5),) * 4, backward=((1.0, 1.0),) * 4)
    assert finish(chunks, []) == pytest.approx(16 * 3 + 3 * 3 / 2)


CASES = {
    "even": Pipeline(
        forward=((1.0,),) * 4, backward=((2.0,),) * 4, transfer=0.1, blocking=True, micro_batches=40, group=4
    ),
    "slow first": Pipeline(
        forward=((2.0,), (1.0,), (1.0,)),
        backward=((4.0,), (2.0,), (2.0,)),
        transfer=0.05,
        blocking=False,
        micro_batches=60,
        group=3,
    ),
    "slow last": Pipeline(
        forward=((1.0,), (1.0,), (1.7,)),
        backward=((2.0,), (2.0,), (3.1,)),
        transfer=0.05,
        blocking=True,
        micro_batches=60,
        group=3,
    ),
    "interleaved": Pipeline(
        forward=((0.5, 0.5), (0.5, 0.7)),
        backward=((1.0, 1.0), (1.0, 1.3)),
        transfer=0.02,
        blocking=False,
        micro_batches=48,
        group=2,
    ),
}


@pytest.mark.parametrize("pipeline", CASES.values(), ids=list(CASES))
def test_the_short_cut_equals_the_whole_simulation(pipeline: Pipeline) -> None:
    assert finish(pipeline) == pytest.approx(finish(pipeline, []), rel=0.01)


@pytest.mark.parametrize(("pp", "vpp", "count"), [(1, 1, 3), (4, 1, 2), (4, 1, 9), (2, 2, 4), (4, 3, 8)])
def test_every_step_runs_once_after_what_it_needs(pp: int, vpp: int, count: int) -> None:
    pipeline = Pipeline(
        forward=((1.0,) * vpp,) * pp,
        backward=((2.0,) * vpp,) * pp,
        transfer=0.25,
        blocking=False,
        micro_batches=count,
        group=pp,
    )
    events: list[Event] = []
    simulate(pipeline, events)
    assert len(events) == 2 * pp * vpp * count
    ends = {(event.backward, event.micro_batch, event.chunk * pp + event.stage): event.end for event in events}
    for event in events:
        position = event.chunk * pp + event.stage
        before = (True, event.micro_batch, position + 1) if event.backward else (False, event.micro_batch, position - 1)
        if before in ends:
            assert event.start >= ends[before] + 0.25 - 1e-9
        if event.backward and before not in ends:
            assert event.start >= ends[False, event.micro_batch, position] - 1e-9
    for stage in range(pp):
        own = sorted((event.start, event.end) for event in events if event.stage == stage)
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(own))


def test_interleaved_order_is_that_of_megatron_core() -> None:
    """Two stages, two chunks, four micro-batches; stage 0 warms up with (2 - 0 - 1) * 2 + (2 - 1) * 2 = 4 steps."""
    steps = order(0, 2, 2, 4, 2)
    letters = ["B" if backward else "F" for backward, _, _ in steps]
    assert "".join(letters) == "FFFF" + "FB" * 4 + "BBBB"
    assert [(micro, chunk) for backward, micro, chunk in steps if not backward][:6] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (2, 0),
        (3, 0),
    ]
    assert [(micro, chunk) for backward, micro, chunk in steps if backward][:4] == [(0, 1), (1, 1), (0, 0), (1, 0)]


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
