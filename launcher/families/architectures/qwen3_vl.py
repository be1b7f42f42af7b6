"""Qwen3-VL, dense: its language model, which is Qwen3 with positions in time, height and width."""

from typing import Any, Final

from launcher.families.keys import PINNED, common
from launcher.families.parts import ATTENTION_BIAS, heads, mrope
from launcher.families.record import Family, Outer
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED, IN_LANGUAGE_MODEL
from launcher.families.weights import Weights

# configuration_qwen3_vl.py @5.24, Qwen3VLConfig; the MoE model's are the same.
TOKENS: Final = {
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
}
# Qwen3VLVisionConfig there, and Qwen3_5VisionConfig of configuration_qwen3_5.py @5.24.
TOWER: Final[dict[str, Any]] = {
    "depth": 27,
    "hidden_size": 1152,
    "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 4304,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 2304,
}
VISION: Final[dict[str, Any]] = {**TOWER, "deepstack_visual_indexes": [8, 16, 24]}
# modeling_qwen3_vl.py @5.24, Qwen3VLTextRotaryEmbedding.
SECTIONS: Final = (24, 20, 20)

FAMILY = Family(
    model_type="qwen3_vl",
    stem="Qwen3VL",
    keys=common(),
    parts=(heads(explicit=True, default=128), mrope(SECTIONS), ATTENTION_BIAS),
    fixed={"qk_layernorm": True, "position_embedding": "mrope"},
    pinned=PINNED,
    outer=Outer(text_type="qwen3_vl_text", tokens=TOKENS, vision=VISION),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        ignored=IGNORED,
        enclosing=IN_LANGUAGE_MODEL,
    ),
)
