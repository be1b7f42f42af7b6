"""What Megatron-Bridge's performance recipes set beyond what its tables of results say, release by release."""

from collections.abc import Mapping
from typing import Any

# Source: Megatron-Bridge v0.1.0rc4 scripts/performance/run_script.py (25.09), scripts/performance/configs/*/ of v0.2.0
# (25.11), v0.3.0 (26.02), v0.4.0 (26.04), v0.5.0 (26.06). B200's Qwen3-30B of 26.02.01 has the layout of v0.4.0.
_FLEX = ["moe.token_dispatcher_type=flex", "moe.deepep=true"]  # DeepEP or HybridEP
_BESIDE = ["moe.batch_overlap=true"]
_DROP = ["moe.capacity_factor=1.0", "moe.pad_to_capacity=true"]
_GRAPHS = ["hardware.host_launch_us=0"]
_EXCHANGE: dict[tuple[str, str], dict[str, list[str]]] = {
    ("qwen3_30b_a3b", "DGX-H100"): {"25.09": _DROP, "25.11": _BESIDE, "26.02": [*_FLEX, *_BESIDE], "26.0": _FLEX},
    ("qwen3_30b_a3b", "DGX-B200"): {"25.09": [*_DROP, *_GRAPHS], "26.02.01": _FLEX, "26.04": _FLEX},
    ("qwen3_235b_a22b", "DGX-H100"): {"25.09": _DROP, "25.11": _BESIDE, "26": _BESIDE},
    ("qwen3_235b_a22b", "DGX-B200"): {},
    ("deepseek_v3", "DGX-H100"): {"25.09": [*_FLEX, *_BESIDE]},
    ("deepseek_v3", "DGX-B200"): {"25.11": []},
}
# Of each model: what all its recipes set.
_ALWAYS: dict[str, list[str]] = {
    "llama3_1_405b": [
        *("model=llama3_70b", "model.num_hidden_layers=126", "model.hidden_size=16384"),
        *("model.intermediate_size=53248", "model.num_attention_heads=128"),
        *("parallel.account_for_embedding=true", "parallel.account_for_loss=true"),
    ],
    "qwen3_30b_a3b": ["moe.router_fusion=true", "precision.grad_reduce_in_fp32=false"],
    "qwen3_235b_a22b": [
        *("moe.router_fusion=true", "precision.grad_reduce_in_fp32=false"),
        *("parallel.account_for_embedding=true", "parallel.account_for_loss=true"),
    ],
    "deepseek_v3": ["moe.router_fusion=true", "precision.grad_reduce_in_fp32=false", "kernels.rope_fusion=true"],
}
_DEEPSEEK: dict[str, list[str]] = {
    "DGX-H100": ["parallel.layout='Et|" + "tt|" * 30 + "mL'", "recompute.modules=[mla_up_proj,mlp]"],
    "DGX-B200": ["parallel.layout='Etttt|" + "tttt|" * 14 + "tmL'", "recompute.modules=[mla_up_proj]"],
}


def overrides(preset: str, row: Mapping[str, Any]) -> list[str]:
    """Return the overrides that a row's recipe adds to its layout."""
    found = list(_ALWAYS.get(preset, ()))
    exchange = _EXCHANGE.get((preset, row["system"]), {})
    release = max((start for start in exchange if row["release"].startswith(start)), key=len, default=None)
    found += exchange[release] if release else []
    if preset == "deepseek_v3":
        found += ["recompute.granularity=selective", *_DEEPSEEK[row["system"]]]
    return found
