"""Each rule of MindFormers: the smallest job that breaks it, the nearest one that passes, and its silent behaviours."""

from collections.abc import Mapping
from typing import Any

import pytest

from backends.mindformers import BACKEND
from launcher.api import check
from launcher.job import Job, derive
from launcher.pipeline import judge
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from tests.backends.mindformers import rule_cases
from tests.backends.mindformers.jobs import DEEPSEEK, OLD, QWEN3, make, tree
from tests.backends.mindformers.test_unknown_keys import file_with, read
from tests.backends.rule_pairs import can_be_found, check_pairs

load(BACKEND.rules)
TABLES = (rule_cases.GENERAL, rule_cases.KEYS, rule_cases.LAYERS, rule_cases.MODEL, rule_cases.PYNATIVE)
PAIRS = {id_: pair for table in TABLES for id_, pair in table.items()}
# Silent behaviours of MindFormers by their number in numbered_rules.txt, the rule that tells them and its severity.
SILENT = {
    "S1": ("MF-SET-SIZES", "warning"),
    "S2": ("MF-SET-MICRO-BATCHES", "warning"),
    "S3": ("MF-SET-ACCUMULATION", "warning"),
    "S4": ("MF-CHUNKS-OFF", "warning"),
    "S5": ("MF-OFFSET-IGNORED", "warning"),
    "S6": ("MF-RECOMPUTE-CLAMPED", "warning"),
    "S7": ("MF-RECOMPUTE-IDS", "warning"),
    "S8": ("MF-RECOMPUTE-ENDLESS", "error"),
    "S9": ("MF-OFFSET-REPEATED", "error"),
}


def job_of(changes: Mapping[str, Any], version: str) -> Job:
    """Return the base job with changes; `keys` and `env` are those of the backend."""
    sections = {name: values for name, values in changes.items() if name not in ("keys", "env", "model")}
    whole = tree(changes.get("model", QWEN3), **sections)
    backend = {
        "name": "mindformers",
        "version": version,
        "args": changes.get("keys", {}),
        "env": changes.get("env", {}),
    }
    return derive(make({**whole, "backend": backend}))


def found(changes: Mapping[str, Any], version: str) -> set[str]:
    return {finding.rule for finding in judge(job_of(changes, version), fixes=False).findings}


# Rules that only a file can break: key, a value that breaks it, one that passes; judged for 1.6.0.
FILES: dict[str, list[tuple[str, Any, Any]]] = {
    "MF-NULL": [
        ("runner_config.batch_size", None, 1),
        ("context.max_call_depth", None, 1000),
        ("parallel_config.context_parallel_algo", None, "ulysses_cp"),
    ],
    "MF-PARALLEL-TYPES": [
        ("parallel.enable_alltoall", None, False),
        ("parallel.pipeline_config", None, {}),
        ("parallel.parameter_broadcast", "x", None),
    ],
    "MF-SWITCHES": [("swap_config.swap", None, False)],
    "MF-TYPES": [("trainer", None, {"type": "CausalLanguageModelingTrainer"})],
    "MF-TEXT-NUMBER": [
        ("model.model_config.hidden_size", "4096", 4096),
        ("callbacks", [{"type": "CheckpointMonitor", "save_checkpoint_steps": "10"}], [{"type": "CheckpointMonitor"}]),
        ("swap_config", {"swap": True, "default_prefetch": "1"}, {"swap": False, "default_prefetch": "1"}),
    ],
    "MF-LR-VALUES": [("lr_schedule.total_steps", "many", "100"), ("lr_schedule.learning_rate", "fast", 1.0e-5)],
    "MF-SINK-SIZE": [("runner_config.sink_size", "2", 2)],
    "MF-CLASS": [
        ("optimizer", {"type": "Mine"}, {"type": "Mine", "auto_register": "mine.Mine"}),
        ("callbacks", [{"type": ""}], [{"type": "MFLossMonitor"}]),
    ],
    "MF-ALONE": [("use_parallel", None, True)],
}


@pytest.mark.parametrize("id_", FILES)
def test_rule_finds_the_broken_file_and_passes_the_other(id_: str) -> None:
    for key, broken, passing in FILES[id_]:
        verdicts = [
            {finding.rule for finding in check(read(file_with(key, value), OLD))} for value in (broken, passing)
        ]
        assert [id_ in found for found in verdicts] == [True, False], key


@pytest.mark.parametrize("id_", PAIRS)
def test_rule_finds_the_broken_job_and_passes_the_other(id_: str) -> None:
    pair = PAIRS[id_]
    assert id_ in found(pair.broken, pair.version)
    assert id_ not in found(pair.passing, pair.version)


# Name of a callback, version, whether that version's registry has it; MaxLogitsReset is the pynative trainer's.
CALLBACKS = (
    ("MaxLogitsMonitor", "1.7.0", False),
    ("MaxLogitsMonitor", "1.8.0", True),
    ("ExpertMigrateCallback", "1.7.0", False),
    ("ExpertMigrateCallback", "2.1.0", True),
    ("SummaryCollector", "1.9.0", True),
    ("SummaryMonitor", "2.0.0", True),
    ("LossLogger", "2.0.0", False),
    ("MaxLogitsReset", "2.1.0", False),
)


@pytest.mark.parametrize(("name", "version", "is_registered"), CALLBACKS)
def test_callbacks_are_those_that_the_version_registers(name: str, version: str, is_registered: bool) -> None:
    tree = file_with("callbacks", [{"type": "MFLossMonitor"}, {"type": name}])
    messages = [each.message for each in check(read(tree, version)) if each.rule == "MF-CLASS"]
    assert messages == ([] if is_registered else [f"callbacks {name}: no such class is registered"])


def test_every_rule_has_a_pair() -> None:
    ours = {rule.id: rule for rule in RULES.values() if rule.backends == ("mindformers",)}
    declared = {id_ for id_, rule in ours.items() if can_be_found(rule, switches=False)}
    check_pairs(declared, {*PAIRS, *FILES}, "a table of tests/backends/mindformers/rule_cases.py")
    assert all(id_.startswith("MF-") for id_ in ours)


def test_every_rule_names_its_source_and_explains_itself() -> None:
    for id_ in (rule.id for rule in RULES.values() if rule.backends == ("mindformers",)):
        assert RULES[id_].source, id_
        assert RULES[id_].doc.endswith("."), id_


@pytest.mark.parametrize("name", SILENT)
def test_silent_behaviours_are_reported(name: str) -> None:
    id_, severity = SILENT[name]
    assert RULES[id_].severity == severity


@pytest.mark.parametrize(("version", "model"), [("2.1.0", QWEN3), ("2.1.0", DEEPSEEK), ("1.6.0", rule_cases.PLAIN)])
def test_a_plain_job_has_no_error(version: str, model: Mapping[str, Any]) -> None:
    findings = judge(job_of({"model": model}, version), fixes=False).findings
    assert [finding.rule for finding in findings if finding.severity == "error"] == []


def test_deepseek_with_one_row_of_offset_would_train_74_layers() -> None:
    changes = {
        "model": DEEPSEEK,
        "parallel": {"pp": 8, "vpp": 2},
        "keys": {"model.model_config.offset": [1, 2, 2, 2, 2, 2, 1, 1]},
    }
    reported = [
        f.message for f in judge(job_of(changes, "2.1.0"), fixes=False).findings if f.rule == "MF-OFFSET-REPEATED"
    ]
    assert reported
    assert "74 layers are built, not 61" in reported[0]
