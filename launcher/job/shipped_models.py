"""Shipped presets of models, found by the sizes that an imported script has."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from launcher.job.model import Model
from launcher.job.shipped import shipped

# With these alike, two models differ in their vocabulary at most.
_SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_experts",
    "moe_intermediate_size",
)
_DENSE = "intermediate_size"


def presets_like(model: Model) -> tuple[Mapping[str, Any], ...]:
    """Return the fields of the shipped presets that have this model's sizes and, where it is set, its family."""
    if model.hidden_size is None:
        return ()
    # An expert model may have no dense layer, and then any value for one.
    names = _SHAPE if model.num_experts else (*_SHAPE, _DENSE)
    return tuple(
        preset
        for preset in _shipped_models()
        if all(preset.get(name) == getattr(model, name) for name in names)
        and model.model_type in (None, preset["model_type"])
    )


def shipped_of_family(model_type: str) -> int:
    """Return the number of shipped presets of a family."""
    return sum(preset["model_type"] == model_type for preset in _shipped_models())


@cache
def _shipped_models() -> tuple[Mapping[str, Any], ...]:
    import yaml

    files = sorted(shipped("conf").joinpath("model").glob("*.yaml"))
    found = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in files)
    return tuple(MappingProxyType(fields) for fields in found if "model_type" in fields)
