"""What the generations of Gemma share: norms, activation, scales, soft caps, and a window in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.families.keys import NO_PRUNING, common
from launcher.families.parts import ATTENTION_BIAS, Part
from launcher.families.record import Key, Pinned
from launcher.families.source import Source
from launcher.job.model import Model
from launcher.job.schema import Value

_FULL, _WINDOW = "full_attention", "sliding_attention"
_ACTIVATION = "gelu_pytorch_tanh"

# modeling_gemma2.py, modeling_gemma3.py @5.24: Gemma2RMSNorm multiplies by 1 + weight, Gemma2DecoderLayer has four
# norms, the embeddings are multiplied by sqrt(hidden_size).
FIXED: Final[Mapping[str, Value]] = {
    "hidden_act": "geglu_tanh",
    "norm_zero_centered": True,
    "norms_of_outputs": True,
    "scale_embeddings": True,
}
PINNED: Final = (
    NO_PRUNING,
    Pinned(name="use_bidirectional_attention", value=False, why="attention is causal"),
)


def keys(*, attention_cap: float | None, output_cap: float | None) -> tuple[Key, ...]:
    """Return the keys of config.json; the caps are the defaults of the family's class."""
    return (
        *common(tied=True),
        Key(field="query_pre_attn_scalar", default=256),
        Key(field="attn_logit_softcapping", default=attention_cap, null=True),
        Key(field="final_logit_softcapping", default=output_cap, null=True),
    )


def _read_activation(source: Source) -> dict[str, Value]:
    # Files name it twice; the classes read hidden_activation (configuration_gemma2.py @5.24).
    for name in ("hidden_activation", "hidden_act"):
        value = source.get(name, _ACTIVATION)
        if value != _ACTIVATION:
            source.problem(f"{name}={value!r}: this family is known with {_ACTIVATION} only")
    return {}


_ACTIVATIONS: Final = Part(
    read=_read_activation, write=lambda model: {"hidden_activation": _ACTIVATION, "hidden_act": _ACTIVATION}
)


def layered_window(every: int, *, pattern: str = "") -> Part:
    """Return the part of a window in all layers except each n-th, or except the listed ones.

    Args:
        every: default n of the family's class.
        pattern: key that holds n; "": none.
    """

    def read(source: Source) -> dict[str, Value]:
        window = source.field("sliding_window", ("sliding_window", "sliding_window_size"), 4096, null=True)
        interval = source.get(pattern, every) if pattern else every
        layers, kinds = source.layers(), list(source.get("layer_types", ()))
        unknown = sorted(set(kinds) - {_FULL, _WINDOW})
        if unknown or (kinds and len(kinds) != layers):
            shown = f"has {', '.join(unknown)}" if unknown else f"lists {len(kinds)} of {layers} layers"
            source.problem(f"layer_types {shown}; only {_FULL} and {_WINDOW} are known, one for each layer")
            return {}
        kinds = kinds or [_WINDOW if (index + 1) % interval else _FULL for index in range(layers)]
        full = tuple(index for index, kind in enumerate(kinds) if kind == _FULL)
        if window is None or len(full) == layers:
            return {"sliding_window": None, "full_attention_layers": ()}
        return {"sliding_window": window, "full_attention_layers": full}

    def write(model: Model) -> dict[str, Any]:
        full, windowed = set(model.full_attention_layers), model.sliding_window is not None
        layers = range(model.num_hidden_layers or 0)
        kinds = [_WINDOW if windowed and index not in full else _FULL for index in layers]
        return {"sliding_window": model.sliding_window, "layer_types": kinds}

    return Part(read=read, write=write, variants=("sliding_window",))


PARTS: Final = (_ACTIVATIONS, ATTENTION_BIAS)
