"""Sizes of 0 and below, in a script, in a file and as a passed-through argument."""

import pytest

from launcher.api import check, compose, import_argv
from launcher.job import Job, with_values
from launcher.job.finding import Finding
from launcher.rules.engine import findings_of
from launcher.rules.registry import Rule, RuleContext

ARGS = {
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


@pytest.mark.sample(keep=14)
@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("backend", ARGS)
def test_a_script_is_refused(backend: str, size: str, value: int) -> None:
    flag = size.replace("-", "_") if backend == "megatron" else size
    imported = import_argv([*ARGS[backend], f"--{flag}", str(value)], backend=backend, world_size=8)
    for judged in (imported, imported.job):
        (found,) = bounds(check(judged))
        assert found.severity == "error"
        assert found.message == f"{flag}: {value} is below 1 ({SIZES[size]})"
        assert flag in found.flags


@pytest.mark.parametrize("backend", ARGS)
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
    imported = import_argv([*ARGS["megatron_lm"], "--save-interval", "0"], backend="megatron_lm", world_size=8)
    assert not bounds(check(imported))


def test_without_the_bound_a_rule_that_divides_by_the_size_refuses_it() -> None:
    job = compose(["+recipe=tiny_qwen3", "backend=mindspeed", "rules.disable=[ARG-BOUND]"])
    found = check(with_values(job, {"backend.args": {"tensor-model-parallel-size": 0}}))
    assert not bounds(found)
    (reported,) = (finding for finding in found if finding.rule == "MLM-TP-GROUPS")
    assert reported.severity == "error"
    assert reported.message.startswith("cannot be checked: tensor-model-parallel-size: 0 is below 1")


def test_only_a_refused_size_excuses_a_rule_that_fails() -> None:
    """A number below another field's minimum does not hide a fault of a rule."""
    broken = Rule(id="X-FAILS", check=lambda context: [1 / 0], severity="error", source="test")  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        list(
            findings_of(broken, RuleContext(job=Job(), beyond={"optimizer.weight_decay": ("weight-decay", "below 0")}))
        )
    assert not list(findings_of(broken, RuleContext(job=Job(), beyond={"parallel.tp": ("x", "0 is below 1")})))
