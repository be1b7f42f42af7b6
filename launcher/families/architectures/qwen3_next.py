"""Qwen3-Next."""

from launcher.families.attention import LINEAR_LAYERS
from launcher.families.keys import NO_BIAS, PINNED, common, qwen_experts
from launcher.families.parts import SPARSE_LAYERS, heads, rope
from launcher.families.record import Family, Key, Pinned
from launcher.job.model import LINEAR_HEADS

FAMILY = Family(
    model_type="qwen3_next",
    stem="Qwen3Next",
    keys=(
        *common(),
        *qwen_experts(norm_topk_prob=True),
        Key(field="shared_expert_intermediate_size"),
        *(Key(field=name, default=usual) for name, usual in LINEAR_HEADS.items()),
    ),
    parts=(heads(explicit=True, default=256), rope(partial=0.25), SPARSE_LAYERS, LINEAR_LAYERS),
    fixed={
        "experimental_attention_variant": "gated_delta_net",
        "attention_output_gate": True,
        "norm_zero_centered": True,
        "qk_layernorm": True,
        "shared_expert_gate": True,
    },
    pinned=(
        *PINNED,
        NO_BIAS,
        Pinned(name="use_sliding_window", value=False, why="its class knows no window"),
    ),
)
