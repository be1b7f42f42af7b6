"""`launch search --compare`: the rank of the user's own layout, and what separates it from the fastest."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Launch

pytestmark = pytest.mark.slow

SMALL = ["+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", "cluster.nodes=1", "search.max_vpp=2"]


@pytest.fixture
def ranked(launch: Launch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(launch("search", *SMALL, "--top", "40", "--json").out)["candidates"]
    return found


def test_a_layout_has_the_rank_that_a_longer_list_shows(launch: Launch, ranked: list[dict[str, Any]]) -> None:
    for place in (0, 3, 12):
        overrides = [f"{path}={_written(value)}" for path, value in ranked[place]["overrides"].items()]
        told = json.loads(launch("search", *SMALL, *overrides, "--compare", "--top", "2", "--json").out)["compared"]
        assert told["fits"]
        assert told["step_s"] == pytest.approx(ranked[place]["step_s"])
        assert told["rank"] == place + 1
        differences = [pair["fastest"] - pair["own"] for pair in told["terms"].values()]
        assert sum(differences) == pytest.approx(told["fastest_step_s"] - told["step_s"], abs=2e-3 * told["step_s"])


def test_a_strategy_file_that_does_not_fit_says_by_how_much(launch: Launch, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("# @package _global_\nparallel: {tp: 1, pp: 1, cp: 1, distributed_optimizer: false}\n")
    finished = launch("search", *SMALL, f"+strategy={mine}", "recompute.granularity=null", "--compare", "--top", "2")
    assert finished.code == 0
    assert "exceeds memory by" in finished.out
    assert "parallel.distributed_optimizer: false → true" in finished.out


def test_a_layout_that_no_backend_runs_is_refused(launch: Launch) -> None:
    finished = launch("search", *SMALL, "parallel.tp=3", "--compare")
    assert finished.code == 1
    assert "parallel.tp" in finished.err


def _written(value: object) -> str:
    return "null" if value is None else json.dumps(value).replace('"', "")
