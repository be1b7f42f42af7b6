"""megatron-core's `torch_dist` format as a layout: global tensors in chunks, independent of the parallel layout."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.layouts.core import CoreTensor, Naming, Respell, as_it_is, core_tensors
from launcher.convert.logical import Logical, with_mtp, with_others, without_mtp
from launcher.convert.records import TensorSlice
from launcher.convert.slices import cut, stacked
from launcher.records import dataclass

# Modules not implemented by Transformer Engine: they have no extra state.
_PLAIN = (
    *("embedding.word_embeddings", "output_layer", "mlp.router", "mlp.shared_experts"),
    *("self_attention", "self_attention.conv1d"),
    *("_hyper_connection", "_hyper_connection.mapping_proj", "compressor"),
)
# Parameters of their own of such modules, and of some that have a state in other models.
_BARE = (".gate_weight", ".attn_sink", ".hc_head_fn", ".hc_head_base", ".hc_head_scale")
# Attention whose inner module is not Transformer Engine's.
_OWN_ATTENTION = ("dsa", "dsv4_hybrid")
# Local layers, dense and sparse, store their norms under the names of Transformer Engine's fused norms, except with
# latent attention (megatron-core 0.16.1 gpt_layer_specs.py, sharded_state_dict_keys_map).
_LOCAL_NORMS = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
}
_OF_MTP = re.compile(r"mtp\.layers\.(\d+)\.")
# Experts on their own ranks have an optimizer of their own: all of them are numbered (megatron-core 0.16.1
# optimizer/optimizer.py, ChainedOptimizer.sharded_state_dict).
_OTHER_STATE = (
    (re.compile(r"(chained_\d+\.)?optimizer\."), "optimizer state, not a weight"),
    (re.compile("rng_state"), "random state, not a weight"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The part of a global tensor that belongs to one layer and expert.

    Attributes:
        key: name of the global tensor.
        whole: its shape.
        at: offset of the part in it.
        shape: shape of the part, with as many dimensions as `whole`.
        boxes: slices of logical tensors that the part holds.
        fill: padding elements at its end.
        dtype: its number format; None: that of the logical tensors.
    """

    key: str
    whole: tuple[int, ...]
    at: tuple[int, ...]
    shape: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    fill: int
    dtype: str | None = None


def stacks_layers(logical: Logical) -> bool:
    """Return whether Megatron-LM stores all layers of the model as one tensor: it does if all are of one kind.

    megatron-core 0.16.1 transformer_block.py:830: layers are stored separately if `moe_layer_freq` is a list or more
    than 1, or if some have linear attention; dev d48bd6be transformer_config.py:1764: or compressed attention. How a
    stack derives it from config.json is defined in `Backend.stacks_layers`.
    """
    model = logical.model
    if model.experimental_attention_variant in ("gated_delta_net", "dsv4_hybrid"):
        return False
    return not model.mixes_dense_layers


def torch_dist_chunks(
    logical: Logical,
    *,
    naming: Naming,
    vocabulary: int | None,
    stack: bool | None = None,
    respell: Respell = as_it_is,
) -> Iterator[Chunk]:
    """Yield every chunk of a model's checkpoint, one for each layer and expert.

    Args:
        logical: the model.
        naming: layer implementation.
        vocabulary: rows of the embedding; None for no padding.
        stack: all layers as one tensor; None follows megatron-core.
        respell: maps megatron-core's tensors to those of the training stack.
    """
    stacked_layers = stacks_layers(logical) if stack is None else stack
    for tensor in respell(logical, core_tensors(logical, naming=naming, vocabulary=vocabulary)):
        yield _chunk(tensor, logical, naming=naming, stack=stacked_layers)


def _prefix(logical: Logical) -> str:
    """Return what precedes the names of a language model's tensors in the model that it is part of."""
    return logical.family.enclosing.core if logical.family.enclosing is not None else ""


def is_stacked(logical: Logical, keys: Iterable[str]) -> bool:
    """Return whether a checkpoint's global tensors hold all layers."""
    start = f"{_prefix(logical)}decoder.layers."
    return any(key.startswith(start) and not key.removeprefix(start).partition(".")[0].isdigit() for key in keys)


