"""An argument in `backend.args` counts the same in every spelling: dashes or underscores, sections or dotted keys."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.api import diff
from launcher.compose import compose
from launcher.estimate.estimate import estimate
from launcher.job import Job, Origin, fields, value_at, with_values
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import judge
from launcher.rules.passthrough import passthrough_fields, with_passthrough
from launcher.runtime import planned
from tests.conftest import Launch
from tests.nested import nested
from tests.sampling import dice, sample, trials

RECIPES = ("qwen3_moe", "llama3_8b", "deepseek_v3", "tiny_qwen3_moe")


def _spellings(name: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, arguments) of one argument."""
    yield name, {name: value}
    if "." in name:
        yield name, nested(name, value)
    if "-" in name:
        yield name.replace("-", "_"), {name.replace("-", "_"): value}


def _with(job: Job, args: dict[str, Any]) -> Job:
    return dataclasses.replace(job, backend=dataclasses.replace(job.backend, args=args))


def _bare(job: Job) -> Job:
    return dataclasses.replace(job, origins={})


@pytest.mark.parametrize("backend", backend_names())
def test_every_spelling_sets_the_same_fields(backend: str) -> None:
    rng = dice(f"spellings of {backend}")
    for _ in range(trials(4)):
        job = compose([f"+recipe={rng.choice(RECIPES)}", f"backend={backend}"])
        stack = get_backend(backend)
        written = [arg for arg in translate(job, stack, stack.version(None)).native if arg.field is not None]
        for arg in rng.sample(written, min(5, len(written))):
            value = arg.value + 1 if type(arg.value) is int else arg.value
            found = []
            for key, args in _spellings(arg.flag, list(value) if isinstance(value, tuple) else value):
                passed = _with(job, args)
                outcome = judge(passed, fixes=False)
                named = {path for each in outcome.findings for path in each.fields if path.startswith("backend.args.")}
                assert named <= {f"backend.args.{key}"}
                assert set(passthrough_fields(passed).values()) <= {key}
                if _bare(with_passthrough(passed)) != _bare(passed):
                    assert with_passthrough(passed).backend.args == {}
                rules = sorted((each.rule, each.severity) for each in outcome.findings)
                found.append((dataclasses.replace(_bare(with_passthrough(passed)), backend=job.backend), rules))
            assert all(each == found[0] for each in found), arg.flag


SET = (
    *("parallel.tp=2", "parallel.pp=2", "parallel.cp=2", "parallel.vpp=2", "parallel.cp_algorithm=ulysses"),
    *("batch.seq_length=2048", "batch.global_batch_size=32", "batch.micro_batch_size=2", "schedule.train_iters=50"),
    *("schedule.lr_warmup_iters=5", "model.num_hidden_layers=24", "model.hidden_size=1024", "model.num_experts=16"),
    *("model.num_attention_heads=16", "model.num_key_value_heads=4", "checkpoint.load=/x/load", "optimizer.lr=1e-4"),
    *("tokenizer.padded_vocab_size=5120", "recompute.granularity=full", "recompute.num_layers=2", "data.paths=[/x/d]"),
    *("logging.tensorboard_dir=/x/tb", "evaluation.iters=3", "data.split='90,5,5'", "optimizer.type=sgd"),
    *("kernels.attention_backend=fused", "data.cache_path=/x/c", "lora.rank=8", "checkpoint.save=/x/save"),
)
# MindSpeed-LLM: without lora-target-modules lora-r has no effect. MindFormers: one field is a folder and its interval.
OTHERWISE = {("mindspeed", "lora.rank=8"), ("mindformers", "checkpoint.save=/x/save")}


