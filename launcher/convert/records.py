"""Basic record of a conversion: what stored bytes hold (`TensorSlice`).

Every format describes two things: which tensors it stores at which byte of which file (`Slot`, in
`containers.records`), and which block of which logical tensor each block of them holds (`TensorSlice`). Logical tensors
are the model's Hugging Face tensors, one per expert. A conversion from any format to any other is then the intersection
of two lists of slices: bytes are copied, nothing is computed, and the reverse conversion is the same intersection with
source and target swapped.
"""

from __future__ import annotations

from launcher.records import record


@record()
class StridedRange:
    """Indices along one dimension of a stored tensor: `count` of them from `start`, `step` apart."""

    start: int
    count: int
    step: int = 1


@record()
class TensorSlice:
    """A block of a stored tensor that is a block of a logical tensor.

    `logical_at` holds one (start, count) per dimension of the logical tensor and `stored_at` one `StridedRange` per
    dimension of the stored one. If the stored tensor has more dimensions (experts stacked in one tensor), the extra
    leading ranges have a count of one. `transposed` swaps the last two dimensions of the stored block.
    """

    logical: str
    logical_at: tuple[tuple[int, int], ...]
    stored_at: tuple[StridedRange, ...]
    transposed: bool = False
