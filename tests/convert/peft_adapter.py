"""Adapters that PEFT's own classes write for the zoo's models, as a training stack can have them unchanged."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tests.convert import zoo
from tests.convert.twins import twin_of

# Modules that no adapter of a training stack changes: the vision tower, the output layer, routers, indexers.
_LEFT = {"visual", "lm_head", "gate", "router", "shared_expert_gate", "indexer"}
_GATED = ("gate_proj", "up_proj", "down_proj")


def write_peft_adapter(folder: Path, out: Path, shared: tuple[tuple[str, str], ...] = ()) -> Path:
    """Write an adapter of all linear layers and fused experts of the language model, with random factors.

    Args:
        folder: the model.
        out: the adapter's folder.
        shared: modules that a training stack fuses into one layer, besides the table's rows.
    """
    import torch

    peft = import_module("peft")
    model = zoo.loaded(twin_of(folder))
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and not _LEFT & set(name.split("."))
    ]
    fused = sorted(
        {
            name.partition(".layers.")[2].partition(".")[2]
            for name, value in model.named_parameters()
            if ".experts." in name and value.dim() == 3
        },
        reverse=True,
    )
    if fused:
        # PEFT 0.20 takes dense and shared layers of such names for experts, whatever their full name.
        linear = [name for name in linear if not name.endswith(_GATED)]
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=linear, target_parameters=fused or None)
    torch.manual_seed(0)
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                value.copy_(torch.randn(value.shape) * 0.1)
        _share(adapted, folder, shared)
    adapted.save_pretrained(out)
    return out


def _share(adapted: Any, folder: Path, shared: tuple[tuple[str, str], ...]) -> None:
    """Give modules that are one layer in a training stack one factor A."""
    from launcher.convert.logical import logical_model
    from launcher.convert.lora.logical import groups
    from launcher.convert.model import model_in

    base = logical_model(model_in(folder))
    factors = {
        base.family.usual(name.removeprefix("base_model.model.").removesuffix(".lora_A.default.weight")): value
        for name, value in adapted.named_parameters()
        if name.endswith(".lora_A.default.weight")
    }
    for first, *others in groups(base, shared):
        for other in others:
            if other in factors:
                factors[other].copy_(factors[first])
