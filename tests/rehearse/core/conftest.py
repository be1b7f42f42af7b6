"""Fixtures of the trainer's tests."""

from collections.abc import Iterator

import pytest
from core_world import Zygote


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """One process that has imported megatron-core, for all runs of a session."""
    pytest.importorskip("megatron.core", reason="the extra `rehearsal` is not installed")
    with Zygote(tmp_path_factory.mktemp("rehearsal")) as process:
        yield process
