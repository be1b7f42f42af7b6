"""Rules that a version of a backend does not enforce are warnings there, with the reason."""

import pytest

from launcher.compose import compose
from launcher.pipeline import judge

JOB = ("model=qwen3_8b", "task=pretrain", "batch.seq_length=4096", "batch.global_batch_size=64", "optimizer.lr=1e-5")
REST = ("schedule.train_iters=10", "data.format=mock", "cluster.devices_per_node=8")
LOWERED = {
    "experts of a dense model": ("MOE-EP-DENSE", "parallel.ep=2"),
    "a sequence beyond the positions": ("SEQ-POSITIONS", "batch.seq_length=65536"),
}


def severity(id_: str, *words: str) -> str | None:
    found = judge(compose([*JOB, *REST, *words]), fixes=False).findings
    return next((finding.severity for finding in found if finding.rule == id_), None)


@pytest.mark.parametrize(("id_", "change"), LOWERED.values(), ids=LOWERED.keys())
def test_what_a_version_runs_is_a_warning_there(id_: str, change: str) -> None:
    assert severity(id_, "backend=megatron", change) == "warning"
    assert severity(id_, "backend=megatron", "backend.version=3.6.4", change) == "error"
    assert severity(id_, "backend=megatron_lm", change) == "error"


def test_a_rehearsal_on_this_machine_needs_no_master_address() -> None:
    words = ("backend=megatron_lm", "cluster.nodes=2", "runtime=rehearsal")
    assert severity("NET-MASTER", *words) == "warning"
    assert severity("NET-MASTER", *words, "rehearse.shrink=true") is None
    assert severity("NET-MASTER", *words, "rehearse.fake_world=true") is None


CHUNKS = ("parallel.pp=4", "parallel.vpp=3", "batch.micro_batch_size=4")
GROUPS = {
    "five micro-batches in one group of five": ("megatron_lm", ("parallel.microbatch_group_size=5",), None),
    "five micro-batches in groups of four": ("megatron_lm", (), "error"),
    "a group larger than the step": ("megatron_lm", ("parallel.microbatch_group_size=6",), "error"),
    "a group smaller than the pipeline": ("megatron_lm", ("parallel.microbatch_group_size=3",), "error"),
    "a schedule that takes any number": ("mindformers", (), None),
}


@pytest.mark.parametrize(("backend", "words", "expected"), GROUPS.values(), ids=GROUPS.keys())
def test_micro_batches_of_the_interleaved_schedule(backend: str, words: tuple[str, ...], expected: str | None) -> None:
    # What Megatron-LM's own gpt3_mcore_te_tp1_pp4_vp1_tunable_overlap runs: 8 devices, 40 samples.
    assert severity("BATCH-VPP", f"backend={backend}", *CHUNKS, "batch.global_batch_size=40", *words) == expected


def test_evaluation_that_is_off_loses_nothing() -> None:
    def lost(*words: str) -> bool:
        job = compose([*JOB, *REST, "backend=mindformers", "evaluation.interval=100", *words])
        return any("evaluation.interval" in finding.fields for finding in judge(job, fixes=False).findings)

    assert lost()
    assert not lost("evaluation.iters=0")
