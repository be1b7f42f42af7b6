"""Normal form of Megatron-LM's arguments after validation, to compare command lines."""

from collections.abc import Mapping
from typing import Any

from launcher.families.layer_pattern import expand

# Accepted and ignored: --use-mcore-models (arguments.py:1746 @0.12.1, `deprecated_use_mcore_models`), and
# --ckpt-fully-parallel-save, which has become the default (`ckpt_fully_parallel_save_deprecated`).
# Then: deprecated without effect (arguments.py:921 @0.12.1, :1128 @0.16.1), or never read (@0.16.1); and those that
# only validation reads, which sets what they stand for (rules/effective_layout.py).
_IGNORED = (
    "use-mcore-models",
    "ckpt-fully-parallel-save",
    "use-dist-ckpt",
    "dist-ckpt-format",
    "dist-ckpt-save-pre-mcore-014",
    "use-rotary-position-embeddings",
    "recompute-activations",
    "enable-cuda-graph",
    "external-cuda-graph",
)
# Sizes of an encoder without a decoder (arguments.py:787-793, :822-827 @core_v0.16.1).
_SIZES = {"encoder-num-layers": "num-layers", "encoder-seq-length": "seq-length"}
_OF_CHUNKS = ("no-overlap-p2p-communication", "no-align-param-gather")
# Default of pretrain_gpt.py: args_defaults, pretrain_gpt.py:326 @0.12.1, :347 @0.16.1.
TOKENIZER = "GPT2BPETokenizer"
_CHUNKS, _LAYERS_OF_CHUNK = "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of pretrain_gpt.py, after validation, without what training does not read."""
    found = dialect(values)
    if not found.get("use-legacy-models"):
        found.pop("use-flash-attn", None)  # Megatron-core's models read attention-backend instead
    found.setdefault("eval-interval", 1000)  # 0.12.1's default; without it 0.16.1 divides by None (training.py:3307)
    chunks = chunks_of(found)
    if chunks is not None:
        found.pop(_LAYERS_OF_CHUNK)
        found |= {_CHUNKS: chunks} if chunks > 1 else {}
    if found.get(_CHUNKS, 1) == 1:  # only the schedule with chunks overlaps
        found = {flag: value for flag, value in found.items() if flag not in _OF_CHUNKS}
    if found.pop("moe-enable-deepep", False):
        found["moe-flex-dispatcher-backend"] = "deepep"  # its older name (transformer_config.py:1063 @0.16.1)
    return found


def dialect(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with deprecated names resolved, for every program that takes Megatron's arguments."""
    found = {flag: value for flag, value in values.items() if flag not in _IGNORED}
    for flag, name in _SIZES.items():
        if flag in found:
            found.setdefault(name, found.pop(flag))
    if found.get("recompute-granularity") == "selective":
        found.pop("moe-layer-recompute", None)  # the configuration has added the module
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
