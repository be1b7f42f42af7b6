"""Nothing that a user sets is taken without a word: it changes the answer of this very job, or the answer says so."""

import pytest

from launcher.compose import compose
from launcher.estimate import estimate
from tests.estimate.estimate_jobs import MOE, job_with

DENSE = ["model=llama3_8b", "hardware=h100_80g", "batch.seq_length=4096", "batch.global_batch_size=64"]
SILENT = {
    "experts of a dense model": "moe.grouped_gemm=false",
    "a context algorithm without context parallelism": "parallel.cp_algorithm=ulysses",
    "FP8's peak without FP8": "hardware.fp8_tflops=10",
    "what is learned": "optimizer.lr=1e-3",
    "data": "data.split=99,1,0",
    "an argument passed through": "backend.args.tensor_model_parallel_size=4",
}


@pytest.mark.parametrize("arg", SILENT.values(), ids=SILENT)
def test_what_makes_no_difference_is_named(arg: str) -> None:
    field = arg.partition("=")[0]
    assert f"{field}: does not change the estimate of this job" in estimate(compose([*DENSE, arg])).missing


def test_what_makes_a_difference_is_not_named() -> None:
    args = [*DENSE, "parallel.tp=2", "kernels.cross_entropy_fusion=true", "estimate.mem_factor=0.9"]
    assert not [note for note in estimate(compose(args)).missing if note.endswith("of this job")]


def test_a_value_that_replaces_the_preset_s_is_counted() -> None:
    """Unset it would be the number of heads, too; the preset has 8."""
    words = ["+recipe=qwen3_8b", "backend=mindspeed", "hardware=ascend_910b"]
    plain, more = estimate(compose(words)), estimate(compose([*words, "model.num_key_value_heads=32"]))
    assert more.fullest.peak_reserved > plain.fullest.peak_reserved
    assert not [note for note in more.missing if "num_key_value_heads" in note]


def test_what_is_reported_already_is_not_repeated() -> None:
    notes = [note for note in estimate(compose([*DENSE, "kernels.deterministic=true"])).missing if "determin" in note]
    assert len(notes) == 1


def test_recomputation_of_what_is_not_there_is_named() -> None:
    job = job_with(recompute={"granularity": "selective", "modules": ("moe_act", "mlp"), "norm": True})
    notes = estimate(job).missing
    assert "recompute.modules: does not change the estimate for moe_act (nothing in this model to recompute)" in notes
    assert "recompute.norm: does not change the estimate (nothing in this model to recompute)" in notes
    moe = job_with(model=MOE, recompute={"granularity": "selective", "modules": ("moe_act", "mlp"), "norm": True})
    assert not [note for note in estimate(moe).missing if note.startswith("recompute.")]
