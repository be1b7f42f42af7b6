"""ERNIE 4.5, dense (0.3B): Llama's layers, whose rotary positions are interleaved."""

from launcher.families.keys import PINNED, common
from launcher.families.parts import Part, heads, rope
from launcher.families.record import Family
from launcher.families.source import Source
from launcher.families.weight_rows import DENSE_WEIGHTS
from launcher.job.schema import Value


def _read_biases(source: Source) -> dict[str, Value]:
    """Return the fields of `use_bias`, which is that of all linear layers (modeling_ernie4_5.py @5.24)."""
    bias = bool(source.get("use_bias", False))
    return {"attention_bias": bias, "linear_bias": bias, "attention_output_bias": bias or None}


_BIASES = Part(
    read=_read_biases,
    write=lambda model: {"use_bias": model.linear_bias},
    meaning=lambda model: {"attention_output_bias": model.has_attention_output_bias or None},
)

FAMILY = Family(
    model_type="ernie4_5",
    stem="Ernie4_5",
    # Of the repositories' own code, before transformers had the family.
    other_stems=("Ernie4_5_",),
    keys=tuple(key for key in common(1e-5, tied=True) if key.field != "attention_dropout"),
    parts=(heads(explicit=True, default=128), rope(500000.0), _BIASES),
    fixed={"rotary_interleaved": True, "attention_dropout": 0.0},
    pinned=PINNED,
    weights=DENSE_WEIGHTS,
)
