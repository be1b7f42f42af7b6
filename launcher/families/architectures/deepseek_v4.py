"""DeepSeek-V4."""

from collections.abc import Mapping
from typing import Any, Final

from launcher.families.keys import NO_BIAS, NO_MLP_BIAS, PINNED, common, routed
from launcher.families.parts import SHARED_EXPERTS, Part
from launcher.families.record import Family, Key, Pinned
from launcher.families.rope import read_rope, write_rope
from launcher.families.source import Source
from launcher.job.model import Model
from launcher.job.schema import Value

# Kinds of layers, and tokens per compressed key (configuration_deepseek_v4.py @5.24). Only layers of 4 have an indexer.
_RATIOS: Final = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_RATES: Final = {name: ratio for name, ratio in _RATIOS.items() if ratio}
_HEAD, _ROTATED = 512, 64
_THETA, _COMPRESSED_THETA = 10000.0, 160000.0


def _read_heads(source: Source) -> dict[str, Value]:
    """One latent of the size of a head is key and value of all heads; the end of a head is rotated."""
    head = source.field("v_head_dim", ("head_dim",), _HEAD)
    share = source.get("partial_rotary_factor", _ROTATED / _HEAD)
    for block in (source.config.get("rope_parameters") or {}).values():
        share = block.get("partial_rotary_factor", share) if isinstance(block, Mapping) else share
    derived = int(head * share) if isinstance(head, int) else None
    rotated = source.field("qk_rope_head_dim", ("qk_rope_head_dim",), derived)
    return {
        "v_head_dim": head,
        "kv_lora_rank": head,
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": head - rotated if isinstance(head, int) and isinstance(rotated, int) else None,
        "num_key_value_heads": source.field("num_key_value_heads", ("num_key_value_heads",), 1),
    }


def _write_heads(model: Model) -> dict[str, Any]:
    return {
        "head_dim": model.v_head_dim,
        "qk_rope_head_dim": model.qk_rope_head_dim,
        "num_key_value_heads": model.num_key_value_heads or 1,
    }


def _read_layers(source: Source) -> dict[str, Value]:
    """Compressed layers as numbers (with one for each MTP layer at the end) or as names (transformers 5)."""
    layers, kinds = source.layers(), list(source.get("layer_types", ()))
    if {**_RATES, **source.get("compress_rates", {})} != _RATES:
        source.problem(f"compress_rates: only {_RATES} is known")
    unknown = sorted(set(kinds) - set(_RATIOS))
    if unknown:
        source.problem(f"layer_types has {', '.join(unknown)}; known: {', '.join(_RATIOS)}")
        return {}
    usual = [128] * min(layers, 2) + [4 if index % 2 else 128 for index in range(max(layers - 2, 0))]
    ratios = list(source.get("compress_ratios", ())) or [_RATIOS[kind] for kind in kinds] or usual
    if set(ratios) - set(_RATIOS.values()) or len(ratios) < layers or any(ratios[layers:]):
        source.problem(f"compress_ratios: needs 0, 4 or 128 for each of {layers} layers, and 0 for MTP layers")
        return {}
    if kinds and ratios[:layers] != [_RATIOS[kind] for kind in kinds]:
        source.problem("compress_ratios and layer_types contradict each other")
    experts = list(source.get("mlp_layer_types", ()))
    hashed = experts.count("hash_moe") if experts else 3
    if experts and experts != ["hash_moe"] * hashed + ["moe"] * (layers - hashed):
        source.problem("mlp_layer_types: needs hash_moe for the first layers and moe for all others")
    count = source.field("num_hash_layers", ("num_hash_layers",), hashed)
    if experts and isinstance(count, int) and min(count, layers) != hashed:
        source.problem(f"num_hash_layers={count} and mlp_layer_types contradict each other")
    return {
        "compress_ratios": tuple(ratios[:layers]),
        "num_hash_layers": min(count, layers) if isinstance(count, int) else count,
    }


