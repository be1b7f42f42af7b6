"""Files with changed values are refused with a reason or judged, and crash nothing."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from backends.mindformers import BACKEND
from launcher.api import check
from launcher.importing.config import Configuration
from launcher.importing.imported import Imported
from launcher.importing.invocation import Invocation
from launcher.importing.judge import judge_existing
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions, read_command
from launcher.mapping.engine import nest
from launcher.pipeline import judge
from tests.backends.mindformers.jobs import OLD
from tests.backends.mindformers.mutated import AXES, changed_file
from tests.sampling import dice, trials

EXAMPLES = Path(__file__).with_name("upstream_examples.json")


@cache
def examples() -> dict[str, dict[str, Any]]:
    return {name: nest(flat) for name, flat in json.loads(EXAMPLES.read_text())["examples"].items()}


def read(tree: dict[str, Any]) -> Imported:
    invocation = Invocation(program="job.yaml", backends=("mindformers",), where="job.yaml")
    return read_command(invocation, ImportOptions(backend="mindformers"), Configuration(tree=tree))


@pytest.mark.slow
@pytest.mark.parametrize("name", json.loads(EXAMPLES.read_text())["examples"])
def test_a_changed_file_is_refused_or_judged(name: str) -> None:
    draw = dice(f"changed {name}")
    for _ in range(trials(60)):
        tree, change = changed_file(examples()[name], draw)
        try:
            imported = read(tree)
        except ImportRefused:
            continue
        for judged in (imported, imported.job):
            assert all(finding.message for finding in check(judged)), change


def test_the_axes_cover_every_section() -> None:
    known = {name.partition(".")[0] if "." in name else "" for name in BACKEND.catalogue(OLD).names()}
    assert known <= {section.partition(".")[0] for section in AXES}


# Sizes that everything else is divided by.
SIZES = (
    *("parallel_config.model_parallel", "parallel_config.pipeline_stage", "parallel_config.context_parallel"),
    *("parallel_config.expert_parallel", "parallel_config.data_parallel", "runner_config.batch_size"),
)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("key", SIZES)
def test_a_size_of_nothing_is_refused(key: str, value: int) -> None:
    tree = json.loads(json.dumps(next(iter(examples().values()))))
    section, leaf = key.split(".")
    tree.setdefault(section, {})[leaf] = value
    imported = read(tree)
    for outcome in (judge_existing(imported, fixes=False), judge(imported.job, fixes=False)):
        reported = [finding for finding in outcome.findings if finding.rule in ("ARG-BOUND", "MF-SIZES")]
        assert any(key in finding.message and finding.severity == "error" for finding in reported)


# A product of several sizes is refused by the name of the size that is wrong, once.
BATCH_SIZES = (
    *("runner_config.batch_size", "runner_config.gradient_accumulation_steps", "parallel_config.micro_batch_num"),
    "micro_batch_interleave_num",
)


@pytest.mark.parametrize("key", BATCH_SIZES)
def test_a_factor_of_the_global_batch_is_refused_by_its_own_name(key: str) -> None:
    tree = json.loads(json.dumps(examples()["finetune_qwen3"]))
    tree["parallel_config"]["pipeline_stage"] = 4 if key == "parallel_config.micro_batch_num" else 1
    section, _, leaf = key.rpartition(".")
    (tree[section] if section else tree)[leaf] = 0
    findings = judge_existing(read(tree), fixes=False).findings
    (message,) = [finding.message for finding in findings if finding.rule == "ARG-BOUND"]
    assert message.startswith(f"{key}: 0 is below 1")


# Sections that MindFormers fills with its template's defaults, where they are empty or not there.
EMPTY = ("context", "runner_config", "runner_wrapper", "optimizer", "parallel", "recompute_config", "callbacks")


@pytest.mark.parametrize("empty", [None, {}])
@pytest.mark.parametrize("section", EMPTY)
def test_an_empty_section_is_one_that_is_not_there(section: str, empty: Any) -> None:
    tree = json.loads(json.dumps(examples()["finetune_qwen3"]))
    tree.pop(section, None)
    without = read(tree)
    assert read({**tree, section: empty}).job == without.job


def test_a_data_set_whose_task_is_empty_is_refused() -> None:
    tree = {**examples()["finetune_qwen3"], "train_dataset_task": None}
    errors = {finding.rule for finding in judge_existing(read(tree), fixes=False).findings}
    assert "MF-DATASET-TASK" in errors


@pytest.mark.parametrize(("dp", "devices"), [(None, 1), (1, 1), (2, 8)])
def test_training_that_is_not_distributed_runs_on_one_device(dp: int | None, devices: int) -> None:
    tree = json.loads(json.dumps(examples()["finetune_qwen3"]))
    sizes = {} if dp is None else {"data_parallel": dp}
    imported = read({**tree, "use_parallel": False, "parallel_config": sizes})
    assert imported.job.cluster.world_size == devices
    assert any(f"{devices} " in note.message and "assumed" in note.message for note in imported.warnings)
