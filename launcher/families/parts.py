"""The parts of config.json that do not map one key to one field: heads, windows, biases, sparse layers, routing."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from launcher.families.rope import read_mrope, read_rope, write_mrope, write_rope
from launcher.families.source import NEEDED, Source
from launcher.job.model import Model
from launcher.job.schema import Value
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A pair of functions: keys of config.json to canonical fields, and back (transformers-4 spelling).

    Attributes:
        variants: fields below `model` that it determines and that most families do not have.
        meaning: the values, as `read` returns them, of fields whose None has a meaning of its own.
        truncate: of rotary positions: whether YaRN rounds the bounds of its ramp to whole dimensions.
    """

    read: Callable[[Source], dict[str, Value]]
    write: Callable[[Model], Mapping[str, Any]]
    variants: tuple[str, ...] = ()
    meaning: Callable[[Model], Mapping[str, Value]] = lambda model: {}
    truncate: bool = True


def rope(
    theta_default: Any = NEEDED, *, partial: float | None = None, truncate: bool = True, scaled: bool = False
) -> Part:
    """Rotary positions; see `launcher.families.rope`."""
    return Part(
        read=lambda source: read_rope(source, theta_default, partial=partial, truncate=truncate, scaled=scaled),
        write=lambda model: write_rope(model, partial=partial is not None, truncate=truncate),
        truncate=truncate,
    )


def mrope(sections: tuple[int, ...], *, interleaved: bool = True, partial: float | None = None) -> Part:
    """Rotary positions in time, height and width; see `launcher.families.rope`."""
    return Part(
        read=lambda source: read_mrope(source, sections, interleaved=interleaved, partial=partial),
        write=lambda model: write_mrope(model, interleaved=interleaved, partial=partial is not None),
        variants=("mrope_section",),
    )


def heads(*, explicit: bool = False, default: int | None = None, grouped: bool = True) -> Part:
    """Key/value heads and head size.

    Args:
        explicit: the family always writes its head size (Qwen3); else it is written only if it is not the quotient.
        default: default head size of the family's class; None: hidden_size / num_attention_heads.
        grouped: the number of key/value heads must be given; else it is that of the query heads (Llama).
    """

    def read(source: Source) -> dict[str, Value]:
        hidden, count = source.get("hidden_size"), source.get("num_attention_heads")
        quotient = hidden // count if _whole(hidden, count) else None
        given = source.field("head_dim", ("head_dim",), default if default is not None else quotient)
        if given is None and not source.problems:
            source.problem(f"hidden_size {hidden} is not divisible by num_attention_heads {count}: head_dim is needed")
        size = given if explicit or given != quotient else None
        kv_default = count if not grouped or "num_key_value_heads" in source.config else NEEDED
        return {
            "head_dim": size,
            "num_key_value_heads": source.field("num_key_value_heads", ("num_key_value_heads",), kv_default),
        }

    def write(model: Model) -> dict[str, Any]:
        out: dict[str, Any] = {"num_key_value_heads": model.num_key_value_heads or model.num_attention_heads}
        if explicit or model.head_size != quotient_of(model):
            out["head_dim"] = model.head_size
        return out

    def meaning(model: Model) -> dict[str, Value]:
        size = model.head_size if explicit or model.head_size != quotient_of(model) else None
        return {"head_dim": size, **_groups(model)}

    return Part(read=read, write=write, meaning=meaning)


def _groups(model: Model) -> dict[str, Value]:
    groups = model.num_key_value_heads
    return {"num_key_value_heads": groups if groups is not None else model.num_attention_heads}


def quotient_of(model: Model) -> int | None:
    """Return the default head size of a model that sets none."""
    return dataclasses.replace(model, head_dim=None).head_size


def _whole(hidden: Any, count: Any) -> bool:
    return isinstance(hidden, int) and isinstance(count, int) and count > 0 and hidden % count == 0


def _read_latent_heads(source: Source) -> dict[str, Value]:
    count = source.get("num_attention_heads")
    groups = source.get("num_key_value_heads", count)
    if groups != count:
        source.problem(f"num_key_value_heads={groups!r}: latent attention has as many as num_attention_heads ({count})")
    rotated = source.get("qk_rope_head_dim")
    if source.get("head_dim", rotated) != rotated:
        source.problem(f"head_dim={source.get('head_dim')!r}: latent attention takes qk_rope_head_dim ({rotated})")
    return {"num_key_value_heads": source.field("num_key_value_heads", ("num_key_value_heads",), count)}


LATENT_HEADS = Part(
    read=_read_latent_heads,
    write=lambda model: {"num_key_value_heads": model.num_key_value_heads or model.num_attention_heads},
    meaning=_groups,
)


