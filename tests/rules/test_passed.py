"""An argument in `backend.args` counts the same in every spelling: dashes or underscores, sections or dotted keys."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from launcher.compose import compose
from launcher.estimate.estimate import estimate
from launcher.job import Job
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import judge
from launcher.rules.passed import passed_fields, with_passed
from tests.conftest import Launch
from tests.sampling import dice, trials

RECIPES = ("qwen3_moe", "llama3_8b", "deepseek_v3", "tiny_qwen3_moe")


def _nested(name: str, value: Any) -> dict[str, Any]:
    *sections, last = name.split(".")
    tree = {last: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree


def _spellings(name: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, arguments) of one argument."""
    yield name, {name: value}
    if "." in name:
        yield name, _nested(name, value)
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
                assert set(passed_fields(passed).values()) <= {key}
                if _bare(with_passed(passed)) != _bare(passed):
                    assert with_passed(passed).backend.args == {}
                rules = sorted((each.rule, each.severity) for each in outcome.findings)
                found.append((dataclasses.replace(_bare(with_passed(passed)), backend=job.backend), rules))
            assert all(each == found[0] for each in found), arg.flag


def test_every_spelling_has_the_same_estimate() -> None:
    words = ("+recipe=llama3_8b", "backend=mindspeed", "hardware=ascend_910b")
    peaks = {
        estimate(compose([*words, *args]), changes=False).fullest.peak_reserved
        for args in (["+backend.args.reuse-fp32-param=true"], ["+backend.args.reuse_fp32_param=true"])
    }
    assert len(peaks) == 1
    assert peaks != {estimate(compose(words), changes=False).fullest.peak_reserved}


@pytest.mark.parametrize(
    "backend, key",
    [
        ("megatron_lm", "tensor_model_parallel_size"),
        ("megatron_lm", "tensor-model-parallel-size"),
        ("mindformers", "parallel_config.model_parallel"),
    ],
)
def test_what_is_offered_names_the_argument_as_it_was_typed(backend: str, key: str, launch: Launch) -> None:
    words = ("+recipe=tiny_qwen3_moe", f"backend={backend}", "cluster.devices_per_node=8", f"+backend.args.{key}=3")
    shown = launch("check", *words)
    assert shown.code == 1
    assert f"backend.args.{key}=3 (command line)" in shown.out
    assert f"works: backend.args.{key}=null" in shown.out
    assert launch("check", *words, f"backend.args.{key}=null").code == 0
