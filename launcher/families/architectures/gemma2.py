"""Gemma 2."""

from launcher.families import gemma
from launcher.families.parts import heads, rope
from launcher.families.record import Family
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED, with_norms_of_outputs
from launcher.families.weights import Weights

FAMILY = Family(
    model_type="gemma2",
    stem="Gemma2",
    chat_template="gemma",
    keys=gemma.keys(attention_cap=50.0, output_cap=30.0),
    parts=(heads(explicit=True, default=256), rope(10000.0), gemma.layered_window(2), *gemma.PARTS),
    fixed=gemma.FIXED,
    pinned=gemma.PINNED,
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=with_norms_of_outputs(DENSE),
        ignored=IGNORED,
    ),
)
