"""The generated pages about models and recipes are what the files say."""

from tools.docs import models, recipes


def test_the_models_page_is_current() -> None:
    assert models.PAGE.read_text(encoding="utf-8") == models.page(), "run python -m tools.docs.models"


def test_the_recipes_page_is_current() -> None:
    assert recipes.PAGE.read_text(encoding="utf-8") == recipes.page(), "run python -m tools.docs.recipes"
