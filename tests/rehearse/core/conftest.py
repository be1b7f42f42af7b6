"""Fixtures of the trainer's tests."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from core_models import LENGTH
from core_world import Zygote
from token_files import write_tokens

from launcher.rehearse.core.options import DataOptions
from tests.convert import zoo


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """One process that has imported megatron-core, for all runs of a session."""
    pytest.importorskip("megatron.core", reason="the extra `rehearsal` is not installed")
    with Zygote(tmp_path_factory.mktemp("rehearsal")) as process:
        yield process


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name to the folder of a tiny Hugging Face model."""
    pytest.importorskip("transformers", reason="the models are written by transformers")
    root = tmp_path_factory.mktemp("models")
    return cache(lambda name: zoo.make(name, root / name))


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, DataOptions]:
    """One sample, and a token file of which every sample is that one, in whatever order."""
    import numpy

    period = numpy.random.default_rng(0).integers(0, zoo.BASE["vocab_size"], LENGTH)
    prefix = write_tokens(tmp_path_factory.mktemp("tokens") / "tokens", [numpy.tile(period, 64)])
    return numpy.concatenate([period, period[:1]]), DataOptions(kind="megatron", paths=(prefix,))
