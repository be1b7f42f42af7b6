"""Fits the efficiencies of a hardware file to SimuMax's tables of measured shapes.

A kernel takes `work / (peak x efficiency) + a fixed time`, so that 1 / measured efficiency is a line over 1 / work.
Source of the keys: SimuMax 1.2 (4dcaae5) simumax/core/base_struct.py, configs/system/*.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`efficiency x work / (work + half)`: the efficiency of large work, and the work at half of it."""

    efficiency: float
    half: float


def fit(points: Sequence[tuple[float, float]]) -> Line:
    """Return the line through (work, measured efficiency), least squares of relative errors.

    Without a positive slope the efficiency does not grow with work: `half` is 0.
    """
    one = sum(e * e for _, e in points)
    cross = sum(e * e / work for work, e in points)
    square = sum((e / work) ** 2 for work, e in points)
    left, right = sum(e for _, e in points), sum(e / work for work, e in points)
    determinant = one * square - cross * cross
    if determinant > 1e-12 * one * square:
        level = (left * square - right * cross) / determinant
        slope = (one * right - cross * left) / determinant
        if level > 0 and slope > 0:
            return Line(efficiency=1 / level, half=slope / level)
    return Line(efficiency=one / left, half=0.0)


def level(points: Sequence[tuple[float, float]], slope: float) -> float:
    """Return the efficiency of large work where the fixed time is known: `slope` is that time times the peak."""
    return sum(e * e for _, e in points) / max(1e-9, sum(e * (1 - slope * e / work) for work, e in points))


def keys(table: Mapping[str, float]) -> Iterable[tuple[dict[str, str], float]]:
    """Yield the shapes of a table with their efficiencies; other keys are left out."""
    for text, efficiency in table.items():
        pairs = [part.partition("=") for part in text.split(",") if "=" in part]
        shape = {name.strip(): value.strip() for name, _, value in pairs}
        if isinstance(efficiency, (int, float)) and efficiency > 0:
            yield shape, float(efficiency)


def _product(shape: Mapping[str, str], *names: str) -> float:
    made = 1.0
    for name in names:
        made *= float(shape[name])
    return made


def products(table: Mapping[str, float]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return (FLOP, efficiency) of forward and input gradients, and of weight gradients."""
    forward: list[tuple[float, float]] = []
    weight: list[tuple[float, float]] = []
    for shape, efficiency in keys(table):
        if {"b", "m", "k", "n"} <= shape.keys():
            into = weight if shape.get("accumulate") == "True" else forward
            into.append((2 * _product(shape, "b", "m", "k", "n"), efficiency))
    return forward, weight


def grouped(table: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return (tokens of an expert, efficiency) of forward and input gradients."""
    return [
        (float(shape["M"]), efficiency)
        for shape, efficiency in keys(table)
        if "M" in shape and shape.get("accumulate") != "True"
    ]


def attention(table: Mapping[str, float], *, latent: bool) -> list[tuple[float, float]]:
    """Return (FLOP of the forward, efficiency) of attention whose query and value heads differ in size, or not."""
    found = []
    for shape, efficiency in keys(table):
        if not {"batch", "seq_len", "head_num", "qk_head_dim", "v_head_dim"} <= shape.keys():
            continue
        if (shape["qk_head_dim"] != shape["v_head_dim"]) == latent:
            size = float(shape["qk_head_dim"]) + float(shape["v_head_dim"])
            found.append((2 * _product(shape, "batch", "head_num", "seq_len", "seq_len") * size, efficiency))
    return found
