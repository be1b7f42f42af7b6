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
