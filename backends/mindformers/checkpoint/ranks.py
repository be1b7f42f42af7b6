"""Assigns parts of parameters to the files of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backends.mindformers.checkpoint.chunks import Chunk, part
from backends.mindformers.checkpoint.tensors import Parameter
from launcher.convert.formats.format import Layout
from launcher.convert.layouts.offers import Undivided, divisors, problem
from launcher.convert.layouts.stages import Stages, place_layers
from launcher.convert.logical import Logical


def rank_chunks(logical: Logical, parameters: Iterable[Parameter], layout: Layout) -> Iterator[Chunk]:
    """Return each part once, for the file of the first rank that holds it, as `remove_redundancy` does.

    Raises:
        Undivided: the layers, the experts or a size are not divisible.
    """
    width = max(layout.tp, layout.ep)
    stage = stages_of(logical, layout)
    for parameter in parameters:
        pieces, axis = (layout.ep, 0) if parameter.of_experts else (layout.tp, 0)
        if parameter.split is not None:
            axis = parameter.split.axis
        elif not parameter.of_experts:
            pieces = 1
        length = parameter.shape[axis]
        experts = logical.model.num_experts or 1
        if length % pieces or (parameter.of_experts and experts % pieces):
            text = f"{parameter.name} {list(parameter.shape)} cannot be divided by {pieces}"
            sizes = divisors(length, experts) if parameter.of_experts else divisors(length)
            raise Undivided(problem(text, "ep" if parameter.of_experts else "tp", pieces, sizes))
        own = length // pieces
        shape = tuple(own if dim == axis else size for dim, size in enumerate(parameter.shape))
        first = stage[parameter.place, parameter.layer] * width
        for piece in range(pieces):
            at = tuple(piece * own if dim == axis else 0 for dim in range(len(shape)))
            yield part(parameter, at, shape, rank=first + piece, ranks=tuple(range(first, first + width)))


def stages_of(logical: Logical, layout: Layout) -> dict[tuple[str, int | None], int]:
    """Return the pipeline stage of each place of the model.

    Raises:
        Undivided: the layers are not divisible, or a stage has no parameters (no-op layers alone).
    """
    model = logical.model
    stages = Stages(
        pp=layout.pp,
        vpp=layout.vpp or 1,
        first=layout.first_stage_layers,
        last=layout.last_stage_layers,
        layout=layout.layout,
        noop=layout.noop_layers,
    )
    mtp = model.num_nextn_predict_layers
    found: dict[tuple[str, int | None], int] = {("embedding", None): 0, ("final", None): layout.pp - 1}
    for chunk in place_layers(stages, model.num_hidden_layers or 0, mtp):
        found.update({("decoder", number): chunk.stage for _, number in chunk.layers})
    for index in range(mtp):
        found["mtp", index] = found["mtp_layer", index] = layout.pp - 1
    empty = next((number for number in range(layout.pp) if number not in found.values()), None)
    if empty is not None:
        text = f"pipeline stage {empty} would hold no parameters"
        raise Undivided(problem(text, "pp", layout.pp, range(1, (model.num_hidden_layers or 1) + 1)))
    return found
