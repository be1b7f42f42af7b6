"""ms-swift's own example commands pass every rule; the exceptions are really wrong, and listed as such."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.api import import_argv
from launcher.importing.judge import judge_existing
from launcher.importing.notes import ImportRefused

COMMANDS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("upstream_commands.json").read_text("utf-8"))
# Scripts that cannot be judged or are wrong, and why.
_RAY = "it starts Ray's driver, which takes sections of arguments"
EXCEPTIONS = {
    "ms-swift main, examples/ray/grpo/run_colocate.sh": _RAY,
    "ms-swift main, examples/ray/grpo/run_separate.sh": _RAY,
    "ms-swift main, examples/yaml/megatron/sft.sh": "its arguments are in a file beside it",
    "ms-swift v3.12.6, examples/ascend/train/qwen3_next/qwen3_next_megatron.sh": "an option that does not exist: "
    "--export_model_parallel_size, meant is --expert_model_parallel_size",
    "ms-swift v3.5.3, examples/train/megatron/qwen3_moe.sh": "tp 2, but NPROC_PER_NODE is not set: one process",
}


def errors(case: dict[str, Any]) -> list[str]:
    try:
        imported = import_argv(case["words"], backend="megatron", version=case["version"], env=case["env"])
    except ImportRefused as error:
        return [str(error)]
    return [
        f"{finding.rule}: {finding.message}"
        for finding in judge_existing(imported).findings
        if finding.severity == "error"
    ]


@pytest.mark.parametrize("case", COMMANDS, ids=[case["source"] for case in COMMANDS])
def test_the_example_has_no_error_or_a_known_one(case: dict[str, Any]) -> None:
    assert case["source"] in EXCEPTIONS or not errors(case), errors(case)


def test_scripts_without_initialisation_are_warned_of_the_gradient_norm() -> None:
    case = next(c for c in COMMANDS if c["source"] == "ms-swift main, examples/megatron/dense/qwen3_32b.sh")
    imported = import_argv(case["words"], backend="megatron", version=case["version"], env=case["env"])
    assert "SW-INITIALIZATION-TP" in {finding.rule for finding in judge_existing(imported).findings}
