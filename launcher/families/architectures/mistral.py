"""Mistral, dense: 7B, Nemo, Small 24B; a window in all layers, or in none."""

from launcher.families.keys import PINNED, common
from launcher.families.parts import heads, rope
from launcher.families.record import Family, Key
from launcher.families.weight_rows import DENSE_WEIGHTS

FAMILY = Family(
    model_type="mistral",
    stem="Mistral",
    keys=(*common(), Key(field="sliding_window", default=4096, null=True)),
    parts=(heads(), rope()),
    pinned=PINNED,
    weights=DENSE_WEIGHTS,
)
