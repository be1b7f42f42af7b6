"""Fixtures of the conversion tests: a zoo of tiny models, written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.convert import zoo


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name to the folder of a tiny Hugging Face model of that family."""
    pytest.importorskip("transformers", reason="the zoo is written by transformers")
    root = tmp_path_factory.mktemp("zoo")

    @cache
    def made(name: str) -> Path:
        return zoo.make(name, root / name)

    return made
