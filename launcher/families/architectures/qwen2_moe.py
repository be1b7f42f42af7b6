"""Qwen1.5-MoE and Qwen2-MoE."""

from launcher.families.keys import QWEN2_PINNED, common, qwen_experts
from launcher.families.parts import ALTERNATE_WINDOW, SPARSE_LAYERS, heads, rope
from launcher.families.record import Family, Key
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED, QWEN_SPARSE, fused
from launcher.families.weights import Weights

FAMILY = Family(
    model_type="qwen2_moe",
    stem="Qwen2Moe",
    chat_template="qwen",
    keys=(
        *common(),
        *qwen_experts(),
        Key(field="shared_expert_intermediate_size"),
        Key(field="attention_bias", names=("qkv_bias",), default=True),
    ),
    parts=(heads(), rope(), ALTERNATE_WINDOW, SPARSE_LAYERS),
    fixed={"shared_expert_gate": True},
    pinned=QWEN2_PINNED,
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=QWEN_SPARSE,
        spellings=fused(),
        ignored=IGNORED,
    ),
)
