"""Values that a backend ignores are reported, and only those."""

from collections.abc import Mapping

import pytest

from launcher.compose import compose
from launcher.pipeline import judge

# Words: field that nothing reads there, and how loud that is said.
PASSED_OVER: Mapping[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "chat template for token files": (("backend=megatron_lm", "data.template=llama3"), {"data.template": "warning"}),
    "token files are read through a map": (("backend=mindformers", "data.mmap=true"), {}),
    "no token files, no map": (
        ("backend=mindformers", "data.format=hub", "data.mmap=true", "data.index_threads=4"),
        {"data.mmap": "change", "data.index_threads": "change"},
    ),
    "every value is read": (("backend=megatron_lm",), {}),
    "a format that is refused is told by itself": (
        ("backend=mindformers", "data.format=messages", "data.mmap=true", "data.split=99,1,0"),
        {},
    ),
    "values beside one that is refused": (
        ("backend=megatron_lm", "+recipe=deepseek_v3", "model.rope_scaling.beta_fast=16"),
        {},
    ),
    "without experts nothing is split over them": (("backend=megatron_lm", "parallel.etp=1"), {}),
}


@pytest.mark.parametrize("case", PASSED_OVER.values(), ids=PASSED_OVER.keys())
def test_what_nothing_reads_is_reported(case: tuple[tuple[str, ...], dict[str, str]]) -> None:
    args, wanted = case
    recipe = [] if any(arg.startswith("+recipe") for arg in args) else ["+recipe=qwen3_8b"]
    findings = judge(compose([*recipe, "data.paths=[x]", *args]), fixes=False).findings
    assert {path: each.severity for each in findings if each.rule == "MAP-UNREAD" for path in each.fields} == wanted


@pytest.mark.parametrize("recipe", ["qwen3_8b", "deepseek_v3", "qwen3_moe", "tiny_qwen3_moe"])
@pytest.mark.parametrize("backend", ["megatron", "megatron_lm", "mindspeed", "mindformers"])
def test_recipes_are_read_whole(recipe: str, backend: str) -> None:
    findings = judge(compose([f"+recipe={recipe}", f"backend={backend}"]), fixes=False).findings
    assert not [each for each in findings if each.rule == "MAP-UNREAD"]
