"""Whole MindFormers parameters as slices of Hugging Face tensors, for each arrangement of its classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from backends.mindformers.checkpoint.options import check_version, is_old, truth
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Layout
from launcher.convert.layouts.core import CoreTensor, core_tensors
from launcher.convert.logical import Logical
from launcher.convert.records import TensorSlice
from launcher.convert.slices import Split, moved, rows, whole
from launcher.records import dataclass

_MODEL = "model.model_config."
# Names that differ from those of Megatron-core's local layers.
_NAMES = {"mlp.shared_experts.gate_weight": "mlp.shared_experts.shared_experts_gate.weight"}
# With mla_qkv_concat: both down projections are one matrix, and the others have shorter names
# (parallel_core/training_graph/transformer/multi_latent_attention.py, MLASelfAttentionConcatenated).
_CONCATENATED = {
    "self_attention.linear_q_up_proj.weight": "self_attention.linear_qb.weight",
    "self_attention.linear_kv_up_proj.weight": "self_attention.linear_kvb.weight",
    "self_attention.kv_layernorm.weight": "self_attention.k_layernorm.weight",
}
_DOWN = (
    "self_attention.linear_q_down_proj.weight",
    "self_attention.linear_q_proj.weight",
    "self_attention.linear_kv_down_proj.weight",
)
_QKV = "self_attention.linear_qkv.weight"
_FC1 = ("linear_fc1.weight", "linear_fc1.bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Weight layout choices that depend on version and configuration.

    Attributes:
        interleaved_mlp: rows of gate and up projection alternate (otherwise all of the gate's, then all of up's).
        contiguous_qkv: all queries, all keys, all values (otherwise sorted by query group).
        mla_concat: latent attention with one matrix for both down projections.
        wide_experts: `weight1` is declared [hidden, experts * 2 * ffn]; same bytes as [experts * hidden, 2 * ffn].
    """

    interleaved_mlp: bool = True
    contiguous_qkv: bool = False
    mla_concat: bool = False
    wide_experts: bool = False


# parallel_core/mf_model_config.py of the versions: 1.6 has no interleaving, and its attention is contiguous.
# mla_concat: MindFormers' default is true; this backend's table writes false, as do all MindFormers examples.
NEW = Arrangement()
OLD = Arrangement(interleaved_mlp=False, contiguous_qkv=True, wide_experts=True)
# Order of rows as in Megatron-core.
NEUTRAL = Arrangement(interleaved_mlp=False)
_FIELDS: Mapping[str, str] = {
    "use_interleaved_weight_layout_mlp": "interleaved_mlp",
    "use_contiguous_weight_layout_attention": "contiguous_qkv",
    "use_contiguous_weight_layout": "contiguous_qkv",
    "mla_qkv_concat": "mla_concat",
}
OPTIONS = ("version", "per_rank", "use_legacy", "qkv_concat", "use_gmm", *_FIELDS)


