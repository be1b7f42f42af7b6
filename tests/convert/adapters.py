"""Random LoRA adapters of the zoo's models, as PEFT saves them, written without PEFT."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PREFIX = "base_model.model."
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.0,
    "bias": "none",
    "use_rslora": False,
}


def linear_modules(model: Path) -> dict[str, tuple[int, int]]:
    """Module to the shape of its weight: everything that a training stack gives factors to, router aside."""
    from launcher.convert.logical import logical_model
    from launcher.convert.lora.logical import adaptable
    from launcher.convert.model import model_in

    return {
        part: (shape[0], shape[1])
        for instance, parts in adaptable(logical_model(model_in(model)))
        for part, shape in zip(parts, instance.shapes, strict=True)
        if instance.row.core != "mlp.router.weight"
    }


def shared_with(module: str) -> str:
    """The module whose A it has in a training stack."""
    linear = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"), ("in_proj_qkvz", "in_proj_ba")
    for names in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"), *linear):
        head, _, leaf = module.rpartition(".")
        if leaf in names:
            return f"{head}.{names[0]}"
    return module


def adapter_arrays(
    modules: Mapping[str, tuple[int, int]],
    *,
    rank: Callable[[str], int] = lambda module: 4,
    shared: bool = True,
    seed: int = 0,
) -> dict[str, Any]:
    """Name to random factors; with `shared`, A is one for modules that are one layer in a training stack."""
    import numpy as np

    random = np.random.default_rng(seed)
    firsts: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for module, (rows, columns) in modules.items():
        own = random.standard_normal((rank(module), columns)).astype(np.float32) * 0.1
        a = firsts.setdefault(shared_with(module), own) if shared else own
        found[f"{module}.lora_A.weight"] = a
        found[f"{module}.lora_B.weight"] = random.standard_normal((rows, rank(module))).astype(np.float32) * 0.1
    return found


def write_adapter(folder: Path, arrays: Mapping[str, Any], **changes: Any) -> Path:
    """Write an adapter's folder."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    leaves = sorted({name.rpartition(".lora_")[0].rpartition(".")[2] for name in arrays})
    tree = {**CONFIG, "target_modules": leaves, **changes}
    (folder / "adapter_config.json").write_text(json.dumps(tree, indent=2, sort_keys=True))
    named = {PREFIX + name: value for name, value in arrays.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def fused_arrays(folder: Path, *, rank: int = 4) -> dict[str, Any]:
    """Factors of all experts' fused parameters, as PEFT's `target_parameters` has them."""
    import numpy as np

    random = np.random.default_rng(1)
    config = json.loads((folder / "config.json").read_text())
    hidden, experts = config["hidden_size"], config.get("num_experts") or config["num_local_experts"]
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    shapes = {"base_layer.": (2 * width, hidden), "": (hidden, width)}
    found = {}
    for layer in range(config["num_hidden_layers"]):
        for inner, (rows, columns) in shapes.items():
            start = f"model.layers.{layer}.mlp.experts.{inner}lora_"
            found[f"{start}A.weight"] = random.standard_normal((experts * rank, columns)).astype(np.float32) * 0.1
            found[f"{start}B.weight"] = random.standard_normal((rows, experts * rank)).astype(np.float32) * 0.1
    return found
