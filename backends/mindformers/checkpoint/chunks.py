"""Parts of MindFormers' parameters, as files hold them: whole ones, or one rank's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from backends.mindformers.checkpoint.tensors import Parameter
from launcher.convert.records import TensorSlice
from launcher.convert.slices import cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a parameter.

    Attributes:
        name: the parameter.
        whole: its shape.
        at, shape: where the part begins in it, and its own shape.
        declared: shape in the file's header; the same bytes.
        boxes, fill: what it holds.
        rank: whose file it is in; None: any.
        pieces: parts of the parameter along each dimension.
        ranks: all ranks of its pipeline stage, over which the parts are spread (and repeated).
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
        """Its name, told apart from the other parts of the parameter."""
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
    """Return the part of a parameter that begins at `at`; `declared`: its shape in the file, where that is another."""
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
    """Elements of a part of a padded vocabulary that are padding: its rows are the first dimension."""
    if not parameter.fill:
        return 0
    rows = parameter.shape[0] - parameter.fill // parameter.shape[1]
    return max(0, at[0] + shape[0] - max(at[0], rows)) * shape[1]
