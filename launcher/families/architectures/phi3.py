"""Phi-4; Phi-3 without longrope."""

from typing import Any

from launcher.families.keys import NO_BIAS, PINNED, common
from launcher.families.parts import Part, heads, rope
from launcher.families.record import Family, Key, Pinned
from launcher.families.source import Source
from launcher.families.weight_rows import EMBEDDING, FINAL, IGNORED, fused_attention, fused_dense
from launcher.families.weights import Weights
from launcher.job.model import Model


def _read_original(source: Source) -> dict[str, Any]:
    """original_max_position_embeddings beside rope_scaling is read for longrope only, which `rope` refuses."""
    source.get("original_max_position_embeddings")
    return {}


def _write_original(_model: Model) -> dict[str, Any]:
    return {}


_DROPOUT = "dropout of this place has no canonical field"

FAMILY = Family(
    model_type="phi3",
    stem="Phi3",
    keys=(*common(1e-5), Key(field="sliding_window", default=None)),
    parts=(
        heads(grouped=False),
        rope(10000.0, partial=1.0),
        Part(read=_read_original, write=_write_original),
    ),
    pinned=(
        *PINNED,
        NO_BIAS,
        Pinned(name="embd_pdrop", value=0.0, why=_DROPOUT),
        Pinned(name="resid_pdrop", value=0.0, why=_DROPOUT),
    ),
    weights=Weights(
        embedding=EMBEDDING, final=FINAL, attention=fused_attention(), dense=fused_dense(), ignored=IGNORED
    ),
)
