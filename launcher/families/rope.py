"""Rotary positions in config.json: `rope_theta`, `rope_scaling` (transformers 4), `rope_parameters` (5)."""

from collections.abc import Mapping
from typing import Any, Final

from launcher.families.source import NEEDED, Source
from launcher.job.model import Model, RopeScaling
from launcher.job.schema import Value

# Keys of each scaling method: canonical name, and the default of transformers' modeling_rope_utils.py where it has one.
_METHODS: Final[Mapping[str, Mapping[str, Any]]] = {
    "linear": {"factor": NEEDED},
    "dynamic": {"factor": NEEDED, "original_max_position_embeddings": None},
    "yarn": {
        "factor": NEEDED,
        "original_max_position_embeddings": NEEDED,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": None,
        "mscale_all_dim": None,
    },
    "llama3": {
        "factor": NEEDED,
        "original_max_position_embeddings": NEEDED,
        "low_freq_factor": NEEDED,
        "high_freq_factor": NEEDED,
    },
}
_ALL_KEYS: Final = tuple(dict.fromkeys(key for keys in _METHODS.values() for key in keys))
_SEPARATE: Final = ("rope_theta", "partial_rotary_factor")  # read separately from the scaling
# Settings without a canonical field: only these values, which have no effect, are accepted.
_NEUTRAL: Final[Mapping[str, Any]] = {"attention_factor": None, "truncate": True}


def read_rope(
    source: Source, theta_default: Any, *, partial: float | None = None, truncate: bool = True, scaled: bool = False
) -> dict[str, Value]:
    """Return `rope_theta`, `partial_rotary_factor` and `rope_scaling.*`.

    Args:
        source: the config.json being read.
        theta_default: default base of the family's class; NEEDED: the base must be given.
        partial: default fraction of the head that the family's class rotates; None: it rotates whole heads.
        truncate: whether the family's YaRN rounds the bounds of its ramp to whole dimensions.
        scaled: the family's class scales positions by default: a file must say whether its model does.
    """
    if scaled and not {"rope_parameters", "rope_scaling"} & source.config.keys():
        source.problem(f"the key rope_scaling is needed for model_type {source.model_type} and is missing")
    new = _mapping(source, "rope_parameters")
    old = _mapping(source, "rope_scaling")
    if new and old and {**new, **old} != {**old, **new}:
        source.problem("rope_parameters and rope_scaling contradict each other")
    block = {**old, **new}
    name = "rope_parameters" if new else "rope_scaling"
    fields: dict[str, Value] = {"partial_rotary_factor": _partial(source, block, partial)}
    fields["rope_theta"] = _theta(source, block, theta_default)
    fields.update(_scaling(source, name, block, truncate))
    return fields


def read_mrope(
    source: Source, sections: tuple[int, ...], *, interleaved: bool, partial: float | None = None
) -> dict[str, Value]:
    """Return the fields of positions in time, height and width, which are one number for text.

    Args:
        source: the config.json being read.
        sections: default of `mrope_section`.
        interleaved: how the family's class orders the sections, whatever config.json says.
        partial: as of `read_rope`.
    """
    names = [name for name in ("rope_parameters", "rope_scaling") if source.has(name)]
    blocks = {name: dict(_mapping(source, name)) for name in names}
    found: dict[str, Any] = {"mrope_section": sections, "mrope_interleaved": interleaved}
    for block in blocks.values():
        found |= {key: block.pop(key) for key in tuple(found) if key in block}
        # Qwen2-VL's first files; its class means `default` (configuration_qwen2_vl.py @5.24).
        block |= {key: "default" for key in ("type", "rope_type") if block.get(key) == "mrope"}
    inner = Source({**source.config, **blocks}, source.where, source.model_type)
    fields = read_rope(inner, NEEDED, partial=partial)
    source.used |= inner.used
    source.problems += inner.problems
    if found["mrope_interleaved"] != interleaved:
        shown = found["mrope_interleaved"]
        source.problem(
            f"mrope_interleaved={shown!r} cannot be expressed, only {interleaved}: it is what its class does"
        )
    return {**fields, "mrope_section": source.typed("mrope_section", found["mrope_section"], "mrope_section")}


def write_mrope(model: Model, *, interleaved: bool, partial: bool = False) -> dict[str, Any]:
    """Return the keys that `read_mrope` reads."""
    written = write_rope(model, partial=partial)
    block = written["rope_scaling"] or {"rope_type": "default", "type": "default"}
    sections = {"mrope_section": list(model.mrope_section), **({"mrope_interleaved": True} if interleaved else {})}
    return {**written, "rope_scaling": {**block, **sections}}


