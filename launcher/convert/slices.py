"""Slices of tensors: where a part of a logical tensor is stored in another tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from launcher.convert.records import StridedRange, TensorSlice
from launcher.records import dataclass

Region = tuple[tuple[int, int], ...]
"""One (start, count) per dimension."""


def whole(logical: str, shape: Sequence[int], *, transposed: bool = False) -> TensorSlice:
    """Return the slice of a stored tensor that is exactly one logical tensor."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if transposed else tuple(shape)
    return TensorSlice(
        logical=logical,
        logical_at=tuple((0, count) for count in shape),
        stored_at=tuple(StridedRange(start=0, count=count) for count in stored),
        transposed=transposed,
    )


def rows(
    logical: str, shape: Sequence[int], first: int, count: int, *, stored_first: int, step: int = 1
) -> TensorSlice:
    """Return the slice of `count` rows from `first` on, stored from row `stored_first` on, `step` apart."""
    rest = shape[1:]
    return TensorSlice(
        logical=logical,
        logical_at=((first, count), *((0, size) for size in rest)),
        stored_at=(
            StridedRange(start=stored_first, count=count, step=step),
            *(StridedRange(start=0, count=size) for size in rest),
        ),
    )


def flipped(box: TensorSlice) -> TensorSlice:
    """Return the slice in a stored tensor whose last two dimensions are swapped."""
    *rest, last, final = box.stored_at
    return TensorSlice(
        logical=box.logical,
        logical_at=box.logical_at,
        stored_at=(*rest, final, last),
        transposed=not box.transposed,
    )


def stacked(box: TensorSlice, *leading: int) -> TensorSlice:
    """Return the slice inside a larger tensor whose element at index `leading` is the stored tensor."""
    runs = tuple(StridedRange(start=index, count=1) for index in leading)
    return TensorSlice(
        logical=box.logical, logical_at=box.logical_at, stored_at=(*runs, *box.stored_at), transposed=box.transposed
    )


def volume(region: Region) -> int:
    """Return the number of elements of a region."""
    return math.prod(count for _, count in region)


def stored_dim(box: TensorSlice, dim: int) -> int:
    """Return the stored dimension of the logical dimension `dim`."""
    extra = len(box.stored_at) - len(box.logical_at)
    if box.transposed and dim >= len(box.logical_at) - 2:
        dim = 2 * len(box.logical_at) - 3 - dim
    return extra + dim


def logical_dim(box: TensorSlice, dim: int) -> int:
    """Return the logical dimension of the stored dimension `dim`; negative for an extra leading one."""
    inside = dim - (len(box.stored_at) - len(box.logical_at))
    if inside >= 0 and box.transposed and inside >= len(box.logical_at) - 2:
        inside = 2 * len(box.logical_at) - 3 - inside
    return inside


def narrowed(box: TensorSlice, region: Region) -> tuple[StridedRange, ...]:
    """Return the stored ranges of a part of the slice's logical region."""
    runs = list(box.stored_at)
    for dim, ((start, count), (first, _)) in enumerate(zip(region, box.logical_at, strict=True)):
        at = stored_dim(box, dim)
        run = runs[at]
        runs[at] = StridedRange(start=run.start + (start - first) * run.step, count=count, step=run.step)
    return tuple(runs)


def common(left: Region, right: Region) -> Region | None:
    """Return the intersection of two regions; None if it is empty."""
    shared = []
    for (a, size_a), (b, size_b) in zip(left, right, strict=True):
        start, end = max(a, b), min(a + size_a, b + size_b)
        if start >= end:
            return None
        shared.append((start, end - start))
    return tuple(shared)


def cut(box: TensorSlice, at: Sequence[int], shape: Sequence[int]) -> TensorSlice | None:
    """Return the part of a slice in the stored region `at` + `shape`, relative to that region; None if empty."""
    logical = list(box.logical_at)
    stored = []
    for dim, (run, first, size) in enumerate(zip(box.stored_at, at, shape, strict=True)):
        low = max(0, -(-(first - run.start) // run.step))
        high = min(run.count, -(-(first + size - run.start) // run.step))
        if low >= high:
            return None
        stored.append(StridedRange(start=run.start + low * run.step - first, count=high - low, step=run.step))
        inside = logical_dim(box, dim)
        if inside >= 0:
            logical[inside] = (logical[inside][0] + low, high - low)
    return TensorSlice(
        logical=box.logical, logical_at=tuple(logical), stored_at=tuple(stored), transposed=box.transposed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How tensor parallelism splits a tensor: `parts` equal blocks along `axis`, each split over all ranks."""

    axis: int
    parts: int = 1


def shard(
    boxes: Sequence[TensorSlice], shape: Sequence[int], split: Split, rank: int, size: int
) -> tuple[tuple[TensorSlice, ...], tuple[int, ...]]:
    """Return the slices and the shape of one rank's part of a tensor.

    Raises:
        ValueError: the tensor cannot be divided evenly.
    """
    length = shape[split.axis]
    if length % (split.parts * size):
        raise ValueError(f"{length} cannot be split into {split.parts} x {size} parts")
    piece = length // (split.parts * size)
    own = tuple(piece * split.parts if axis == split.axis else count for axis, count in enumerate(shape))
    found = []
    for part in range(split.parts):
        at = [0] * len(shape)
        at[split.axis] = (part * size + rank) * piece
        region = [piece if axis == split.axis else count for axis, count in enumerate(shape)]
        for box in boxes:
            inside = cut(box, at, region)
            if inside is not None:
                found.append(moved(inside, split.axis, part * piece))
    return tuple(found), own


def moved(box: TensorSlice, axis: int, by: int) -> TensorSlice:
    """Return the slice with its stored block shifted by `by` along a stored dimension."""
    if by == 0:
        return box
    runs = list(box.stored_at)
    run = runs[axis]
    runs[axis] = StridedRange(start=run.start + by, count=run.count, step=run.step)
    return TensorSlice(logical=box.logical, logical_at=box.logical_at, stored_at=tuple(runs), transposed=box.transposed)
