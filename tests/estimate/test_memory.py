"""Memory moves the way that real memory moves when one thing of the job changes."""

from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from launcher.job import Job
from tests.estimate.estimate_jobs import MOE, job_with

Change = dict[str, dict[str, Any]]


def peak(job: Job) -> int:
    return estimate(job, changes=False).fullest.peak_allocated


SMALLER: dict[str, tuple[Change, Change]] = {
    "distributed optimizer": ({"parallel": {"distributed_optimizer": False}}, {}),
    "ZeRO 2": ({}, {"parallel": {"zero_stage": 2}}),
    "ZeRO 3": ({"parallel": {"zero_stage": 2}}, {"parallel": {"zero_stage": 3}}),
    "precision-aware optimizer": (
        {},
        {"optimizer": {"precision_aware": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}},
    ),
    "bf16 gradients": ({}, {"precision": {"grad_reduce_in_fp32": False}}),
    "optimizer on the host": ({}, {"offload": {"optimizer": True}}),
    "tensor parallel": ({}, {"parallel": {"tp": 2}}),
    "sequence parallel": ({"parallel": {"tp": 4}}, {"parallel": {"tp": 4, "sequence_parallel": True}}),
    "context parallel": ({}, {"parallel": {"cp": 2}}),
    "fused cross entropy of Transformer Engine": (
        {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}},
        {
            "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
            "kernels": {"cross_entropy_fusion": True, "cross_entropy_fusion_impl": "te"},
        },
    ),
    "full recomputation": ({}, {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}),
    "more blocks recomputed": (
        {"recompute": {"granularity": "full", "method": "block", "num_layers": 4}},
        {"recompute": {"granularity": "full", "method": "block", "num_layers": 12}},
    ),
    "mlp recomputation": ({}, {"recompute": {"granularity": "selective", "modules": ["mlp"]}}),
    "activation recomputation": ({}, {"recompute": {"activation": True}}),
    "core attention of unfused kernels": (
        {"kernels": {"attention_backend": "unfused"}},
        {
            "kernels": {"attention_backend": "unfused"},
            "recompute": {"granularity": "selective", "modules": ["core_attn"]},
        },
    ),
    "flash attention": ({"kernels": {"attention_backend": "unfused"}}, {}),
    "swapped attention": ({}, {"offload": {"attention": True}}),
    "inputs of experts on the host": (
        {"model": MOE, "parallel": {"ep": 8}},
        {"model": MOE, "parallel": {"ep": 8}, "offload": {"modules": ["expert_fc1"]}},
    ),
    "smaller micro-batch": ({"batch": {"micro_batch_size": 4}}, {"batch": {"micro_batch_size": 2}}),
    "moe recomputation": (
        {"model": MOE, "parallel": {"ep": 8}},
        {"model": MOE, "parallel": {"ep": 8}, "recompute": {"granularity": "selective", "modules": ["moe"]}},
    ),
    "moe_act recomputation": (
        {"model": MOE, "parallel": {"ep": 8}},
        {"model": MOE, "parallel": {"ep": 8}, "recompute": {"granularity": "selective", "modules": ["moe_act"]}},
    ),
    "expert parallel": ({"model": MOE}, {"model": MOE, "parallel": {"ep": 8}}),
    "smaller capacity": (
        {"model": MOE, "parallel": {"ep": 8}, "moe": {"capacity_factor": 1.5, "pad_to_capacity": True}},
        {"model": MOE, "parallel": {"ep": 8}, "moe": {"capacity_factor": 1.0, "pad_to_capacity": True}},
    ),
}


@pytest.mark.parametrize(("more", "less"), SMALLER.values(), ids=list(SMALLER))
def test_memory_shrinks(more: Change, less: Change) -> None:
    assert peak(job_with(**less)) < peak(job_with(**more))


def test_no_more_micro_batches_in_flight_than_there_are() -> None:
    few = estimate(job_with(parallel={"pp": 8}, batch={"global_batch_size": 2}))
    many = estimate(job_with(parallel={"pp": 8}, batch={"global_batch_size": 64}))
    assert few.stages[0].activations < 0.4 * many.stages[0].activations
    assert few.stages[-2].activations == many.stages[-2].activations


