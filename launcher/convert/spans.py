"""Blocks in files: contiguous byte ranges, and strided views of memory-mapped tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from launcher.convert.casts import word
from launcher.convert.containers.dtypes import MXFP4, itemsize
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import Copy, OpenFiles
from launcher.convert.plan import Move
from launcher.convert.records import StridedRange, TensorSlice
from launcher.convert.slices import cut, narrowed, volume

# Bytes of a copy below which many are slower than one block put together in memory.
_SHORT = 64 * 1024
# Bytes of a row below which many are put together faster by numpy than one by one.
_SHORT_ROW = 512
# A block is mapped at once unless that maps this many times its bytes.
_SPARSE = 8


def span(shape: Sequence[int], runs: Sequence[StridedRange]) -> tuple[int, int] | None:
    """Return (first element, count) of a block that is contiguous in its tensor; None if it is not."""
    first, stride, total, closed = 0, 1, 1, False
    for size, run in zip(reversed(shape), reversed(runs), strict=True):
        if run.count > 1 and (closed or run.step != 1):
            return None
        first += run.start * stride
        total *= run.count
        closed = closed or run.count != size
        stride *= size
    return first, total


def runs(move: Move, source: Slot, target: Slot) -> list[Copy] | None:
    """Return the plain copies that make a move, in order; rows that are apart in the target need `alternating`.

    None if elements are cast or transposed, or if there are many copies of a few elements each.
    """
    if (
        move.source_box.transposed != move.target_box.transposed
        or source.dtype != target.dtype
        or target.dtype == MXFP4
    ):
        return None
    dims, size = len(move.region), itemsize(source.dtype)
    # The dimensions of the stored tensors before the last `dims` have a count of one.
    sides = [
        (narrowed(move.source_box, move.region), strides(source.shape)),
        (narrowed(move.target_box, move.region), strides(target.shape)),
    ]
    axis, count = dims, size  # of one copy: the bytes of all axes from `axis` on
    while axis and all(
        _continues(ranges[axis - 1 - dims], step[axis - 1 - dims] * size, count) for ranges, step in sides
    ):
        axis -= 1
        count *= sides[0][0][axis - dims].count
    # (copies, bytes apart in the source, in the target) along each axis before
    outer = [
        (
            sides[0][0][number - dims].count,
            *(ranges[number - dims].step * step[number - dims] * size for ranges, step in sides),
        )
        for number in range(axis)
    ]
    here, there = (
        slot.offset + size * sum(run.start * step for run, step in zip(*side, strict=True))
        for slot, side in zip((source, target), sides, strict=True)
    )
    rows, step, apart = outer[-1] if outer else (1, 0, 0)
    if rows > 1 and _SHORT_ROW <= count < _SHORT:
        outer.pop()
    else:
        rows, step, apart = 1, 0, 0
    if math.prod(times for times, _, _ in outer) > 1 and count * rows < _SHORT:
        return None
    found = [Copy(there, here, count, source.path, rows, step, 0 if apart == count else apart)]
    for times, source_step, target_step in reversed(outer):
        found = [
            copy._replace(there=copy.there + target_step * i, here=copy.here + source_step * i)
            for i in range(times)
            for copy in found
        ]
    return found


def alternating(copies: Sequence[Copy]) -> list[list[Copy]] | None:
    """Group copies, in the target's order, whose rows alternate there; None if rows leave gaps."""
    found: list[list[Copy]] = []
    missing = 0  # bytes of the last group's first row
    for copy in copies:
        if missing:
            first = found[-1][0]
            here = (first.there + first.apart - missing, first.rows, first.apart)
            if here != (copy.there, copy.rows, copy.apart) or copy.length > missing:
                return None
            found[-1].append(copy)
        else:
            found.append([copy])
            missing = copy.apart
        missing -= copy.length if copy.apart else 0
    return None if missing else found


