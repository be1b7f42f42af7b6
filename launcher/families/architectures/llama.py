"""Llama 2 and 3."""

from launcher.families.keys import PINNED, common
from launcher.families.parts import LLAMA_BIASES, heads, rope
from launcher.families.record import Family
from launcher.families.weight_rows import DENSE_WEIGHTS

FAMILY = Family(
    model_type="llama",
    stem="Llama",
    keys=common(),
    parts=(heads(grouped=False), rope(10000.0), LLAMA_BIASES),
    pinned=PINNED,
    weights=DENSE_WEIGHTS,
)