_FULL, _WINDOW = "full_attention", "sliding_attention"


def qwen_window(windowed: Callable[[int, int], bool], *, listed: bool = True) -> Part:
    """Qwen: a window only with use_sliding_window, in the layers of layer_types, or by the rule of the family's class.

    Args:
        windowed: whether a layer has the window, by its number from 0 and max_window_layers, without layer_types.
        listed: the class reads layer_types.
    """

    def read(source: Source) -> dict[str, Value]:
        used, window, layers = source.get("use_sliding_window", False), source.get("sliding_window"), source.layers()
        first = source.get("max_window_layers", 28)  # default of the four classes
        kinds = list(source.get("layer_types", ()))
        unknown = sorted(set(kinds) - {_FULL, _WINDOW})
        if unknown or (kinds and len(kinds) != layers):
            shown = f"has {', '.join(unknown)}" if unknown else f"lists {len(kinds)} of {layers} layers"
            source.problem(f"layer_types {shown}; only {_FULL} and {_WINDOW} are known, one for each layer")
            return {}
        if not used and _WINDOW in kinds:
            source.problem(f"layer_types has {_WINDOW}, and use_sliding_window is not true: the window has no size")
            return {}
        by_list = bool(kinds) and listed
        full = [index for index in range(layers) if (kinds[index] == _FULL if by_list else not windowed(index, first))]
        if not used or not window or len(full) == layers:
            return {"sliding_window": None, "full_attention_layers": ()}
        typed = source.typed("sliding_window", window, "sliding_window")
        return {"sliding_window": typed, "full_attention_layers": tuple(full)}

    def write(model: Model) -> dict[str, Any]:
        layers, full = model.num_hidden_layers or 0, sorted(set(model.full_attention_layers))
        if model.sliding_window is None:
            return {"use_sliding_window": False, "sliding_window": None, "max_window_layers": layers}
        keys: dict[str, Any] = {"use_sliding_window": True, "sliding_window": model.sliding_window}
        for first in (0, len(full)):
            if full == [index for index in range(layers) if not windowed(index, first)]:
                return {**keys, "max_window_layers": first}
        kinds = [_FULL if index in full else _WINDOW for index in range(layers)]
        return {**keys, "max_window_layers": 0, "layer_types": kinds}

    return Part(read=read, write=write)


# configuration_qwen2.py and configuration_qwen3.py, __post_init__ @5.24.
LATER_WINDOW = qwen_window(lambda index, first: index >= first)
# configuration_qwen2_moe.py, __post_init__ @5.24: every second of the first layers.
ALTERNATE_WINDOW = qwen_window(lambda index, first: index % 2 == 0 and index < first)
# modeling_qwen3_moe.py:473 @5.24: all layers; layer_types and max_window_layers are not read.
WHOLE_WINDOW = qwen_window(lambda index, first: True, listed=False)


def _read_biases(source: Source) -> dict[str, Value]:
    """Llama: attention_bias covers q, k, v and o; mlp_bias the rest."""
    attention, mlp = bool(source.get("attention_bias", False)), bool(source.get("mlp_bias", False))
    if mlp and not attention:
        source.problem(
            "mlp_bias=True with attention_bias=False: no backend has biases of MLPs alone; with random weights, set "
            "attention_bias to true or mlp_bias to false in a copy of the file"
        )
    return {
        "attention_bias": attention,
        "linear_bias": attention and mlp,
        "attention_output_bias": attention or None,
    }


LLAMA_BIASES = Part(
    read=_read_biases,
    write=lambda model: {"attention_bias": model.attention_bias, "mlp_bias": model.linear_bias},
    meaning=lambda model: {"attention_output_bias": model.has_attention_output_bias or None},
)
# Qwen3: attention_bias covers q, k, v and o; there are no other biases.
ATTENTION_BIAS = Part(
    read=lambda source: {
        "attention_bias": bool(source.get("attention_bias", False)),
        "attention_output_bias": bool(source.get("attention_bias", False)) or None,
    },
    write=lambda model: {"attention_bias": model.attention_bias},
    meaning=lambda model: {"attention_output_bias": model.has_attention_output_bias or None},
)


