"""Verdicts of MindFormers' own `TrainConfig` on values of its keys, recorded from a version's source.

    python -m tests.backends.mindformers.real_pynative [VERSION=CHECKOUT …]

writes pynative_verdicts.json beside this file; without a checkout, the wheel on PyPI is fetched. Only config.py and
utils.py are executed, which need no MindSpore.
"""

import copy
import json
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.catalogue.mindformers_pynative import pynative
from tools.catalogue.obtain import ORIGINS, obtain

VERSIONS = ("1.9.0", "2.0.0", "2.1.0")
RECORDED = Path(__file__).parent / "pynative_verdicts.json"
# Tried for every key. A verdict is a text with a letter for each: y accepted, n refused.
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 8, 2.5, "", "full", "1e-5"),
    *([], [1], [1, 2, 3], [0, 1, 2], ["a"], [[1]], [True], {}, {"a": [1]}),
)
# The least that every version takes.
LEAST: Mapping[str, Any] = {
    "training": {"steps": 10},
    "parallelism": {"tensor_parallel": 1},
    "lr_scheduler": {"type": "ConstantWarmUpLR"},
    "train_dataset": {"dataloader": {"type": "BlendedMegatronDatasetDataLoader"}},
    "model": {"model_type": "deepseek_v3", "architectures": "DeepseekV3ForCausalLM"},
}
# Several keys of a section, whose conditions depend on one another.
TOGETHER: tuple[Mapping[str, Any], ...] = (
    {"parallelism": {"tensor_parallel": 2}},
    {"parallelism": {"tensor_parallel": 2, "sequence_parallel": True}},
    {"parallelism": {"moe_token_dispatcher_type": "alltoall_deredundancy", "expert_parallel": 4}},
    {"parallelism": {"moe_token_dispatcher_type": "alltoall_deredundancy", "expert_parallel": 8}},
    {"profiler": {"start_step": 3, "end_step": 2}},
    {"profiler": {"start_step": 2, "end_step": 3}},
    {"checkpoint": {"save_trainable_only": True}},
    {"checkpoint": {"save_trainable_only": True, "base_load_path": " "}},
    {"checkpoint": {"save_trainable_only": True, "base_load_path": "/base"}},
    {"lora_config": {"lora_rank": 8}},
    {"lora_config": {"target_modules": ".*", "lora_dropout": 1.0}},
    {"lora_config": {"target_modules": ".*", "lora_dropout": 0.5}},
    {"lora_config": None},
    {"swap": None},
    {"swap": [1]},
    {"nothing": 1},
    {"optimizer": {"nothing": 1}},
    {"recompute": {"nothing": 1}},
    {"model": {"model_type": "deepseek_v3"}},
    {"lr_scheduler": {"learning_rate": 1}},
)
Accepts = Callable[[Mapping[str, Any]], bool]


def real(root: Path) -> Accepts:
    """Return whether a checkout's own TrainConfig accepts a file."""
    folder = root / "mindformers/pynative/config"
    checks = types.ModuleType("mindformers.tools.check_rules")
    checks.check_yaml_depth_before_loading = lambda file: None  # type: ignore[attr-defined]
    stubs = {
        "mindformers": types.ModuleType("mindformers"),
        "mindformers.tools": types.ModuleType("mindformers.tools"),
        checks.__name__: checks,
    }
    name = f"_pynative_{root.name.replace('.', '_').replace('-', '_')}"
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules |= {**stubs, name: package}
    try:
        modules = {}
        for part in ("utils", "config"):
            module = types.ModuleType(f"{name}.{part}")
            module.__package__ = name
            sys.modules[module.__name__] = module
            exec(compile((folder / f"{part}.py").read_text(encoding="utf-8"), part, "exec"), module.__dict__)
            modules[part] = module
    finally:
        for each in stubs:
            sys.modules.pop(each, None)
    config = modules["config"].TrainConfig

    def accepts(tree: Mapping[str, Any]) -> bool:
        try:
            config.from_dict(yaml.safe_load(yaml.safe_dump(copy.deepcopy(dict(tree)))))
        except (TypeError, ValueError):
            return False
        return True

    return accepts


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the least file with one key set."""
    tree = copy.deepcopy(dict(LEAST))
    node = tree
    *sections, leaf = path.split(".")
    for section in sections:
        node = node.setdefault(section, {})
    node[leaf] = copy.deepcopy(value)
    if path.startswith("lora_config.") and leaf != "target_modules":
        node["target_modules"] = ".*"
    return tree


def together(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the least file with some sections replaced."""
    return {**copy.deepcopy(dict(LEAST)), **copy.deepcopy(dict(change))}


def letters(accepts: Accepts, path: str) -> str:
    """Return the verdict on each of the values of a key."""
    return "".join("y" if accepts(changed(path, value)) else "n" for value in VALUES)


def of_combinations(accepts: Accepts) -> str:
    """Return the verdict on each of the combinations."""
    return "".join("y" if accepts(together(change)) else "n" for change in TOGETHER)


def verdicts(root: Path) -> dict[str, str]:
    """Return the verdicts on all keys that the dataclasses of a checkout declare, and on the combinations ("")."""
    accepts = real(root)
    _, rows = pynative(root)
    names = sorted(str(row["name"]) for row in rows if str(row["owner"]).endswith("Config"))
    return {**{name: letters(accepts, name) for name in names}, "": of_combinations(accepts)}


def main(argv: list[str]) -> None:
    """Write the verdicts of all versions."""
    given = dict(each.split("=", 1) for each in argv)
    roots = {each: Path(given[each]) if each in given else obtain(ORIGINS["mindformers"], each) for each in VERSIONS}
    found = {version: verdicts(root) for version, root in roots.items()}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
