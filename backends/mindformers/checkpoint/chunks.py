"""Parts of MindFormers' parameters as stored in files: whole, or those of one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backends.mindformers.checkpoint.tensors import Parameter
from launcher.convert.records import TensorSlice
from launcher.convert.slices import cut
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a parameter.

    Attributes:
        name: the parameter.
        whole: shape of the parameter.
        at, shape: offset of the part in the parameter, and its shape.
        declared: shape in the file's header; the same bytes.
        boxes, fill: slices in the part, and its padding elements.
        rank: rank whose file holds the part; None: any.
        pieces: number of parts of the parameter along each dimension.
        ranks: all ranks of its pipeline stage, which hold the parts (and their replicas).
    """

    name: str
    whole: tuple[int, ...]
    at: tuple[int, ...]
    shape: tuple[int, ...]
    declared: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    rank: int | None = None
    pieces: tuple[int, ...] = ()
    ranks: tuple[int, ...] = (0,)

    @property
    def label(self) -> str:
        """Unique name of the part: the parameter's, with the offset if it is not whole."""
        return self.name if self.shape == self.whole else f"{self.name}@{','.join(map(str, self.at))}"


def whole_chunks(parameters: Iterable[Parameter]) -> Iterator[Chunk]:
    """Return every parameter as one chunk."""
    for parameter in parameters:
        yield Chunk(
            name=parameter.name,
            whole=parameter.shape,
            at=tuple(0 for _ in parameter.shape),
            shape=parameter.shape,
            declared=parameter.declared,
            boxes=parameter.boxes,
            fill=parameter.fill,
            pieces=tuple(1 for _ in parameter.shape),
        )


def part(
    parameter: Parameter,
    at: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    rank: int | None = None,
    ranks: tuple[int, ...] = (0,),
    declared: tuple[int, ...] | None = None,
) -> Chunk:
    """Return the part of a parameter at offset `at`; `declared`: its shape in the file, if different."""
    boxes = tuple(inside for box in parameter.boxes if (inside := cut(box, at, shape)) is not None)
    return Chunk(
        name=parameter.name,
        whole=parameter.shape,
        at=at,
        shape=shape,
        declared=declared or shape,
        boxes=boxes,
        fill=_padding(parameter, at, shape),
        rank=rank,
        ranks=ranks,
        pieces=tuple(-(-all_of // own) for all_of, own in zip(parameter.shape, shape, strict=True)),
    )


def _padding(parameter: Parameter, at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the number of padding elements in a part of a padded vocabulary (rows are the first dimension)."""
    if not parameter.fill:
        return 0
    rows = parameter.shape[0] - parameter.fill // parameter.shape[1]
    return max(0, at[0] + shape[0] - max(at[0], rows)) * shape[1]