def _write_layers(model: Model) -> dict[str, Any]:
    return {
        "compress_ratios": [*model.compress_ratios, *[0] * model.num_nextn_predict_layers],
        "num_hash_layers": model.num_hash_layers,
    }


def _read_positions(source: Source) -> dict[str, Value]:
    """Compressed layers have a base of their own, and only they are scaled; transformers 5 nests both."""
    nested = source.get("rope_parameters", {})
    main, compressed = (nested.get(name) for name in ("main", "compress"))
    if not isinstance(main, Mapping) or not isinstance(compressed, Mapping):
        main, compressed = {}, {**nested, **source.get("rope_scaling", {})}
    if main.get("rope_type", "default") != "default":
        source.problem(f"rope_parameters.main.rope_type={main['rope_type']!r}: only default is known there")
    skipped = {"rope_theta", "partial_rotary_factor"} | (
        {"attention_factor"} if compressed.get("attention_factor") == 1 else set()
    )
    block = {name: value for name, value in compressed.items() if name not in skipped}
    theta = source.field("rope_theta", ("rope_theta",), main.get("rope_theta", _THETA))
    plain = Source(
        {**source.config, "rope_parameters": block or None, "rope_scaling": None, "rope_theta": theta},
        "",
        source.model_type,
    )
    plain.config.pop("partial_rotary_factor", None)  # type: ignore[attr-defined]
    found = read_rope(plain, _THETA)
    source.problems += plain.problems
    base = source.field(
        "compress_rope_theta", ("compress_rope_theta",), compressed.get("rope_theta") if main else _COMPRESSED_THETA
    )
    return {**found, "compress_rope_theta": base}


# One width: every layer has experts, and the shared one is as wide as n_shared_experts of them.
_ONE_WIDTH: Final = Part(
    read=lambda source: {"intermediate_size": source.field("intermediate_size", ("moe_intermediate_size",))},
    write=lambda model: {},
    meaning=lambda model: {"intermediate_size": model.moe_intermediate_size},
)

# How checkpoints of its layers are arranged is not written yet: Megatron-core has them in its development branch only.
FAMILY = Family(
    model_type="deepseek_v4",
    stem="DeepseekV4",
    keys=(
        *(key for key in common() if key.field != "intermediate_size"),
        Key(field="q_lora_rank"),
        *routed(norm_topk_prob=True, scaling=1.5),
        Key(field="scoring_func", default="sqrtsoftplus"),
        Key(field="csa_window_size", names=("sliding_window",), default=128),
        Key(field="o_groups", default=8),
        Key(field="o_lora_rank", default=1024),
        Key(field="index_n_heads"),
        Key(field="index_head_dim"),
        Key(field="index_topk"),
        Key(field="hc_mult", default=4),
        Key(field="hc_sinkhorn_iters", default=20),
        Key(field="hc_eps", default=1e-6),
        Key(field="swiglu_limit", default=10.0),
    ),
    parts=(
        Part(read=_read_heads, write=_write_heads),
        Part(read=_read_layers, write=_write_layers, variants=("compress_ratios", "num_hash_layers")),
        Part(
            read=_read_positions,
            write=lambda model: {**write_rope(model), "compress_rope_theta": model.compress_rope_theta},
            variants=("compress_rope_theta",),
        ),
        SHARED_EXPERTS,
        _ONE_WIDTH,
    ),
    fixed={
        "experimental_attention_variant": "dsv4_hybrid",
        "enable_hyper_connections": True,
        "qk_layernorm": True,
        "router_expert_bias": True,
    },
    pinned=(
        *PINNED,
        NO_BIAS,
        NO_MLP_BIAS,
        Pinned(name="topk_method", value="noaux_tc", why="a bias chooses the experts of layers that do not hash"),
        Pinned(name="n_group", value=1, why="its routing knows no groups"),
        Pinned(name="topk_group", value=1, why="its routing knows no groups"),
        Pinned(name="first_k_dense_replace", value=0, why="every layer has experts"),
    ),
)
