"""How MindSpeed-LLM stores weights: Megatron's legacy files, with its own latent attention, MTP and expert layouts.

Source: mindspeed_llm/tasks/checkpoint/convert_hf2mg.py, model_builder.py, convert.py @26.1.0 (the converter), and
tasks/models/transformer/multi_latent_attention.py (the modules); 2.1.0: examples/mcore/deepseek3/
convert_ckpt_deepseek3.py and tasks/models/transformer/multi_head_latent_attention.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from backends.mindspeed.compressed_weights import SIGN, compressed_respelled, refuse_unsettled
from backends.mindspeed.families import COMPRESSED, QWEN2_MOE, is_named
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Layout, Target
from launcher.convert.formats.legacy import Stack, holds_legacy, legacy_format, scheme_of
from launcher.convert.formats.legacy_read import first_look
from launcher.convert.layouts.core import CoreTensor, Naming, Respell
from launcher.convert.layouts.legacy import Experts, NamingScheme
from launcher.convert.logical import Logical
from launcher.convert.slices import Split, moved, rows
from launcher.job.model import Model

_ATTENTION = "self_attention."
_DOWN = (f"{_ATTENTION}linear_q_down_proj.weight", f"{_ATTENTION}linear_q_proj.weight")
_KEY_VALUE_DOWN = f"{_ATTENTION}linear_kv_down_proj.weight"
_QUERY_UP, _KEY_VALUE_UP = f"{_ATTENTION}linear_q_up_proj.weight", f"{_ATTENTION}linear_kv_up_proj.weight"
# Their names in 2.1.0.
OLD_NAMES = {
    _QUERY_UP: f"{_ATTENTION}linear_qb.weight",
    _KEY_VALUE_UP: f"{_ATTENTION}linear_kvb.weight",
    f"{_ATTENTION}kv_layernorm.weight": f"{_ATTENTION}k_layernorm.weight",
}
# Norms over all heads together, by mcore-bridge's names and by its own (tasks/models/transformer/minimax_attention.py
# @master).
_WIDE_NORMS = {f"{_ATTENTION}{name}_norm.weight": f"{_ATTENTION}{name}_layernorm.weight" for name in ("q", "k")}
# The norm before the feed-forward network: a module, or part of Transformer Engine's first linear layer.
_MLP_NORMS = ("pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight")
# Arguments stored in every MindSpeed-LLM checkpoint and in no other.
_SIGNS = ("mla_mm_split", "moe_tp_extend_ep")
VERSION_OF_OLD_NAMES = "2.1.0"
# Job arguments that `--set` may give instead; both spellings are accepted.
_ON = ("true", "1", "yes", "on")
# Values of `--set`.
_VALUES = {"mla_mm_split": (*_ON, "false", "0", "no", "off"), "schedules_method": ("dualpipev",)}
OPTIONS = tuple(_VALUES)


def _scheme(logical: Logical, layout: Layout) -> NamingScheme:
    naming = layout.naming or "local"
    if naming == "transformer_engine" and (logical.model.is_mla or is_named(logical.model.model_type, QWEN2_MOE)):
        raise ConvertError(
            f"{logical.model.model_type} with transformer_engine layers: MindSpeed-LLM's own converter and its modules"
            " name the norms differently; works: --layers local (kernels.transformer_impl=local)"
        )
    experts: Experts = "sequential"
    if layout.grouped_experts:
        experts = "fused" if naming == "local" else "grouped"
    if layout.experts_over_tp and experts != "fused":
        raise ConvertError(
            "moe.tp_extend_ep needs experts in one product of local layers; works: moe.grouped_gemm=true"
            " kernels.transformer_impl=local"
        )
    if is_named(logical.model.model_type, COMPRESSED):
        refuse_unsettled(over_tp=layout.experts_over_tp, tp=layout.tp, folded=_folded(layout))
    split = is_on(layout, "mla_mm_split")
    return _spelled(naming=naming, experts=experts, split=split, old=layout.version == VERSION_OF_OLD_NAMES)


def _found(logical: Logical, names: frozenset[str], args: Mapping[str, Any]) -> NamingScheme:
    if is_named(logical.model.model_type, COMPRESSED):
        refuse_unsettled(
            over_tp=bool(args.get("moe_tp_extend_ep")),
            tp=int(args.get("tensor_model_parallel_size") or 1),
            folded=args.get("schedules_method") == "dualpipev",
        )
    plain = scheme_of(names)
    engine = plain.naming == "transformer_engine"
    split = any(name.endswith("linear_kv_nope.weight") for name in names)
    old = logical.model.is_mla and any(name.endswith(".k_layernorm.weight") for name in names)
    naming: Naming = "local" if logical.model.is_mla else plain.naming
    found = _spelled(naming=naming, experts=plain.experts, split=split, old=old)
    if engine and (logical.model.is_mla or any(name.endswith(".pre_mlp_layernorm.weight") for name in names)):
        return replace(found, respell=partial(_of_converter, respell=found.respell))
    return found


def _of_converter(logical: Logical, tensors: Iterable[CoreTensor], *, respell: Respell) -> Iterator[CoreTensor]:
    """Name norms as the converter does for transformer_engine layers; names in the modules may differ."""
    first = logical.model.first_k_dense_replace
    for tensor in respell(logical, tensors):
        fused = tensor.layer is not None and tensor.place == "decoder" and tensor.layer < first
        if tensor.name == "input_layernorm.weight":
            yield replace(tensor, name=f"{_ATTENTION}linear_qkv.layer_norm_weight")
        elif tensor.name in _MLP_NORMS:
            yield replace(tensor, name=_MLP_NORMS[fused])
        else:
            yield tensor


def _spelled(*, naming: Naming, experts: Experts, split: bool, old: bool) -> NamingScheme:
    return NamingScheme(
        naming=naming,
        experts=experts,
        respell=partial(_respelled, split=split, old=old),
        prefixes={"mtp_norm": "mtp.final_layernorms.{layer}."},
        norm_with_head=True,
    )


def is_on(layout: Layout, name: str) -> bool:
    """Return whether a switch is given, by `--set` or among the job's native arguments."""
    return str(_given(layout).get(name, False)).lower() in _ON


