"""The logical tensors of a model: Hugging Face's, one per expert, derived from config.json and the family's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from launcher.convert.containers.errors import ConvertError
from launcher.families.attention import mixer
from launcher.families.registry import weights, weights_of
from launcher.families.weights import Dim, HfTensor, Row, Weights, sizes
from launcher.job.model import Model
from launcher.records import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A stored Hugging Face tensor that repeats a logical one (tied head, the embedding inside an MTP layer).

    `written`: a Hugging Face checkpoint of this model should have it; otherwise it is optional.
    """

    of: str
    written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A row of the table, applied to one place of the model.

    Attributes:
        row: the row.
        place: `embedding`, `decoder`, `mtp` (the layer's own tensors), `mtp_layer` (its transformer layer), `final`, or
            `other` (a module beside the language model).
        layer: number of the layer among all decoder layers, or of the MTP layer; None outside of layers.
        expert: number of the expert; None if the row does not belong to an expert.
        logical: names of the logical tensors, in the row's order.
        shapes: their shapes.
    """

    row: Row
    place: str
    layer: int | None
    expert: int | None
    logical: tuple[str, ...]
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logical:
    """A model's logical tensors.

    Attributes:
        model: the architecture.
        family: its table.
        tensors: name to shape.
        copies: additional names under which Hugging Face checkpoints store some of them.
        instances: every Megatron-core tensor with the tensors it consists of, in the model's order.
    """

    model: Model
    family: Weights
    tensors: Mapping[str, Shape]
    copies: Mapping[str, Copy]
    instances: tuple[Instance, ...]


def logical_model(model: Model) -> Logical:
    """Return the logical tensors of an architecture.

    Raises:
        ConvertError: the family has no table, or a size that a tensor needs is unknown.
    """
    family = weights_of(model.model_type)
    if family is None:
        raise ConvertError(f"model_type {model.model_type!r} cannot be converted; works: {', '.join(weights())}")
    instances = tuple(_instances(model, family))
    tensors: dict[str, Shape] = {}
    for instance in instances:
        tensors.update(zip(instance.logical, instance.shapes, strict=True))
    empty = sorted(name for name, shape in tensors.items() if not all(shape))
    if empty:
        raise ConvertError([f"{name}: config.json lacks a size of this tensor" for name in empty])
    return Logical(model=model, family=family, tensors=tensors, copies=_copies(model, family), instances=instances)


def without_mtp(logical: Logical) -> Logical:
    """Return the same model without its multi-token-prediction layers."""
    return with_mtp(logical, 0)


def with_mtp(logical: Logical, count: int) -> Logical:
    """Return the same model with another number of multi-token-prediction layers than in its config.json."""
    found = logical_model(dataclasses.replace(logical.model, num_nextn_predict_layers=count))
    return with_others(found, others_of(logical))


def with_others(logical: Logical, found: Mapping[str, Shape]) -> Logical:
    """Return the same model with tensors of the modules beside the language model, which config.json does not describe.

    Args:
        logical: the model; other modules' tensors that it has already are kept.
        found: names in files, and shapes.
    """
    enclosing = logical.family.enclosing
    more = {name: shape for name, shape in sorted(found.items()) if name not in logical.tensors}
    if enclosing is None or not more:
        return logical
    others = tuple(
        Instance(
            row=Row(core=enclosing.other(name) or name, hf=(HfTensor(name=name, shape=shape),)),
            place="other",
            layer=None,
            expert=None,
            logical=(name,),
            shapes=(shape,),
        )
        for name, shape in more.items()
    )
    return dataclasses.replace(logical, tensors={**logical.tensors, **more}, instances=(*logical.instances, *others))


def others_of(logical: Logical) -> dict[str, Shape]:
    """Return the tensors of modules beside the language model."""
    return {each.logical[0]: each.shapes[0] for each in logical.instances if each.place == "other"}


def layer_prefix(family: Weights, number: int) -> str:
    """Return the name prefix of a Hugging Face layer."""
    return family.named(f"model.layers.{number}.")


def prefix_in(logical: Logical, number: int) -> str:
    """Return the name prefix of a transformer layer in a model's files; layers after the last predict more tokens."""
    layers, names = logical.model.num_hidden_layers or 0, logical.family.mtp_names
    if names is None or number < layers:
        return layer_prefix(logical.family, number)
    return names[1].format(layer=number - layers)


def _instances(model: Model, family: Weights) -> Iterator[Instance]:
    dims = sizes(model)
    layers = model.num_hidden_layers or 0
    yield from _rows(model, family, family.embedding, dims, place="embedding")
    for layer in range(layers):
        feed_forward = _feed_forward(model, family, layer)
        prefix = layer_prefix(family, layer)
        rows = (*_attention(model, family, layer), *feed_forward)
        yield from _rows(model, family, rows, dims, place="decoder", layer=layer, prefix=prefix)
    yield from _rows(model, family, family.final, dims, place="final")
    for index in range(model.num_nextn_predict_layers):
        outer = inner = layer_prefix(family, layers + index)
        if family.mtp_names is not None:
            outer, inner = (name.format(layer=index) for name in family.mtp_names)
        body = (*_attention(model, family, layers + index), *_feed_forward(model, family, layers + index))
        yield from _rows(model, family, family.mtp, dims, place="mtp", layer=index, prefix=outer)
        yield from _rows(model, family, body, dims, place="mtp_layer", layer=index, prefix=inner)


def _attention(model: Model, family: Weights, layer: int) -> tuple[Row, ...]:
    kind = mixer(model, layer)
    return tuple(row for row in family.attention if row.mixer in (None, kind))


def _feed_forward(model: Model, family: Weights, layer: int) -> tuple[Row, ...]:
    mtp = layer >= (model.num_hidden_layers or 0)
    if not (model.is_moe if mtp else model.has_experts_at(layer)):
        return family.dense
    hashed = not mtp and layer < (model.num_hash_layers or 0)
    return tuple(row for row in family.sparse if row.hashed in (None, hashed))


def _rows(
    model: Model,
    family: Weights,
    rows: tuple[Row, ...],
    dims: Mapping[str, int],
    *,
    place: str,
    layer: int | None = None,
    prefix: str = "",
) -> Iterator[Instance]:
    for row in rows:
        if not row.exists(model):
            continue
        shapes = tuple(_shape(tensor, dims) for tensor in row.hf)
        for expert in range(model.num_experts or 0) if row.of_expert else (None,):
            inside = (_named(tensor.name, expert) for tensor in row.hf)
            names = tuple(prefix + name if prefix else family.named(name) for name in inside)
            yield Instance(row=row, place=place, layer=layer, expert=expert, logical=names, shapes=shapes)


def _named(name: str, expert: int | None) -> str:
    return name if expert is None else name.replace("{expert}", str(expert))


def _shape(tensor: HfTensor, dims: Mapping[str, int]) -> Shape:
    return tuple(_size(dim, dims) for dim in tensor.shape)


def _size(dim: Dim, dims: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else dims[dim]


def _copies(model: Model, family: Weights) -> dict[str, Copy]:
    copies: dict[str, Copy] = {}
    head = family.embedding_name if model.tie_word_embeddings else family.head_name
    if model.tie_word_embeddings:
        copies[family.head_name] = Copy(of=head, written=False)
    for index in range(model.num_nextn_predict_layers):
        prefix = layer_prefix(family, (model.num_hidden_layers or 0) + index)
        if family.mtp_names is not None:
            prefix = family.mtp_names[0].format(layer=index)
        for name, of in (family.mtp_copies or {}).items():
            copies[prefix + name] = Copy(of=head if of == family.head_name else of, written=True)
    return copies
