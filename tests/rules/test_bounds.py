"""Sizes of 0 and below, in a script, in a file and as a passed-through argument."""

import pytest

from launcher.api import check, compose, import_argv
from launcher.job import with_values
from launcher.job.finding import Finding

WORDS = {
    "megatron": ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x"],
    "megatron_lm": ["--num-layers", "8", "--hidden-size", "64", "--num-attention-heads", "8"],
    "mindspeed": ["--num-layers", "8", "--hidden-size", "64", "--num-attention-heads", "8"],
}
SIZES = {
    "tensor-model-parallel-size": "parallel.tp",
    "pipeline-model-parallel-size": "parallel.pp",
    "context-parallel-size": "parallel.cp",
    "expert-model-parallel-size": "parallel.ep",
    "micro-batch-size": "batch.micro_batch_size",
    "global-batch-size": "batch.global_batch_size",
    "num-layers": "model.num_hidden_layers",
}


def bounds(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.rule == "ARG-BOUND"]


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("backend", WORDS)
def test_a_script_is_refused(backend: str, size: str, value: int) -> None:
    flag = size.replace("-", "_") if backend == "megatron" else size
    imported = import_argv([*WORDS[backend], f"--{flag}", str(value)], backend=backend, world_size=8)
    for judged in (imported, imported.job):
        (found,) = bounds(check(judged))
        assert found.severity == "error"
        assert found.message == f"{flag}: {value} is below 1 ({SIZES[size]})"
        assert flag in found.flags


@pytest.mark.parametrize("backend", WORDS)
def test_a_passed_through_argument_is_refused_with_what_works(backend: str) -> None:
    flag = "tensor_model_parallel_size" if backend == "megatron" else "tensor-model-parallel-size"
    job = with_values(compose(["+recipe=tiny_qwen3", f"backend={backend}"]), {"backend.args": {flag: 0}})
    (found,) = bounds(check(job))
    assert f"backend.args.{flag}" in found.fields
    for fix in found.fixes:
        (override,) = fix.overrides
        assert not bounds(check(with_values(job, {"backend.args": {flag: int(override.partition("=")[2])}})))


def test_an_interval_of_0_means_never() -> None:
    """Megatron-LM: `if args.save_interval and …`, training.py checkpoint_and_decide_exit @core_v0.16.1."""
    imported = import_argv([*WORDS["megatron_lm"], "--save-interval", "0"], backend="megatron_lm", world_size=8)
    assert not bounds(check(imported))
