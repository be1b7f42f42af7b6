"""Qwen3.5-MoE: the language model of a model that also reads images and video."""

from launcher.families.architectures.qwen3_5 import ALL_PINNED, APART, FIXED, KEYS, PARTS, TOKENS
from launcher.families.architectures.qwen3_next import MTP, MTP_NAMES
from launcher.families.architectures.qwen3_vl import TOWER
from launcher.families.keys import common, experts_only, qwen_experts
from launcher.families.record import Family, Key, Outer, Pinned
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, IGNORED, IN_LANGUAGE_MODEL, QWEN_SPARSE, fused
from launcher.families.weights import Weights

FAMILY = Family(
    model_type="qwen3_5_moe",
    stem="Qwen3_5Moe",
    keys=(
        *experts_only(common()),
        *(key for key in qwen_experts() if key.field != "norm_topk_prob"),
        Key(field="shared_expert_intermediate_size"),
        *KEYS,
    ),
    parts=PARTS,
    # modeling_qwen3_5_moe.py @5.24, Qwen3_5MoeTopKRouter: chosen scores are divided by their sum.
    fixed={**FIXED, "shared_expert_gate": True, "norm_topk_prob": True},
    pinned=(*ALL_PINNED, Pinned(name="norm_topk_prob", value=True, why="its class normalises the chosen scores")),
    outer=Outer(text_type="qwen3_5_moe_text", tokens=TOKENS, vision=TOWER),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=APART,
        dense=DENSE,
        sparse=QWEN_SPARSE,
        # Published with one tensor for all experts of a layer, and with one for each in layers that predict more tokens
        # (mcore-bridge 1.6.5 bridge/gpt_bridge.py:850).
        spellings=fused(written=True, in_mtp=False),
        mtp=MTP,
        mtp_names=MTP_NAMES,
        ignored=IGNORED,
        enclosing=IN_LANGUAGE_MODEL,
    ),
)
