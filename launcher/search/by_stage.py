"""Recomputation of only as many layers of each stage as its memory needs: late stages hold fewer micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from launcher.balance.from_job import layers_of
from launcher.balance.parts import MODULES
from launcher.job import Job, Value, with_values
from launcher.job.recompute import SELECTIVE_MODULES
from launcher.search.points import in_block

Values = dict[str, Value]
IN_FULL, IN_PART = "recompute.layers_per_chunk", "recompute.selective_layers_per_chunk"


def path_of(point: Mapping[str, Value]) -> str:
    """Return the field that counts the recomputed layers of each chunk of a point."""
    return IN_FULL if point["recompute.granularity"] == "full" else IN_PART


def least(job: Job, point: Values, fits: Callable[[Values], Sequence[bool] | None]) -> Values | None:
    """Return a point that fits with the fewest recomputed layers of each stage.

    The memory of a stage does not depend on what other stages recompute: all are bisected together.

    Args:
        point: a point that fits and recomputes the same in every chunk.
        fits: returns for a point whether each stage fits; None: it cannot be estimated.

    Returns:
        None: no stage can do with less, or it cannot be estimated.
    """
    pp = int(str(point["parallel.pp"]))
    layers = layers_of(with_values(job, point))
    most = point["recompute.num_layers"] if point["recompute.method"] == "block" else None
    now = [min(each, most) if isinstance(most, int) else each for each in layers]
    low, high = [-1] * pp, [sum(now[stage::pp]) for stage in range(pp)]
    before = list(high)
    while any(top - bottom > 1 for bottom, top in zip(low, high, strict=True)):
        middle = [(bottom + top) // 2 if top - bottom > 1 else top for bottom, top in zip(low, high, strict=True)]
        found = fits(_with(point, _counts(middle, layers, pp)))
        if found is None:
            return None
        for stage, fit in enumerate(found):
            if fit:
                high[stage] = middle[stage]
            else:
                low[stage] = middle[stage]
    return None if high == before else _with(point, _counts(high, layers, pp))


def _counts(stages: Sequence[int], layers: Sequence[int], pp: int) -> tuple[int, ...]:
    """Return the recomputed layers of each chunk: early chunks first, they hold more micro-batches."""
    left, counts = list(stages), []
    for chunk, size in enumerate(layers):
        taken = min(size, left[chunk % pp])
        left[chunk % pp] -= taken
        counts.append(taken)
    return tuple(counts)


def _with(point: Values, counts: tuple[int, ...]) -> Values:
    if path_of(point) == IN_FULL:
        return {**point, **in_block(max(1, *counts)), IN_FULL: counts}
    named = point[MODULES] or (SELECTIVE_MODULES if point["recompute.granularity"] else ())
    return {**point, MODULES: named, IN_PART: counts}