def arrangement_of(layout: Layout) -> Arrangement:
    """Return the arrangement set by `--set` options and the job's native arguments.

    Raises:
        ConvertError: an unknown option.
    """
    unknown = [name for name in layout.options if name not in OPTIONS]
    if unknown:
        raise ConvertError(f"--set {unknown[0]}: MindFormers' format knows {', '.join(OPTIONS)}")
    check_version(layout)
    base = OLD if is_old(layout) else NEW
    asked: dict[str, object] = {} if layout.qkv_concat is None else {"mla_qkv_concat": layout.qkv_concat}
    asked.update({name: layout.args[_MODEL + name] for name in _FIELDS if _MODEL + name in layout.args})
    asked.update({name: value for name, value in layout.options.items() if name in _FIELDS})
    changes = {_FIELDS[name]: truth(name, value) for name, value in asked.items()}
    return replace(base, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One of MindFormers' parameters.

    Attributes:
        name: full name.
        shape: shape in the coordinates of `boxes`.
        declared: shape in the file and the network; the same bytes.
        boxes: slices of Hugging Face tensors that it consists of.
        fill: number of padding elements at its end.
        split: how tensor parallelism splits it; None: not split.
        of_experts: its rows are split by expert parallelism, one or more experts per rank.
        place, layer: its position in the model (`CoreTensor`).
    """

    name: str
    shape: tuple[int, ...]
    declared: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    split: Split | None = None
    of_experts: bool = False
    place: str
    layer: int | None


def parameters(logical: Logical, arrangement: Arrangement, *, vocabulary: int | None = None) -> Iterator[Parameter]:
    """Return every parameter of the network that is in the Hugging Face checkpoint, in the model's order."""
    tensors = core_tensors(logical, naming="local", vocabulary=vocabulary)
    for _, layer in groupby(tensors, key=lambda tensor: (tensor.place, tensor.layer)):
        yield from _layer(logical, list(layer), arrangement)


def factors(logical: Logical, arrangement: Arrangement) -> Iterator[Parameter]:
    """Return every LoRA factor of an adapter's layers; the rows of B are in the order of the weight's rows."""
    for tensor in core_tensors(logical, naming="local"):
        stem, _, end = tensor.name.partition(".lora_")
        as_weight = end.startswith("B.")
        one = _plain(logical, replace(tensor, name=f"{stem}.weight"), arrangement if as_weight else NEUTRAL)
        yield replace(one, name=f"{one.name.removesuffix('.weight')}.lora_{end[0]}.weight")


def _layer(logical: Logical, tensors: list[CoreTensor], arrangement: Arrangement) -> Iterator[Parameter]:
    experts = [tensor for tensor in tensors if tensor.expert is not None]
    down = [tensor for tensor in tensors if tensor.name in _DOWN] if arrangement.mla_concat else []
    for tensor in tensors:
        if tensor.expert is not None:
            if tensor is experts[0]:
                yield from _experts(experts, arrangement)
        elif tensor in down:
            if tensor is down[0]:
                yield _concatenated(down)
        else:
            yield _plain(logical, tensor, arrangement)


def _plain(logical: Logical, tensor: CoreTensor, arrangement: Arrangement) -> Parameter:
    name, boxes = _NAMES.get(tensor.name, tensor.name), tensor.boxes
    if arrangement.mla_concat:
        name = _CONCATENATED.get(name, name)
    if name.endswith(_FC1) and arrangement.interleaved_mlp:
        boxes = interleaved(boxes)
    elif name.startswith("self_attention.linear_qkv.") and arrangement.contiguous_qkv:
        boxes = tuple(_contiguous(logical, boxes))
    split = None if tensor.split is None else Split(axis=tensor.split.axis)
    return _made(tensor, name, tensor.shape, boxes, fill=tensor.fill, split=split)


def _made(
    tensor: CoreTensor,
    name: str,
    shape: tuple[int, ...],
    boxes: tuple[TensorSlice, ...],
    *,
    declared: tuple[int, ...] | None = None,
    fill: int = 0,
    split: Split | None = None,
    of_experts: bool = False,
) -> Parameter:
    return Parameter(
        name=tensor.prefix.format(layer=tensor.layer) + name,
        shape=shape,
        declared=declared or shape,
        boxes=boxes,
        fill=fill,
        split=split,
        of_experts=of_experts,
        place=tensor.place,
        layer=tensor.layer,
    )


def interleaved(boxes: tuple[TensorSlice, ...]) -> tuple[TensorSlice, ...]:
    """Interleave the rows of gate and up projection (mlp.py, MLPInterleaved: reshape to [ffn, 2])."""
    found = []
    for part, box in enumerate(boxes):
        shape = tuple(count for _, count in box.logical_at)
        found.append(rows(box.logical, shape, 0, shape[0], stored_first=part, step=len(boxes)))
    return tuple(found)


def _contiguous(logical: Logical, boxes: Iterable[TensorSlice]) -> Iterator[TensorSlice]:
    at = 0
    for name in dict.fromkeys(box.logical for box in boxes):
        shape = logical.tensors[name]
        yield rows(name, shape, 0, shape[0], stored_first=at)
        at += shape[0]


def _concatenated(down: list[CoreTensor]) -> Parameter:
    """Concatenate the query's down projection (or whole query) and that of keys and values with the rotary part."""
    boxes: list[TensorSlice] = []
    at = 0
    for tensor in sorted(down, key=lambda tensor: _DOWN.index(tensor.name)):
        boxes.extend(moved(box, 0, at) for box in tensor.boxes)
        at += tensor.shape[0]
    return _made(down[0], _QKV, (at, *down[0].shape[1:]), tuple(boxes))


def _experts(experts: list[CoreTensor], arrangement: Arrangement) -> Iterator[Parameter]:
    """Return all experts in one matrix, each transposed (moe/ffn.py, FFNGroupedGEMM); not interleaved."""
    for layer, weight in (("linear_fc1", "weight1"), ("linear_fc2", "weight2")):
        held = [tensor for tensor in experts if tensor.name.endswith(f"{layer}.weight")]
        width, height = held[0].shape
        boxes = tuple(
            moved(moved(whole(box.logical, sizes, transposed=True), 0, number * height), 1, part * sizes[0])
            for number, tensor in enumerate(held)
            for part, box in enumerate(tensor.boxes)
            for sizes in (tuple(count for _, count in box.logical_at),)
        )
        shape = (len(held) * height, width)
        declared = (height, len(held) * width) if arrangement.wide_experts and weight == "weight1" else shape
        yield _made(held[0], f"mlp.experts.{weight}", shape, boxes, declared=declared, of_experts=True)
