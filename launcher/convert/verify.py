"""Compares two checkpoints byte by byte, at each position where the second should hold a byte of the first."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from launcher.convert.casts import decode, not_finite, word
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles, allocated, is_hole
from launcher.convert.layouts.content import Content
from launcher.convert.losses import Losses, total
from launcher.convert.move import Advance, in_parallel, values
from launcher.convert.plan import Move, all_shared
from launcher.convert.spans import array, direct, forget_slot, pieces

# Elements compared at a time.
_PIECE = 4 * 1024 * 1024
_HASHED = 16 * 1024 * 1024
# Elements checked before a tensor is suspected to hold only NaN.
_SAMPLE = 1024
# Bytes per step in files with holes.
_HOLE = 256 * 1024
_ZEROS = memoryview(bytes(_HOLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two positions whose contents should be equal but differ."""

    left: str
    right: str
    logical: str
    count: int
    total: int
    why: str = ""

    def __str__(self) -> str:
        return (
            f"{self.left} and {self.right} differ in {self.count} of {self.total} elements of {self.logical}{self.why}"
        )


def compare(
    left: Sequence[Content],
    right: Sequence[Content],
    *,
    files: OpenFiles,
    workers: int,
    advance: Advance,
    rounded: dict[str, Losses] | None = None,
) -> list[Difference]:
    """Compare every element of `left` with every position in `right` that holds it.

    Args:
        left: stored tensors.
        right: stored tensors of another checkpoint of the same model.
        files: open files.
        workers: threads.
        advance: callback with the number of bytes of `left` compared.
        rounded: if None, `right` must be exactly the cast of `left` where formats differ, as after a conversion. Else
            either side may be the cast of the other one, and the cast's losses are added here, by logical tensor.

    Returns:
        One difference for each pair of tensors that differ.
    """
    found: list[Difference] = []
    lock = Lock()

    def task(moves: Sequence[Move]) -> Callable[[], None]:
        def run() -> None:
            for move in moves:
                losses = Losses()
                difference = _compared(files, left, right, move, advance, None if rounded is None else losses)
                with lock:
                    if difference is not None:
                        found.append(difference)
                    if rounded is not None and losses.values:
                        name = move.source_box.logical
                        rounded[name] = total([rounded[name], losses]) if name in rounded else losses

        return run

    in_parallel([task(moves) for moves in all_shared(left, right) if moves], workers)
    return sorted(found, key=lambda difference: (difference.left, difference.right))


