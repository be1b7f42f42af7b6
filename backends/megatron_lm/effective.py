"""Resolves aliases, defaults and ignored arguments of Megatron-LM, to compare command lines."""

from collections.abc import Mapping
from typing import Any

from launcher.families.layer_pattern import expand

# Accepted and ignored: --use-mcore-models (arguments.py:1746 @0.12.1, `deprecated_use_mcore_models`), and
# --ckpt-fully-parallel-save, which has become the default (`ckpt_fully_parallel_save_deprecated`).
# The others: deprecated without effect (arguments.py:921 @0.12.1, :1128 @0.16.1), or never read (@0.16.1).
_IGNORED = (
    "use-mcore-models",
    "ckpt-fully-parallel-save",
    "use-dist-ckpt",
    "dist-ckpt-format",
    "dist-ckpt-save-pre-mcore-014",
)
# Flag to the argument and value that validate_args sets (arguments.py:811, :379 @0.12.1, :434 @0.16.1).
_STANDS_FOR = {
    "use-rotary-position-embeddings": ("position-embedding-type", "rope"),
    "recompute-activations": ("recompute-granularity", "selective"),
    "enable-cuda-graph": ("cuda-graph-impl", "local"),
    "external-cuda-graph": ("cuda-graph-impl", "transformer_engine"),
}
# Sizes of an encoder without a decoder (arguments.py:787-793, :822-827 @core_v0.16.1).
_SIZES = {"encoder-num-layers": "num-layers", "encoder-seq-length": "seq-length"}
# Default of pretrain_gpt.py: args_defaults, pretrain_gpt.py:326 @0.12.1, :347 @0.16.1.
TOKENIZER = "GPT2BPETokenizer"
_CHUNKS, _LAYERS_OF_CHUNK = "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of pretrain_gpt.py with deprecated names resolved and defaults filled in."""
    found = dialect(values)
    if not found.get("use-legacy-models"):
        found.pop("use-flash-attn", None)  # Megatron-core's models read attention-backend instead
    found.setdefault("tokenizer-type", TOKENIZER)
    found.setdefault("eval-interval", 1000)  # 0.12.1's default; without it 0.16.1 divides by None (training.py:3307)
    chunks = chunks_of(found)
    if chunks is not None:
        found.pop(_LAYERS_OF_CHUNK)
        found |= {_CHUNKS: chunks} if chunks > 1 else {}
    if found.pop("moe-enable-deepep", False):
        found["moe-flex-dispatcher-backend"] = "deepep"  # its older name (transformer_config.py:1063 @0.16.1)
    if found.get("multi-latent-attention"):
        found.setdefault("rope-type", "yarn")  # MLATransformerConfig (transformer_config.py:2034 @0.16.1)
    return found


def dialect(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with deprecated names resolved, for every program that takes Megatron's arguments."""
    found = {flag: value for flag, value in values.items() if flag not in _IGNORED and flag not in _STANDS_FOR}
    for flag, (name, value) in _STANDS_FOR.items():
        if values.get(flag):
            found[name] = value
    for flag, name in _SIZES.items():
        if flag in found:
            found.setdefault(name, found.pop(flag))
    if found.get("moe-layer-recompute") and found.get("recompute-granularity", "selective") == "selective":
        _recompute_experts(found)
    if not found.get("disable-bias-linear"):
        found["add-qkv-bias"] = True  # "Keep the 'add bias' args in sync" (arguments.py:789 @0.12.1, :970 @0.16.1)
    own_scores = found.get("moe-router-load-balancing-type") == "sinkhorn"
    if own_scores or found.get("moe-router-score-function") == "sigmoid":
        found.pop("moe-router-pre-softmax", None)  # read for softmax only (moe_utils.py:724 @0.16.1, :372 @0.12.1)
    if found.get("num-query-groups") is not None and found["num-query-groups"] == found.get("num-attention-heads"):
        found = {
            flag: value for flag, value in found.items() if flag not in ("group-query-attention", "num-query-groups")
        }
    if found.get("cuda-graph-scope") in ("full", ["full"], ("full",)):
        found.pop("cuda-graph-scope")  # the default, by its older name (arguments.py:1255 @0.16.1)
    if found.get("position-embedding-type") == "rope":
        found.pop("no-position-embedding", None)  # not read then (arguments.py:822 @0.12.1)
    places = found.get("moe-layer-freq")
    if isinstance(places, str) and not places.strip("-").isdigit():
        found["moe-layer-freq"] = str(expand(places) or places)
    if not found.get("num-experts"):
        found.pop("expert-tensor-parallel-size", None)
    return found


def _recompute_experts(found: dict[str, Any]) -> None:
    """Replace the older flag for recomputing experts by modules (transformer_config.py:1255 @0.16.1, :754 @0.12.1)."""
    given = found.get("recompute-modules") or ["core_attn"]
    modules = list(given) if isinstance(given, (list, tuple)) else [given]
    del found["moe-layer-recompute"]
    found["recompute-granularity"] = "selective"
    found["recompute-modules"] = modules if "moe" in modules else [*modules, "moe"]


def chunks_of(values: Mapping[str, Any]) -> int | None:
    """Return the chunks per pipeline stage where the layers per chunk are set (arguments.py:443-464 @0.12.1).

    None: they are not set, or the layers do not divide (which validate_args rejects).
    """
    per_chunk, layers = values.get(_LAYERS_OF_CHUNK), values.get("num-layers", values.get("encoder-num-layers"))
    uneven = values.get("decoder-first-pipeline-num-layers") or values.get("decoder-last-pipeline-num-layers")
    if not isinstance(per_chunk, int) or not isinstance(layers, int) or per_chunk < 1 or uneven:
        return None
    for end in ("embedding", "loss"):
        layers += bool(values.get(f"account-for-{end}-in-pipeline-split"))
    size = per_chunk * values.get("pipeline-model-parallel-size", 1)
    return layers // size if layers % size == 0 else None
