"""OLMoE."""

from launcher.families.keys import NO_BIAS, PINNED, common
from launcher.families.parts import ONE_WIDTH, heads, rope
from launcher.families.record import Family, Key, Pinned
from launcher.families.weight_rows import (
    DENSE,
    EMBEDDING,
    EXPERTS,
    FINAL,
    IGNORED,
    ROUTER,
    SPARSE_NORM,
    WIDE_NORM_ATTENTION,
    fused,
)
from launcher.families.weights import Weights

FAMILY = Family(
    model_type="olmoe",
    stem="Olmoe",
    keys=(
        *common(1e-5),
        Key(field="num_experts", names=("num_experts", "num_local_experts")),
        Key(field="num_experts_per_tok"),
        Key(field="norm_topk_prob", default=False),
    ),
    parts=(heads(grouped=False), rope(10000.0), ONE_WIDTH),
    fixed={"qk_layernorm": True, "qk_norm_type": "per_layer"},
    pinned=(
        *PINNED,
        NO_BIAS,
        Pinned(name="clip_qkv", value=None, why="clipped queries, keys and values have no canonical field"),
    ),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=WIDE_NORM_ATTENTION,
        dense=DENSE,
        sparse=(SPARSE_NORM, ROUTER, *EXPERTS),
        spellings=fused(),
        ignored=IGNORED,
    ),
)
