"""Qwen2.5-VL: its language model, which is Qwen2.5 with positions in time, height and width."""

from typing import Any, Final

from launcher.families.keys import PINNED, common
from launcher.families.parts import LATER_WINDOW, heads, mrope
from launcher.families.record import Family, Outer
from launcher.families.weight_rows import BESIDE_LANGUAGE_MODEL, DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED
from launcher.families.weights import Weights

# configuration_qwen2_5_vl.py @5.24, and vision_token_id of the published files.
TOKENS: Final = {
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "vision_token_id": 151654,
    "image_token_id": 151655,
    "video_token_id": 151656,
}
# The published towers' sizes: the class has others for two of them (hidden_size 3584, tokens_per_second 4).
VISION: Final[dict[str, Any]] = {
    "depth": 32,
    "hidden_act": "silu",
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "tokens_per_second": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
WEIGHTS: Final = Weights(
    embedding=EMBEDDING,
    final=FINAL,
    attention=GROUPED_ATTENTION,
    dense=DENSE,
    ignored=IGNORED,
    enclosing=BESIDE_LANGUAGE_MODEL,
)

FAMILY = Family(
    model_type="qwen2_5_vl",
    stem="Qwen2_5_VL",
    keys=common(1e-5),
    parts=(heads(), mrope((16, 24, 24), interleaved=False), LATER_WINDOW),
    fixed={"attention_bias": True, "position_embedding": "mrope"},
    pinned=PINNED,
    outer=Outer(text_type="qwen2_5_vl_text", tokens=TOKENS, vision=VISION, flat=True),
    weights=WEIGHTS,
)