def _read_sparse_layers(source: Source) -> dict[str, Value]:
    """Qwen: layer i is sparse if i is not in mlp_only_layers and (i + 1) % decoder_sparse_step == 0."""
    step, listed = source.get("decoder_sparse_step", 1), source.get("mlp_only_layers", ())
    layers = source.layers()
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        source.problem(f"decoder_sparse_step={step!r}: needs a whole number of at least 1")
        return {}
    dense = [index for index in range(layers) if index in listed or (index + 1) % step]
    if dense == list(range(len(dense))):
        return {"first_k_dense_replace": len(dense), "moe_layer_freq": 1, "mlp_only_layers": ()}
    return {"first_k_dense_replace": 0, "moe_layer_freq": 1, "mlp_only_layers": tuple(dense)}


def _write_sparse_layers(model: Model) -> dict[str, Any]:
    layers = range(model.num_hidden_layers or 0)
    return {
        "decoder_sparse_step": 1,
        "mlp_only_layers": [index for index in layers if not model.has_experts_at(index)] if model.is_moe else [],
    }


SPARSE_LAYERS = Part(
    read=_read_sparse_layers,
    write=_write_sparse_layers,
    meaning=lambda model: dense_layers(model),
)


def dense_layers(model: Model) -> dict[str, Value]:
    """Return the fields of dense layers in the form in which config.json is read: first layers as a number."""
    layers = range(model.num_hidden_layers or 0)
    dense = tuple(index for index in layers if not model.has_experts_at(index)) if model.is_moe else ()
    first = dense == tuple(range(len(dense)))
    return {
        "first_k_dense_replace": len(dense) if first else 0,
        "moe_layer_freq": 1,
        "mlp_only_layers": () if first else dense,
    }


# Mixtral and GPT-OSS store the expert width as intermediate_size: no dense layer could have another width.
ONE_WIDTH = Part(
    read=lambda source: {"moe_intermediate_size": source.field("moe_intermediate_size", ("intermediate_size",))},
    write=lambda model: {"intermediate_size": model.moe_intermediate_size or model.intermediate_size},
    meaning=lambda model: {
        "intermediate_size": model.moe_intermediate_size or model.intermediate_size,
        "moe_intermediate_size": model.moe_intermediate_size or model.intermediate_size,
    },
)


def _read_shared_experts(source: Source) -> dict[str, Value]:
    if "n_shared_experts" not in source.config:
        # The published code of DeepSeek-V2 defaults to none, transformers' classes to one or two.
        source.problem(f"the key n_shared_experts is needed for model_type {source.model_type} and is missing")
    count, width = source.get("n_shared_experts", 0), source.get("moe_intermediate_size")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        source.problem(f"n_shared_experts: needs a whole number, got {count!r}")
        return {}
    total = count * width if isinstance(width, int) else None
    return {"shared_expert_intermediate_size": total or None}


def _write_shared_experts(model: Model) -> dict[str, Any]:
    total, width = model.shared_expert_intermediate_size or 0, model.moe_intermediate_size or 1
    # If it is not a multiple, no config.json can express it; reading it back shows the difference.
    return {"n_shared_experts": total // width}


SHARED_EXPERTS = Part(read=_read_shared_experts, write=_write_shared_experts)


def routing(*, scoring: str, method: str) -> Part:
    """DeepSeek's routing; `scoring` and `method` are fixed per family: transformers' classes omit them."""
    scorings = ("softmax", "sigmoid") if method == "noaux_tc" else ("softmax",)
    methods = ("noaux_tc",) if method == "noaux_tc" else ("greedy", "group_limited_greedy")

    def read(source: Source) -> dict[str, Value]:
        score, way = source.get("scoring_func", scoring), source.get("topk_method", method)
        for name, value, known in (("scoring_func", score, scorings), ("topk_method", way, methods)):
            if value not in known:
                source.problem(f"{name}={value!r} is not known for model_type {source.model_type}: {', '.join(known)}")
        grouped = way != "greedy"
        groups = source.field("n_group", ("n_group",), NEEDED if grouped else None, null=not grouped)
        topk_group = source.field("topk_group", ("topk_group",), NEEDED if grouped else None, null=not grouped)
        if not grouped or groups == 1:  # one group: routing is not limited
            groups = topk_group = None
        return {
            "scoring_func": score if score in scorings else scoring,
            "router_expert_bias": way == "noaux_tc",
            "n_group": groups,
            "topk_group": topk_group,
        }

    def write(model: Model) -> dict[str, Any]:
        way = "noaux_tc" if model.router_expert_bias else ("group_limited_greedy" if model.n_group else "greedy")
        groups = {"n_group": model.n_group or 1, "topk_group": model.topk_group or 1}
        return {"scoring_func": model.scoring_func, "topk_method": way, **groups}

    def meaning(model: Model) -> dict[str, Value]:
        return {"n_group": None, "topk_group": None} if model.n_group == 1 else {}

    return Part(read=read, write=write, meaning=meaning)
