"""Copied recipes have what their sources say, or give the reason; the comparison with the sources themselves is
`python -m tools.recipe_sources`."""

from functools import cache

import pytest

from launcher.compose import compose
from launcher.job import Job
from launcher.job.shipped import shipped
from tools.recipe_sources.__main__ import differences, recorded, unexplained
from tools.recipe_sources.compare import plain, written
from tools.recipe_sources.reasons import CONDITIONS, general, known_path, own

RECORDED = recorded()
FILES = {path.stem: path for path in sorted(shipped("recipes").glob("*.yaml"))}


@cache
def _job(recipe: str) -> Job:
    return compose([f"+recipe={recipe}"])


def test_every_recipe_is_ours_or_has_a_recorded_source() -> None:
    assert {name for name in FILES if not name.startswith("tiny_")} == RECORDED.keys()


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("recipe", RECORDED)
def test_a_recipe_has_the_values_that_its_source_has(recipe: str) -> None:
    says = RECORDED[recipe]["says"]
    assert says
    assert {path: plain(written(_job(recipe), path)) for path in says} == says


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("recipe", RECORDED)
def test_every_difference_has_a_reason_and_every_reason_a_difference(recipe: str) -> None:
    silent, stale = unexplained(recipe, differences(recipe, RECORDED[recipe]))
    assert not silent, f"{recipe}: python -m tools.recipe_sources --only {recipe}, then a reason in the recipe"
    assert not stale, f"{recipe} gives a reason for what is the same in its source"


@pytest.mark.parametrize("recipe", RECORDED)
def test_a_recipe_names_its_source(recipe: str) -> None:
    comment = FILES[recipe].read_text(encoding="utf-8").partition("defaults:")[0]
    words = {word.rstrip(".;") for word in comment.replace("#", "").replace(",", "").split()}
    missing = set(RECORDED[recipe]["source"].split(" ")) - words
    assert not missing


def test_reasons_are_about_fields_and_general_ones_hold_somewhere() -> None:
    reasons = {path for file in FILES.values() for path in own(file.read_text(encoding="utf-8"))}
    assert [path for path in sorted(reasons) if not known_path(path)] == []
    assert {each.when for each in general()} == CONDITIONS.keys()


def test_a_difference_without_a_reason_is_found() -> None:
    """The same recipe, had its source another learning rate."""
    changed = {"differs": {"optimizer.lr": [1e-3, 1.25e-6]}}
    silent, stale = unexplained("qwen3_moe", differences("qwen3_moe", changed))
    assert [each.path for each in silent] == ["optimizer.lr"]
    assert stale == ["moe.router_dtype"]


def test_reasons_are_read_from_the_comment() -> None:
    lines = (
        "# A model.",
        "# Differs from its source:",
        "# - seed, batch.seq_length: one",
        "#   and two",
        "# - name: three",
    )
    text = "\n".join((*lines, "defaults:"))
    assert own(text) == {"seed": "one and two", "batch.seq_length": "one and two", "name": "three"}
