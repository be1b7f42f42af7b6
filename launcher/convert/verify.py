"""Compares two checkpoints byte by byte, at each position where the second should hold a byte of the first."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from launcher.convert.casts import decode, may_be_nan, not_finite, word
from launcher.convert.containers.dtypes import itemsize, nbytes
from launcher.convert.containers.transfer import ZEROS, Copy, OpenFiles, is_hole, zeros
from launcher.convert.copies import Copied, compare_copies, read_all
from launcher.convert.layouts.content import Content
from launcher.convert.losses import Losses, total
from launcher.convert.move import Advance, Copies, in_parallel, values
from launcher.convert.plan import Move, all_shared
from launcher.convert.slices import narrowed, volume
from launcher.convert.spans import alternating, array, extent, forget_slot, loaded, parts, runs
from launcher.records import dataclass

if TYPE_CHECKING:
    import xxhash

# Elements compared at a time: few enough for a processor's cache, since they are traversed several times.
_PIECE = 1024 * 1024
# Elements checked before a tensor is suspected to hold only NaN.
_SAMPLE = 1024


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A tensor as it was written: the plain copies that it consists of, and the hash of its source's bytes in order."""

    copies: Copies
    digest: bytes


def compare(
    left: Sequence[Content],
    right: Sequence[Content],
    *,
    files: OpenFiles,
    workers: int,
    advance: Advance,
    rounded: dict[str, Losses] | None = None,
    digests: Sequence[Digest] | None = None,
    written: Mapping[tuple[Path, int], Written] = MappingProxyType({}),
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
        digests: one for each tensor of `right`, updated with its bytes while they are in the processor's cache.
        written: for tensors of `right`, by file and position, the copies of `left` that they were written as, and the
            digest of those bytes: where the planned copies are the same ones, the digest of `right` is compared, and
            `left` is not read again.

    Returns:
        One difference for each pair of tensors that differ.
    """
    found: list[Difference] = []
    lock = Lock()

    def task(number: int, moves: Sequence[Move]) -> Callable[[], None]:
        def run() -> None:
            pairs = [_Pair(move=move) for move in moves]
            digest = None if digests is None else digests[number]
            _compare_all(files, left, right[number], pairs, rounded is None, advance, digest, written)
            with lock:
                found.extend(pair.difference(left, right) for pair in pairs if pair.wrong or pair.losses.overflowed)
                for pair in pairs:
                    if rounded is not None and pair.losses.values:
                        name = pair.move.source_box.logical
                        rounded[name] = total([rounded[name], pair.losses]) if name in rounded else pair.losses

        return run

    shared = all_shared(right, left)
    order = sorted(range(len(right)), key=lambda number: -nbytes(right[number].slot))
    todo = [number for number in order if shared[number] or digests is not None]
    in_parallel([task(number, [_back(move) for move in shared[number]]) for number in todo], workers)
    return sorted(found, key=lambda difference: (difference.left, difference.right))


def _back(move: Move) -> Move:
    """Return a move in the other direction."""
    return Move(move.target, move.target_box, move.source, move.source_box, move.region)


@dataclass(slots=True, kw_only=True)
class _Pair:
    """A block that a tensor of each side holds, and what was found so far."""

    move: Move
    wrong: int = 0
    losses: Losses = field(default_factory=Losses)

    def difference(self, left: Sequence[Content], right: Sequence[Content]) -> Difference:
        """Describe the difference."""
        overflowed = self.losses.overflowed
        return Difference(
            left=left[self.move.source].slot.name,
            right=right[self.move.target].slot.name,
            logical=self.move.source_box.logical,
            count=self.wrong or overflowed,
            total=volume(self.move.region),
            why=f": {overflowed} finite values, the largest {self.losses.largest:.6g}, became infinite"
            if overflowed
            else "",
        )


def _compare_all(
    files: OpenFiles,
    left: Sequence[Content],
    right: Content,
    pairs: Sequence[_Pair],
    exact: bool,
    advance: Advance,
    digest: Digest | None,
    written: Mapping[tuple[Path, int], Written],
) -> None:
    """Compare a tensor with all that it shares, block by block: every byte of it is read from memory once."""
    slot, size = right.slot, itemsize(right.slot.dtype)
    on_bytes = digest.add if digest is not None else _ignored
    copied = None if right.packed or files.is_sparse(slot.path) else _copied(left, right, pairs)
    if copied is not None:
        known = written.get((slot.path, slot.offset))
        if known is not None and digest is not None and known.copies == alternating(sorted(copy for _, copy in copied)):
            read_all(files, slot.path, slot.offset, nbytes(slot), digest.add)
            if digest.value == known.digest:
                advance(sum(copy.size for _, copy in copied))
                return
            digest.clear()  # which elements differ, the comparison below says
        if all(copy.rows == 1 for _, copy in copied):
            compared = [
                Copied(path=copy.path, here=copy.here, there=copy.there, count=copy.length, size=size)
                for _, copy in copied
            ]
            compare_copies(files, slot.path, slot.offset, nbytes(slot), compared, on_bytes, advance)
            for (pair, _), each in zip(copied, compared, strict=True):
                pair.wrong += each.wrong
            return
    for first, shape, inside in parts(right.shape, [pair.move for pair in pairs], _PIECE):
        count = math.prod(shape) * size // (2 if right.packed else 1)
        start = slot.offset + first * size // (2 if right.packed else 1)
        hole = files.is_sparse(slot.path) and is_hole(files, slot.path, start, count)
        if not hole:
            files.load(slot.path, start, count)
        for number, _, part in inside:
            mine, pair = left[part.source], pairs[number]
            if not (hole and _is_hole_too(files, mine, right, part)):
                with loaded(files, mine.slot, part):
                    pair.wrong += _differing(files, mine, right, part, None if exact else pair.losses)
            advance(volume(part.region) * itemsize(mine.slot.dtype) // (2 if mine.packed else 1))
        if hole:
            for piece in zeros(count):
                on_bytes(piece)
        else:
            on_bytes(files.view(slot.path)[start : start + count])
            files.forget(slot.path, start, count)
    for other in {pair.move.source for pair in pairs}:
        forget_slot(files, left[other].slot)


def _ignored(data: memoryview) -> None:
    """Take bytes of which no digest is wanted."""


def _copied(left: Sequence[Content], right: Content, pairs: Sequence[_Pair]) -> list[tuple[_Pair, Copy]] | None:
    """Return the plain copies that a tensor consists of, with their pairs; None if not all of it does."""
    found: list[tuple[_Pair, Copy]] = []
    for pair in pairs:
        plain = runs(pair.move, left[pair.move.source].slot, right.slot)
        if plain is None:
            return None
        found += [(pair, copy) for copy in plain]
    return found


def _is_hole_too(files: OpenFiles, mine: Content, other: Content, part: Move) -> bool:
    """Return whether a block of equal format was never written, like the block to compare it with."""
    slot = mine.slot
    if slot.dtype != other.slot.dtype or mine.packed:
        return False
    return is_hole(files, slot.path, *extent(slot, narrowed(part.source_box, part.region)))


def _differing(files: OpenFiles, mine: Content, other: Content, part: Move, losses: Losses | None) -> int:
    """Return the number of differing elements of a block."""
    if losses is None or mine.slot.dtype == other.slot.dtype:
        return _differing_cast(files, mine, other, part, losses)
    return _differing_in_either_order(files, mine, other, part, losses)


def _differing_cast(files: OpenFiles, mine: Content, other: Content, part: Move, losses: Losses | None) -> int:
    """Return the number of elements of `other` that differ from the cast of `mine`."""
    import numpy as np

    expected = values(files, mine, part, other.dtype, losses)
    present = values(files, other, _back(part), other.dtype)
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
    back = _back(part)
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


def _same_block(a: Any, b: Any) -> bool:
    """Return whether two blocks of bit patterns are equal; compares eight bytes at a time if the rows allow it."""
    import numpy as np

    size = a.itemsize
    if a.ndim and all(one.strides[-1] == size for one in (a, b)) and a.shape[-1] * size % 8 == 0:
        a, b = a.view("<u8"), b.view("<u8")
    return bool(np.array_equal(a, b))


class Digest:
    """XXH3 (128 bits) of a tensor's bytes, and its counts of NaN and infinite values.

    It tells equal tensors of two conversions, at memory speed; SHA-256 took a third of a verified conversion.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.clear()

    def clear(self) -> None:
        """Begin again, without any bytes."""
        self.nan = self.infinite = 0
        self._hash = hasher()

    def add(self, data: memoryview) -> None:
        """Add bytes, in order."""
        self._hash.update(data)
        if data.obj is not ZEROS.obj:
            nan, infinite = not_finite(data, self.dtype)
            self.nan, self.infinite = self.nan + nan, self.infinite + infinite

    @property
    def value(self) -> bytes:
        """The hash of all bytes so far."""
        return self._hash.digest()

    def __str__(self) -> str:
        return f"xxh3:{self.value.hex()}"


def hasher() -> xxhash.xxh3_128:
    """Return a new hash of no bytes."""
    import xxhash

    return xxhash.xxh3_128()


def only_nan(files: OpenFiles, content: Content) -> bool:
    """Return whether a tensor holds only NaN: the sign of a broken run."""
    slot = content.slot
    if slot.dtype not in ("F32", "BF16", "F16", "F8_E4M3") or not all(slot.shape):
        return False
    size = itemsize(slot.dtype)
    first = os.pread(files.read_fd(slot.path), size, slot.offset)
    if not may_be_nan(int.from_bytes(first, "little"), slot.dtype):
        return False  # of nearly all tensors, without numpy: importing it takes as long as copying 300 MB
    import numpy as np

    # Access through the memory map would load whole huge pages of every tensor into this process.
    sample = os.pread(files.read_fd(slot.path), min(_SAMPLE, math.prod(slot.shape)) * size, slot.offset)
    if not bool(np.isnan(decode(np.frombuffer(sample, dtype=word(size)), slot.dtype)).all()):
        return False
    flat = array(files, slot).reshape(-1)
    found = all(
        bool(np.isnan(decode(flat[start : start + _PIECE], slot.dtype)).all()) for start in range(0, flat.size, _PIECE)
    )
    forget_slot(files, slot)
    return found


def padding_is_zero(files: OpenFiles, content: Content) -> bool:
    """Return whether the padding at the end of a tensor is zero."""
    if not content.fill:
        return True
    flat = array(files, content.slot).reshape(-1)
    return not bool(flat[flat.size - content.fill :].any())
