"""Position of one factor or weight: a whole stored tensor or a block of one."""

from __future__ import annotations

from typing import Any

from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.records import TensorSlice
from launcher.convert.slices import whole
from launcher.convert.spans import array, block
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A block of a stored tensor that is one factor or one weight."""

    slot: Slot
    box: TensorSlice

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block, in logical dimensions."""
        return tuple(count for _, count in self.box.logical_at)


def held_whole(name: str, slot: Slot) -> Held:
    """Return a whole stored tensor as one factor."""
    return Held(slot=slot, box=whole(name, slot.shape))


def factor_words(files: OpenFiles, held: Held) -> Any:
    """Return a factor as a memory-mapped array of bit patterns."""
    return block(array(files, held.slot), held.box, held.box.stored_at)
