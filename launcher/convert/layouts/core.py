"""Unsharded Megatron-core tensors as slices of Hugging Face tensors: the basis of all Megatron formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from launcher.convert.layouts.offers import Problem, divisors, problem
from launcher.convert.logical import Instance, Logical
from launcher.convert.records import TensorSlice
from launcher.convert.slices import Split, rows, whole
from launcher.families.weights import Kind
from launcher.job.model import Model
from launcher.records import dataclass

Naming = Literal["transformer_engine", "local"]

_SPLITS: dict[Kind, Split | None] = {
    "replicated": None,
    "column": Split(axis=0),
    "vocabulary": Split(axis=0),
    "qkv": Split(axis=0),
    "gate_up": Split(axis=0, parts=2),
    "key_heads": Split(axis=0),
    "row": Split(axis=1),
}
# Name prefix of each place.
_PREFIX = {
    "embedding": "",
    "decoder": "decoder.layers.{layer}.",
    "mtp": "mtp.layers.{layer}.",
    "mtp_layer": "mtp.layers.{layer}.transformer_layer.",
    "final": "",
    "other": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTensor:
    """One unsharded Megatron-core tensor of one layer and expert.

    Attributes:
        name: inside its place, such as `self_attention.linear_qkv.weight` or `mlp.experts.{expert}.linear_fc1.weight`
            (the format replaces `{expert}`).
        place: `embedding`, `decoder`, `mtp`, `mtp_layer`, `final` or `other`.
        layer: number of the decoder layer or of the MTP layer; None outside of layers.
        expert: number of the expert, or None.
        shape: shape including padding.
        split: how tensor (for experts: expert tensor) parallelism splits it; None if replicated.
        boxes: slices of logical tensors that it consists of.
        fill: padding elements at its end.
        dtype: its number format; None: that of the logical tensors.
    """

    name: str
    place: str
    layer: int | None
    expert: int | None
    shape: tuple[int, ...]
    split: Split | None
    boxes: tuple[TensorSlice, ...]
    fill: int = 0
    dtype: str | None = None

    @property
    def prefix(self) -> str:
        """Prefix of its full name, with a `{layer}` placeholder."""
        return _PREFIX[self.place]


Respell = Callable[[Logical, Iterable[CoreTensor]], Iterable[CoreTensor]]
"""Maps Megatron-core's tensors to those of a training stack: renamed, merged, split, reordered."""


def as_it_is(_logical: Logical, tensors: Iterable[CoreTensor]) -> Iterable[CoreTensor]:
    """Return the tensors unchanged, with megatron-core's names."""
    return tensors