def test_earlier_stages_hold_more_activations() -> None:
    stages = estimate(job_with(parallel={"pp": 4})).stages
    held = [stage.activations for stage in stages[:3]]
    assert held == sorted(held, reverse=True)


def test_interleaving_holds_more_than_one_chunk_a_stage() -> None:
    plain = estimate(job_with(parallel={"pp": 4}))
    interleaved = estimate(job_with(parallel={"pp": 4, "vpp": 4}))
    assert interleaved.stages[0].activations > plain.stages[0].activations
    assert interleaved.time is not None
    assert plain.time is not None
    assert interleaved.time.bubble_s < plain.time.bubble_s


def test_parts_add_up() -> None:
    for stage in estimate(job_with(parallel={"pp": 2})).stages:
        parts = stage.weights + stage.gradients + stage.optimizer + stage.activations + stage.workspace
        assert abs(parts - stage.peak_allocated) <= 5
        assert stage.peak_reserved > stage.peak_allocated


AWARE = {"precision_aware": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}


def test_an_fp8_recipe_keeps_main_weights_out_of_the_precision_aware_optimizer() -> None:
    """Remainders of two bytes become fp32 weights of four, with or without FP8 products, unless scaling is delayed."""
    one = {"cluster": {"devices_per_node": 1}, "batch": {"global_batch_size": 1}, "optimizer": AWARE}
    number = estimate(job_with(**one)).parameters["total"]
    bytes_of = {
        recipe: estimate(job_with(**one, precision={"fp8_recipe": recipe})).stages[0].optimizer / number
        for recipe in (None, "delayed", "tensorwise")
    }
    assert bytes_of == {None: 6, "delayed": 6, "tensorwise": 8}


def test_known_sizes() -> None:
    """A dense model without data parallelism: 2, 4 and 12 bytes for each parameter."""
    job = job_with(cluster={"devices_per_node": 1}, batch={"global_batch_size": 1})
    answer = estimate(job)
    number = answer.parameters["total"]
    stage = answer.stages[0]
    assert (stage.weights, stage.gradients, stage.optimizer) == (2 * number, 4 * number, 12 * number)


def fits(gib: float) -> Estimate:
    return estimate(job_with(hardware={"memory_gib": gib}))


def test_changes_really_make_it_fit() -> None:
    from launcher.job import with_values

    job = job_with(hardware={"memory_gib": 14.0}, batch={"micro_batch_size": 2})
    answer = estimate(job)
    assert answer.fits is False
    assert 0 < len(answer.changes) <= 3
    steps = [change.step_s for change in answer.changes]
    assert all(step is not None for step in steps)
    for change in answer.changes:
        assert change.peak_reserved <= (answer.capacity or 0)
    tree = dict(part.split("=") for part in answer.changes[0].overrides)
    values = {path: _value(path, text) for path, text in tree.items()}
    assert estimate(with_values(job, values)).fits


def _value(path: str, text: str) -> Any:
    from launcher.job import convert, field_at

    raw: Any = text.strip("[]").split(",") if text.startswith("[") else {"true": True, "false": False}.get(text, text)
    info = field_at(path)
    if isinstance(raw, list):
        return tuple(item for item in raw if item)
    return convert(int(raw) if isinstance(raw, str) and raw.isdigit() else raw, info.type, info.meta)


def test_many_changes_at_once_where_two_are_not_enough() -> None:
    big = {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64}
    answer = estimate(job_with(model=big, batch={"global_batch_size": 8}))
    assert answer.fits is False
    assert answer.changes
    assert min(len(change.overrides) for change in answer.changes) > 2


def test_no_change_is_another_one_with_more_to_it() -> None:
    changes = estimate(job_with(hardware={"memory_gib": 14.0}, batch={"micro_batch_size": 2})).changes
    sets = [set(change.overrides) for change in changes]
    assert not any(one < other for one in sets for other in sets)


def test_fits_counts_what_lies_outside_the_allocator() -> None:
    answer = fits(80.0)
    just = (answer.fullest.peak_reserved + answer.outside) / 1024**3
    assert fits(just * 1.001).fits
    assert not fits(just * 0.999).fits
