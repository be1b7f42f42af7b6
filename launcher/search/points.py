"""Values that a point sets in the job: parallel sizes, stage splits, recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launcher.balance.encode import encodings
from launcher.balance.from_job import RECOMPUTED, UNEVEN
from launcher.balance.local import even
from launcher.balance.parts import MODULES
from launcher.balance.problem import Kind, Mode, Problem
from launcher.job import Job, Value, value_at
from launcher.job.recompute import SELECTIVE_MODULES
from launcher.search.space import FIELDS, axes_of
from launcher.search.switches import SWITCHES, paths_of

SWITCHED = paths_of([switch.axis for switch in SWITCHES])
"""Fields of all switches."""
PARTLY = (
    *("recompute.modules", "recompute.activation", "recompute.norm"),
    *("recompute.layers_per_chunk", "recompute.selective_layers_per_chunk"),
)
"""Fields that tell which parts of which layers are recomputed, beside the number of layers of every chunk."""


def stage_splits(job: Job, pp: int, vpp: int, *, uneven: bool) -> Iterator[dict[str, Value]]:
    """Yield the splits of the layers over these stages and chunks: as the job sets them, else even, else nearly even.

    Args:
        uneven: try nearly even splits; otherwise only the job's split.
    """
    given = {path: value_at(job, path) for path in UNEVEN}
    if not uneven or (pp == job.parallel.pp and vpp == (job.parallel.vpp or 1)):
        yield given
    if not uneven:
        return
    layers, parts = job.model.num_hidden_layers or 0, pp * vpp
    if layers >= parts:
        yield from written(job, nearly_even(layers, pp, vpp), pp)


def written(job: Job, counts: tuple[int, ...], pp: int) -> Iterator[dict[str, Value]]:
    """Yield the encodings of layers per chunk, the simplest first."""
    for _, values in encodings(job, counts, pp):
        yield {**UNEVEN, **values}
        if not values:
            return


def nearly_even(layers: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Return layers per chunk, as even as possible."""
    return tuple(even(_shape(pp, vpp, layers)))


def _shape(stages: int, chunks: int, layers: int) -> Problem:
    kind = Kind(name="all", count=layers, forward=1, memory=0, modes=(Mode(name="none", backward=0, keeps=0),))
    return Problem(stages=stages, chunks=chunks, micro_batches=stages, kinds=(kind,), limits=(0.0,) * stages)


def kept(job: Job) -> dict[str, Value]:
    """Return the job's recomputation."""
    return {path: value_at(job, path) for path in RECOMPUTED}


def own(job: Job) -> dict[str, Value]:
    """Return the point that a job is itself, spelled as a search spells it."""
    paths = (*FIELDS.values(), *UNEVEN, *paths_of(axes_of(job)))
    point = {path: value_at(job, path) for path in paths} | kept(job)
    if point["parallel.tp"] == 1:
        point["parallel.sequence_parallel"] = False
    if point["parallel.vpp"] == 1:
        point["parallel.vpp"] = None
    return point


def nothing_recomputed() -> dict[str, Value]:
    """Return the values for no recomputation."""
    return dict(RECOMPUTED)


def in_part(part: Mapping[str, Value]) -> dict[str, Value]:
    """Return recomputation of parts of every layer; modules that `selective` means without a list are not listed."""
    plain = {MODULES: ()} if part.get(MODULES) == SELECTIVE_MODULES else {}
    return {**RECOMPUTED, **part, **plain}


def in_block(layers: int) -> dict[str, Value]:
    """Return full recomputation of the first layers of every chunk."""
    return _in_full("block", layers)


def everything() -> dict[str, Value]:
    """Return full recomputation of all layers."""
    return _in_full("uniform", 1)


def _in_full(method: str, layers: int) -> dict[str, Value]:
    values = {"recompute.granularity": "full", "recompute.method": method, "recompute.num_layers": layers}
    return {**RECOMPUTED, **values}


def layout_of(point: Mapping[str, Value]) -> tuple[Value, ...]:
    """Return the key of a point's layout: all values but stages, recomputation and switches."""
    own = {*UNEVEN, *RECOMPUTED, *SWITCHED}
    return tuple(point[path] for path in sorted(point) if path not in own)


def changed(job: Job, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values that differ from the job's."""
    return {path: value for path, value in values.items() if value_at(job, path) != value}
