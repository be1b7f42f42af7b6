"""Blocks in files: contiguous byte ranges, and strided views of memory-mapped tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from launcher.convert.casts import word
from launcher.convert.containers.dtypes import MXFP4, itemsize
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.plan import Move
from launcher.convert.records import StridedRange, TensorSlice
from launcher.convert.slices import cut, narrowed, stored_dim


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


def direct(move: Move, source: Slot, target: Slot) -> tuple[int, int, int] | None:
    """Return (byte in the source file, byte in the target file, bytes) if a move is one plain copy; else None."""
    if (
        move.source_box.transposed != move.target_box.transposed
        or source.dtype != target.dtype
        or target.dtype == MXFP4
    ):
        return None
    there = span(target.shape, narrowed(move.target_box, move.region))
    here = span(source.shape, narrowed(move.source_box, move.region))
    if here is None or there is None:
        return None
    size = itemsize(source.dtype)
    return source.offset + here[0] * size, target.offset + there[0] * size, here[1] * size


def array(files: OpenFiles, slot: Slot) -> Any:
    """Return a stored tensor as a read-only, memory-mapped array of bit patterns (integers of the element size)."""
    import numpy as np

    kind = word(itemsize(slot.dtype))
    count = math.prod(slot.shape)
    return np.frombuffer(files.view(slot.path), dtype=kind, count=count, offset=slot.offset).reshape(slot.shape)


def forget_slot(files: OpenFiles, slot: Slot) -> None:
    """Drop a tensor from this process's memory."""
    files.forget(slot.path, slot.offset, math.prod(slot.shape) * itemsize(slot.dtype))


def block(whole: Any, box: TensorSlice, runs: Sequence[StridedRange]) -> Any:
    """Return a view of a block, with the dimensions and the orientation of the logical tensor."""
    slices = tuple(slice(run.start, run.start + (run.count - 1) * run.step + 1, run.step) for run in runs)
    found = whole[slices]
    dims = len(box.logical_at)
    found = found.reshape(found.shape[found.ndim - dims :])
    return found.swapaxes(-1, -2) if box.transposed else found


def chunks(shape: Sequence[int], limit: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (start, shape) of contiguous parts of a tensor, in order, each of at most `limit` elements if possible."""
    axis = next((index for index, size in enumerate(shape) if size > 1), len(shape) - 1)
    if axis < 0:
        yield (), ()
        return
    row = math.prod(shape[axis + 1 :])
    rows = max(1, limit // max(1, row))
    for start in range(0, shape[axis], rows):
        at = tuple(start if index == axis else 0 for index in range(len(shape)))
        yield at, tuple(min(rows, size - start) if index == axis else size for index, size in enumerate(shape))


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


def pieces(move: Move, limit: int) -> Iterator[Move]:
    """Yield a move in parts of at most `limit` elements, split along the target's outer dimensions."""
    sizes = [count for _, count in move.region]
    if math.prod(sizes) <= limit:
        yield move
        return
    outer = min(range(len(sizes)), key=lambda dim: (sizes[dim] == 1, stored_dim(move.target_box, dim)))
    step = max(1, limit * sizes[outer] // math.prod(sizes))
    start, count = move.region[outer]
    for first in range(start, start + count, step):
        part = (first, min(step, start + count - first))
        region = (*move.region[:outer], part, *move.region[outer + 1 :])
        yield Move(move.source, move.source_box, move.target, move.target_box, region)
