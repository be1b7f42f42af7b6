"""Resolves MindSpeed-LLM's deprecated and derived arguments, for comparing command lines."""

from collections.abc import Mapping
from typing import Any

from backends.megatron_lm.effective import dialect

# features_manager/arguments/deprecated_args.py @26.1.0: copied to the new name with a warning.
_RENAMED = {
    "cp-attention-mask-type": "attention-mask-type",
    "moe-intermediate-size": "moe-ffn-hidden-size",
    "multi-head-latent-attention": "multi-latent-attention",
    "n-group": "moe-router-num-groups",
    "qk-nope-head-dim": "qk-head-dim",
    "qk-rope-head-dim": "qk-pos-emb-head-dim",
    "rope-scaling-beta-fast": "beta-fast",
    "rope-scaling-beta-slow": "beta-slow",
    "routed-scaling-factor": "moe-router-topk-scaling-factor",
    "topk-group": "moe-router-group-topk",
    "use-deter-comp": "npu-deterministic",
    "use-mc2": "use-ascend-mc2",
}
_SHARED, _SHARED_WIDTH = "n-shared-experts", "moe-shared-expert-intermediate-size"


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments under their newest names, with the width of the shared experts computed."""
    found = {_RENAMED.get(flag, flag): value for flag, value in dialect(values).items()}
    width = found.get("moe-ffn-hidden-size", found.get("ffn-hidden-size"))
    # features_manager/moe/shared_expert.py:16 @26.1.0
    if found.get(_SHARED) and isinstance(width, int) and _SHARED_WIDTH not in found:
        found[_SHARED_WIDTH] = found[_SHARED] * width
    if _SHARED_WIDTH in found:
        found.pop(_SHARED, None)
    return _all_experts(_weights_summing_to_one(_fused_permutation(found)))


# Balancing types that ignore --norm-topk-prob (core/transformer/moe/router.py:553-625 @26.1.0, :478-520 @2.1.0).
_NOT_NORMALISED = ("seq_aux_loss", "none", "noaux_tc", "sinkhorn")


def _weights_summing_to_one(values: dict[str, Any]) -> dict[str, Any]:
    """Drop --norm-topk-prob where it is not read, or where the weights already sum to one."""
    kind = values.get("moe-router-load-balancing-type", "aux_loss")
    single = values.get("moe-router-score-function") == "sigmoid" and values.get("moe-router-topk", 2) == 1
    summed = (
        not single
        and not values.get("moe-router-pre-softmax")
        and values.get("moe-expert-capacity-factor") is None
        and values.get("moe-router-topk-scaling-factor") in (None, 1.0)
    )
    if kind in _NOT_NORMALISED or (kind == "aux_loss" and summed):
        values.pop("norm-topk-prob", None)
    return values


def _fused_permutation(values: dict[str, Any]) -> dict[str, Any]:
    """Set both switches if either is set (MindSpeed features_manager/fusions/fused_moe_permute.py:42 @master)."""
    switches = ("use-fused-moe-token-permute-and-unpermute", "moe-permute-fusion")
    return {**values, **dict.fromkeys(switches, True)} if any(values.get(flag) for flag in switches) else values


def _all_experts(values: dict[str, Any]) -> dict[str, Any]:
    """Normalize settings for MoE in all layers: frequency -1 or 1, dense layers 0 or -1 (transformer_block.py:163)."""
    dense, every = values.get("first-k-dense-replace", 0), values.get("moe-layer-freq", 1)
    if str(every) not in ("1", "-1"):
        return values
    if dense not in (0, -1):
        return {**values, "moe-layer-freq": 1}  # modulo -1 is 0, as modulo 1
    return {flag: value for flag, value in values.items() if flag not in ("first-k-dense-replace", "moe-layer-freq")}
