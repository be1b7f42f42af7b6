"""Ports carry what the source's own backend does where its script says nothing, and say so."""

import dataclasses
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.importing.job_file import job_yaml
from launcher.importing.port import ported
from launcher.importing.read_argv import read_argv
from launcher.job import with_values
from launcher.pipeline import judge
from launcher.port.defaults import DEFAULT_RULE, LAYOUT_RULE

SWIFT = "megatron sft --model Qwen/Qwen3-8B --dataset d.jsonl --train_iters 10 --max_length 4096"

# Version and arguments beside them: the learning rate that swift trains with.
RATES = {
    "all weights": ("4.6.0", "", 1e-5),
    "adapters": ("4.6.0", "--tuner_type lora", 1e-4),
    "adapters by the older name": ("3.12.6", "--train_type lora", 1e-4),
    "before adapters had a rate of their own": ("3.6.4", "--train_type lora", 1e-5),
}


@pytest.mark.parametrize("case", RATES.values(), ids=RATES.keys())
@pytest.mark.parametrize("target", ["mindspeed", "megatron_lm"])
def test_the_learning_rate_of_swift_is_carried_over(case: tuple[str, str, float], target: str) -> None:
    version, more, rate = case
    found = ported(read_argv([*SWIFT.split(), *more.split()], backend="megatron", version=version), target)
    assert found.job.optimizer.lr == rate
    assert found.job.batch.global_batch_size == 16
    assert judge(found.job, fixes=False).native.get("lr") == rate
    assert "REQ-LR" not in {each.rule for each in found.findings}
    reported = next(each for each in found.findings if each.rule == DEFAULT_RULE)
    assert set(reported.fields) >= {"optimizer.lr", "batch.global_batch_size"}
    assert f"of Megatron-SWIFT {version}" in reported.message


@pytest.mark.parametrize("target", ["mindspeed", "megatron_lm"])
def test_the_layout_of_swift_is_carried_over(target: str) -> None:
    # etp is 1 there and tp here, where 8 devices are too few for etp 2 × ep 4 × pp 2.
    layout = {"parallel.tp": 2, "parallel.pp": 2, "parallel.cp": 2, "parallel.ep": 4, "cluster.devices_per_node": 8}
    imported = read_argv(SWIFT.replace("Qwen3-8B", "Qwen3-30B-A3B").split(), backend="megatron")
    job = with_values(imported.job, layout | {"model.num_experts": 128})
    found = ported(dataclasses.replace(imported, job=job), target)
    assert found.job.parallel.etp == 1
    outcome = judge(found.job, fixes=False)
    assert outcome.native.get("expert-tensor-parallel-size") == 1
    assert outcome.native.get("use-distributed-optimizer") is True
    assert "PAR-EXPERT-WORLD" not in {each.rule for each in outcome.findings}


@pytest.mark.parametrize("target", ["megatron", "mindformers"])
def test_experts_that_the_target_does_not_split_are_reported(target: str) -> None:
    # etp is tp for Megatron-LM, and 1 for the targets.
    line = "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 128 --num-experts 8 --lr 1e-4"
    layout = "--tensor-model-parallel-size 2 --expert-model-parallel-size 4"
    found = ported(read_argv([*line.split(), *layout.split()], backend="megatron_lm"), target, fixes=False)
    assert found.job.parallel.etp is None
    (reported,) = [each for each in found.findings if each.rule == LAYOUT_RULE]
    assert "parallel.etp is not set: 2 by default on Megatron-LM" in reported.message
    own = ["--expert-tensor-parallel-size", "1"]
    same = ported(read_argv([*line.split(), *layout.split(), *own], backend="megatron_lm"), target, fixes=False)
    assert LAYOUT_RULE not in {each.rule for each in same.findings}


def test_experts_of_one_group_are_divided_as_the_target_does() -> None:
    """With etp 1, tp 2 and ep 1 gradients of experts are wrong, on the source, too."""
    imported = read_argv(SWIFT.replace("Qwen3-8B", "Qwen3-30B-A3B").split(), backend="megatron")
    job = with_values(imported.job, {"parallel.tp": 2, "model.num_experts": 128})
    found = ported(dataclasses.replace(imported, job=job), "megatron_lm", fixes=False)
    assert found.job.parallel.etp is None
    assert "MLM-ETP-REPLICAS" not in {each.rule for each in found.findings}


def test_a_target_that_divides_the_optimizer_states_still_does() -> None:
    script = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4"
    found = ported(read_argv(script.split(), backend="megatron_lm"), "megatron", fixes=False)
    assert found.job.parallel.distributed_optimizer is None
    assert judge(found.job, fixes=False).native.get("use_distributed_optimizer") is not False


def test_swift_itself_still_chooses_the_rate() -> None:
    imported = read_argv(SWIFT.split(), backend="megatron")
    found = ported(imported, "megatron", fixes=False)
    assert not found.job.optimizer.lr
    assert not judge(found.job, fixes=False).native.has("lr")
    assert DEFAULT_RULE not in {each.rule for each in found.findings}


def test_what_the_user_says_instead_is_not_a_default(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        job_yaml(read_argv(SWIFT.split(), backend="megatron"), "x", with_version=True), encoding="utf-8"
    )
    args = [f"+job={tmp_path}/job.yaml", "backend=mindspeed"]
    carried, chosen = (judge(compose([*args, *more]), fixes=False) for more in ([], ["optimizer.lr=3e-6"]))
    fields = [
        {path for each in one.findings if each.rule == DEFAULT_RULE for path in each.fields}
        for one in (carried, chosen)
    ]
    assert [one.native.get("lr") for one in (carried, chosen)] == [1e-5, 3e-6]
    assert fields[0] - fields[1] == {"optimizer.lr"}


def test_only_what_a_job_reads_is_carried_over() -> None:
    """A router's bias moves at a rate that Megatron-SWIFT has no option for; only one job has such a bias."""
    shape = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
    args = f"torchrun pretrain_gpt.py {shape} --micro-batch-size 1 --lr 1e-4 --train-iters 10 --num-experts 8"
    bias = "--moe-router-enable-expert-bias --moe-router-score-function sigmoid"
    named = [
        {path for each in found.findings if each.rule == DEFAULT_RULE for path in each.fields}
        for more in ("", bias)
        for found in [ported(read_argv([*args.split(), *more.split()], backend="mindspeed"), "megatron", fixes=False)]
    ]
    assert named[1] - named[0] == {"moe.bias_update_rate"}