def _continues(run: StridedRange, stride: int, count: int) -> bool:
    """Return whether the indices of a dimension follow each other where `count` bytes inside of it are adjacent."""
    return run.count == 1 or (run.step == 1 and stride == count)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the distance of neighbours along each dimension, in elements."""
    found = [1]
    for size in reversed(shape[1:]):
        found.append(found[-1] * size)
    return tuple(reversed(found)) if shape else ()


def extent(slot: Slot, ranges: Sequence[StridedRange]) -> tuple[int, int]:
    """Return the (first byte in the file, bytes) from the first to the last element of a block."""
    steps = strides(slot.shape)
    first = sum(run.start * step for run, step in zip(ranges, steps, strict=True))
    last = first + sum((run.count - 1) * run.step * step for run, step in zip(ranges, steps, strict=True))
    size = itemsize(slot.dtype)
    return slot.offset + first * size, (last + 1 - first) * size


def array(files: OpenFiles, slot: Slot) -> Any:
    """Return a stored tensor as a read-only, memory-mapped array of bit patterns (integers of the element size)."""
    import numpy as np

    kind = word(itemsize(slot.dtype))
    count = math.prod(slot.shape)
    files.check_size(slot.path, slot.offset + count * itemsize(slot.dtype))
    return np.frombuffer(files.view(slot.path), dtype=kind, count=count, offset=slot.offset).reshape(slot.shape)


def forget_slot(files: OpenFiles, slot: Slot) -> None:
    """Drop a tensor from this process's memory."""
    files.forget(slot.path, slot.offset, math.prod(slot.shape) * itemsize(slot.dtype))


@contextmanager
def loaded(files: OpenFiles, slot: Slot, move: Move) -> Iterator[None]:
    """Map the source block of a move at once, and drop it from memory afterwards, unless it is scattered."""
    start, count = extent(slot, narrowed(move.source_box, move.region)) if slot.dtype != MXFP4 else (0, 0)
    dense = 0 < count <= _SPARSE * volume(move.region) * itemsize(slot.dtype)
    if dense:
        files.load(slot.path, start, count)
    try:
        yield
    finally:
        if dense:
            files.forget(slot.path, start, count)


def block(whole: Any, box: TensorSlice, runs: Sequence[StridedRange]) -> Any:
    """Return a view of a block, with the dimensions and the orientation of the logical tensor."""
    slices = tuple(slice(run.start, run.start + (run.count - 1) * run.step + 1, run.step) for run in runs)
    found = whole[slices]
    dims = len(box.logical_at)
    found = found.reshape(found.shape[found.ndim - dims :])
    return found.swapaxes(-1, -2) if box.transposed else found


def _chunked_axis(shape: Sequence[int]) -> int:
    return next((index for index, size in enumerate(shape) if size > 1), len(shape) - 1)


def chunks(shape: Sequence[int], limit: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (start, shape) of contiguous parts of a tensor, in order, each of at most `limit` elements if possible."""
    axis = _chunked_axis(shape)
    if axis < 0:
        yield (), ()
        return
    row = math.prod(shape[axis + 1 :])
    rows = max(1, limit // max(1, row))
    for start in range(0, shape[axis], rows):
        at = tuple(start if index == axis else 0 for index in range(len(shape)))
        yield at, tuple(min(rows, size - start) if index == axis else size for index, size in enumerate(shape))


def parts(
    shape: Sequence[int], moves: Sequence[Move], limit: int
) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, TensorSlice, Move]]]]:
    """Yield the chunks of a target tensor, as (first element, shape, moves inside).

    A move inside is its number, its part as a slice of the chunk, and that part as a move.
    """
    axis = _chunked_axis(shape)
    whole = [narrowed(move.target_box, move.region)[axis] if shape else None for move in moves]
    first = 0
    for at, size in chunks(shape, limit):
        inside = []
        for number, (move, run) in enumerate(zip(moves, whole, strict=True)):
            # Tells most moves apart before the general test: a tensor with all experts has hundreds.
            if run is not None and not at[axis] - (run.count - 1) * run.step <= run.start < at[axis] + size[axis]:
                continue
            found = within(move, at, size)
            if found is not None:
                inside.append((number, *found))
        yield first, size, inside
        first += math.prod(size)


def within(move: Move, at: Sequence[int], shape: Sequence[int]) -> tuple[TensorSlice, Move] | None:
    """Return the part of a move inside a chunk of its target, as a slice of the chunk and as a move; else None."""
    whole = TensorSlice(
        logical=move.target_box.logical,
        logical_at=move.region,
        stored_at=narrowed(move.target_box, move.region),
        transposed=move.target_box.transposed,
    )
    inside = cut(whole, at, shape)
    if inside is None:
        return None
    return inside, Move(move.source, move.source_box, move.target, move.target_box, inside.logical_at)
