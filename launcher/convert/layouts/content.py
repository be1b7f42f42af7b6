"""Stored tensors and the logical tensors they hold: output of layouts, input of plans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from launcher.convert.containers.dtypes import MXFP4
from launcher.convert.containers.records import Slot
from launcher.convert.records import TensorSlice
from launcher.records import dataclass, record


@record()
class Content:
    """A stored tensor and its content.

    Attributes:
        slot: its position in a file.
        boxes: slices of logical tensors that it holds; disjoint.
        fill: elements outside of any logical tensor (padding of the vocabulary, zeros).
        scale: slot of a quantised tensor's blockwise scales (FP8: float32, one for each 128 x 128 block; MXFP4: a
            power of two for each 32 values), or None.
    """

    slot: Slot
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    scale: Slot | None = None

    @property
    def packed(self) -> bool:
        """Whether the slot's bytes are pairs of 4-bit values; slices count values."""
        return self.slot.dtype == MXFP4

    @property
    def dtype(self) -> str:
        """Number format of its values, once they are read: bf16 for MXFP4."""
        return "BF16" if self.packed else self.slot.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its values, which its slices refer to; MXFP4 stores the last dimension as blocks of bytes."""
        if not self.packed:
            return self.slot.shape
        *rest, blocks, size = self.slot.shape
        return (*rest, blocks * size * 2)

    @property
    def elements(self) -> int:
        """Number of its values."""
        return math.prod(self.slot.shape) * (2 if self.packed else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A checkpoint: its tensors with their content, and the tensors that are not converted.

    Attributes:
        contents: stored tensors.
        dropped: name of a stored tensor to the reason why it is not converted.
        notes: sentences for the report (what was assumed about the checkpoint).
    """

    contents: tuple[Content, ...]
    dropped: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@record()
class Wanted:
    """A tensor to store, before it is allocated: like `Content` without a slot.

    `scale`: name of the tensor for its blockwise scales, if it is to be quantised; that tensor has no slices.
    """

    name: str
    shape: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    scale: str | None = None
