"""DeepSeek-V4."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from launcher.families.attention import COMPRESSED_RATIO, INDEXED_RATIO
from launcher.families.keys import NO_BIAS, NO_MLP_BIAS, PINNED, common, routed
from launcher.families.parts import SHARED_EXPERTS, Part
from launcher.families.record import Family, Key, Pinned
from launcher.families.rope import read_rope, write_rope
from launcher.families.source import Source
from launcher.families.weight_rows import gated
from launcher.families.weights import Row, Weights, hf
from launcher.job.model import Model
from launcher.job.schema import Value

# Kinds of layers, and tokens per compressed key (configuration_deepseek_v4.py @5.24).
_RATIOS: Final = {
    "sliding_attention": 0,
    "compressed_sparse_attention": INDEXED_RATIO,
    "heavily_compressed_attention": COMPRESSED_RATIO,
}
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
    usual = [COMPRESSED_RATIO if index < 2 or index % 2 == 0 else INDEXED_RATIO for index in range(layers)]
    ratios = list(source.get("compress_ratios", ())) or [_RATIOS[kind] for kind in kinds] or usual
    if set(ratios) - set(_RATIOS.values()) or len(ratios) < layers or any(ratios[layers:]):
        source.problem(
            f"compress_ratios: needs 0, {INDEXED_RATIO} or {COMPRESSED_RATIO} for each of {layers} layers, and 0 for"
            " MTP layers"
        )
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

# Names in files are those of the published checkpoints; transformers 5.24 writes some of them otherwise (`aliases`).
# In Megatron-core: its development branch d48bd6be (experimental_attention_variant, hyper_connection.py, moe/router.py,
# multi_token_prediction.py), as mcore-bridge 1.6.5 model/gpts/deepseek_v4.py fills it.


def _compressor(core: str, name: str, ratio: int, head: str, mixer: str) -> tuple[Row, ...]:
    """Return the parameters that make one key of several tokens; groups of 4 overlap, which doubles their width."""
    width = f"2*{head}" if ratio == INDEXED_RATIO else head
    rows = (
        Row(core=f"{core}.ape", hf=(hf(f"{name}.ape", ratio, width),), exact=True),
        Row(core=f"{core}.linear_wkv.weight", hf=(hf(f"{name}.wkv.weight", width, "hidden"),)),
        Row(core=f"{core}.linear_wgate.weight", hf=(hf(f"{name}.wgate.weight", width, "hidden"),)),
        Row(core=f"{core}.norm.weight", hf=(hf(f"{name}.norm.weight", head),)),
    )
    return tuple(replace(row, mixer=mixer) for row in rows)


def _streams(core: str, name: str) -> tuple[Row, ...]:
    """Return the parameters of a hyper-connection; Megatron-core has each of its three scales by itself."""
    scales = enumerate(("pre", "post", "res"))
    return (
        Row(
            core=f"{core}.mapping_proj.weight",
            hf=(hf(f"{name}_fn", "stream_weights", "streams*hidden"),),
            exact=True,
        ),
        Row(core=f"{core}.bias", hf=(hf(f"{name}_base", "stream_weights"),), exact=True),
        *(
            Row(core=f"{core}.alpha_{scale}", hf=(hf(f"{name}_scale", 3),), part=(index, 1), exact=True)
            for index, scale in scales
        ),
    )


def _head(core: str) -> tuple[Row, ...]:
    """Return the parameters that join the streams after the last layer."""
    return (
        Row(core=f"{core}hc_head_fn", hf=(hf("hc_head_fn", "streams", "streams*hidden"),), exact=True),
        Row(core=f"{core}hc_head_base", hf=(hf("hc_head_base", "streams"),), exact=True),
        Row(core=f"{core}hc_head_scale", hf=(hf("hc_head_scale", 1),), exact=True),
    )


_CORE: Final = "self_attention.core_attention"
_INDEXER: Final = f"{_CORE}.indexer"
_ATTENTION: Final = (
    Row(core="input_layernorm.weight", hf=(hf("attn_norm.weight", "hidden"),)),
    Row(core="self_attention.linear_q_down_proj.weight", hf=(hf("attn.wq_a.weight", "q_rank", "hidden"),)),
    Row(core="self_attention.q_layernorm.weight", hf=(hf("attn.q_norm.weight", "q_rank"),)),
    Row(
        core="self_attention.linear_q_up_proj.weight",
        hf=(hf("attn.wq_b.weight", "latent_query", "q_rank"),),
        kind="column",
    ),
    Row(core="self_attention.linear_kv_proj.weight", hf=(hf("attn.wkv.weight", "kv_rank", "hidden"),), kind="column"),
    Row(core="self_attention.kv_layernorm.weight", hf=(hf("attn.kv_norm.weight", "kv_rank"),)),
    Row(core=f"{_CORE}.attn_sink", hf=(hf("attn.attn_sink", "heads"),), exact=True),
    *_compressor(f"{_CORE}.compressor", "attn.compressor", COMPRESSED_RATIO, "kv_rank", "compressed"),
    *_compressor(f"{_CORE}.compressor", "attn.compressor", INDEXED_RATIO, "kv_rank", "indexed"),
    Row(
        core=f"{_INDEXER}.linear_wq_b.weight",
        hf=(hf("attn.indexer.wq_b.weight", "index_query", "q_rank"),),
        mixer="indexed",
    ),
    Row(
        core=f"{_INDEXER}.linear_weights_proj.weight",
        hf=(hf("attn.indexer.weights_proj.weight", "index_heads", "hidden"),),
        mixer="indexed",
    ),
    *_compressor(f"{_INDEXER}.compressor", "attn.indexer.compressor", INDEXED_RATIO, "index_head", "indexed"),
    Row(core="self_attention.linear_o_group_proj", hf=(hf("attn.wo_a.weight", "output_ranks", "group_value"),)),
    Row(core="self_attention.linear_proj.weight", hf=(hf("attn.wo_b.weight", "hidden", "output_ranks"),), kind="row"),
    *_streams("self_attention_hyper_connection", "hc_attn"),
)
_SPARSE: Final = (
    Row(core="pre_mlp_layernorm.weight", hf=(hf("ffn_norm.weight", "hidden"),)),
    Row(core="mlp.router.weight", hf=(hf("ffn.gate.weight", "experts", "hidden"),)),
    # Experts of each token of the vocabulary: transformers' buffer is int64, Megatron-core's int32.
    Row(
        core="mlp.router.tid2eid",
        hf=(hf("ffn.gate.tid2eid", "vocab", "chosen"),),
        kind="vocabulary",
        hashed=True,
        integer=("I64", "I32"),
    ),
    Row(core="mlp.router.expert_bias", hf=(hf("ffn.gate.bias", "experts"),), hashed=False, exact=True),
    *gated("mlp.experts.{expert}", "ffn.experts.{expert}", "expert_ffn", ("w1", "w3", "w2")),
    *gated("mlp.shared_experts", "ffn.shared_experts", "shared_ffn", ("w1", "w3", "w2")),
    *_streams("mlp_hyper_connection", "hc_ffn"),
)
_WEIGHTS: Final = Weights(
    embedding=(
        Row(core="embedding.word_embeddings.weight", hf=(hf("embed.weight", "vocab", "hidden"),), kind="vocabulary"),
    ),
    final=(
        Row(core="decoder.final_layernorm.weight", hf=(hf("norm.weight", "hidden"),)),
        *_head("decoder."),
        Row(
            core="output_layer.weight",
            hf=(hf("head.weight", "vocab", "hidden"),),
            kind="vocabulary",
            unless="tie_word_embeddings",
        ),
    ),
    attention=_ATTENTION,
    dense=(),
    sparse=_SPARSE,
    mtp=(
        Row(core="enorm.weight", hf=(hf("enorm.weight", "hidden"),)),
        Row(core="hnorm.weight", hf=(hf("hnorm.weight", "hidden"),)),
        Row(core="e_proj.weight", hf=(hf("e_proj.weight", "hidden", "hidden"),), kind="column"),
        Row(core="h_proj.weight", hf=(hf("h_proj.weight", "hidden", "hidden"),), kind="column"),
        Row(core="final_layernorm.weight", hf=(hf("norm.weight", "hidden"),)),
        *_head(""),
    ),
    mtp_names=("mtp.{layer}.", "mtp.{layer}."),
    # DeepSeek-V4-Flash-Base has them, DeepSeek-V4-Flash has not; mcore-bridge writes them.
    mtp_copies={"emb.tok_emb.weight": "embed.weight", "head.weight": "head.weight"},
    prefix="",
    no_adapters="names of its modules in adapters are those of transformers or of its files, which no source settles",
    # As transformers 5.24 writes the model (conversion_mapping.py, "deepseek_v4").
    aliases={
        r"^model\.": "",
        r"^embed_tokens\.": "embed.",
        r"^lm_head\.": "head.",
        r"^hc_head\.hc_": "hc_head_",
        r"\.attn\.norm\.": ".attn.kv_norm.",
        # Scales of weights in FP8 and MXFP4, by the name that other families have.
        r"\.scale$": ".weight_scale_inv",
    },
)

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
    weights=_WEIGHTS,
)
