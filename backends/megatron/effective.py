"""What ms-swift makes of arguments that only stand for others; facts for comparing command lines."""

from collections.abc import Mapping
from typing import Any

from launcher.catalogue.versions import in_range

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


def computed(values: Mapping[str, Any], version: str, devices: int) -> dict[str, Any]:
    """Return the values that swift gives to arguments that are absent: the learning rate, by what is trained.

    Source: swift/megatron/argument/megatron_args.py:615 @3.12.6, arguments/megatron_args.py:570 @4.0.0; before, the
    parser's default is 1e-5 whatever is trained.
    """
    if values.get("lr") is not None or not in_range(version, "3.7", None):
        return {}
    trained = values.get("tuner_type", values.get("train_type", "full"))
    return {"lr": 1e-5 if trained == "full" else 1e-4}
