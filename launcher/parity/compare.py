"""Loss and gradient norm of several trainings beside each other, and whether they are one training."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.parity.runs import Iteration, Trained
from launcher.parity.tolerance import SPREADS, WIDEST, rounding

QUANTITIES: Mapping[str, str] = {"loss": "loss", "grad_norm": "gradient norm"}
"""Attribute of an iteration to its name for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value of a side beside the reference's.

    Attributes:
        iteration: its number, from 1.
        quantity: `loss` or `grad_norm`.
        reference, value: the two values.
        relative: their relative difference.
        tolerance: what is allowed.
    """

    iteration: int
    quantity: str
    reference: float
    value: float
    relative: float
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One side beside the reference.

    Attributes:
        label: the side.
        agrees: whether all values are within the tolerance.
        largest: largest relative difference of each quantity; not a number where none was reported by both.
        first: the first value outside the tolerance; None: there is none, or the side failed.
        problem: why the side failed; "" where it did not.
        differences: every value that both reported, in the order of the iterations.
    """

    label: str
    agrees: bool
    largest: Mapping[str, float]
    first: Difference | None
    problem: str = ""
    differences: tuple[Difference, ...] = ()


def tolerances(
    dtype: str, reference: Trained, reordered: Trained | None, asked: float | None
) -> dict[int, tuple[float, float]]:
    """Return the relative tolerance of loss and gradient norm by iteration.

    Args:
        dtype: number format of the training: fp32, bf16 or fp16.
        reordered: the reference again, with the sums of its MLPs in another order; None: not measured.
        asked: tolerance of the command line, for both quantities at every iteration; None: by number format, from
            iteration 1 on, and ten times the largest spread so far of the two runs of the reference.
    """
    again = {each.iteration: each for each in reordered.iterations} if reordered is not None else {}
    allowed = rounding(dtype, asked)
    loss, norm = allowed.loss, allowed.grad_norm
    found = {}
    for each in reference.iterations:
        other = again.get(each.iteration)
        if other is not None and asked is None:
            loss = max(loss, min(SPREADS * relative(each.loss, other.loss), WIDEST * allowed.loss))
            if each.grad_norm is not None and other.grad_norm is not None:
                norm = max(norm, min(SPREADS * relative(each.grad_norm, other.grad_norm), WIDEST * allowed.grad_norm))
        found[each.iteration] = (loss, norm)
    return found


def compared(
    reference: Trained, side: Trained, allowed: Mapping[int, tuple[float, float]], *, iterations: int
) -> Compared:
    """Compare a side with the reference, iteration by iteration.

    Args:
        iterations: how many both must have.
    """
    differences = tuple(_differences(reference, side, allowed))
    first = next((each for each in differences if not each.relative <= each.tolerance), None)
    largest = {
        quantity: max((each.relative for each in differences if each.quantity == quantity), default=math.nan)
        for quantity in QUANTITIES
    }
    problem = side.problem
    if not problem and reference.problem:
        problem = f"{reference.label} failed, so there is nothing to compare with"
    for each in (reference, side):
        if not problem and first is None and len(each.iterations) < iterations:
            problem = f"{each.label} recorded {len(each.iterations)} of {iterations} iterations"
    agrees = first is None and not problem
    return Compared(
        label=side.label, agrees=agrees, largest=largest, first=first, problem=problem, differences=differences
    )


def _differences(reference: Trained, side: Trained, allowed: Mapping[int, tuple[float, float]]) -> Iterator[Difference]:
    values: Mapping[int, Iteration] = {each.iteration: each for each in side.iterations}
    for each in reference.iterations:
        other = values.get(each.iteration)
        if other is None:
            return
        for quantity, tolerance in zip(QUANTITIES, allowed[each.iteration], strict=True):
            expected, value = (one.loss if quantity == "loss" else one.norm for one in (each, other))
            if expected is None or value is None or (quantity == "grad_norm" and each.skipped and other.skipped):
                continue
            yield Difference(
                iteration=each.iteration,
                quantity=quantity,
                reference=expected,
                value=value,
                relative=relative(expected, value),
                tolerance=tolerance,
            )


def relative(expected: float, value: float) -> float:
    """Return |value - expected| / |expected|; infinity where one is not finite."""
    if not (math.isfinite(expected) and math.isfinite(value)):
        return math.inf
    return abs(value - expected) / max(abs(expected), 1e-30)


def table(trained: Sequence[Trained]) -> list[list[str]]:
    """Return the rows of the table: iteration, then loss and gradient norm of each side.

    A reference has its mean over tokens as well, where it is another number than that over micro-batches.
    """
    head = ["iteration"]
    for each in trained:
        losses = ("loss of micro-batches", "loss of tokens") if _has_two_means(each) else ("loss",)
        head += [f"{each.label} {name}" for name in (*losses, "grad norm")]
    numbers = sorted({each.iteration for one in trained for each in one.iterations})
    return [head, *([str(number), *_cells(number, trained)] for number in numbers)]


def _has_two_means(side: Trained) -> bool:
    means = ((each.loss, each.token_loss) for each in side.iterations)
    return any(mean is not None and relative(loss, mean) > rounding("fp32").loss for loss, mean in means)


def _cells(number: int, sides: Sequence[Trained]) -> Iterator[str]:
    for side in sides:
        each = next((each for each in side.iterations if each.iteration == number), None)
        yield "-" if each is None else f"{each.loss:.6f}"
        if _has_two_means(side):
            yield "-" if each is None or each.token_loss is None else f"{each.token_loss:.6f}"
        if each is not None and each.skipped:
            yield "skipped"
        else:
            yield "-" if each is None or each.grad_norm is None else f"{each.grad_norm:.5f}"


def finite(value: float | None) -> float | None:
    """Return a value that JSON has."""
    return value if value is not None and math.isfinite(value) else None


def as_tree(each: Compared) -> dict[str, Any]:
    """Return plain data for --json."""
    return {
        "side": each.label,
        "agrees": each.agrees,
        "largest_relative_difference": {name: finite(value) for name, value in each.largest.items()},
        "differs_at": None if each.first is None else _difference_as_tree(each.first),
        "differences": [_difference_as_tree(one) for one in each.differences],
        "problem": each.problem or None,
    }


def _difference_as_tree(each: Difference) -> dict[str, Any]:
    return {
        "iteration": each.iteration,
        "quantity": each.quantity,
        "reference": finite(each.reference),
        "value": finite(each.value),
        "relative": finite(each.relative),
        "tolerance": each.tolerance,
    }
