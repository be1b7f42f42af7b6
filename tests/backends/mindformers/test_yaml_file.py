"""The file: what is written loads back equal, lists of callbacks included, and reads well."""

from typing import Any

import pytest
import yaml

from backends.mindformers.yaml_file import flatten, parse, render
from launcher.mapping.native import NativeArg, NativeArgs
from tests.backends.mindformers.jobs import DEEPSEEK, NEWEST, QWEN3_MOE, examples, from_file, tree, written


def native(args: dict[str, Any]) -> NativeArgs:
    return NativeArgs(
        backend="mindformers",
        version=NEWEST,
        args=tuple(NativeArg(flag=flag, value=value) for flag, value in args.items()),
    )


VALUES = {
    "small float": 1e-08,
    "float without a point": 1e-05,
    "large float": 1e20,
    "whole float": 2.0,
    "null": None,
    "true": True,
    "text like a bool": "off",
    "text like a number": "1",
    "text like an exponent": "1e5",
    "empty": "",
    "path": "/data/a b/c",
    "colon": "a: b # c",
    "quotes and backslash": 'say "x"\\y',
    "unicode": "样本",
    "list": (1, 2.5, "x", None, True),
    "list of lists": ((1, 2), (3, -4)),
    "list of mappings": ({"type": "take", "n": 1}, {"type": "pack", "deep": {"a": (1, 2)}}),
    "mapping with dotted keys": {r"self_attention\.core": True, "b": (1, 2)},
    "empty list": (),
}


@pytest.mark.parametrize("name", VALUES)
def test_every_value_survives_the_file(name: str) -> None:
    flag = "recompute_config.select_recompute" if "mapping with" in name else "section.deep.key"
    assert parse(render(native({flag: VALUES[name]}))) == {flag: VALUES[name]}


def test_callbacks_are_addressed_by_type() -> None:
    text = """
callbacks:
  - type: MFLossMonitor
  - type: CheckpointMonitor
    prefix: a
    save_checkpoint_steps: 10
  - type: CheckpointMonitor
    prefix: b
"""
    flat = parse(text)
    assert flat == {
        "callbacks.MFLossMonitor.type": "MFLossMonitor",
        "callbacks.CheckpointMonitor.prefix": "a",
        "callbacks.CheckpointMonitor.save_checkpoint_steps": 10,
        "callbacks.CheckpointMonitor#2.prefix": "b",
    }
    assert yaml.safe_load(render(native(flat))) == yaml.safe_load(text)


def test_the_dataset_is_written_once_and_referred_to() -> None:
    args = written(tree())
    text = render(native(args))
    assert "train_dataset: &train_dataset" in text
    assert "dataset_config: *train_dataset" in text
    loaded = yaml.safe_load(text)
    assert loaded["train_dataset_task"]["dataset_config"] == loaded["train_dataset"]


@pytest.mark.parametrize(
    "job", [tree(), tree(QWEN3_MOE, parallel={"tp": 2, "pp": 2, "ep": 4}), tree(DEEPSEEK)], ids=["dense", "moe", "mla"]
)
def test_the_file_of_a_job_says_what_was_translated(job: dict[str, Any]) -> None:
    assert from_file(job) == written(job)


@pytest.mark.parametrize("name", examples())
def test_an_example_survives_the_file(name: str) -> None:
    example = examples()[name]
    assert parse(render(native(dict(example)))) == example


def test_mindformers_depth_limit_is_kept() -> None:
    """It refuses files that nest deeper than ten (tools/check_rules.py:381)."""

    def depth(node: Any) -> int:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return 1 + max(map(depth, children), default=0)

    text = render(native(written(tree(DEEPSEEK))))
    assert depth(yaml.safe_load(text)) <= 10


@pytest.mark.parametrize("text", ["- a\n- b", "just words", "a: [1, 2", "a: b: c"])
def test_what_is_no_file_is_reported_plainly(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse(text)


def test_a_section_may_hold_what_nobody_knows() -> None:
    assert flatten({"monitor_config": {"monitor_on": True}, "x": {}}) == {"monitor_config.monitor_on": True, "x": {}}
