"""What ms-swift makes of arguments that only stand for others; facts for comparing command lines."""

from collections.abc import Mapping
from typing import Any

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
_UNREAD = ("load_safetensors", "use_flash_attn", "distributed_backend")


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the precision said in one way, and the loss per token as swift chooses it.

    Without --torch_dtype swift takes the one of config.json (swift/arguments/base_args/model_args.py:120), which is
    bfloat16 for every model of its examples; --bf16 and --fp16 set it, too (megatron_args.py:1103-1114 @4.6.0).
    --load_safetensors is read by nothing in 3.12.6 (declared in swift/megatron/argument/megatron_args.py:328 only),
    --use_flash_attn by no model of Megatron-core, and in 3.x swift builds no others,
    --distributed_backend by nothing either: swift has started the collectives with ddp_backend before.
    The loss of a language model is one per token unless this is RLHF (megatron_args.py:758 @4.6.0).
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
