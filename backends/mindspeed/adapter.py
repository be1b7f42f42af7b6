"""How MindSpeed-LLM stores LoRA adapters: `--lora-load`, and what training with `--lora-ckpt-filter` saves.

Source @26.1.0: mindspeed_llm/training/checkpointing.py (_load_base_checkpoint_wrapper), tasks/posttrain/lora/utils.py
(filter_lora_keys), tasks/posttrain/lora/lora_moe.py (the layers), tasks/posttrain/lora/moe/experts.py
(LoraParallelGroupedMLP), tasks/checkpoint/convert_mg2hf.py (set_model_layer_attn_lora, set_model_layer_mlp_lora).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from backends.mindspeed.checkpoint import OLD_NAMES, OPTIONS, STACK, VERSION_OF_OLD_NAMES, is_on
from backends.mindspeed.mapping.lora import layer_names
from launcher.convert.formats.format import Layout, Target
from launcher.convert.layouts.core import CoreTensor
from launcher.convert.layouts.legacy import Experts, NamingScheme
from launcher.convert.logical import Logical
from launcher.convert.lora.legacy import legacy_adapters
from launcher.convert.lora.logical import Shared, target_modules
from launcher.convert.lora.stack import AdapterStack, adapter_of
from launcher.convert.slices import moved

BY_RANK: Final = True
"""Factors are always scaled by alpha / rank."""
SHARED: Final[Shared] = (("q_a_proj", "kv_a_proj_with_mqa"), ("q_proj", "kv_a_proj_with_mqa"))
"""MLA: both down projections are one plain linear layer in MindSpeed-LLM, `linear_qkv`."""
_ATTENTION: Final = "self_attention."
_QUERY_DOWN: Final = (f"{_ATTENTION}linear_q_down_proj", f"{_ATTENTION}linear_q_proj")
_KEY_VALUE_DOWN: Final = f"{_ATTENTION}linear_kv_down_proj"


def _scheme(logical: Logical, layout: Layout) -> NamingScheme:
    experts: Experts = "fused" if layout.grouped_experts else "sequential"
    return _spelled(experts, old=layout.version == VERSION_OF_OLD_NAMES)


def _found(_logical: Logical, names: frozenset[str], _args: Mapping[str, Any]) -> NamingScheme:
    return _spelled("sequential", old=any(".linear_kvb." in name or ".linear_qb." in name for name in names))


def _spelled(experts: Experts, *, old: bool) -> NamingScheme:
    def respell(logical: Logical, tensors: Iterable[CoreTensor]) -> Iterator[CoreTensor]:
        return _respelled(logical, tensors, old=old)

    return NamingScheme(naming="local", experts=experts, respell=respell, norm_with_head=True)


def _respelled(logical: Logical, tensors: Iterable[CoreTensor], *, old: bool) -> Iterator[CoreTensor]:
    """Merge the LoRA factors of both MLA down projections: one A, concatenated B, replicated on every rank."""
    query: dict[tuple[str, int | None], CoreTensor] = {}
    for tensor in tensors:
        stem, mark, end = tensor.name.partition(".lora_")
        if not logical.model.is_mla or not mark:
            yield tensor
        elif stem in _QUERY_DOWN and end.startswith("A."):
            yield replace(tensor, name=f"{_ATTENTION}linear_qkv.lora_{end}", split=None)
        elif stem in _QUERY_DOWN:
            query[tensor.place, tensor.layer] = tensor
        elif stem == _KEY_VALUE_DOWN and end.startswith("B."):
            yield _joined(query.pop((tensor.place, tensor.layer)), tensor, end)
        elif stem != _KEY_VALUE_DOWN:
            named = OLD_NAMES.get(f"{stem}.weight", f"{stem}.weight").removesuffix(".weight") if old else stem
            yield replace(tensor, name=f"{named}.lora_{end}")


def _joined(query: CoreTensor, key_value: CoreTensor, end: str) -> CoreTensor:
    boxes = (*query.boxes, *(moved(box, 0, query.shape[0]) for box in key_value.boxes))
    shape = (query.shape[0] + key_value.shape[0], *query.shape[1:])
    return replace(query, name=f"{_ATTENTION}linear_qkv.lora_{end}", shape=shape, boxes=boxes, split=None)


def _arguments(target: Target) -> dict[str, Any]:
    adapter = adapter_of(target)
    return {
        "lora_r": adapter.rank,
        "lora_alpha": int(adapter.alpha),
        "lora_target_modules": _targets(target),
        "lora_ckpt_filter": True,
        "lora_load": None,
    }


def _targets(target: Target) -> list[str]:
    adapter = adapter_of(target)
    found = target_modules(adapter.base, adapter.modules)
    if not adapter.base.model.is_mla:
        return found
    return list(layer_names(found, target.layout.version == VERSION_OF_OLD_NAMES))


def _refused(target: Target) -> Iterator[str]:
    adapter, layout = adapter_of(target), target.layout
    if adapter.rslora:
        yield "use_rslora: MindSpeed-LLM always multiplies by alpha / r; works: launch convert merge"
    if not float(adapter.alpha).is_integer():
        yield f"lora_alpha {adapter.alpha}: --lora-alpha takes a whole number; works: launch convert merge"
    if is_on(layout, "mla_mm_split"):
        yield "mla_mm_split: its projections have no factors in MindSpeed-LLM's converter; works: without mla_mm_split"
    if layout.experts_over_tp:
        yield "moe.tp_extend_ep: MindSpeed-LLM refuses LoRA with it; works: moe.tp_extend_ep=false"
    cores = {instance.row.core.partition(".lora_")[0] for instance in target.logical.instances}
    if "mlp.router" in cores:
        yield "the router's factors (mlp.gate): its router is no linear layer of MindSpeed-LLM's LoRA"
    if layout.grouped_experts and adapter.base.model.is_moe:
        experts = {core for core in cores if core.startswith("mlp.experts.")}
        if len(experts) < 2:
            yield "moe.grouped_gemm: all experts' layers have factors there; works: --rewrite, moe.grouped_gemm=false"


FORMAT = legacy_adapters(
    "mindspeed_adapter",
    "MindSpeed-LLM LoRA (torch)",
    AdapterStack(arguments=_arguments, refused=_refused, shared=SHARED),
    replace(STACK, scheme=_scheme, found=_found),
    options=OPTIONS,
)
"""Format that `--lora-load` loads."""