def _folded(layout: Layout) -> bool:
    return layout.folded or _given(layout).get("schedules_method") == "dualpipev"


def _given(layout: Layout) -> Mapping[str, object]:
    """Return the options of `--set` and the job's native arguments.

    Raises:
        ConvertError: an option has no such value.
    """
    options = {name.replace("-", "_"): value for name, value in layout.options.items()}
    for name, value in options.items():
        known = _VALUES.get(name, (value,))
        if value.lower() not in known:
            raise ConvertError(f"--set {name}={value}: works: {', '.join(f'{name}={each}' for each in known)}")
    return {**{name.replace("-", "_"): value for name, value in layout.args.items()}, **options}


def _respelled(logical: Logical, tensors: Iterable[CoreTensor], *, split: bool, old: bool) -> Iterator[CoreTensor]:
    if is_named(logical.model.model_type, COMPRESSED):
        yield from (_of_mtp(tensor, logical.model) for tensor in compressed_respelled(tensors))
        return
    down: dict[tuple[str, int | None], CoreTensor] = {}
    for tensor in tensors:
        if not logical.model.is_mla:
            yield _of_mtp(replace(tensor, name=_WIDE_NORMS.get(tensor.name, tensor.name)), logical.model)
        elif tensor.name in _DOWN:
            down[tensor.place, tensor.layer] = tensor
        elif tensor.name == _KEY_VALUE_DOWN:
            yield _joined(down.pop((tensor.place, tensor.layer)), tensor)
        elif split and tensor.name == _QUERY_UP:
            yield from _apart(
                tensor, logical.model, ("linear_qk_nope", "linear_qk_rope"), logical.model.qk_rope_head_dim
            )
        elif split and tensor.name == _KEY_VALUE_UP:
            yield from _apart(tensor, logical.model, ("linear_kv_nope", "linear_v"), logical.model.v_head_dim)
        else:
            name = OLD_NAMES.get(tensor.name, tensor.name) if old else tensor.name
            yield _of_mtp(replace(tensor, name=name), logical.model)


def _of_mtp(tensor: CoreTensor, model: Model) -> CoreTensor:
    """Rename final norms: those of MTP layers belong to the MTP block, the decoder's then to the model."""
    if tensor.place == "mtp" and tensor.name == "final_layernorm.weight":
        return replace(tensor, place="mtp_norm", name="weight")
    if model.num_nextn_predict_layers and tensor.name == "decoder.final_layernorm.weight":
        return replace(tensor, name="final_layernorm.weight")
    return tensor


def _joined(query: CoreTensor, key_value: CoreTensor) -> CoreTensor:
    """Concatenate both down projections into one tensor, replicated on every rank (LinearNoTP)."""
    boxes = (*query.boxes, *(moved(box, 0, query.shape[0]) for box in key_value.boxes))
    shape = (query.shape[0] + key_value.shape[0], *query.shape[1:])
    return replace(query, name=f"{_ATTENTION}linear_qkv.weight", shape=shape, boxes=boxes, split=None)


