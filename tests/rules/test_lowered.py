"""Rules that a version of a backend does not enforce are warnings there, with the reason."""

import pytest

from launcher.api import check
from launcher.compose import compose
from launcher.importing.read_argv import read_argv
from launcher.pipeline import judge

JOB = ("model=qwen3_8b", "task=pretrain", "batch.seq_length=4096", "batch.global_batch_size=64", "optimizer.lr=1e-5")
REST = ("schedule.train_iters=10", "data.format=mock", "cluster.devices_per_node=8")
LOWERED = {
    "experts of a dense model": ("MOE-EP-DENSE", "parallel.ep=2"),
    "a sequence beyond the positions": ("SEQ-POSITIONS", "batch.seq_length=65536"),
}


def severity(id_: str, *args: str) -> str | None:
    found = judge(compose([*JOB, *REST, *args]), fixes=False).findings
    return next((finding.severity for finding in found if finding.rule == id_), None)


@pytest.mark.parametrize(("id_", "change"), LOWERED.values(), ids=LOWERED.keys())
def test_what_a_version_runs_is_a_warning_there(id_: str, change: str) -> None:
    assert severity(id_, "backend=megatron", change) == "warning"
    assert severity(id_, "backend=megatron", "backend.version=3.6.4", change) == "error"
    assert severity(id_, "backend=megatron_lm", change) == "error"


def test_a_rehearsal_on_this_machine_needs_no_master_address() -> None:
    args = ("backend=megatron_lm", "cluster.nodes=2", "runtime=rehearsal")
    assert severity("NET-MASTER", *args) == "warning"
    assert severity("NET-MASTER", *args, "rehearse.shrink=true") is None
    assert severity("NET-MASTER", *args, "rehearse.fake_world=true") is None


CHUNKS = ("parallel.pp=4", "parallel.vpp=3", "batch.micro_batch_size=4")
GROUPS = {
    "five micro-batches in one group of five": ("megatron_lm", ("parallel.microbatch_group_size=5",), None),
    "five micro-batches in groups of four": ("megatron_lm", (), "error"),
    "a group larger than the step": ("megatron_lm", ("parallel.microbatch_group_size=6",), "error"),
    "a group smaller than the pipeline": ("megatron_lm", ("parallel.microbatch_group_size=3",), "error"),
    "a schedule that takes any number": ("mindformers", (), None),
}


@pytest.mark.parametrize(("backend", "args", "expected"), GROUPS.values(), ids=GROUPS.keys())
def test_micro_batches_of_the_interleaved_schedule(backend: str, args: tuple[str, ...], expected: str | None) -> None:
    # What Megatron-LM's own gpt3_mcore_te_tp1_pp4_vp1_tunable_overlap runs: 8 devices, 40 samples.
    assert severity("BATCH-VPP", f"backend={backend}", *CHUNKS, "batch.global_batch_size=40", *args) == expected


def test_evaluation_that_is_off_loses_nothing() -> None:
    def lost(*args: str) -> bool:
        job = compose([*JOB, *REST, "backend=mindformers", "evaluation.interval=100", *args])
        return any("evaluation.interval" in finding.fields for finding in judge(job, fixes=False).findings)

    assert lost()
    assert not lost("evaluation.iters=0")


PER_RANK = "--recompute-granularity full --recompute-method block --recompute-num-layers 1"


def test_a_script_with_a_switch_that_does_nothing_runs() -> None:
    """A script that trains is not refused for what the document refuses; a new job is advised to remove it."""
    shape = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
    rest = "--micro-batch-size 1 --lr 1e-4 --train-iters 10 --pipeline-model-parallel-size 4"
    args = (
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} {rest} {PER_RANK} --enable-recompute-layers-per-pp-rank"
    )
    for version, expected in (("26.1.0", {"warning"}), ("2.1.0", {"error"})):
        found = check(read_argv(args.split(), backend="mindspeed", version=version))
        assert {each.severity for each in found if each.rule == "MS-RC-PER-RANK"} == expected, version
    full = ("recompute.granularity=full", "recompute.method=block", "recompute.num_layers=1")
    chosen = ("backend=mindspeed", "parallel.pp=4", "recompute.per_pp_rank=true", *full)
    assert severity("MS-RC-PER-RANK", *chosen) == "error"


def test_an_optimizer_on_the_host_is_offered_the_code_that_it_needs() -> None:
    job = compose([*JOB, *REST, "backend=megatron_lm", "offload.optimizer=true"])
    error = next(each for each in judge(job).findings if each.rule == "MLM-CPU-OFFLOAD-PRECISION")
    assert {str(fix) for fix in error.fixes} >= {"optimizer.precision_aware=true", "offload.optimizer=false"}
