"""A search counts with what the backend reads: arguments in `backend.args`, and no field that it ignores."""

import json

import pytest

from launcher.api import check
from launcher.balance.from_job import pose
from launcher.compose import compose
from launcher.estimate.estimate import estimate
from launcher.job import value_at, with_values
from launcher.pipeline import Refused
from launcher.search.begin import begin, kept_axes, unasked, varied
from tests.conftest import Launch

DENSE = ("+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g")
CASES = {
    "FP8": ((*DENSE, "+backend.args.fp8_format=hybrid"), {}),
    "a size": ((*DENSE, "+backend.args.tensor_model_parallel_size=4"), {"tp": "tensor_model_parallel_size"}),
    "a size as it is": ((*DENSE, "+backend.args.tensor_model_parallel_size=1"), {"tp": "tensor_model_parallel_size"}),
    "recomputation": (
        (
            *DENSE,
            *(f"+backend.args.recompute_{name}" for name in ("granularity=full", "method=uniform", "num_layers=1")),
        ),
        {"recompute": "recompute_granularity"},
    ),
    "an optimizer": (
        ("+recipe=tiny_qwen3", "backend=megatron_lm", "hardware=h100_80g", "+backend.args.optimizer=sgd"),
        {},
    ),
    "a dispatcher": (
        (
            *("+recipe=qwen3_moe", "backend=mindspeed", "hardware=ascend_910b", "cluster.nodes=2"),
            "+backend.args.moe-token-dispatcher-type=alltoall",
        ),
        {"dispatcher": "moe-token-dispatcher-type"},
    ),
    "one that a size is read beside": ((*DENSE, "+backend.args.perform_initialization=true"), {}),
    "no effect": (("+recipe=gpt_oss_120b", "backend=megatron", "hardware=h20", "cluster.nodes=8"), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_search_finds_is_what_the_estimate_says_of_it(name: str) -> None:
    words, kept = CASES[name]
    job = compose([*words, "search.axes=[tp,pp,recompute,dispatcher]"])
    search = begin(job, top=3)
    for _ in search.run():
        pass
    assert kept_axes(job) == kept
    assert [each.rule for each in varied(job)] == (["SEARCH-KEEPS"] if kept else [])
    assert search.found.best
    for each in search.found.best:
        found = with_values(job, {**each.values, **unasked(job)})
        answer = estimate(found, changes=False)
        assert answer.time is not None
        assert answer.time.step_s == pytest.approx(each.step_s)
        assert answer.fullest.peak_reserved + answer.outside == pytest.approx(each.peak, abs=1)
        assert check(found).ok
        if "tp" in kept:
            assert value_at(found, "parallel.tp") == job.backend.args["tensor_model_parallel_size"]


def test_balancing_has_the_times_of_the_estimate() -> None:
    """FP8 halves the time of a layer, whether a field or an argument says it."""
    words = (*DENSE, "parallel.pp=2", "parallel.tp=1")
    plain, passed = (pose(compose([*words, *more])) for more in ((), ("+backend.args.fp8_format=hybrid",)))
    assert passed.problem.kinds[0].forward < 0.9 * plain.problem.kinds[0].forward


@pytest.mark.parametrize("more", [(), ("+backend.args.fp8_format=hybrid",)])
def test_an_unknown_version_is_refused(more: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match=r"9\.9 is not known"):
        begin(compose([*DENSE, "backend.version=9.9", *more]))


ALONE = ("+recipe=qwen3_8b", "backend=megatron_lm", "hardware=h100_80g", "model.pretrained=false")


@pytest.mark.parametrize(
    "verb, words", [("search", ("search.axes=[tp,pp]",)), ("balance", ("--quick", "parallel.pp=4"))]
)
def test_a_written_strategy_names_the_overrides_that_it_replaces(
    verb: str, words: tuple[str, ...], launch: Launch
) -> None:
    replaced = "parallel.tp=4" if verb == "search" else "recompute.granularity=full"
    others = () if verb == "search" else ("recompute.method=uniform", "recompute.num_layers=1")
    done = launch(verb, *ALONE, *words, replaced, *others, "-o", "best.yaml")
    assert done.code == 0, done.err
    written = next(line for line in done.out.splitlines() if line.startswith("written: "))
    assert f"instead of {replaced}" in written
    left = [word for word in words if "=" in word and "axes" not in word]
    seen = json.loads(launch("estimate", *ALONE, *left, "+strategy=best.yaml", "--json").out)
    assert f"{seen['time']['step_s']:.4g} s" in done.out


@pytest.mark.parametrize("argument", ["foo=1", "num_layers=40", "micro_batch_size=two", "hidden_size=-1"])
def test_an_argument_that_check_refuses_is_refused_by_all(argument: str, launch: Launch) -> None:
    words = (*ALONE, f"+backend.args.{argument}")
    for verb in ("check", "estimate", "search"):
        refused = launch(verb, *words)
        assert refused.code == 1, verb
        assert f"backend.args.{argument} (command line)" in refused.out + refused.err
