"""Seed-OSS, dense (36B): Llama's layers with biases on queries, keys and values."""

from launcher.families.keys import NO_MLP_BIAS, PINNED, common
from launcher.families.parts import Part, heads, rope
from launcher.families.record import Family, Key
from launcher.families.weight_rows import DENSE_WEIGHTS

_OUTPUT_BIAS = Part(
    read=lambda source: {"attention_output_bias": bool(source.get("attention_out_bias", False)) or None},
    write=lambda model: {"attention_out_bias": model.has_attention_output_bias},
    meaning=lambda model: {"attention_output_bias": model.has_attention_output_bias or None},
)

FAMILY = Family(
    model_type="seed_oss",
    stem="SeedOss",
    keys=(
        *(key for key in common() if key.field != "attention_dropout"),
        Key(field="attention_dropout", default=0.1),
        Key(field="hidden_dropout", names=("residual_dropout",), default=0.1),
        Key(field="attention_bias", default=True),
    ),
    parts=(heads(explicit=True, default=128), rope(10000.0), _OUTPUT_BIAS),
    pinned=(*PINNED, NO_MLP_BIAS),
    weights=DENSE_WEIGHTS,
)
