"""First principles: what must halve halves, what must not grow does not, for every way to split a job."""

from itertools import pairwise
from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from launcher.estimate.memory import activations
from launcher.estimate.schedule import schedule_of
from launcher.estimate.stages import ChunkCost
from tests.estimate.estimate_jobs import MOE, job_with

LATENT = {"q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
MODELS: dict[str, dict[str, Any]] = {
    "grouped query": {},
    "multi-head": {"num_key_value_heads": 16},
    "wide": {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64},
    "experts": MOE,
    "latent with experts": {**MOE, **LATENT},
}
LONG = {"micro_batch_size": 1, "global_batch_size": 64, "seq_length": 65536}


def run(model: str, **sections: dict[str, Any]) -> Estimate:
    own = {"model": MODELS[model], "cluster": {"nodes": 8}, **sections}
    return estimate(job_with(**own), changes=False)


def static(answer: Estimate) -> int:
    first = answer.stages[0]
    return first.weights + first.gradients + first.optimizer


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algorithm", ["megatron", "ulysses"])
def test_context_parallel_divides_activations(model: str, algorithm: str) -> None:
    whole = run(model, batch=LONG).stages[0].activations
    for cp in (2, 4, 8):
        split = run(model, batch=LONG, parallel={"cp": cp, "cp_algorithm": algorithm}).stages[0].activations
        assert whole / cp * 0.95 <= split <= whole / cp * 1.35, f"cp {cp}: {split * cp / whole:.2f}"


@pytest.mark.parametrize("model", MODELS)
def test_context_parallel_hides_behind_long_sequences(model: str) -> None:
    """Twice the devices on one sequence take at least half the time, and less than all of it."""
    before = run(model, batch={**LONG, "global_batch_size": 8}, parallel={"cp": 2, "pp": 4}).time
    after = run(model, batch={**LONG, "global_batch_size": 4}, parallel={"cp": 4, "pp": 4}).time
    assert before is not None
    assert after is not None
    assert 0.5 * before.step_s <= after.step_s < before.step_s


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "splits",
    [
        [{"tp": 1}, {"tp": 2, "sequence_parallel": True}, {"tp": 4, "sequence_parallel": True}],
        [{"pp": 1}, {"pp": 2}, {"pp": 4}, {"pp": 8}],
    ],
    ids=["tensor", "pipeline"],
)
def test_more_splits_never_need_more_memory(model: str, splits: list[dict[str, Any]]) -> None:
    """Of a stage's static memory always, of its peak with as many micro-batches in flight as stages at most."""
    answers = [run(model, parallel={"etp": 1, **split}, batch={"global_batch_size": 64}) for split in splits]
    for before, after in pairwise(answers):
        assert static(after) <= static(before)
        assert after.fullest.peak_allocated <= before.fullest.peak_allocated


@pytest.mark.parametrize("model", ["experts", "latent with experts"])
def test_expert_parallel_divides_the_weights_of_experts(model: str) -> None:
    one, eight = run(model), run(model, parallel={"ep": 8})
    assert eight.stages[0].weights < one.stages[0].weights
    assert eight.fullest.peak_allocated < one.fullest.peak_allocated
    assert eight.parameters["total"] == one.parameters["total"]


RECOMPUTE: list[dict[str, Any]] = [
    {},
    {"granularity": "selective", "modules": ["layernorm"]},
    {"granularity": "selective", "modules": ["layernorm", "mlp", "moe_act"]},
    {"granularity": "selective", "modules": ["layernorm", "mlp", "moe"]},
    {"granularity": "full", "method": "uniform", "num_layers": 1},
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pp", [1, 4])
def test_more_recomputation_saves_memory_and_costs_time(model: str, pp: int) -> None:
    answers = [run(model, recompute=kind, parallel={"pp": pp}) for kind in RECOMPUTE]
    for before, after in pairwise(answers):
        assert after.fullest.peak_allocated <= before.fullest.peak_allocated
    steps = [answer.time.step_s for answer in answers if answer.time]
    assert steps[0] == min(steps)
    assert steps[-1] == max(steps)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("section", "name", "values"),
    [
        ("batch", "seq_length", [1024, 2048, 8192]),
        ("batch", "micro_batch_size", [1, 2, 4]),
        ("model", "num_hidden_layers", [8, 16, 32]),
        ("model", "vocab_size", [32000, 64000, 256000]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_larger_is_never_cheaper(model: str, section: str, name: str, values: list[int]) -> None:
    answers = []
    for value in values:
        sections = {"model": dict(MODELS[model]), section: {}}
        sections[section] = {**sections[section], name: value}
        answers.append(estimate(job_with(**sections, cluster={"nodes": 1}), changes=False))
    for before, after in pairwise(answers):
        assert after.fullest.peak_allocated > before.fullest.peak_allocated
        assert before.time is not None
        assert after.time is not None
        assert after.time.step_s > before.time.step_s or name == "micro_batch_size"


def test_logits_are_split_by_tensor_and_context_parallelism() -> None:
    """A vocabulary so large that only logits count."""
    huge = {"vocab_size": 1024 * 1024, "num_hidden_layers": 8}
    one, tensor, context = (
        estimate(job_with(model=huge, parallel=split), changes=False).stages[0].activations
        for split in ({}, {"tp": 4, "sequence_parallel": True}, {"cp": 4})
    )
    assert tensor == pytest.approx(one / 4, rel=0.1)
    assert context == pytest.approx(one / 4, rel=0.2)


def test_plain_pipelines_hold_one_micro_batch_for_each_later_stage() -> None:
    chunk = ChunkCost(
        keeps=1.0,
        forward_peak=1.5,
        backward_peak=2.0,
        forward=1.0,
        backward=2.0,
        forward_comm=0.0,
        backward_comm=0.0,
        recompute=0.0,
    )
    from launcher.estimate.sizes import read_sizes

    sizes, _ = read_sizes(job_with(parallel={"pp": 4}))
    assert [activations(schedule_of(sizes), stage, [chunk], 2.0) for stage in range(4)] == [5.0, 4.0, 3.0, 2.0]
