"""What MindFormers 1.6.0's trainer leaves of parallel sizes and steps: by its own checks, and by our records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.mindformers.launch import launch
from launcher.mapping.equivalence import canonical
from launcher.pipeline import judge
from tests.backends.mindformers.jobs import OLD
from tests.backends.mindformers.rule_cases import PLAIN
from tests.backends.mindformers.test_rules_mindformers import job_of
from tests.backends.verdicts import Validator, ask
from tests.rehearse.native.environments import mindformers_1_6_python

_MICRO, _STEPS = "parallel_config.micro_batch_num", "runner_config.gradient_accumulation_steps"
_MODE, _STRATEGY, _FULL = "parallel.parallel_mode", "parallel.dataset_strategy", "parallel.full_batch"
_STAGES, _TENSOR = {"parallel": {"pp": 2}}, {"parallel": {"tp": 2}}
# Changes of a job, and what the trainer leaves of the keys that it sets.
CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {_MICRO: 1, _STEPS: 16}),
    "micro-batches without stages": ({"keys": {_MICRO: 4}}, {_MICRO: 1}),
    "micro-batches with stages": ({**_STAGES, "keys": {_MICRO: 4}}, {_MICRO: 4, _STEPS: 1}),
    "accumulation": ({"keys": {_STEPS: 4}}, {_STEPS: 4}),
    "accumulation with stages": ({**_STAGES, "keys": {_STEPS: 4, _MICRO: 2}}, {_STEPS: 1, _MICRO: 2}),
    "no accumulation": ({"keys": {_STEPS: None}}, {_STEPS: 1}),
    "tensor parallel": (_TENSOR, {"parallel_config.model_parallel": 2}),
    "no automatic mode": (
        {**_TENSOR, "keys": {_MODE: 0}},
        {"parallel_config.model_parallel": 1, "parallel_config.data_parallel": 1},
    ),
    "no automatic mode, accumulation": ({"keys": {_MODE: 0, _STEPS: 4}}, {_STEPS: 1}),
    "no automatic mode, stages": (
        {**_STAGES, "keys": {_MODE: 0, _MICRO: 4}},
        {"parallel_config.pipeline_stage": 1, _MICRO: 1},
    ),
    "vocabulary": ({"keys": {"parallel_config.vocab_emb_dp": True}}, {"parallel_config.vocab_emb_dp": True}),
    "vocabulary with stages": (
        {**_STAGES, "keys": {"parallel_config.vocab_emb_dp": True, _MICRO: 2}},
        {"parallel_config.vocab_emb_dp": False},
    ),
    "strategy with the whole batch": ({"keys": {_FULL: True, _STRATEGY: [[8, 1]]}}, {_STRATEGY: "full_batch"}),
    "strategy": ({"keys": {_FULL: False, _STRATEGY: [[8, 1]]}}, {_STRATEGY: [[8, 1]]}),
}


def outcome_of(name: str) -> Any:
    return judge(job_of({"model": PLAIN, **CASES[name][0]}, OLD), fixes=False)


@pytest.mark.parametrize("name", CASES)
def test_values_that_the_trainer_leaves(name: str) -> None:
    values = outcome_of(name).effective.namespace()
    left = {key: canonical(value) for key, value in CASES[name][1].items()}
    assert {key: canonical(values.get(key)) for key in left} == left


@pytest.mark.slow
def test_the_real_trainer_leaves_the_same(tmp_path: Path) -> None:
    cases, ours = [], []
    for number, name in enumerate(CASES):
        outcome = outcome_of(name)
        path = tmp_path / f"{number}.yaml"
        path.write_text(launch(outcome.job, outcome.native).files[0].content, encoding="utf-8")
        cases.append([str(path), outcome.job.cluster.world_size])
        ours.append(outcome.effective.namespace())
    program = Validator(
        command=(str(mindformers_1_6_python()), str(Path(__file__).with_name("real_effective.py"))),
        cwd=tmp_path,
        as_list=True,
    )
    for name, values, real in zip(CASES, ours, ask(program, cases), strict=True):
        left = {key: canonical(value) for key, value in real.items()}
        assert {key: canonical(values.get(key)) for key in left} == left, name