def _apart(tensor: CoreTensor, model: Model, names: tuple[str, str], second: int | None) -> Iterator[CoreTensor]:
    """Split the two parts of every head's rows into two tensors (`mla_mm_split`)."""
    heads, sizes = model.num_attention_heads or 0, (model.qk_nope_head_dim or 0, second or 0)
    logical = tensor.boxes[0].logical
    for name, size, start in zip(names, sizes, (0, sizes[0]), strict=True):
        boxes = tuple(
            rows(logical, tensor.shape, head * sum(sizes) + start, size, stored_first=head * size)
            for head in range(heads)
        )
        yield replace(
            tensor,
            name=f"{_ATTENTION}{name}.weight",
            shape=(heads * size, *tensor.shape[1:]),
            boxes=boxes,
            split=Split(axis=0),
        )


def _arguments(target: Target) -> dict[str, Any]:
    """Return the arguments beyond Megatron's that the loader and the converter to Hugging Face read."""
    layout, model = target.layout, target.logical.model
    layers = (model.num_hidden_layers or 0) + len(layout.noop_layers)
    found: dict[str, Any] = {
        "num_layers": layers,
        "noop_layers": ",".join(str(layer) for layer in layout.noop_layers) or None,
        "num_layer_list": _layer_list(layout, layers),
        "num_layers_per_virtual_pipeline_stage": _chunk_layers(layout, layers),
        "schedules_method": "dualpipev" if _folded(layout) else None,
        "transformer_impl": layout.naming or "local",
        "mla_mm_split": is_on(layout, "mla_mm_split"),
        "moe_tp_extend_ep": layout.experts_over_tp,
        "moe_grouped_gemm": bool(layout.grouped_experts),
        "first_k_dense_replace": model.first_k_dense_replace,
        "num_key_value_heads": model.num_key_value_heads or model.num_attention_heads,
        "tie_word_embeddings": bool(model.tie_word_embeddings),
        "mtp_num_layers": model.num_nextn_predict_layers,
    }
    if is_named(model.model_type, COMPRESSED):
        ratios = (*model.compress_ratios, *(0 for _ in range(model.num_nextn_predict_layers)))
        found.update(compress_ratios=list(ratios), n_hash_layers=model.num_hash_layers)
    if model.shared_expert_intermediate_size:
        width = model.moe_intermediate_size if model.is_mla else model.shared_expert_intermediate_size
        found["n_shared_experts"] = model.shared_expert_intermediate_size // (width or 1)
    if not model.is_mla:
        # convert_mg2hf.py:834 @26.1.0 splits query groups only if this is set, for every family.
        found["qkv_split"] = "per_group"
    if layout.version == VERSION_OF_OLD_NAMES and model.is_mla:
        found.update(
            multi_head_latent_attention=True,
            qk_nope_head_dim=model.qk_nope_head_dim,
            qk_rope_head_dim=model.qk_rope_head_dim,
        )
    return found


def _chunk_layers(layout: Layout, layers: int) -> int | None:
    chunks = 2 if _folded(layout) else layout.vpp
    return layers // layout.pp // chunks if chunks else None


def _layer_list(layout: Layout, layers: int) -> str | None:
    """Return --num-layer-list if the first or last stage differs from the others."""
    ends = (layout.first_stage_layers, layout.last_stage_layers)
    if ends == (None, None) or layout.pp == 1:
        return None
    others = layout.pp - sum(end is not None for end in ends)
    share = (layers - sum(end or 0 for end in ends)) // max(1, others)
    counts = [share] * layout.pp
    counts[0] = ends[0] if ends[0] is not None else share
    counts[-1] = ends[1] if ends[1] is not None else share
    return ",".join(str(count) for count in counts)


def _recognises(path: Path) -> bool:
    if not holds_legacy(path):
        return False
    args, names = first_look(path)
    if any(sign in args for sign in _SIGNS) or any(name.startswith("mtp.final_layernorms.") for name in names):
        return True
    if any(name.endswith(SIGN) for name in names):
        return True
    ends = {name.rpartition(f".{_ATTENTION}")[2] for name in names}
    latent = {"linear_kvb.weight", "linear_kv_up_proj.weight", "linear_kv_nope.weight"}
    return "linear_qkv.weight" in ends and bool(ends & latent)


STACK = Stack(scheme=_scheme, found=_found, folded=_folded, arguments=_arguments, states=False)
"""MindSpeed-LLM's variant of Megatron's legacy format."""
FORMAT = legacy_format("mindspeed", "MindSpeed-LLM (torch)", STACK, recognises=_recognises, options=OPTIONS)
"""Format that MindSpeed-LLM loads with `--ckpt-format torch`."""
