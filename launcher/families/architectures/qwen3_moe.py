"""Qwen3-MoE and Qwen3-Coder."""

from launcher.families.keys import PINNED, common, qwen_experts
from launcher.families.parts import ATTENTION_BIAS, SPARSE_LAYERS, WHOLE_WINDOW, heads, rope
from launcher.families.record import Family, Pinned
from launcher.families.weight_rows import (
    DENSE,
    EMBEDDING,
    EXPERTS,
    FINAL,
    GROUPED_ATTENTION,
    IGNORED,
    ROUTER,
    SPARSE_NORM,
    fused,
)
from launcher.families.weights import Weights

# Qwen3-Coder's config.json has keys that transformers' class does not define.
_CODER = (
    Pinned(name="use_qk_norm", value=True, why="its class normalises query and key heads"),
    Pinned(name="qkv_bias", value=False, why="its class has no such bias"),
    Pinned(name="shared_expert_intermediate_size", value=0, why="its class has no shared expert"),
)


FAMILY = Family(
    model_type="qwen3_moe",
    stem="Qwen3Moe",
    chat_template="qwen3",
    keys=(*common(), *qwen_experts()),
    parts=(heads(explicit=True), rope(), WHOLE_WINDOW, SPARSE_LAYERS, ATTENTION_BIAS),
    fixed={"qk_layernorm": True},
    pinned=(*PINNED, *_CODER),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=(SPARSE_NORM, ROUTER, *EXPERTS),
        spellings=fused(),
        ignored=IGNORED,
    ),
)
