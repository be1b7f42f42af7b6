"""What counts as the same training, and where two trainings part."""

import math
from dataclasses import replace

import pytest

from launcher.parity import compare
from launcher.parity.compare import Compared, relative, table, tolerances
from launcher.parity.runs import Iteration, Trained
from launcher.parity.tolerance import parameter_ratio, rounding, unmeetable


def trained(label: str, *values: tuple[float, float | None], problem: str = "") -> Trained:
    iterations = tuple(
        Iteration(iteration=number, loss=loss, grad_norm=norm) for number, (loss, norm) in enumerate(values, start=1)
    )
    return Trained(label=label, iterations=iterations, problem=problem, command="", log="log.txt", seconds=1.0)


def compared(reference: Trained, side: Trained, allowed: dict[int, tuple[float, float]]) -> Compared:
    return compare.compared(reference, side, allowed, iterations=3)


REFERENCE = trained("a", (6.0, 1.0), (5.0, 2.0), (4.0, 1.5))


def test_equal_trainings_agree() -> None:
    allowed = tolerances("fp32", REFERENCE, None, None)
    found = compared(REFERENCE, trained("b", (6.0, 1.0), (5.0, 2.0), (4.0, 1.5)), allowed)
    assert found.agrees
    assert found.first is None
    assert dict(found.largest) == {"loss": 0.0, "grad_norm": 0.0}


