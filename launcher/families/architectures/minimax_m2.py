"""MiniMax-M2."""

from typing import Any, Final

from launcher.families.keys import NO_BIAS, PINNED, common
from launcher.families.parts import ONE_WIDTH, Part, heads
from launcher.families.record import Family, Key, Pinned
from launcher.families.rope import read_rope, write_rope
from launcher.families.source import Source
from launcher.families.weight_rows import (
    DENSE,
    EMBEDDING,
    FINAL,
    IGNORED,
    SPARSE_NORM,
    WIDE_NORM_ATTENTION,
    fused,
    gated,
)
from launcher.families.weights import Row, Spelling, Weights, hf
from launcher.job.model import Model
from launcher.job.schema import Value

_EXPERT: Final = ("w1", "w3", "w2")
_HEAD: Final = 128
# What transformers' class does without reading the key, and other readers (mcore-bridge) read.
_WRITTEN: Final = {
    "qk_norm_type": "per_layer",
    "scoring_func": "sigmoid",
    "use_qk_norm": True,
    "use_routing_bias": True,
}
# Keys of the published file that its class does not read: the weights have neither a shared MLP nor prediction layers.
_UNUSED: Final = ("mlp_intermediate_size", "shared_moe_mode", "use_mtp", "num_mtp_modules", "mtp_transformer_layers")


def _read_rope(source: Source) -> dict[str, Value]:
    """rotary_dim is the rotated share of a head in dimensions (MiniMaxM2Config.convert_rope_params_to_dict)."""
    found = read_rope(source, 5000000.0, partial=1.0)
    rotated, head = source.get("rotary_dim"), source.get("head_dim", _HEAD)
    if rotated is None:
        return found
    share = source.typed("rotary_dim", rotated / head, "partial_rotary_factor")
    block = source.config.get("rope_parameters") or {}
    named = "partial_rotary_factor" in source.config or "partial_rotary_factor" in block
    if named and found["partial_rotary_factor"] != share:
        source.problem(f"rotary_dim={rotated} and partial_rotary_factor={found['partial_rotary_factor']} differ")
    return {**found, "partial_rotary_factor": share}


def _write_rope(model: Model) -> dict[str, Any]:
    rotated = round((model.head_size or 0) * model.partial_rotary_factor)
    return {**write_rope(model, partial=True), "rotary_dim": rotated}


def _read_unused(source: Source) -> dict[str, Value]:
    for name in _UNUSED:
        source.get(name)
    if set(source.get("attn_type_list", ())) - {1}:
        source.problem("attn_type_list: only 1 (softmax attention) in every layer can be expressed")
    return {}


FAMILY = Family(
    model_type="minimax_m2",
    stem="MiniMaxM2",
    keys=(
        *common(),
        Key(field="num_experts", names=("num_local_experts", "num_experts")),
        Key(field="num_experts_per_tok"),
    ),
    parts=(
        heads(explicit=True, default=_HEAD),
        Part(read=_read_rope, write=_write_rope),
        ONE_WIDTH,
        Part(read=_read_unused, write=lambda model: _WRITTEN),
    ),
    fixed={
        "qk_layernorm": True,
        "qk_norm_type": "per_layer",
        "scoring_func": "sigmoid",
        "router_expert_bias": True,
        "norm_topk_prob": True,
    },
    pinned=(
        *PINNED,
        NO_BIAS,
        *(Pinned(name=name, value=value, why="its class has no other") for name, value in _WRITTEN.items()),
        *(
            Pinned(name=f"layernorm_{name}_beta", value=1.0, why="scaled residual connections have no canonical field")
            for name in ("full_attention", "linear_attention", "mlp")
        ),
        Pinned(name="shared_intermediate_size", value=0, why="its class has no shared expert"),
        Pinned(name="sliding_window", value=None, why="its class has no window"),
    ),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=WIDE_NORM_ATTENTION,
        dense=DENSE,
        sparse=(
            SPARSE_NORM,
            Row(core="mlp.router.weight", hf=(hf("block_sparse_moe.gate.weight", "experts", "hidden"),)),
            Row(
                core="mlp.router.expert_bias",
                hf=(hf("block_sparse_moe.e_score_correction_bias", "experts"),),
                exact=True,
            ),
            *gated("mlp.experts.{expert}", "block_sparse_moe.experts.{expert}", "expert_ffn", _EXPERT),
        ),
        spellings=(
            Spelling(stored="mlp.gate.weight", parts=("block_sparse_moe.gate.weight",)),
            Spelling(stored="mlp.e_score_correction_bias", parts=("block_sparse_moe.e_score_correction_bias",)),
            *fused("block_sparse_moe.experts", _EXPERT),
        ),
        ignored=IGNORED,
    ),
)
