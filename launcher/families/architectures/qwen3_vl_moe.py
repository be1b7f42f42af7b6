"""Qwen3-VL-MoE: its language model, which is Qwen3-MoE with positions in time, height and width."""

from launcher.families.architectures.qwen3_vl import SECTIONS, TOKENS, VISION
from launcher.families.keys import PINNED, common, qwen_experts
from launcher.families.parts import ATTENTION_BIAS, SPARSE_LAYERS, heads, mrope
from launcher.families.record import Family, Outer, Pinned
from launcher.families.weight_rows import (
    DENSE,
    EMBEDDING,
    EXPERTS,
    FINAL,
    GROUPED_ATTENTION,
    IGNORED,
    IN_LANGUAGE_MODEL,
    ROUTER,
    SPARSE_NORM,
    fused,
)
from launcher.families.weights import Weights

FAMILY = Family(
    model_type="qwen3_vl_moe",
    stem="Qwen3VLMoe",
    keys=(*common(), *(key for key in qwen_experts() if key.field != "norm_topk_prob")),
    parts=(heads(explicit=True), mrope(SECTIONS), SPARSE_LAYERS, ATTENTION_BIAS),
    # modeling_qwen3_vl_moe.py @5.24, Qwen3VLMoeTextTopKRouter: chosen scores are divided by their sum.
    fixed={"qk_layernorm": True, "position_embedding": "mrope", "norm_topk_prob": True},
    pinned=(*PINNED, Pinned(name="norm_topk_prob", value=True, why="its class normalises the chosen scores")),
    outer=Outer(text_type="qwen3_vl_moe_text", tokens=TOKENS, vision=VISION),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=(SPARSE_NORM, ROUTER, *EXPERTS),
        # Published with swapped dimensions; transformers 5 stores them as it computes with them (5.24
        # conversion_mapping.py:1450). mcore-bridge 1.6.5 reads and writes the former (bridge/gpt_bridge.py:867).
        spellings=(*fused(written=True, transposed=True), *fused()),
        ignored=IGNORED,
        enclosing=IN_LANGUAGE_MODEL,
    ),
)
