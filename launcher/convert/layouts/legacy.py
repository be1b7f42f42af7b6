"""Megatron's legacy format as a layout: one file per rank, with the tensors of the rank's modules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Literal

from launcher.convert.containers.errors import ConvertError
from launcher.convert.layouts.core import CoreTensor, Naming, Respell, as_it_is, core_tensors
from launcher.convert.layouts.offers import Undivided, divisors, problem
from launcher.convert.layouts.stages import Chunk
from launcher.convert.logical import Logical
from launcher.convert.records import TensorSlice
from launcher.convert.slices import shard, stacked, volume
from launcher.records import dataclass, record

# How the experts of a rank are stored:
#   sequential  one module each: mlp.experts.local_experts.0.linear_fc1.weight
#   grouped     Transformer Engine's grouped linear layers: mlp.experts.linear_fc1.weight0
#   fused       megatron-core's GroupedMLP: mlp.experts.weight1, the transposed weights of all experts concatenated,
#               with shape [hidden, all columns] (moe/experts.py 0.16.1: weight1.view(experts, hidden, -1))
Experts = Literal["sequential", "grouped", "fused"]
_FUSED = {"linear_fc1": "weight1", "linear_fc2": "weight2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamingScheme:
    """How a training stack names and merges the tensors of its modules.

    Attributes:
        naming: layer implementation.
        experts: how experts are stored.
        respell: maps megatron-core's tensors to this stack's: renamed, merged, split.
        prefixes: name prefixes of places that differ from megatron-core's or do not exist there.
        norm_with_head: the final norm is stored with the output layer even if MTP layers follow the decoder.
    """

    naming: Naming
    experts: Experts
    respell: Respell = as_it_is
    prefixes: Mapping[str, str] = field(default_factory=dict)
    norm_with_head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The ranks of one pipeline stage that write a file each.

    `over_tp`: experts are not split, and are distributed over tp x ep ranks.
    """

    tp: int = 1
    ep: int = 1
    etp: int = 1
    over_tp: bool = False

    def ranks(self) -> list[tuple[int, int]]:
        """Return (tensor rank, expert rank) of each file.

        Raises:
            Undivided: two ranks with different experts would write the same file.
        """
        if self.over_tp:
            return [(tp, ep) for ep in range(self.ep) for tp in range(self.tp)]
        return sorted(_expert_tensor_ranks(self), key=lambda key: (key[1], key[0]))

    def experts(self, tp: int, ep: int, count: int) -> tuple[range, int, int]:
        """Return (experts of a rank, its expert tensor rank, the expert tensor size).

        Raises:
            Undivided: the experts cannot be divided evenly.
        """
        groups = self.ep * self.tp if self.over_tp else self.ep
        if count % groups:
            unit = self.tp if self.over_tp else 1
            sizes = [size // unit for size in divisors(count) if size % unit == 0]
            text = f"{count} experts cannot be shared equally by {groups} ranks"
            by_tp = problem(text, "tp", self.tp, divisors(count))
            raise Undivided(problem(text, "ep", self.ep, sizes) if sizes else by_tp)
        own = count // groups
        index = ep * self.tp + tp if self.over_tp else ep
        held = range(index * own, (index + 1) * own)
        return (held, 0, 1) if self.over_tp else (held, _expert_tensor_ranks(self)[tp, ep], self.etp)


@cache
def _expert_tensor_ranks(grid: Grid) -> dict[tuple[int, int], int]:
    """Return the expert tensor rank of each (tensor rank, expert rank).

    megatron-core numbers ranks by tensor (expert tensor) rank first, then by expert rank: parallel_state.py.

    Raises:
        Undivided: two ranks with different experts would write the same file.
    """
    tp, ep, etp = grid.tp, grid.ep, grid.etp
    found: dict[tuple[int, int], int] = {}
    for rank in range(math.lcm(tp, etp * ep)):
        key = (rank % tp, rank // etp % ep)
        if found.setdefault(key, rank % etp) != rank % etp:
            text = f"tp {tp}, ep {ep}, etp {etp}: ranks with different parts of an expert would write the same file"
            raise Undivided(problem(text, "etp", etp, divisors(tp)))
    return found


@record()
class RankTensor:
    """A tensor of one rank's file.

    Attributes:
        tp, stage, ep: which file; virtual: which model chunk in it.
        name: its key.
        shape: stored shape; `view` is the shape of the same bytes that `boxes` refer to.
        boxes: slices of logical tensors that it holds.
        fill: padding elements at its end.
    """

    tp: int
    stage: int
    ep: int
    virtual: int
    name: str
    shape: tuple[int, ...]
    view: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A tensor not yet assigned to a rank: shape, view, slices, fill."""

    name: str
    shape: tuple[int, ...]
    view: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int = 0


def check_experts(logical: Logical, scheme: NamingScheme) -> None:
    """Reject biases of experts that are stored as one matrix.

    Raises:
        ConvertError: the experts have some (megatron-core 0.16.1 transformer/moe/experts.py:83).
    """
    if scheme.experts != "fused":
        return
    experts = (instance for instance in logical.instances if instance.row.of_expert)
    if any(len(shape) == 1 for each in experts for shape in each.shapes):
        works = "moe.grouped_gemm=false · --layers transformer_engine"
        raise ConvertError(f"megatron-core's GroupedMLP has no biases, and this model's experts have; works: {works}")


def legacy_tensors(
    logical: Logical, chunks: Sequence[Chunk], grid: Grid, scheme: NamingScheme, *, vocabulary: int | None
) -> Iterator[RankTensor]:
    """Yield every tensor of every file.

    Args:
        logical: the model.
        chunks: the pipeline chunks with their layers.
        grid: the ranks of a stage.
        scheme: how the stack names and stores tensors.
        vocabulary: rows of the embedding and the output layer; None for no padding.

    Raises:
        Undivided: a tensor or the experts cannot be divided evenly.
    """
    spelled = list(scheme.respell(logical, core_tensors(logical, naming=scheme.naming, vocabulary=vocabulary)))
    model = _Model(logical, spelled, grid, scheme)
    ranks = grid.ranks()
    for chunk in chunks:
        held = model.held(chunk)
        for tp, ep in ranks:
            for part in model.parts(held, tp, ep):
                yield RankTensor(
                    tp=tp,
                    stage=chunk.stage,
                    ep=ep,
                    virtual=chunk.virtual,
                    name=part.name,
                    shape=part.shape,
                    view=part.view,
                    boxes=part.boxes,
                    fill=part.fill,
                )


# An unsharded tensor with its name in the chunk; one per expert for expert weights.
_Held = tuple[str, tuple[CoreTensor, ...]]


class _Model:
    """All tensors of a model, indexed by place and layer, and sharded for ranks."""

    def __init__(self, logical: Logical, tensors: Sequence[CoreTensor], grid: Grid, scheme: NamingScheme) -> None:
        self.grid, self.scheme, self.logical = grid, scheme, logical
        self.places: dict[tuple[str, int | None], dict[str, list[CoreTensor]]] = {}
        for tensor in tensors:
            names = self.places.setdefault((tensor.place, tensor.layer), {})
            names.setdefault(tensor.name, []).append(tensor)
        self.cache: dict[tuple[str, int], _Part] = {}

    def held(self, chunk: Chunk) -> list[_Held]:
        """Return the tensors of a chunk with their names."""
        self.cache.clear()
        found: list[_Held] = []
        tied = bool(self.logical.model.tie_word_embeddings)
        if chunk.first or chunk.mtp:
            found += self._at("embedding", None, None)
        for local, layer in chunk.layers:
            found += self._at("decoder", layer, local)
        if chunk.mtp:
            for place, number in self.places:
                if place.startswith("mtp"):
                    found += self._at(place, number, number)
        for name, tensors in self._at("final", None, None):
            if chunk.head if name == "output_layer.weight" else chunk.norm:
                found.append((name, tensors))
        if tied and chunk.head and not chunk.first:
            found += [("output_layer.weight", tensors) for _, tensors in self._at("embedding", None, None)]
        return found

    def _at(self, place: str, layer: int | None, local: int | None) -> list[_Held]:
        found = []
        for name, tensors in self.places.get((place, layer), {}).items():
            prefix = self.scheme.prefixes.get(place)
            prefix = tensors[0].prefix if prefix is None else prefix
            found.append((prefix.format(layer=local) + name, tuple(tensors)))
        return found

    def parts(self, held: Sequence[_Held], tp: int, ep: int) -> Iterator[_Part]:
        """Yield the tensors of a chunk in one rank's file."""
        for name, tensors in held:
            if tensors[0].expert is not None:
                yield from self._experts(name, tensors, tp, ep)
                continue
            part = self.cache.get((name, tp))
            if part is None:
                part = self.cache[name, tp] = _cut(name, tensors[0], tp, self.grid.tp, "tp")
            yield part

    def _experts(self, name: str, tensors: tuple[CoreTensor, ...], tp: int, ep: int) -> Iterator[_Part]:
        own, rank, size = self.grid.experts(tp, ep, len(tensors))
        if self.scheme.experts == "fused":
            yield _fused(name, [_cut(name, tensors[number], rank, size, "etp") for number in own])
            return
        for local, number in enumerate(own):
            yield _cut(_expert_name(name, local, self.scheme.experts), tensors[number], rank, size, "etp")


def _expert_name(name: str, local: int, style: Experts) -> str:
    if style == "sequential":
        return name.replace("{expert}", f"local_experts.{local}")
    return f"{name.replace('.{expert}', '')}{local}"


def _cut(name: str, tensor: CoreTensor, rank: int, size: int, field: Literal["tp", "etp"]) -> _Part:
    """Return a rank's part of a tensor; `size` is the layout's `field`."""
    if tensor.split is None:
        return _Part(name=name, shape=tensor.shape, view=tensor.shape, boxes=tensor.boxes, fill=tensor.fill)
    try:
        boxes, shape = shard(tensor.boxes, tensor.shape, tensor.split, rank, size)
    except ValueError as error:
        text = f"{tensor.prefix.format(layer=tensor.layer)}{tensor.name.format(expert=tensor.expert)}: {error}"
        whole = tensor.shape[tensor.split.axis] // tensor.split.parts
        raise Undivided(problem(text, field, size, divisors(whole))) from None
    fill = math.prod(shape) - sum(volume(box.logical_at) for box in boxes) if tensor.fill else 0
    return _Part(name=name, shape=shape, view=shape, boxes=boxes, fill=fill)


def _fused(name: str, parts: Sequence[_Part]) -> _Part:
    """Return all experts of a rank as one tensor, transposed and concatenated; also for their LoRA factors."""
    rows, columns = parts[0].view
    prefix, _, module = name.removesuffix(".weight").rpartition(".{expert}.")
    module, _, factor = module.partition(".lora_")
    end = f"_lora_{factor[0].lower()}" if factor else ""
    count = len(parts)
    boxes = tuple(
        stacked(
            TensorSlice(
                logical=box.logical,
                logical_at=box.logical_at,
                stored_at=(box.stored_at[1], box.stored_at[0]),
                transposed=True,
            ),
            index,
        )
        for index, part in enumerate(parts)
        for box in part.boxes
    )
    shape = (columns, count * rows) if module == "linear_fc1" else (count * columns, rows)
    return _Part(name=f"{prefix}.{_FUSED[module]}{end}", shape=shape, view=(count, columns, rows), boxes=boxes)
