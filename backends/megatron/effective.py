"""Resolves aliases, defaults and unused arguments of ms-swift, to compare command lines."""

from collections.abc import Mapping
from typing import Any

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
_UNREAD = ("load_safetensors", "use_flash_attn", "distributed_backend")


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the precision as torch_dtype only, and with swift's default of the per-token loss.

    Without --torch_dtype swift uses the one in config.json (swift/arguments/base_args/model_args.py:120), which is
    bfloat16 for every model in its examples; --bf16 and --fp16 also set it (megatron_args.py:1103-1114 @4.6.0).
    --load_safetensors is unused in 3.12.6 (declared in swift/megatron/argument/megatron_args.py:328 only).
    --use_flash_attn is not read by Megatron-core models, the only ones that swift 3.x builds.
    --distributed_backend is unused: the collectives are already initialized with ddp_backend.
    calculate_per_token_loss is true for language models except in RLHF (megatron_args.py:758 @4.6.0).
    """
    found = {flag: value for flag, value in values.items() if flag not in (*_DTYPES, *_UNREAD)}
    said = next((dtype for flag, dtype in _DTYPES.items() if values.get(flag)), "bfloat16")
    found.setdefault("torch_dtype", said)
    if found.get("moe_layer_recompute") and found.get("recompute_granularity", "selective") == "selective":
        del found["moe_layer_recompute"]
        modules = found.get("recompute_modules") or ["core_attn"]
        found["recompute_modules"] = [*modules, *(() if "moe" in modules else ("moe",))]
        found["recompute_granularity"] = "selective"
    if found.get("calculate_per_token_loss") is None:
        causal = values.get("task_type") in (None, "causal_lm")
        found["calculate_per_token_loss"] = causal and values.get("rlhf_type") is None
    return found
