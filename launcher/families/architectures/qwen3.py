"""Qwen3, dense."""

from launcher.families.keys import PINNED, common
from launcher.families.parts import ATTENTION_BIAS, LATER_WINDOW, heads, rope
from launcher.families.record import Family
from launcher.families.weight_rows import DENSE_WEIGHTS

FAMILY = Family(
    model_type="qwen3",
    stem="Qwen3",
    chat_template="qwen3",
    keys=common(),
    parts=(heads(explicit=True, default=128), rope(), LATER_WINDOW, ATTENTION_BIAS),
    fixed={"qk_layernorm": True},
    pinned=PINNED,
    weights=DENSE_WEIGHTS,
)