def _mapping(source: Source, name: str) -> Mapping[str, Any]:
    raw = source.get(name, {})
    if isinstance(raw, Mapping):
        return raw
    source.problem(f"{name}: needs a mapping, got {raw!r}")
    return {}


def _theta(source: Source, block: Mapping[str, Any], default: Any) -> Value:
    inside = block.get("rope_theta")
    if inside is None:
        return source.field("rope_theta", ("rope_theta",), default)
    top = source.get("rope_theta", inside)
    if top != inside:
        source.problem(f"rope_theta={top!r} and rope_parameters.rope_theta={inside!r} contradict each other")
    return source.typed("rope_parameters.rope_theta", inside, "rope_theta")


def _partial(source: Source, block: Mapping[str, Any], default: float | None) -> Value:
    raw = source.get("partial_rotary_factor", block.get("partial_rotary_factor", default or 1.0))
    if default is not None:
        return source.typed("partial_rotary_factor", raw, "partial_rotary_factor")
    if raw != 1.0:
        source.problem(f"partial_rotary_factor={raw!r}: model_type {source.model_type} rotates whole heads (1.0)")
    return 1.0


def _scaling(source: Source, name: str, block: Mapping[str, Any], truncate: bool) -> dict[str, Value]:
    fields: dict[str, Value] = {"rope_scaling.type": None} | {f"rope_scaling.{key}": None for key in _ALL_KEYS}
    method = block.get("rope_type", block.get("type"))
    if method in (None, "default"):
        if method is None and set(block) - {*_SEPARATE, *_NEUTRAL}:
            source.problem(f"{name}: the key rope_type is needed and is missing")
        return fields
    if method not in _METHODS:
        source.problem(f"{name}.rope_type={method!r} cannot be expressed; known: default, {', '.join(_METHODS)}")
        return fields
    fields["rope_scaling.type"] = method
    known = _METHODS[method]
    for key, default in known.items():
        raw = block.get(key)
        if raw is None and default is NEEDED and key == "original_max_position_embeddings":
            raw = source.config.get("max_position_embeddings")  # as in transformers: modeling_rope_utils.py
        if raw is None and default is NEEDED:
            source.problem(f"{name}: the key {key} is needed for {method} and is missing")
        elif raw is not None:
            fields[f"rope_scaling.{key}"] = source.typed(f"{name}.{key}", raw, f"rope_scaling.{key}")
        else:
            fields[f"rope_scaling.{key}"] = default
    _refuse_rest(source, name, block, {"rope_type", "type", *_SEPARATE, *known}, {**_NEUTRAL, "truncate": truncate})
    if method == "yarn" and not truncate and block.get("truncate", True):
        source.problem(f"{name}.truncate=true cannot be expressed, only false: it is what the family's code does")
    return fields


def _refuse_rest(
    source: Source, name: str, block: Mapping[str, Any], known: set[str], neutral: Mapping[str, Any]
) -> None:
    for key, value in block.items():
        if key in known or value is None or (key in neutral and value == neutral[key]):
            continue
        source.problem(f"{name}.{key}={value!r} has no canonical field and would change the model")


def scaling_value(scaling: RopeScaling, key: str) -> Value:
    """Return a setting of the scaling method, or transformers' default."""
    value = getattr(scaling, key)
    default = _METHODS.get(scaling.type or "", {}).get(key)
    return default if value is None and default is not NEEDED else value


def write_rope(model: Model, *, partial: bool = False, truncate: bool = True) -> dict[str, Any]:
    """Return `rope_theta` and `rope_scaling` in the form of transformers 4; `partial` and `truncate` as read."""
    scaling = model.rope_scaling
    share = {"partial_rotary_factor": model.partial_rotary_factor} if partial else {}
    if scaling.type is None:
        return {"rope_theta": model.rope_theta, "rope_scaling": None, **share}
    block: dict[str, Any] = {"rope_type": scaling.type, "type": scaling.type}
    for key in _METHODS.get(scaling.type, {}):
        value = scaling_value(scaling, key)
        if value is not None:
            block[key] = value
    if scaling.type == "yarn" and not truncate:
        block["truncate"] = False
    return {"rope_theta": model.rope_theta, "rope_scaling": block, **share}
