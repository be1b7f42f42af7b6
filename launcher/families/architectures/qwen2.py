"""Qwen2 and Qwen2.5."""

from launcher.families.keys import QWEN2_PINNED, common
from launcher.families.parts import LATER_WINDOW, heads, rope
from launcher.families.record import Family
from launcher.families.weight_rows import DENSE_WEIGHTS

FAMILY = Family(
    model_type="qwen2",
    stem="Qwen2",
    chat_template="qwen2_5",
    keys=common(),
    parts=(heads(), rope(), LATER_WINDOW),
    fixed={"attention_bias": True},
    pinned=QWEN2_PINNED,
    weights=DENSE_WEIGHTS,
)
