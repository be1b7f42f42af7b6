"""What every layout produces and every plan consumes: stored tensors with their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.convert.records import Slot, TensorSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A stored tensor and what it holds.

    Attributes:
        slot: where it lies.
        boxes: the blocks that logical tensors fill; disjoint.
        fill: elements that no logical tensor has (padding of the vocabulary, zeros).
        scale: slot of the blockwise scales of a quantised tensor (float32, one for each 128 x 128 block); None: plain.
    """

    slot: Slot
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    scale: Slot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A checkpoint: its tensors with their meaning, and what in it has no meaning for a conversion.

    Attributes:
        contents: stored tensors.
        dropped: name of a stored tensor to the reason for which it is not converted.
        notes: sentences for the report (what was assumed about the checkpoint).
    """

    contents: tuple[Content, ...]
    dropped: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A tensor that is to be stored, before it has a place: like `Content` without a slot.

    `scale`: name of the tensor that takes its blockwise scales, if it is to be quantised; that one has no boxes.
    """

    name: str
    shape: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    scale: str | None = None
