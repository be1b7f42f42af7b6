"""A tiny model with a random PEFT adapter, and what PEFT itself makes of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tests.convert import zoo


def write_case(name: str, folder: Path, *, rslora: bool, dtype: str) -> None:
    """Write model, adapter and PEFT's merged model: base, adapter, merged."""
    import torch
    import transformers

    peft = import_module("peft")
    base = zoo.make(name, folder / "base", dtype=dtype)
    kinds: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    model = transformers.AutoModelForCausalLM.from_pretrained(base, **kinds)
    grouped = ["q_proj", "k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    # Shared experts and dense layers of DeepSeek have the names of the fused experts' parts: attention only.
    latent = ["q_a_proj", "q_b_proj", "kv_b_proj", "o_proj"]
    config = peft.LoraConfig(
        r=4,
        lora_alpha=8,
        use_rslora=rslora,
        target_modules=latent if name.startswith("deepseek") else grouped,
        rank_pattern={"layers.0.self_attn.o_proj": 6},
        alpha_pattern={"o_proj": 3},
        task_type="CAUSAL_LM",
    )
    if name in ("qwen2_moe", "qwen3_moe", "mixtral"):
        # transformers 5 fuses experts: one pair of factors for all of them.
        config.target_modules, config.exclude_modules = ["q_proj", "k_proj", "o_proj"], None
        config.target_parameters = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
        config.rank_pattern["layers.1.mlp.experts.down_proj"] = 3
    adapted = peft.get_peft_model(model, config)
    torch.manual_seed(0)
    with torch.no_grad():
        for key, value in adapted.named_parameters():
            if "lora_B" in key:
                value.copy_(torch.randn(value.shape) * 0.05)
    adapted.save_pretrained(folder / "adapter")
    adapted.merge_and_unload().save_pretrained(folder / "merged")
