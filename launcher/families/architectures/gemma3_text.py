"""Gemma 3, its language model."""

from collections.abc import Mapping
from typing import Any, Final

from launcher.families import gemma
from launcher.families.parts import Part, heads
from launcher.families.record import Family
from launcher.families.rope import read_rope, write_rope
from launcher.families.source import Source
from launcher.job.model import Model
from launcher.job.schema import Value

# configuration_gemma3.py @5.24, default_theta.
_GLOBAL, _LOCAL = 1_000_000.0, 10_000.0
_FULL, _WINDOW = "full_attention", "sliding_attention"


def _read_positions(source: Source) -> dict[str, Value]:
    """Layers with a window have a base of their own, unscaled; transformers 5 nests both."""
    nested = source.get("rope_parameters", {})
    if not isinstance(nested, Mapping) or not nested:
        return {"rope_local_theta": _local(source, {}), **read_rope(source, _GLOBAL)}
    if set(nested) - {_FULL, _WINDOW}:
        source.problem(f"rope_parameters: needs one block for {_FULL} and one for {_WINDOW}")
        return {}
    whole = Source(
        {**source.config, "rope_parameters": nested.get(_FULL) or {}, "rope_scaling": None}, "", source.model_type
    )
    found = read_rope(whole, _GLOBAL)
    source.used |= whole.used
    source.problems += whole.problems
    return {"rope_local_theta": _local(source, nested.get(_WINDOW) or {}), **found}


def _local(source: Source, block: Mapping[str, Any]) -> Value:
    if block.get("rope_type", "default") != "default":
        source.problem(f"rope_parameters.{_WINDOW}.rope_type={block['rope_type']!r}: only default is known there")
    if "rope_theta" in block:
        return source.typed(f"rope_parameters.{_WINDOW}.rope_theta", block["rope_theta"], "rope_local_theta")
    return source.field("rope_local_theta", ("rope_local_base_freq",), _LOCAL)


_POSITIONS: Final = Part(
    read=_read_positions,
    write=lambda model: {**write_rope(model), **_written(model)},
    variants=("rope_local_theta",),
)


def _written(model: Model) -> dict[str, Any]:
    local = model.rope_theta if model.rope_local_theta is None else model.rope_local_theta
    return {"rope_local_base_freq": local}


# No backend builds it (backends/*/families.py), so no arrangement of its weights is known.
FAMILY = Family(
    model_type="gemma3_text",
    stem="Gemma3",
    keys=gemma.keys(attention_cap=None, output_cap=None),
    parts=(
        heads(explicit=True, default=256),
        _POSITIONS,
        gemma.layered_window(6, pattern="sliding_window_pattern"),
        *gemma.PARTS,
    ),
    fixed={**gemma.FIXED, "qk_layernorm": True},
    pinned=gemma.PINNED,
)
