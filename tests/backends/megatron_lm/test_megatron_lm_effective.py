"""What Megatron-LM's validation leaves of the arguments: recorded from the real one, and beside it."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from backends.megatron_lm import BACKEND
from launcher import api
from launcher.importing.judge import judge_existing
from launcher.rules.effective import effective_values, setting_rules
from launcher.rules.registry import RULES
from tests.backends.effective import changed_by, compare
from tests.backends.megatron_lm import effective as drawn
from tests.backends.megatron_lm import mutated
from tests.backends.megatron_lm.checkout import CHECKOUT, checked_out_version
from tests.backends.megatron_lm.verdicts import validator
from tests.sampling import fuzz_seed, trials

RECORDED = json.loads((Path(__file__).parent / "effective.json").read_text(encoding="utf-8"))
CASES = [
    pytest.param(version, case, id=f"{version} {case['base']} {case['changes']}")
    for version, found in RECORDED.items()
    for case in ({"base": "dense", "changes": "", "changed": {}}, *found["cases"])
]
# Upstream would divide the stages that are left once more.
NOT_TWICE = "--pipeline-model-parallel-split-rank"


def real(version: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return what the real validation changes, by destination: the base's changes and the case's differences."""
    changes = RECORDED[version][case["base"]] | case["changed"]
    return {dest: values for dest, values in changes.items() if values is not None}


def line(version: str, case: dict[str, Any]) -> Any:
    return drawn.made("megatron_lm", version, case["changes"], moe=case["base"] == "moe")


@pytest.mark.parametrize(("version", "case"), CASES)
def test_values_after_validation_are_the_real_ones(version: str, case: dict[str, Any]) -> None:
    found = changed_by(line(version, case), real(version, case), "megatron_lm", version)
    assert found is not None
    assert [change for change in found.found if change.kind != "same"] == []


@pytest.mark.parametrize(("version", "case"), CASES)
def test_values_after_validation_stay(version: str, case: dict[str, Any]) -> None:
    args = line(version, case)
    read = api.import_argv(args.argv, backend="megatron_lm", version=version, env=args.env, world_size=8)
    context = judge_existing(read, fixes=False).context
    again = effective_values(dataclasses.replace(context, values=effective_values(context).values))
    assert (again.changes == ()) is (NOT_TWICE not in case["changes"])


@pytest.mark.parametrize("version", BACKEND.versions)
def test_recorded_command_lines_reach_every_record(version: str) -> None:
    reached = set()
    for case in RECORDED[version]["cases"]:
        found = changed_by(line(version, case), real(version, case), "megatron_lm", version)
        assert found is not None
        reached |= found.rules
    assert {rule.id for rule in setting_rules("megatron_lm", version, len(RULES))} == reached


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(checked_out_version() is None, reason="MEGATRON_LM_PATH names no Megatron-LM of a known version")
def test_drawn_command_lines_change_as_they_really_do() -> None:
    version = checked_out_version()
    assert version is not None
    lines = drawn.lines("megatron_lm", version, trials(100), fuzz_seed(), bases=mutated.bases(Path(CHECKOUT)))
    found = list(compare("megatron_lm", version, lines, validator("megatron_lm", [CHECKOUT, "values"])))
    assert len(found) > len(lines) / 3
    assert [change for one in found for change in one.found if change.kind != "same"] == []