def _chunk(tensor: CoreTensor, logical: Logical, *, naming: Naming, stack: bool) -> Chunk:
    key, leading = _key(tensor, logical, naming=naming, stack=stack)
    at = tuple(index for index, _ in leading)
    return Chunk(
        key=key if tensor.place == "other" else _prefix(logical) + key,
        whole=(*(count for _, count in leading), *tensor.shape),
        at=(*at, *(0 for _ in tensor.shape)),
        shape=(*(1 for _ in leading), *tensor.shape),
        boxes=tuple(stacked(box, *(0 for _ in leading)) for box in tensor.boxes),
        fill=tensor.fill,
        dtype=tensor.dtype,
    )


def _key(tensor: CoreTensor, logical: Logical, *, naming: Naming, stack: bool) -> tuple[str, list[tuple[int, int]]]:
    """Return the global tensor's name, and (index, count) of its leading dimensions."""
    leading = []
    prefix, name = tensor.prefix, tensor.name.replace("{expert}", "experts")
    if naming == "local" and not logical.model.is_mla:
        name = _LOCAL_NORMS.get(name, name)
    if tensor.place == "decoder" and stack and tensor.layer is not None:
        prefix = "decoder.layers."
        leading.append((tensor.layer, logical.model.num_hidden_layers or 0))
    if tensor.expert is not None:
        leading.append((tensor.expert, logical.model.num_experts or 0))
    return prefix.format(layer=tensor.layer) + name, leading


def extra_states(logical: Logical, *, naming: Naming, stack: bool | None = None) -> Iterator[str]:
    """Yield the keys of the empty `_extra_state` objects that megatron-core's modules expect."""
    stacked_layers = stacks_layers(logical) if stack is None else stack
    seen, prefix = set(), _prefix(logical)
    for tensor in core_tensors(logical, naming=naming):
        if tensor.place == "other":
            continue
        key, leading = _key(tensor, logical, naming=naming, stack=stacked_layers)
        module = key.rpartition(".")[0]
        if not has_state(module, key, naming):
            continue
        offsets = ".".join(str(index) for index, _ in leading) or "0"
        counts = ".".join(str(count) for _, count in leading) or "1"
        state = f"{prefix}{module}._extra_state/shard_{offsets}_{counts}"
        if state not in seen:
            seen.add(state)
            yield state
    if naming == "transformer_engine" and logical.model.experimental_attention_variant not in _OWN_ATTENTION:
        # Its attention has an extra state in MTP layers only (seen in checkpoints of training runs).
        for layer in range(logical.model.num_nextn_predict_layers):
            attention = f"mtp.layers.{layer}.transformer_layer.self_attention.core_attention"
            yield f"{prefix}{attention}._extra_state/shard_0_1"


def has_state(module: str, key: str, naming: Naming) -> bool:
    """Return whether a module has an extra state: all of Transformer Engine's, and the local parallel linear layers."""
    if module.endswith(_PLAIN) or key.endswith(_BARE):
        return False
    if naming == "transformer_engine":
        return True
    return module.rpartition(".")[2].startswith(("linear_", "eh_proj")) and not key.endswith("layer_norm_weight")


