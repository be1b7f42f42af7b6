"""Every recipe is checked, planned and estimated on each backend; accepted.json names those that take it."""

import json
from pathlib import Path

import pytest

from launcher.job.shipped import shipped
from launcher.mapping.backend import backend_names
from tools import recipes

NAMES = sorted(path.stem for path in shipped("recipes").glob("*.yaml"))


def accepted() -> dict[str, list[str]]:
    """Return the backends that take each recipe: a change is written here, and in the reference by itself."""
    return dict(json.loads(Path(__file__).with_name("accepted.json").read_text(encoding="utf-8")))


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_planned_and_estimated_where_it_is_taken(name: str) -> None:
    found = {
        backend: recipes.tried((f"+recipe={name}", f"backend={backend}", "hardware=h100_80g"))
        for backend in backend_names()
    }
    assert not [each.seen for each in found.values() if each.verdict == recipes.FAILED]
    assert [backend for backend, each in found.items() if each.verdict == recipes.PASSED] == accepted()[name]


def test_the_command_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipes, "STATE", tmp_path / "recipes.json")
    monkeypatch.setattr("sys.argv", ["recipes", "--only", "tiny_qwen3", "--backend", "megatron_lm"])
    assert recipes.main() == 0
    first = capsys.readouterr().out
    assert first.count("passed") == 3
    monkeypatch.setattr(recipes, "tried", None)
    assert recipes.main() == 0
    assert capsys.readouterr().out == first