@pytest.mark.parametrize("recipe", ["tiny_qwen3", "qwen3_8b"])
@pytest.mark.parametrize("backend", backend_names())
def test_an_argument_brings_what_its_field_brings(backend: str, recipe: str) -> None:
    words = [f"+recipe={recipe}", f"backend={backend}", "runtime=native"]
    for word in SET:
        path = word.partition("=")[0]
        whole = judge(compose([*words, word]), fixes=False).native
        args = {arg.flag: arg.value for arg in whole if arg.field == path}
        if not args or (backend, word) in OTHERWISE:
            continue
        unset = with_values(compose(words), {path: fields()[path].default}, Origin(kind="default"))
        native = judge(_with(unset, args), fixes=False).native
        assert {arg.flag: arg.value for arg in native} == {arg.flag: arg.value for arg in whole}, word


def test_a_run_resumes_from_the_folder_that_an_argument_names(tmp_path: Path) -> None:
    save = str(tmp_path / "mine")
    words = ["+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=native", "fault_tolerance.max_restarts=2"]
    plans = [
        planned(judge(compose([*words, word]), fixes=False))
        for word in (f"checkpoint.save={save}", f"+backend.args.save={save}")
    ]
    assert [plan.watch.checkpoints for plan in plans] == [save, save]
    assert plans[0].resume is not None
    assert plans[1].resume is not None
    again = [node.argv for plan in plans for node in plan.resume.nodes]
    assert sorted(again[0]) == sorted(again[1])


@pytest.mark.parametrize("backend", backend_names())
def test_a_switch_that_is_left_out_is_the_opposite_of_one_that_is_written(backend: str) -> None:
    job, stack = compose(["+recipe=tiny_qwen3", f"backend={backend}"]), get_backend(backend)
    switches = [each.name for each in stack.catalogue(stack.version(None)).arguments if each.is_flag]
    compared = 0
    for name in sample(switches, 60, f"switches of {backend}"):
        on, off = (_with(job, {name: value}) for value in (True, False))
        for path in passthrough_fields(on).keys() & passthrough_fields(off).keys():
            if fields()[path].type in (bool, bool | None):
                values = [value_at(with_passthrough(each), path) for each in (on, off)]
                decided_by_another = values[0] is values[1] is value_at(job, path)
                assert decided_by_another or sorted(values) == [False, True], (name, path)
                compared += not decided_by_another
    assert compared or not switches


def test_every_spelling_has_the_same_estimate() -> None:
    words = ("+recipe=llama3_8b", "backend=mindspeed", "hardware=ascend_910b")
    peaks = {
        estimate(compose([*words, *args]), changes=False).fullest.peak_reserved
        for args in (["+backend.args.reuse-fp32-param=true"], ["+backend.args.reuse_fp32_param=true"])
    }
    assert len(peaks) == 1
    assert peaks != {estimate(compose(words), changes=False).fullest.peak_reserved}


TYPED = [
    ("megatron_lm", "tensor_model_parallel_size"),
    ("megatron_lm", "tensor-model-parallel-size"),
    ("mindformers", "parallel_config.model_parallel"),
]


@pytest.mark.parametrize("backend, key", TYPED)
def test_what_is_offered_names_the_argument_as_it_was_typed(backend: str, key: str, launch: Launch) -> None:
    words = ("+recipe=tiny_qwen3_moe", f"backend={backend}", "cluster.devices_per_node=8", f"+backend.args.{key}=3")
    shown = launch("check", *words)
    assert shown.code == 1
    assert f"backend.args.{key}=3 (command line)" in shown.out
    assert f"works: backend.args.{key}=null" in shown.out
    assert launch("check", *words, f"backend.args.{key}=null").code == 0


@pytest.mark.parametrize("backend, key", TYPED)
def test_a_job_with_the_field_is_the_job_with_the_argument(backend: str, key: str) -> None:
    words = ["+recipe=tiny_qwen3", f"backend={backend}", "model.pretrained=false", "cluster.devices_per_node=8"]
    assert diff(compose([*words, "parallel.tp=2"]), compose([*words, f"+backend.args.{key}=2"])) == []
