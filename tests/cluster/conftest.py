"""The machines are made once for all tests that use them, and are gone afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import Machines, Site, lacking, sites, up


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three machines that ssh reaches, with Slurm where it is installed."""
    why = lacking(slurm=False)
    if why:
        pytest.skip(why)
    made = up(tmp_path_factory.mktemp("machines"))
    yield made
    made.call("down")


@pytest.fixture
def site(tmp_path: Path, machines: Machines) -> Iterator[Site]:
    """A folder to launch from."""
    yield from sites(tmp_path, machines)