def padded_vocabulary(model: Model, *, multiple: int = 1, tp: int = 1) -> int:
    """Return the vocabulary as Megatron-LM pads it: up to a multiple of `multiple` * `tp`."""
    step = multiple * tp
    return -(-(model.vocab_size or 0) // step) * step


def undivided(model: Model, vocabulary: int, tp: int) -> Iterator[Problem]:
    """Yield why tp cannot divide the model, even if its bytes divide (transformer_config.py:924-944 @core_v0.16.1)."""
    heads = model.num_attention_heads or 0
    groups = model.num_key_value_heads or heads
    sizes = [size for size in divisors(heads) if not (groups % size and size % groups)] if heads else []
    texts = []
    if vocabulary % tp:
        texts.append(f"a vocabulary of {vocabulary} cannot be shared equally by tp {tp}")
    if heads % tp:
        texts.append(f"{heads} attention heads cannot be shared equally by tp {tp}")
    elif groups % tp and tp % groups:
        texts.append(
            f"{groups} groups of keys and values cannot be shared by tp {tp}: neither is a multiple of the other"
        )
    yield from (problem(text, "tp", tp, sizes) for text in texts)


def core_tensors(
    logical: Logical, *, naming: Naming = "transformer_engine", vocabulary: int | None = None
) -> Iterator[CoreTensor]:
    """Yield every unsharded Megatron-core tensor of a model, in the model's order.

    Args:
        logical: the model.
        naming: layer implementation: Transformer Engine's (fused norms) or megatron-core's local one.
        vocabulary: rows of the embedding and the output layer; None for no padding.
    """
    for instance in logical.instances:
        yield _core_tensor(logical.model, instance, naming, vocabulary)


def _core_tensor(model: Model, instance: Instance, naming: Naming, vocabulary: int | None) -> CoreTensor:
    row = instance.row
    local = naming == "local"
    kind = row.local_kind if local and row.local_kind else row.kind
    shape, boxes = _blocks(model, instance)
    fill = 0
    if row.kind == "vocabulary" and vocabulary is not None:
        fill = (vocabulary - shape[0]) * math.prod(shape[1:])
        shape = (vocabulary, *shape[1:])
    return CoreTensor(
        name=row.local if local and row.local else row.core,
        place=instance.place,
        layer=instance.layer,
        expert=instance.expert,
        shape=shape,
        split=_SPLITS[kind],
        boxes=boxes,
        fill=fill,
        dtype=row.integer[1] if row.integer is not None else None,
    )


def _blocks(model: Model, instance: Instance) -> tuple[tuple[int, ...], tuple[TensorSlice, ...]]:
    if instance.row.kind == "qkv":
        return _by_query_group(model, instance)
    if instance.row.kind == "key_heads":
        return _by_key_head(model, instance)
    if instance.row.kind == "gate_up" and len(instance.logical) > 1:
        (gate, up), shape = instance.logical, instance.shapes[0]
        boxes = (
            rows(gate, shape, 0, shape[0], stored_first=0),
            rows(up, shape, 0, shape[0], stored_first=shape[0]),
        )
        return (2 * shape[0], *shape[1:]), boxes
    (name,), (shape,) = instance.logical, instance.shapes
    if instance.row.part is not None:
        first, count = instance.row.part
        return (count, *shape[1:]), (rows(name, shape, first, count, stored_first=0),)
    return shape, (whole(name, shape),)


def _by_query_group(model: Model, instance: Instance) -> tuple[tuple[int, ...], tuple[TensorSlice, ...]]:
    """Order QKV rows by query group: its queries, its key, its value (megatron-core attention.py, mixed_qkv)."""
    fused = len(instance.logical) == 1
    query, key, value = instance.logical * 3 if fused else instance.logical
    shapes = instance.shapes * 3 if fused else instance.shapes
    head = model.head_size or 0
    groups = (model.num_key_value_heads or model.num_attention_heads or 0) if fused else shapes[1][0] // head
    # With a gate of the attention's output, queries have twice as many rows as heads.
    queries = (model.num_attention_heads or 0) * head // groups if fused else shapes[0][0] // groups
    # First rows of all keys and of all values in a tensor that has all three.
    keys, values = (groups * queries, groups * (queries + head)) if fused else (0, 0)
    boxes = []
    for group in range(groups):
        at = group * (queries + 2 * head)
        boxes.append(rows(query, shapes[0], group * queries, queries, stored_first=at))
        boxes.append(rows(key, shapes[1], keys + group * head, head, stored_first=at + queries))
        boxes.append(rows(value, shapes[2], values + group * head, head, stored_first=at + queries + head))
    return (groups * (queries + 2 * head), *shapes[0][1:]), tuple(boxes)


def _by_key_head(model: Model, instance: Instance) -> tuple[tuple[int, ...], tuple[TensorSlice, ...]]:
    """Order rows by key head: those of each tensor that belong to the first one, then the second's (mcore-bridge).

    The rows of a tensor are sorted by key head already, or are all queries, all keys and all values (`linear_conv`).
    """
    heads, key = model.linear_num_key_heads or 1, model.linear_key_head_dim or 0
    boxes, at = [], 0
    for head in range(heads):
        for tensor, name, shape in zip(instance.row.hf, instance.logical, instance.shapes, strict=True):
            first, count = 0, shape[0] // heads
            for part in (key, key, count - 2 * key) if tensor.shape[0] == "linear_conv" else (count,):
                boxes.append(rows(name, shape, first + head * part, part, stored_first=at))
                first, at = first + heads * part, at + part
    return (at, *instance.shapes[0][1:]), tuple(boxes)
