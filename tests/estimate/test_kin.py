"""The range of an estimate: it holds measured runs that it was not computed from, and says where there are none."""

import json
import math

import pytest

from launcher.estimate.kin import Likeness, measured, spread_of
from tests.conftest import Launch

pytestmark = pytest.mark.slow

MOE = ["+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g", "cluster.nodes=4"]


@pytest.mark.parametrize("quantity", ["memory", "time"])
def test_runs_lie_in_the_range_that_all_others_give(quantity: str) -> None:
    rows, inside = list(measured()), []
    for number, row in enumerate(rows):
        own = Likeness(**{name: row[name] for name in Likeness.__slots__})
        spread = spread_of(rows[:number] + rows[number + 1 :], own, quantity)
        if row[quantity] is None or spread is None:
            continue
        factor = 1 / (1 + row[quantity])
        inside.append(spread.factor(0.05) <= factor <= spread.factor(0.95))
    assert len(inside) >= 15
    # 90 % of them, less what so few runs can tell.
    assert sum(inside) / len(inside) > 0.9 - 2 * math.sqrt(0.9 * 0.1 / len(inside))


def test_the_answer_carries_its_range_and_where_it_comes_from(launch: Launch) -> None:
    tree = json.loads(launch("estimate", *MOE, "--json").out)
    for name in ("memory_range", "time_range"):
        assert 0 < tree[name]["low"] < tree[name]["high"]
        assert tree[name]["runs"] >= 3
        assert tree[name]["common"]
    assert tree["fit_probability"] > 0.95
    text = launch("estimate", *MOE).out
    assert "fits with" in text
    assert "measured with the same" in text


def test_the_probability_falls_with_the_room(launch: Launch) -> None:
    found = [
        json.loads(launch("estimate", *MOE, f"hardware.memory_gib={room}", "--json").out)["fit_probability"]
        for room in (30, 34, 60)
    ]
    assert found == sorted(found)
    assert found[0] < 0.2
    assert found[-1] > 0.95


def test_a_machine_without_measured_runs_says_so(launch: Launch) -> None:
    words = ["+recipe=qwen3_moe", "backend=mindspeed", "hardware=ascend_910b", "cluster.nodes=4"]
    text = launch("estimate", *words).out
    assert "memory: no run like this one was measured, so its error is not known" in text
    assert json.loads(launch("estimate", *words, "--json").out)["fit_probability"] is None


def test_a_search_keeps_what_fits_with_the_probability(launch: Launch) -> None:
    small = ["+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", "cluster.nodes=1", "search.max_vpp=1"]
    alone, sure = (
        json.loads(launch("search", *small, f"search.fit_probability={each}", "--json").out)
        for each in ("null", "0.99")
    )
    assert alone["limit"] == alone["capacity"]
    assert sure["limit"] < sure["capacity"]
    assert all(candidate["peak_reserved"] <= sure["limit"] for candidate in sure["candidates"])


@pytest.mark.parametrize(
    ("value", "works"), [("1", "search.fit_probability=0.99"), ("0.2", "search.fit_probability=0.5")]
)
def test_an_impossible_probability_is_refused_with_what_works(launch: Launch, value: str, works: str) -> None:
    finished = launch(
        "search", "+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", f"search.fit_probability={value}"
    )
    assert finished.code in (1, 2)
    assert works in finished.err