def _compared(
    files: OpenFiles,
    left: Sequence[Content],
    right: Sequence[Content],
    move: Move,
    advance: Advance,
    losses: Losses | None,
) -> Difference | None:
    mine, other = left[move.source], right[move.target]
    plain = direct(move, mine.slot, other.slot)
    wrong = elements = 0
    if plain is not None:
        elements = plain[2] // itemsize(mine.slot.dtype)
        wrong = _differing_bytes(files, mine.slot, other.slot, plain, advance)
    else:
        for part in pieces(move, _PIECE):
            if losses is None or mine.slot.dtype == other.slot.dtype:
                wrong += _differing_cast(files, mine, other, part, losses)
            else:
                wrong += _differing_in_either_order(files, mine, other, part, losses)
            count = math.prod(size for _, size in part.region)
            elements += count
            advance(count * itemsize(mine.slot.dtype) // (2 if mine.packed else 1))
        forget_slot(files, mine.slot)
        forget_slot(files, other.slot)
    overflowed_values = losses.overflowed if losses is not None else 0
    if not wrong and not overflowed_values:
        return None
    return Difference(
        left=mine.slot.name,
        right=other.slot.name,
        logical=move.source_box.logical,
        count=wrong or overflowed_values,
        total=elements,
        why=f": {overflowed_values} finite values, the largest {losses.largest:.6g}, became infinite"
        if losses and overflowed_values
        else "",
    )


def _differing_cast(files: OpenFiles, mine: Content, other: Content, part: Move, losses: Losses | None) -> int:
    """Return the number of elements of `other` that differ from the cast of `mine`."""
    import numpy as np

    expected = values(files, mine, part, other.dtype, losses)
    back = Move(part.target, part.target_box, part.source, part.source_box, part.region)
    present = values(files, other, back, other.dtype)
    if _same_block(expected, present):
        return 0
    unequal = expected != present
    if mine.slot.dtype != other.slot.dtype and losses is not None:
        # NaN has many bit patterns, and the cast that made this one is unknown.
        nan = [np.isnan(decode(words, other.dtype)) for words in (expected, present)]
        unequal &= ~(nan[0] & nan[1])
    return int(np.count_nonzero(unequal))


def _differing_in_either_order(files: OpenFiles, mine: Content, other: Content, part: Move, losses: Losses) -> int:
    """Return the number of differing elements if the side in the wider format is cast to the other one's format."""
    back = Move(part.target, part.target_box, part.source, part.source_box, part.region)
    forward = _width(mine) > _width(other)
    if _width(mine) == _width(other):
        tried = Losses(), Losses()
        wrong = [
            _differing_cast(files, mine, other, part, tried[0]),
            _differing_cast(files, other, mine, back, tried[1]),
        ]
        best = min((0, 1), key=lambda order: (wrong[order], tried[order].overflowed, tried[order].rounded))
        losses.add(tried[best])
        return wrong[best]
    if forward:
        return _differing_cast(files, mine, other, part, losses)
    return _differing_cast(files, other, mine, back, losses)


def _width(content: Content) -> int:
    """Return a rank of number formats: casts go from higher to lower; scaled FP8 ranks highest."""
    return 9 if content.scale is not None else itemsize(content.slot.dtype)


def _differing_bytes(files: OpenFiles, left: Slot, right: Slot, plain: tuple[int, int, int], advance: Advance) -> int:
    """Return the number of differing elements in two contiguous byte ranges."""
    import numpy as np

    here, there, count = plain
    size = itemsize(left.dtype)
    ours, theirs = files.view(left.path), files.view(right.path)
    wrong = 0
    for done, length, holes in _parts(files, ((left.path, here), (right.path, there)), count, size * _PIECE):
        if not holes:
            a = np.frombuffer(ours, dtype="u1", count=length, offset=here + done)
            b = np.frombuffer(theirs, dtype="u1", count=length, offset=there + done)
            if not _same(a, b):
                wrong += int(np.count_nonzero((a != b).reshape(-1, size).any(axis=1)))
            files.forget(left.path, here + done, length)
            files.forget(right.path, there + done, length)
        advance(length)
    return wrong


def _parts(
    files: OpenFiles, places: Sequence[tuple[Path, int]], count: int, limit: int
) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, length, whether it is a hole in all places) of the parts of a range, in order."""
    sparse = all(_is_sparse(path) for path, _ in places)
    step = min(limit, _HOLE) if sparse else limit
    for start in range(0, count, step):
        length = min(step, count - start)
        yield start, length, sparse and all(is_hole(files, path, at + start, length) for path, at in places)


@cache
def _is_sparse(path: Path) -> bool:
    return allocated([path]) < path.stat().st_size // 2


def _same(a: Any, b: Any) -> bool:
    import numpy as np

    whole = a.size - a.size % 8
    same = np.array_equal(a[:whole].view("<u8"), b[:whole].view("<u8"))
    return bool(same and np.array_equal(a[whole:], b[whole:]))


def _same_block(a: Any, b: Any) -> bool:
    """Return whether two blocks of bit patterns are equal; compares eight bytes at a time if the rows allow it."""
    import numpy as np

    size = a.itemsize
    if a.ndim and all(one.strides[-1] == size for one in (a, b)) and a.shape[-1] * size % 8 == 0:
        a, b = a.view("<u8"), b.view("<u8")
    return bool(np.array_equal(a, b))


def digest(files: OpenFiles, slot: Slot) -> tuple[str, int, int]:
    """Return the XXH3 (128 bits) of a stored tensor's bytes, and its counts of NaN and infinite values.

    It tells equal tensors of two conversions, at memory speed; SHA-256 took a third of a verified conversion.
    """
    import xxhash

    found = xxhash.xxh3_128()
    nan = infinite = 0
    size = math.prod(slot.shape) * itemsize(slot.dtype)
    view = files.view(slot.path)
    for start, length, hole in _parts(files, ((slot.path, slot.offset),), size, _HASHED):
        part = _ZEROS[:length] if hole else view[slot.offset + start : slot.offset + start + length]
        found.update(part)
        if not hole:
            odd = not_finite(part, slot.dtype)
            nan, infinite = nan + odd[0], infinite + odd[1]
            files.forget(slot.path, slot.offset + start, length)
    return f"xxh3:{found.hexdigest()}", nan, infinite


def only_nan(files: OpenFiles, content: Content) -> bool:
    """Return whether a tensor holds only NaN: the sign of a broken run."""
    import numpy as np

    slot = content.slot
    if slot.dtype not in ("F32", "BF16", "F16", "F8_E4M3") or not all(slot.shape):
        return False
    size = itemsize(slot.dtype)
    # Access through the memory map would load whole huge pages of every tensor into this process.
    sample = os.pread(files.read_fd(slot.path), min(_SAMPLE, math.prod(slot.shape)) * size, slot.offset)
    if not bool(np.isnan(decode(np.frombuffer(sample, dtype=word(size)), slot.dtype)).all()):
        return False
    flat = array(files, slot).reshape(-1)
    parts = (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
    found = all(bool(np.isnan(decode(piece, slot.dtype)).all()) for piece in parts)
    forget_slot(files, slot)
    return found


def padding_is_zero(files: OpenFiles, content: Content) -> bool:
    """Return whether the padding at the end of a tensor is zero."""
    if not content.fill:
        return True
    flat = array(files, content.slot).reshape(-1)
    return not bool(flat[flat.size - content.fill :].any())