CASES = {
    "loss": ([(6.0, 1.0), (5.001, 2.0), (4.0, 1.5)], 2, "loss"),
    "gradient norm": ([(6.0, 1.001), (5.0, 2.0), (4.0, 1.5)], 1, "grad_norm"),
    "not a number": ([(6.0, 1.0), (5.0, 2.0), (math.nan, 1.5)], 3, "loss"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_value_out_of_tolerance_is_named(name: str) -> None:
    values, iteration, quantity = CASES[name]
    found = compared(REFERENCE, trained("b", *values), tolerances("fp32", REFERENCE, None, None))
    assert not found.agrees
    assert found.first is not None
    assert (found.first.iteration, found.first.quantity) == (iteration, quantity)


def test_a_norm_that_is_not_reported_is_no_difference_of_zero() -> None:
    silent = trained("b", (6.0, None), (5.0, None), (4.0, None))
    found = compared(REFERENCE, silent, tolerances("fp32", REFERENCE, None, None))
    assert found.agrees
    assert math.isnan(found.largest["grad_norm"])
    assert compare.as_tree(found)["largest_relative_difference"] == {"loss": 0.0, "grad_norm": None}


def skips(label: str, *skipped: bool) -> Trained:
    plain = trained(label, *((6.0, 1.0) for _ in skipped))
    iterations = (
        replace(each, grad_norm=None, skipped=True) if skip else each
        for each, skip in zip(plain.iterations, skipped, strict=True)
    )
    return replace(plain, iterations=tuple(iterations))


def test_skipped_updates_are_the_same_training_if_both_skip_them() -> None:
    reference = skips("a", True, True, False)
    allowed = tolerances("fp16", reference, None, None)
    assert compared(reference, skips("b", True, True, False), allowed).agrees
    for other in (skips("b", True, False, False), skips("b", True, True, True)):
        found = compared(reference, other, allowed)
        assert found.first is not None
        assert found.first.quantity == "grad_norm"
    assert table([reference])[1] == ["1", "6.000000", "skipped"]


def test_a_training_that_ends_early_does_not_agree() -> None:
    allowed = tolerances("fp32", REFERENCE, None, None)
    failed = compared(REFERENCE, trained("b", (6.0, 1.0), problem="out of memory"), allowed)
    assert not failed.agrees
    assert failed.problem == "out of memory"
    assert compared(REFERENCE, trained("b", (6.0, 1.0)), allowed).problem == "b recorded 1 of 3 iterations"


@pytest.mark.parametrize("problem", ["killed", ""])
def test_nothing_agrees_with_a_reference_that_did_not_train(problem: str) -> None:
    dead = trained("a", problem=problem)
    found = compared(dead, trained("b", (6.0, 1.0), (5.0, 2.0), (4.0, 1.5)), tolerances("fp32", dead, None, None))
    assert not found.agrees
    assert found.problem.startswith("a ")


def test_trainings_that_both_diverge_do_not_agree() -> None:
    endless = ((6.0, 1.0), (math.inf, 2.0), (math.inf, 1.5))
    allowed = dict.fromkeys((1, 2, 3), (1.0, 1.0))
    assert not compared(trained("a", *endless), trained("b", *endless), allowed).agrees


def test_a_spread_that_diverges_widens_nothing_without_end() -> None:
    again = trained("a", (6.0, 1.0), (math.nan, 2.0), (4.0, 1.5))
    allowed = tolerances("fp32", REFERENCE, again, None)
    assert allowed[3][0] < 0.01
    assert not compared(REFERENCE, trained("b", (6.0, 1.0), (100.0, 2.0), (4.0, 1.5)), allowed).agrees


def test_the_spread_of_the_reference_widens_the_tolerance_from_there_on() -> None:
    again = trained("a", (6.0, 1.0), (5.0005, 2.0), (4.0, 1.5))
    allowed = tolerances("fp32", REFERENCE, again, None)
    assert allowed[1] == (1e-5, 1e-4)
    assert allowed[2] == pytest.approx((1e-3, 1e-4))
    assert allowed[3] == allowed[2]
    assert tolerances("fp32", REFERENCE, again, 0.5)[3] == (0.5, 0.5)


def test_a_tolerance_that_is_asked_keeps_the_ratio_of_the_parameters() -> None:
    assert rounding("fp32", 1e-7).parameters == pytest.approx(1e-7 * parameter_ratio("fp32"))
    assert rounding("bf16", 0.0).parameters == 0.0


UNMEETABLE = [("fp32", 1e-12, True), ("fp32", 1e-7, False), ("bf16", 1e-3, True), ("bf16", None, False)]


@pytest.mark.parametrize(("dtype", "asked", "told"), UNMEETABLE)
def test_a_tolerance_that_nobody_can_meet_is_told(dtype: str, asked: float | None, told: bool) -> None:
    assert (f"less than one rounding of {dtype}" in unmeetable(dtype, asked)) == told


def test_lower_precision_allows_more() -> None:
    loose, tight = (tolerances(dtype, REFERENCE, None, None)[1] for dtype in ("bf16", "fp32"))
    assert loose[0] > tight[0]


def test_relative_differences() -> None:
    assert relative(2.0, 2.1) == pytest.approx(0.05)
    assert relative(math.inf, 1.0) == math.inf


def test_the_table_shows_what_is_missing() -> None:
    rows = table([REFERENCE, trained("b", (6.0, None))])
    assert rows[0] == ["iteration", "a loss", "a grad norm", "b loss", "b grad norm"]
    assert rows[1] == ["1", "6.000000", "1.00000", "6.000000", "-"]
    assert rows[3][3:] == ["-", "-"]


def test_the_table_shows_both_means_of_a_reference_where_they_differ() -> None:
    def with_tokens(mean: float) -> Trained:
        only = Iteration(iteration=1, loss=6.0, grad_norm=1.0, token_loss=mean)
        return replace(REFERENCE, label="a", iterations=(only,))

    assert table([with_tokens(6.00001)])[0] == ["iteration", "a loss", "a grad norm"]
    head, row = table([with_tokens(5.5)])
    assert head == ["iteration", "a loss of micro-batches", "a loss of tokens", "a grad norm"]
    assert row == ["1", "6.000000", "5.500000", "1.00000"]


def test_every_difference_is_in_the_json() -> None:
    found = compared(REFERENCE, trained("b", (6.0, 1.0), (5.5, 2.0), (4.0, 1.5)), dict.fromkeys((1, 2, 3), (0.01, 1.0)))
    tree = compare.as_tree(found)
    assert [each["tolerance"] for each in tree["differences"]] == [0.01, 1.0] * 3
    assert tree["differs_at"] == tree["differences"][2]
