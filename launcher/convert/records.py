"""The vocabulary of a conversion: where bytes lie (slots) and what they mean (boxes).

Every format says the same two things about itself: which tensors it stores and at which byte of which file (`Slot`),
and which block of which logical tensor each block of them is (`TensorSlice`). Logical tensors are the model's Hugging
Face tensors, one per expert. A conversion from any format to any other is then the intersection of two lists of slices:
nothing is computed, bytes move, and the inverse of a conversion is the same intersection read the other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One stored tensor, row-major and contiguous.

    `dtype` is the name that safetensors gives it (BF16, F32, F8_E4M3 …); `offset` is in bytes from the file's start.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    path: Path
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedRange:
    """Indices along one dimension of a stored tensor: `count` of them from `start`, `step` apart."""

    start: int
    count: int
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlice:
    """A block of a stored tensor that is a block of a logical tensor.

    `logical_at` holds one (start, count) per dimension of the logical tensor and `stored_at` one run per dimension of
    the stored one. Where the stored tensor has more dimensions (experts stacked in one tensor), the extra leading runs
    have a count of one. `transposed` swaps the last two dimensions of the stored block.
    """

    logical: str
    logical_at: tuple[tuple[int, int], ...]
    stored_at: tuple[StridedRange, ...]
    transposed: bool = False
