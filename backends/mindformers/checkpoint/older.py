"""Whole parameters of MindFormers' legacy classes (use_legacy: True), as slices of Hugging Face tensors.

Source: models/llama/llama_transformer.py, llama_layer.py, modules/transformer/moe.py, moev3.py and
research/deepseek3/deepseek2_model.py @1.6.0; output of the converters in these folders (convert_weight.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from backends.mindformers.checkpoint.options import truth
from backends.mindformers.checkpoint.tensors import Parameter, interleaved
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Layout
from launcher.convert.layouts.core import CoreTensor, core_tensors
from launcher.convert.logical import Logical
from launcher.convert.records import TensorSlice
from launcher.convert.slices import Split, moved, rows, stacked, whole
from launcher.records import dataclass

EMBEDDING: Final = "model.tok_embeddings.embedding_weight"
HEAD: Final = "lm_head.weight"
_QKV: Final = "self_attention.linear_qkv."
_FC1: Final = "mlp.linear_fc1.weight"
_FUSED: Final = "self_attention.linear_kv_down_proj.weight"

# Megatron-core tensor (local layers) to the legacy parameters, one per Hugging Face tensor that it is made of.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "embedding.word_embeddings.weight": (EMBEDDING,),
    "input_layernorm.weight": ("attention_norm.weight",),
    f"{_QKV}weight": ("attention.wq.weight", "attention.wk.weight", "attention.wv.weight"),
    f"{_QKV}bias": ("attention.wq.bias", "attention.wk.bias", "attention.wv.bias"),
    "self_attention.linear_q_down_proj.weight": ("attention.q2l_proj.weight",),
    "self_attention.q_layernorm.weight": ("attention.lq_norm.weight",),
    "self_attention.kv_layernorm.weight": ("attention.lkv_norm.weight",),
    "self_attention.linear_proj.weight": ("attention.wo.weight",),
    "self_attention.linear_proj.bias": ("attention.wo.bias",),
    "pre_mlp_layernorm.weight": ("ffn_norm.weight",),
    _FC1: ("feed_forward.w1.weight", "feed_forward.w3.weight"),
    "mlp.linear_fc2.weight": ("feed_forward.w2.weight",),
    "mlp.shared_experts.linear_fc1.weight": (
        "feed_forward.shared_experts.w1.weight",
        "feed_forward.shared_experts.w3.weight",
    ),
    "mlp.shared_experts.linear_fc2.weight": ("feed_forward.shared_experts.w2.weight",),
    "mlp.shared_experts.gate_weight": ("feed_forward.shared_experts_gate.weight",),
    "decoder.final_layernorm.weight": ("model.norm_out.weight",),
    "output_layer.weight": (HEAD,),
    "enorm.weight": ("norm_emb.weight",),
    "hnorm.weight": ("norm.weight",),
    "eh_proj.weight": ("dense.weight",),
}
# With qkv_concat: sorted by query group, rows of gate and up interleaved.
CONCATENATED: Final[Mapping[str, str]] = {
    f"{_QKV}weight": "attention.w_qkv.weight",
    f"{_QKV}bias": "attention.w_qkv.bias",
    _FC1: "feed_forward.w_gate_hidden.weight",
}
# Latent attention has one parameter for the parts of each head: (first, second); sizes are fields of the model.
PARTS: Final[Mapping[str, tuple[tuple[str, str], tuple[str, str]]]] = {
    "self_attention.linear_q_up_proj.weight": (
        ("attention.l2q_nope_proj.weight", "qk_nope_head_dim"),
        ("attention.l2q_pe_proj.weight", "qk_rope_head_dim"),
    ),
    _FUSED: (("attention.kv2l_latent_kv.weight", "kv_lora_rank"), ("attention.kv2l_k_pe.weight", "qk_rope_head_dim")),
    "self_attention.linear_kv_up_proj.weight": (
        ("attention.lkv2kv_k_nope.weight", "qk_nope_head_dim"),
        ("attention.lkv2kv_v.weight", "v_head_dim"),
    ),
}
# Router and experts, in a separate module if there are shared experts: one GEMM per expert (MoEV2), and one grouped
# GEMM (MoEV3).
ROUTED: Final = ("feed_forward.", "feed_forward.routed_experts.")
ROUTER: Final[Mapping[str, tuple[str, str]]] = {
    "mlp.router.weight": ("router.dense.weight", "router_dense.weight"),
    "mlp.router.expert_bias": ("router.router.topk_bias", "topk_bias"),
}
_UNSPLIT: Final = ("attention.q2l_proj.weight", "dense.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """Configuration of the legacy classes.

    Attributes:
        qkv_concat: one matrix for query, key and value, and one for gate and up.
        grouped: experts in one grouped GEMM (moe_config.use_gmm).
    """

    qkv_concat: bool = False
    grouped: bool = False


def older_of(logical: Logical, layout: Layout) -> Older:
    """Return the configuration set by options and job.

    Raises:
        ConvertError: the classes do not support this configuration.
    """
    concat, grouped = layout.options.get("qkv_concat"), layout.options.get("use_gmm")
    found = Older(
        qkv_concat=bool(layout.qkv_concat) if concat is None else truth("qkv_concat", concat),
        grouped=bool(layout.grouped_experts) if grouped is None else truth("use_gmm", grouped),
    )
    model = logical.model
    if found.qkv_concat and model.is_mla:
        raise ConvertError(
            "qkv_concat: latent attention of MindFormers' older classes has no such matrix; works: without"
        )
    if found.qkv_concat and model.model_type == "mixtral" and not found.grouped:
        raise ConvertError("qkv_concat with experts in products of their own: works: moe.grouped_gemm=true, or without")
    return found


def older_found(names: Iterable[str]) -> Older:
    """Return the configuration inferred from the parameter names of a checkpoint."""
    ends = {name.partition(".feed_forward.")[2] or name.partition(".attention.")[2] for name in names}
    return Older(
        qkv_concat="w_qkv.weight" in ends,
        grouped=bool(ends & {f"{prefix.partition('.')[2]}ffn.w1" for prefix in ROUTED}),
    )


def older_parameters(logical: Logical, older: Older, *, vocabulary: int | None = None) -> Iterator[Parameter]:
    """Return every parameter of a model's network, in the model's order."""
    tensors = core_tensors(logical, naming="local", vocabulary=vocabulary)
    for _, layer in groupby(tensors, key=lambda tensor: (tensor.place, tensor.layer)):
        parts = list(layer)
        experts = [tensor for tensor in parts if tensor.expert is not None]
        for tensor in parts:
            if tensor.expert is None:
                yield from _plain(logical, tensor, older)
            elif tensor is experts[0]:
                yield from _experts(logical, experts, older)


def _plain(logical: Logical, tensor: CoreTensor, older: Older) -> Iterator[Parameter]:
    if older.qkv_concat and tensor.name in CONCATENATED:
        boxes = interleaved(tensor.boxes) if tensor.name == _FC1 else tensor.boxes
        split = Split(axis=0)
        yield _made(logical, tensor, CONCATENATED[tensor.name], tensor.shape, boxes, split=split)
    elif tensor.name in PARTS:
        yield from _parts_of_heads(logical, tensor)
    elif tensor.name in ROUTER:
        name = ROUTED[bool(logical.model.shared_expert_intermediate_size)] + ROUTER[tensor.name][older.grouped]
        yield _made(logical, tensor, name, tensor.shape, tensor.boxes)
    else:
        yield from _apart(logical, tensor)


def _apart(logical: Logical, tensor: CoreTensor) -> Iterator[Parameter]:
    """Return one parameter for each Hugging Face tensor."""
    if tensor.place == "mtp" and tensor.name == "final_layernorm.weight":
        names: tuple[str, ...] = ("mtp_norms",)
    elif tensor.name in NAMES:
        names = NAMES[tensor.name]
    else:
        raise _unknown(tensor)
    sources = list(dict.fromkeys(box.logical for box in tensor.boxes))
    if len(names) == 1:
        split = None if names[0] in _UNSPLIT or tensor.split is None else Split(axis=tensor.split.axis)
        yield _made(logical, tensor, names[0], tensor.shape, tensor.boxes, fill=tensor.fill, split=split)
        return
    if len(sources) != len(names):
        raise _unknown(tensor)
    for name, source in zip(names, sources, strict=True):
        shape = logical.tensors[source]
        yield _made(logical, tensor, name, shape, (whole(source, shape),), split=Split(axis=0))


def _unknown(tensor: CoreTensor) -> ConvertError:
    return ConvertError(f"{tensor.name}: MindFormers' older classes have no such parameter")


def _parts_of_heads(logical: Logical, tensor: CoreTensor) -> Iterator[Parameter]:
    model, (source,) = logical.model, (box.logical for box in tensor.boxes)
    one = tensor.name == _FUSED
    heads = 1 if one else model.num_attention_heads or 0
    named = PARTS[tensor.name]
    sizes = [int(getattr(model, field)) for _, field in named]
    starts = (0, sizes[0])
    for (name, field), size, start in zip(named, sizes, starts, strict=True):
        boxes: list[TensorSlice] = []
        for head in range(heads):
            first, at = head * sum(sizes) + start, head * size
            boxes += _rotated(source, tensor.shape, first, size, at, turn=field == "qk_rope_head_dim")
        shape = (heads * size, *tensor.shape[1:])
        yield _made(logical, tensor, name, shape, tuple(boxes), split=None if one else Split(axis=0))


def _rotated(
    source: str, shape: tuple[int, ...], first: int, count: int, at: int, *, turn: bool
) -> Iterator[TensorSlice]:
    """Return the rows of one head; `turn`: even rows, then odd ones (convert_weight.py, _mla_pt_to_ms)."""
    if not turn:
        yield rows(source, shape, first, count, stored_first=at)
        return
    for pair in range(count // 2):
        yield rows(source, shape, first + 2 * pair, 2, stored_first=at + pair, step=count // 2)


def _experts(logical: Logical, experts: list[CoreTensor], older: Older) -> Iterator[Parameter]:
    """Return all experts in one tensor: [experts, out, in], or transposed with gate and up concatenated."""
    prefix = ROUTED[bool(logical.model.shared_expert_intermediate_size)] + "ffn."
    up = [tensor for tensor in experts if tensor.name.endswith("linear_fc1.weight")]
    down = [tensor for tensor in experts if tensor.name.endswith("linear_fc2.weight")]
    ffn, hidden = up[0].shape[0] // 2, up[0].shape[1]
    if older.grouped:
        for name, parts, shape in (("w1", up, (hidden, 2 * ffn)), ("w2", down, (ffn, hidden))):
            boxes = tuple(
                stacked(moved(_turned(logical, box), 1, part * ffn), number)
                for number, tensor in enumerate(parts)
                for part, box in enumerate(tensor.boxes)
            )
            yield _made(logical, parts[0], prefix + name, (len(parts), *shape), boxes, of_experts=True)
        return
    for name, parts, part, axis in (("w1", up, 0, 1), ("w3", up, 1, 1), ("w2", down, 0, 2)):
        shape = (ffn, hidden) if axis == 1 else (hidden, ffn)
        sources = [tensor.boxes[part].logical for tensor in parts]
        boxes = tuple(stacked(whole(source, shape), number) for number, source in enumerate(sources))
        yield _made(
            logical,
            parts[0],
            f"{prefix}{name}.weight",
            (len(parts), *shape),
            boxes,
            split=Split(axis=axis),
            of_experts=True,
        )


def _turned(logical: Logical, box: TensorSlice) -> TensorSlice:
    return whole(box.logical, logical.tensors[box.logical], transposed=True)


def _prefix(logical: Logical, tensor: CoreTensor, name: str) -> str:
    number = tensor.layer or 0
    if name == "mtp_norms":
        return f"model.mtp_norms.{number}.weight"
    if tensor.place == "mtp":
        return f"model.mtp_hidden_fusers.{number}.{name}"
    if tensor.place == "mtp_layer":
        return f"model.layers.{(logical.model.num_hidden_layers or 0) + number}.{name}"
    return f"model.layers.{number}.{name}" if tensor.place == "decoder" else name


def _made(
    logical: Logical,
    tensor: CoreTensor,
    name: str,
    shape: tuple[int, ...],
    boxes: tuple[TensorSlice, ...],
    *,
    fill: int = 0,
    split: Split | None = None,
    of_experts: bool = False,
) -> Parameter:
    return Parameter(
        name=_prefix(logical, tensor, name),
        shape=shape,
        declared=shape,
        boxes=boxes,
        fill=fill,
        split=split,
        of_experts=of_experts,
        place=tensor.place,
        layer=tensor.layer,
    )