def other_state(key: str) -> str | None:
    """Return why a global tensor of a training run is not a weight; None for a weight."""
    return next((why for start, why in _OTHER_STATE if start.match(key)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A chunk found in a checkpoint."""

    key: str
    whole: tuple[int, ...]
    at: tuple[int, ...]
    slot: Slot


def torch_dist_read(logical: Logical, found: Sequence[Found], respell: Respell = as_it_is) -> tuple[Logical, Stored]:
    """Return the model and the contents of a checkpoint's chunks, for any sharding, stacking and naming.

    Raises:
        ConvertError: tensors that the model does not have, or with a wrong shape.
    """
    keys = {chunk.key.removeprefix(_prefix(logical)) for chunk in found}
    notes = []
    if logical.model.num_nextn_predict_layers and not any(key.startswith("mtp.") for key in keys):
        notes.append("config.json has MTP layers, the checkpoint has none: converted without")
        logical = without_mtp(logical)
    elif logical.family.mtp_names is not None and not logical.model.num_nextn_predict_layers:
        held = {int(number[1]) + 1 for key in keys if (number := _OF_MTP.match(key))}
        logical = with_mtp(logical, max(held)) if held else logical
    logical = _with_others(logical, found)
    known = {
        **_known(logical, found, "local", respell),
        **_known(logical, found, "transformer_engine", respell),
    }
    contents, problems = [], []
    for chunk in found:
        meaning = known.get(chunk.key)
        if meaning is None:
            problems.append(f"{chunk.key} {list(chunk.whole)}: a {logical.model.model_type} model has no such tensor")
        elif meaning.whole != chunk.whole:
            problems.append(f"{chunk.key} has shape {list(chunk.whole)}, config.json has {list(meaning.whole)}")
        else:
            contents.append(meaning.content(chunk))
    problems += _missing(logical, contents, known)
    if problems:
        raise ConvertError(problems)
    return logical, Stored(contents=tuple(contents), notes=tuple(notes))


def _with_others(logical: Logical, found: Sequence[Found]) -> Logical:
    """Add the tensors of the modules beside a language model that a checkpoint holds."""
    enclosing = logical.family.enclosing
    if enclosing is None:
        return logical
    named = ((enclosing.other_in_core(chunk.key), chunk.whole) for chunk in found)
    return with_others(logical, {name: shape for name, shape in named if name is not None})


def _missing(logical: Logical, contents: Sequence[Content], known: Mapping[str, _Global]) -> list[str]:
    held = {box.logical for content in contents for box in content.boxes}
    lacking = {name for name in logical.tensors if name not in held}
    names = {}
    for key, tensor in known.items():
        for part in tensor.parts.values():
            if any(box.logical in lacking for box in part.boxes):
                names[part.boxes[0].logical] = f"{key} {list(tensor.whole)} is missing: the model of config.json has it"
    return list(dict.fromkeys(names.values()))


class _Global:
    """A global tensor: the slices stored at each index of its leading dimensions."""

    def __init__(self, chunk: Chunk) -> None:
        self.whole = chunk.whole
        self.leading = len(chunk.whole) - len(chunk.boxes[0].logical_at)
        self.rest = chunk.whole[self.leading :]
        self.parts: dict[tuple[int, ...], Chunk] = {}

    def content(self, found: Found) -> Content:
        boxes = []
        fill = 0
        ranges = [range(first, first + count) for first, count in zip(found.at, found.slot.shape, strict=True)]
        for index in itertools.product(*ranges[: self.leading]):
            part = self.parts[index]
            at = (*(0 for _ in index), *found.at[self.leading :])
            shape = (*(1 for _ in index), *found.slot.shape[self.leading :])
            shift = tuple(place - first for place, first in zip(index, found.at, strict=False))
            for box in part.boxes:
                inside = cut(box, at, shape)
                if inside is not None:
                    boxes.append(_at(inside, shift))
            fill += _padding(part, found.at[self.leading :], found.slot.shape[self.leading :])
        return Content(slot=found.slot, boxes=tuple(boxes), fill=fill)


def _at(box: TensorSlice, leading: tuple[int, ...]) -> TensorSlice:
    if not any(leading):
        return box
    bare = TensorSlice(
        logical=box.logical,
        logical_at=box.logical_at,
        stored_at=box.stored_at[len(leading) :],
        transposed=box.transposed,
    )
    return stacked(bare, *leading)


def _padding(part: Chunk, at: Sequence[int], shape: Sequence[int]) -> int:
    """Return the padding elements in a chunk of a padded vocabulary, whose rows are the first dimension."""
    if not part.fill:
        return 0
    rows = part.shape[0] - part.fill // part.shape[1]
    return max(0, at[0] + shape[0] - max(at[0], rows)) * shape[1]


def _known(logical: Logical, found: Sequence[Found], naming: Naming, respell: Respell) -> Mapping[str, _Global]:
    stack = is_stacked(logical, (chunk.key for chunk in found))
    rows = {chunk.whole[0] for chunk in found if chunk.key == f"{_prefix(logical)}embedding.word_embeddings.weight"}
    vocabulary = max(rows, default=None)
    if vocabulary is not None and vocabulary < (logical.model.vocab_size or 0):
        raise ConvertError(
            f"embedding.word_embeddings.weight has {vocabulary} rows, config.json has vocab_size"
            f" {logical.model.vocab_size}"
        )
    known: dict[str, _Global] = {}
    chunks = torch_dist_chunks(logical, naming=naming, vocabulary=vocabulary, stack=stack, respell=respell)
    for chunk in chunks:
        tensor = known.setdefault(chunk.key, _Global(chunk))
        tensor.parts[chunk.at[: tensor.leading]] = chunk
    return known
