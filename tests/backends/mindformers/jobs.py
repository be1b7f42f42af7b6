"""Jobs of every kind that MindFormers trains, by name, and what tests do with them."""

import copy
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from backends.mindformers import BACKEND
from backends.mindformers.launch import launch
from backends.mindformers.yaml_file import parse
from launcher.job import Job, Value, build
from launcher.mapping.engine import Translation, translate
from tests.backends.models import DEEPSEEK_V3, QWEN3_8B, QWEN3_30B_A3B

Tree = Mapping[str, Any]
NEWEST, OLD = "2.1.0", "1.6.0"

QWEN3, QWEN3_MOE = QWEN3_8B, QWEN3_30B_A3B
DEEPSEEK: Tree = {**DEEPSEEK_V3, "max_position_embeddings": 4096}
_BASE: Tree = {
    "name": "job",
    "batch": {"micro_batch_size": 1, "global_batch_size": 128, "seq_length": 4096},
    "schedule": {"train_iters": 100},
    "optimizer": {"lr": 1e-4},
    "data": {"format": "megatron", "paths": ["/data/text"]},
}


def tree(model: Tree = QWEN3, **changes: Any) -> dict[str, Any]:
    """Return the tree of a small pre-training job with sections changed; `model` replaces, `model_changes` adds."""
    merged: dict[str, Any] = copy.deepcopy(dict(_BASE))
    merged["model"] = {**model, **changes.pop("model_changes", {})}
    for section, values in changes.items():
        merged[section] = {**merged.get(section, {}), **values} if isinstance(values, dict) else values
    return merged


def make(whole: Tree) -> Job:
    """Return the job of a tree."""
    job, problems = build(whole)
    assert not problems, problems
    return job


def translated(job: Job, version: str = NEWEST) -> Translation:
    """Translate; nothing may stand in the way."""
    result = translate(job, BACKEND, version)
    errors = [finding.message for finding in result.findings if finding.severity == "error"]
    assert not errors, errors
    return result


def written(whole: Tree, version: str = NEWEST) -> dict[str, Value]:
    """Return the arguments of a job; each is written once."""
    args = translated(make(whole), version).native.args
    flags = [arg.flag for arg in args]
    assert len(flags) == len(set(flags)), sorted(flag for flag in flags if flags.count(flag) > 1)
    return {arg.flag: arg.value for arg in args}


def refusals(whole: Tree, version: str = NEWEST) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return what stands in the way: field to reason and fixes."""
    found = translate(make(whole), BACKEND, version).findings
    return {each.fields[0]: (each.message, tuple(map(str, each.fixes))) for each in found if each.severity == "error"}


def from_file(whole: Tree, version: str = NEWEST) -> dict[str, Value]:
    """Return the arguments as they are read back from the file of the plan."""
    job = make(whole)
    return parse(launch(job, translated(job, version).native).files[0].content)


@cache
def examples() -> Mapping[str, Mapping[str, Value]]:
    """Return MindFormers' own examples as arguments, by file name."""

    def frozen(value: Any) -> Any:
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    text = (Path(__file__).parent / "upstream_examples.json").read_text(encoding="utf-8")
    return {
        name: {flag: frozen(value) for flag, value in flat.items()}
        for name, flat in json.loads(text)["examples"].items()
    }
