"""Least squares of positive numbers: Levenberg-Marquardt on their logarithms, without numpy."""

import math
from collections.abc import Callable, Sequence

Vector = list[float]
# Smallest improvement of a step, and steps.
_ENOUGH, _STEPS = 1e-9, 200
_DIFFERENCE = 1e-4


def minimised(residuals: Callable[[Sequence[float]], Vector], start: Sequence[float]) -> Vector:
    """Return the positive numbers at which the sum of squared residuals is a minimum near `start`.

    Args:
        residuals: of numbers; the same count at each call.
        start: positive numbers.

    Raises:
        ValueError: residuals at the start are not finite.
    """
    point = [math.log(value) for value in start]

    def at(logarithms: Sequence[float]) -> Vector:
        return residuals([math.exp(value) for value in logarithms])

    found = at(point)
    cost = _squares(found)
    if not math.isfinite(cost):
        raise ValueError("the residuals at the start are not finite")
    damping = 1e-2
    for _ in range(_STEPS):
        columns = [_column(at, point, index, found) for index in range(len(point))]
        gradient = [_dot(column, found) for column in columns]
        normal = [[_dot(one, other) for other in columns] for one in columns]
        better = None
        while better is None and damping < 1e12:
            step = _solved(normal, gradient, damping)
            tried = [value - max(-1.0, min(1.0, change)) for value, change in zip(point, step, strict=True)]
            made = at(tried)
            if _squares(made) < cost:
                better = tried, made
                damping = max(damping / 5, 1e-9)
            else:
                damping *= 4
        if better is None:
            break
        point, found = better
        gained, cost = cost - _squares(found), _squares(found)
        if gained <= _ENOUGH * cost:
            break
    return [math.exp(value) for value in point]


def _column(at: Callable[[Sequence[float]], Vector], point: Vector, index: int, found: Vector) -> Vector:
    """Return the derivative of each residual by one logarithm."""
    moved = [*point[:index], point[index] + _DIFFERENCE, *point[index + 1 :]]
    return [(there - here) / _DIFFERENCE for there, here in zip(at(moved), found, strict=True)]


def _solved(normal: Sequence[Vector], gradient: Vector, damping: float) -> Vector:
    """Return the solution of the damped normal equations, by elimination with the largest pivot first."""
    size = len(gradient)
    rows = [[*normal[index], gradient[index]] for index in range(size)]
    for index in range(size):
        rows[index][index] += damping * (normal[index][index] + 1e-9)
    for index in range(size):
        pivot = max(range(index, size), key=lambda row: abs(rows[row][index]))
        rows[index], rows[pivot] = rows[pivot], rows[index]
        for other in range(index + 1, size):
            factor = rows[other][index] / rows[index][index]
            rows[other] = [a - factor * b for a, b in zip(rows[other], rows[index], strict=True)]
    solution = [0.0] * size
    for index in reversed(range(size)):
        rest = sum(rows[index][other] * solution[other] for other in range(index + 1, size))
        solution[index] = (rows[index][size] - rest) / rows[index][index]
    return solution


def _dot(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _squares(vector: Vector) -> float:
    return _dot(vector, vector)
