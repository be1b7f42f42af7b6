"""Shrunken recipes that the embedded trainer refuses, trained by ms-swift itself, as `launch run` chooses it."""

from pathlib import Path

import pytest

from tests.rehearse.native.environments import swift_python
from tools.bench.rehearsal_recipes import ITERATIONS, NATIVE, NATIVE_RECIPES, shortened
from tools.bench.rehearsal_runs import native_training


@pytest.mark.slow
@pytest.mark.sample(keep=1, of="ms-swift")
@pytest.mark.parametrize("recipe", NATIVE_RECIPES)
def test_a_recipe_that_core_refuses_is_trained_by_the_backend_itself(recipe: str, tmp_path: Path) -> None:
    words = (f"+recipe={recipe}", f"backend={NATIVE}", *shortened(recipe))
    found = native_training(words, tmp_path, swift_python())
    assert len(found.losses) == ITERATIONS
    least = -20 if "grpo" in recipe else 0  # minus the advantages of the answers
    assert all(least < loss < 20 for loss in found.losses)
    assert all(norm > 0 for norm in found.norms)
