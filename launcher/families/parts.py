"""The parts of config.json that do not map one key to one field: heads, windows, biases, sparse layers, routing."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.families.rope import read_rope, write_rope
from launcher.families.source import NEEDED, Source
from launcher.job.model import Model
from launcher.job.schema import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A pair of functions: keys of config.json to canonical fields, and back (transformers-4 spelling).

    Attributes:
        variants: fields below `model` that it determines and that most families do not have.
        meaning: the values, as `read` returns them, of fields whose None has a meaning of its own.
    """

    read: Callable[[Source], dict[str, Value]]
    write: Callable[[Model], Mapping[str, Any]]
    variants: tuple[str, ...] = ()
    meaning: Callable[[Model], Mapping[str, Value]] = lambda model: {}


def rope(
    theta_default: Any = NEEDED, *, partial: float | None = None, truncate: bool = True, scaled: bool = False
) -> Part:
    """Rotary positions; see `launcher.families.rope`."""
    return Part(
        read=lambda source: read_rope(source, theta_default, partial=partial, truncate=truncate, scaled=scaled),
        write=lambda model: write_rope(model, partial=partial is not None, truncate=truncate),
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


def _read_window(source: Source) -> dict[str, Value]:
    """Qwen: windows only with use_sliding_window, and only from layer max_window_layers on."""
    used = source.get("use_sliding_window", False)
    window, full_layers = source.get("sliding_window"), source.get("max_window_layers", 0)
    kinds = set(source.get("layer_types", ()))
    if not used:
        if kinds - {"full_attention"}:
            source.problem(
                f"layer_types has {', '.join(sorted(kinds - {'full_attention'}))}; only full_attention is known"
            )
        return {"sliding_window": None}
    layers = source.get("num_hidden_layers", 0)
    if not window or full_layers >= layers or kinds == {"full_attention"}:
        return {"sliding_window": None}
    if full_layers > 0 or len(kinds) > 1:
        source.problem(
            f"use_sliding_window=true with max_window_layers={full_layers}: a window in some layers only has no"
            " canonical field; use_sliding_window=false, or max_window_layers=0 for a window in all layers, can be read"
        )
        return {"sliding_window": None}
    return {"sliding_window": source.typed("sliding_window", window, "sliding_window")}


def _write_window(model: Model) -> dict[str, Any]:
    if model.sliding_window is None:
        return {"use_sliding_window": False, "sliding_window": None, "max_window_layers": model.num_hidden_layers}
    return {"use_sliding_window": True, "sliding_window": model.sliding_window, "max_window_layers": 0}


QWEN_WINDOW = Part(read=_read_window, write=_write_window)


def _read_biases(source: Source) -> dict[str, Value]:
    """Llama: attention_bias covers q, k, v and o; mlp_bias the rest."""
    attention, mlp = source.get("attention_bias", False), source.get("mlp_bias", False)
    if attention != mlp:
        source.problem(
            f"attention_bias={attention} with mlp_bias={mlp} has no canonical form: only both or neither has"
        )
    biased = bool(attention and mlp)
    return {"attention_bias": biased, "linear_bias": biased}


LLAMA_BIASES = Part(
    read=_read_biases,
    write=lambda model: {"attention_bias": model.attention_bias, "mlp_bias": model.linear_bias},
)


def _read_sparse_layers(source: Source) -> dict[str, Value]:
    """Qwen: layer i is sparse if i is not in mlp_only_layers and (i + 1) % decoder_sparse_step == 0."""
    step, dense = source.get("decoder_sparse_step", 1), source.get("mlp_only_layers", ())
    if step != 1:
        source.problem(f"decoder_sparse_step={step!r} has no canonical form; 1 (every layer) has")
    if sorted(dense) != list(range(len(dense))):
        source.problem(f"mlp_only_layers={list(dense)!r}: only the first layers may be dense (0, 1, …)")
    return {"first_k_dense_replace": len(dense), "moe_layer_freq": 1}


SPARSE_LAYERS = Part(
    read=_read_sparse_layers,
    write=lambda model: {
        "decoder_sparse_step": model.moe_layer_freq,
        "mlp_only_layers": list(range(model.first_k_dense_replace)),
    },
)

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
