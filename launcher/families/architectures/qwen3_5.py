"""Qwen3.5: the language model of a model that also reads images and video."""

from dataclasses import replace
from typing import Final

from launcher.families.architectures.qwen3_next import ATTENTION, MTP, MTP_NAMES
from launcher.families.architectures.qwen3_vl import TOWER
from launcher.families.attention import LINEAR_LAYERS
from launcher.families.keys import NO_BIAS, PINNED, common
from launcher.families.parts import heads, mrope
from launcher.families.record import Family, Key, Outer, Pinned
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, IGNORED, IN_LANGUAGE_MODEL
from launcher.families.weights import HfTensor, Row, Weights, hf
from launcher.job.model import LINEAR_HEADS
from launcher.job.schema import Value

# Qwen3-Next's two projections of linear attention are four here, and not sorted by key head.
_PROJECTIONS: Final[tuple[HfTensor, ...]] = (
    hf("linear_attn.in_proj_qkv.weight", "linear_conv", "hidden"),
    hf("linear_attn.in_proj_z.weight", "linear_value", "hidden"),
    hf("linear_attn.in_proj_b.weight", "linear_values", "hidden"),
    hf("linear_attn.in_proj_a.weight", "linear_values", "hidden"),
)
APART: Final[tuple[Row, ...]] = tuple(
    replace(row, hf=_PROJECTIONS) if row.core == "self_attention.in_proj.weight" else row for row in ATTENTION
)

# configuration_qwen3_5.py @5.24, Qwen3_5Config; the MoE model's are the same.
TOKENS: Final = {
    "image_token_id": 248056,
    "video_token_id": 248057,
    "vision_start_token_id": 248053,
    "vision_end_token_id": 248054,
}
KEYS: Final = (
    *(Key(field=name, default=usual) for name, usual in LINEAR_HEADS.items()),
    # Its class builds no such layer: without the key there is none.
    Key(field="num_nextn_predict_layers", names=("mtp_num_hidden_layers",), default=0),
)
# modeling_qwen3_5.py @5.24, Qwen3_5TextRotaryEmbedding.
PARTS: Final = (heads(explicit=True, default=256), mrope((11, 11, 10), partial=0.25), LINEAR_LAYERS)
FIXED: Final[dict[str, Value]] = {
    "experimental_attention_variant": "gated_delta_net",
    "attention_output_gate": True,
    "norm_zero_centered": True,
    "qk_layernorm": True,
    "position_embedding": "mrope",
}
ALL_PINNED: Final = (
    *PINNED,
    NO_BIAS,
    Pinned(name="attn_output_gate", value=True, why="its class gates the output of attention"),
    Pinned(name="mtp_use_dedicated_embeddings", value=False, why="the layers that predict more tokens share them"),
    Pinned(name="mlp_only_layers", value=[], why="its class has no other layers among its own"),
)

FAMILY = Family(
    model_type="qwen3_5",
    stem="Qwen3_5",
    keys=(*common(), *KEYS),
    parts=PARTS,
    fixed=FIXED,
    pinned=ALL_PINNED,
    outer=Outer(text_type="qwen3_5_text", tokens=TOKENS, vision=TOWER),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=APART,
        dense=DENSE,
        mtp=MTP,
        mtp_names=MTP_NAMES,
        ignored=IGNORED,
        enclosing=IN_LANGUAGE_MODEL,
    ),
)
