"""Each rule of Megatron-SWIFT: the smallest job that breaks it, the nearest one that passes, fixes that work."""

from collections.abc import Mapping
from typing import Any

import pytest

from backends.megatron import BACKEND
from launcher.job import Job
from launcher.pipeline import judge
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from tests.backends.megatron import rule_cases
from tests.backends.megatron.rule_change_cases import CHANGES
from tests.backends.megatron.rule_name_cases import NAMES
from tests.backends.rule_pairs import can_be_found, check_pairs
from tests.conftest import make_job

load(BACKEND.rules)
_BASE: Mapping[str, Any] = {"model": {"path": "/models/qwen3"}, "data": {"format": "messages", "paths": ["a.jsonl"]}}
TABLES = (rule_cases.ARGUMENTS, rule_cases.CORE, rule_cases.RLHF, rule_cases.SEED, CHANGES, NAMES)
PAIRS = {id_: pair for table in TABLES for id_, pair in table.items()}


def job_of(changes: Mapping[str, Any], version: str) -> Job:
    """Return the base job with changes; `args` and `env` are those of the backend."""
    tree: dict[str, Any] = {section: dict(values) for section, values in _BASE.items()}
    for section, values in changes.items():
        if section not in ("args", "env"):
            tree[section] = {**tree.get(section, {}), **values}
    backend = {"name": "megatron", "version": version, "args": changes.get("args", {}), "env": changes.get("env", {})}
    return make_job({**tree, "backend": backend})


def found(changes: Mapping[str, Any], version: str) -> set[str]:
    return {finding.rule for finding in judge(job_of(changes, version), fixes=False).findings}


@pytest.mark.parametrize("id_", PAIRS)
def test_rule_finds_the_broken_job_and_passes_the_other(id_: str) -> None:
    pair = PAIRS[id_]
    assert id_ in found(pair.broken, pair.version)
    assert id_ not in found(pair.passing, pair.version)


@pytest.mark.parametrize("id_", [id_ for id_ in PAIRS if RULES[id_].sets])
def test_a_change_is_none_where_the_argument_has_the_value_already(id_: str) -> None:
    pair = PAIRS[id_]
    changes = judge(job_of(pair.broken, pair.version), fixes=False).effective.changes
    after = {change.flag: change.after for change in changes if change.rule == id_}
    assert after
    assert id_ not in found({**pair.broken, "args": {**pair.broken.get("args", {}), **after}}, pair.version)


# Faults of generated sizes: arguments (16 samples a step), and what is said.
SIZES: dict[str, tuple[dict[str, Any], str]] = {
    "a product that is another": (
        {"num_generations": 2, "generation_batch_size": 32, "steps_per_generation": 3},
        "generation_batch_size 32 is not global_batch_size 16 × steps_per_generation 3",
    ),
    "no multiple of the batch": (
        {"num_generations": 2, "generation_batch_size": 24},
        "generation_batch_size 24 is not a multiple of global_batch_size 16",
    ),
    "no steps": ({"num_generations": 2, "steps_per_generation": 0}, "steps_per_generation 0 must be above 0"),
    "generations that do not divide": (
        {"num_generations": 3},
        "generation_batch_size 16 is not a multiple of num_generations 3",
    ),
}


@pytest.mark.parametrize(("args", "reported"), SIZES.values(), ids=SIZES)
def test_a_fault_of_generated_sizes_is_named(args: dict[str, Any], reported: str) -> None:
    job = job_of({"task": rule_cases.GRPO, "args": {"use_vllm": True, **args}}, BACKEND.default_version)
    findings = judge(job, fixes=False).findings
    assert [finding.message for finding in findings if finding.rule.startswith("SW-GRPO-SIZES")][:1] == [reported]


def test_every_rule_has_a_pair() -> None:
    ours = {rule.id: rule for rule in RULES.values() if rule.backends == ("megatron",)}
    declared = {id_ for id_, rule in ours.items() if can_be_found(rule, switches=False)}
    check_pairs(declared, set(PAIRS), "a table of tests/backends/megatron/rule_cases.py")
    assert all(id_.startswith("SW-") for id_ in ours)


def test_every_rule_names_its_source_and_explains_itself() -> None:
    for id_ in (rule.id for rule in RULES.values() if rule.backends == ("megatron",)):
        assert RULES[id_].source, id_
        assert RULES[id_].doc.endswith("."), id_


@pytest.mark.parametrize("version", BACKEND.versions)
def test_a_plain_job_has_no_error_or_warning(version: str) -> None:
    findings = judge(job_of({"checkpoint": {"save": "out", "save_interval": 5}}, version), fixes=False).findings
    assert [finding.rule for finding in findings if finding.severity != "change"] == []


def test_a_change_says_old_value_and_new_value() -> None:
    for id_, pair in CHANGES.items():
        if RULES[id_].severity == "change" and id_ != "SW-SET-FP8-PADDING":
            reported = [f for f in judge(job_of(pair.broken, pair.version), fixes=False).findings if f.rule == id_]
            assert "→" in reported[0].message, id_


@pytest.mark.parametrize("id_", ["SW-DEEPEP-FLEX", "SW-SAVE-LIMIT", "SW-LAYOUT", "SW-RC-MOE-ACT", "SW-PAD-CAPACITY"])
def test_the_proposed_fix_passes_all_rules(id_: str) -> None:
    pair = PAIRS[id_]
    finding = next(f for f in judge(job_of(pair.broken, pair.version)).findings if f.rule == id_)
    assert finding.fixes, finding
    assert finding.fields


def test_a_rule_holds_for_its_versions_only() -> None:
    pair = PAIRS["SW-GATHER-REDUCE"]
    assert "SW-GATHER-REDUCE" in found(pair.broken, "3.12.6")
    assert "SW-GATHER-REDUCE" not in found(pair.broken, "4.0.0")


def test_a_value_of_the_wrong_type_is_reported_and_breaks_no_rule() -> None:
    rules = found({"args": {"freeze_parameters_ratio": "half", "save_total_limit": "two"}}, "4.6.0")
    assert "ARG-VALUE" in rules
