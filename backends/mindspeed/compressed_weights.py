"""How MindSpeed-LLM stores the weights of DeepSeek-V4: names of its own modules, joined scales and projections.

Source: mindspeed_llm/tasks/checkpoint/convert_ckpt_deepseek4.py, the same @26.1.0 and @master c77308a1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from launcher.convert.containers.errors import ConvertError
from launcher.convert.layouts.core import CoreTensor
from launcher.convert.slices import Split, moved

_ATTENTION: Final = "self_attention."
_CORE: Final = f"{_ATTENTION}core_attention."
_MEMBERS: Final = {"ape": "ape", "linear_wkv.weight": "wkv.weight", "linear_wgate.weight": "wgate.weight"}
_COMPRESSORS: Final = {"compressor.": "compressor.", "indexer.compressor.": "indexer.kv_compressor."}
_STREAMS: Final = {"self_attention_hyper_connection.": "attn_mhc.", "mlp_hyper_connection.": "mlp_mhc."}
_HEAD: Final = {"hc_head_fn": "fn.weight", "hc_head_base": "base", "hc_head_scale": "scale"}
# Megatron-core's names to its own.
_NAMES: Final = {
    f"{_ATTENTION}linear_q_down_proj.weight": f"{_ATTENTION}linear_q.weight",
    f"{_ATTENTION}linear_kv_proj.weight": f"{_ATTENTION}linear_kv.weight",
    f"{_ATTENTION}linear_o_group_proj": f"{_ATTENTION}linear_o_down_proj.weight",
    f"{_ATTENTION}linear_proj.weight": f"{_ATTENTION}linear_o_up_proj.weight",
    f"{_CORE}attn_sink": f"{_ATTENTION}attn_sink",
    f"{_CORE}indexer.linear_wq_b.weight": f"{_ATTENTION}indexer.wq_b.weight",
    f"{_CORE}indexer.linear_weights_proj.weight": f"{_ATTENTION}indexer.weights_proj.weight",
    **{
        f"{_CORE}{core}{member}": f"{_ATTENTION}{own}{name}"
        for core, own in _COMPRESSORS.items()
        for member, name in {**_MEMBERS, "norm.weight": "norm.weight"}.items()
    },
    **{f"{core}mapping_proj.weight": f"{own}hc_fn.weight" for core, own in _STREAMS.items()},
    **{f"{core}bias": f"{own}hc_base" for core, own in _STREAMS.items()},
    **{f"{place}{name}": f"hc_head.hc_{own}" for place in ("decoder.", "") for name, own in _HEAD.items()},
    "decoder.final_layernorm.weight": "final_layernorm.weight",
}
# Tensors that are split otherwise than in Megatron-core, which does not train the model with tensor parallelism.
_SPLITS: Final = {
    f"{_ATTENTION}linear_kv.weight": None,
    f"{_ATTENTION}linear_o_down_proj.weight": Split(axis=0),
    f"{_ATTENTION}attn_sink": Split(axis=0),
    "mlp.router.tid2eid": None,
}
# The first and the last of tensors that are one, the dimension along which they are joined, and the name.
_JOINED: Final = {
    **{
        f"{core}alpha_{part}": (f"{core}alpha_pre", f"{core}alpha_res", 0, f"{own}hc_scale")
        for core, own in _STREAMS.items()
        for part in ("pre", "post", "res")
    },
    "e_proj.weight": ("e_proj.weight", "h_proj.weight", 1, "eh_proj.weight"),
    "h_proj.weight": ("e_proj.weight", "h_proj.weight", 1, "eh_proj.weight"),
}
SIGN: Final = ".attn_mhc.hc_scale"
"""End of a name that every such checkpoint has."""


def refuse_unsettled(*, over_tp: bool, tp: int, folded: bool) -> None:
    """Reject layouts for which its converter writes something else than its modules load.

    Raises:
        ConvertError: the layout is one of them.
    """
    if over_tp and tp > 1:
        raise ConvertError(
            "moe.tp_extend_ep with tp above 1: MindSpeed-LLM's converter mixes the halves of this model's experts"
            " (convert_ckpt_deepseek4.py:732, _interleave_gate_up) and does not undo it on the way back; works:"
            " moe.tp_extend_ep=false"
        )
    if folded:
        raise ConvertError(
            "dualpipev: MindSpeed-LLM's converter places this model's layers as without it"
            " (convert_ckpt_deepseek4.py:383, _get_vpprank_hf_layeridxs), and its MTP layer as with it; works:"
            " another parallel.schedule"
        )


def compressed_respelled(tensors: Iterable[CoreTensor]) -> Iterator[CoreTensor]:
    """Yield the tensors as MindSpeed-LLM's modules have them; final norms of MTP layers are left to the caller."""
    begun: dict[tuple[str, int | None, str], CoreTensor] = {}
    for tensor in tensors:
        joined = _JOINED.get(tensor.name)
        if joined is not None:
            first, last, axis, name = joined
            key = (tensor.place, tensor.layer, name)
            begun[key] = replace(tensor, name=name) if tensor.name == first else _after(begun[key], tensor, axis)
            if tensor.name == last:
                yield begun.pop(key)
            continue
        name = _NAMES.get(tensor.name, tensor.name)
        # Experts of tokens are int64 there, as in Hugging Face files (core/transformer/moe/router.py:364 @master).
        yield replace(tensor, name=name, split=_SPLITS.get(name, tensor.split), dtype=None)


def _after(before: CoreTensor, tensor: CoreTensor, axis: int) -> CoreTensor:
    boxes = (*before.boxes, *(moved(box, axis, before.shape[axis]) for box in tensor.boxes))
    shape = tuple(size + tensor.shape[axis] if index == axis else size for index, size in enumerate(before.shape))
    return replace(before, boxes=boxes, shape=shape)
