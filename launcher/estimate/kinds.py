"""Kinds of layers: the token mixer (attention variants, state space models) and the MLP or experts after it."""

from functools import cache

from launcher.job.model import INDEXER, INDEXER_OFFSET, LINEAR_HEADS, MAMBA, Model, selects_keys
from launcher.records import dataclass, record


@record(eq=False)
class Kind:
    """One kind of layer; equal kinds are one object (`kind_of`), because caches look them up often.

    Attributes:
        mixer: softmax (latent or not), unwindowed (the same where other layers have a window), linear (gated delta
            net), sparse (with its own indexer), shared (sparse with the keys of another layer), sliding, csa or hca
            (compressed attention: the window alone, with compressed keys that an indexer selects, with all compressed
            keys), mamba, or none.
        feed: dense, moe, or none.
    """

    mixer: str = "softmax"
    feed: str = "dense"

    @property
    def moe(self) -> bool:
        """Whether the layer has experts."""
        return self.feed == "moe"

    @property
    def name(self) -> str:
        """Display name of the layer."""
        words = [] if self.mixer in ("softmax", "none") else [self.mixer]
        return " ".join([*words, *([] if self.feed == "none" else [self.feed])]) or "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """Layer variants of a model besides softmax attention over all keys; the defaults are a plain transformer.

    Attributes:
        full_every: every n-th layer attends by softmax, the others linearly; 0: no linear attention.
        window_every: every n-th layer attends without the window; 0: the window, if any, is in all layers.
        unwindowed: further layers that attend without the window.
        gate: the output of softmax attention is gated.
        sinks: softmax has a learned sink for each head.
        indexed: for every layer whether it has its own indexer; empty: attention is not sparse.
        ratios: for every layer tokens per compressed key, 0: none; empty: attention is not compressed.
        out_groups, out_rank: groups of heads and rank of each in the output projection of compressed attention.
        streams: residual streams (hyper-connections); 0: one, without weights.
        pattern: for every layer M (Mamba), * (attention), - (dense) or E (experts); empty: no Mamba layers.
    """

    full_every: int = 0
    key_heads: int = 0
    value_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    conv: int = 0
    window_every: int = 0
    unwindowed: tuple[int, ...] = ()
    gate: bool = False
    sinks: bool = False
    index_heads: int = 0
    index_dim: int = 0
    topk: int = 0
    indexed: tuple[bool, ...] = ()
    ratios: tuple[int, ...] = ()
    out_groups: int = 0
    out_rank: int = 0
    streams: int = 0
    pattern: str = ""
    state: int = 0
    mamba_heads: int = 0
    mamba_dim: int = 0
    groups: int = 0
    mamba_conv: int = 0

    @property
    def linear_widths(self) -> tuple[int, int]:
        """Widths of query (or key) and value of linear attention, all heads."""
        return self.key_heads * self.key_dim, self.value_heads * self.value_dim

    @property
    def inner(self) -> int:
        """Inner width of a Mamba layer."""
        return self.mamba_heads * self.mamba_dim


PLAIN = Variants()
# Mixer of compressed attention by tokens per key, of which only 4 have an indexer (megatron-core dev d48bd6be,
# transformer/experimental_attention_variant/csa.py:1710).
COMPRESSED = {0: "sliding", 4: "csa", 128: "hca"}
# Megatron-core has no default for the layers between (transformer_config.py); Qwen3NextConfig has this one.
_FULL_EVERY = 4


def read_variants(model: Model) -> tuple[Variants, list[str]]:
    """Return the layer variants of a model, and the assumptions made for them."""
    kind, gate, window_every = model.experimental_attention_variant, model.attention_output_gate, 0
    unwindowed: tuple[int, ...] = ()
    if model.sliding_window is not None:
        window_every, unwindowed = model.window_attn_skip_freq or 0, model.full_attention_layers
    plain = not gate and not window_every and not unwindowed and model.softmax_type != "learnable"
    if (
        plain
        and kind not in ("gated_delta_net", "dsa", "dsv4_hybrid")
        and not model.mamba
        and not model.full_attention_interval
    ):
        return PLAIN, []
    values: dict[str, object] = {"window_every": window_every, "unwindowed": unwindowed}
    values["sinks"] = model.softmax_type == "learnable"
    assumed: list[str] = []
    if kind == "gated_delta_net" or (kind is None and model.full_attention_interval):
        values |= _linear(model)
        gate = True if gate is None else gate
        if model.full_attention_interval is None:
            assumed.append(f"model.full_attention_interval: {_FULL_EVERY} (Qwen3-Next's)")
    elif kind == "dsa":
        values |= _indexer(model)
    elif kind == "dsv4_hybrid":
        values |= _compressed(model)
    if model.mamba:
        values |= _mamba(model)
    return Variants(**values, gate=bool(gate)), assumed  # type: ignore[arg-type]


def _linear(model: Model) -> dict[str, object]:
    heads = {name: getattr(model, name) or usual for name, usual in LINEAR_HEADS.items()}
    return {
        "full_every": model.full_attention_interval or _FULL_EVERY,
        "key_heads": heads["linear_num_key_heads"],
        "value_heads": heads["linear_num_value_heads"],
        "key_dim": heads["linear_key_head_dim"],
        "value_dim": heads["linear_value_head_dim"],
        "conv": heads["linear_conv_kernel_dim"],
    }


def _indexer(model: Model) -> dict[str, object]:
    """Return the sizes of the indexer, and which layers have one (GlmMoeDsaConfig.__post_init__, transformers 5)."""
    every = model.index_topk_freq or 1
    offset = INDEXER_OFFSET if model.index_skip_topk_offset is None else model.index_skip_topk_offset
    layers = model.num_hidden_layers or 0
    indexed = tuple(selects_keys(index, every, offset) for index in range(layers))
    if len(model.indexer_types) == layers:
        indexed = tuple(name == "full" for name in model.indexer_types)
    return {
        "index_heads": model.index_n_heads or INDEXER["index_n_heads"],
        "index_dim": model.index_head_dim or INDEXER["index_head_dim"],
        "topk": model.index_topk or INDEXER["index_topk"],
        "indexed": indexed,
    }


def _compressed(model: Model) -> dict[str, object]:
    sizes = {name: value for name, value in _indexer(model).items() if name != "indexed"}
    return {
        **sizes,
        "ratios": model.compress_ratios or (0,) * (model.num_hidden_layers or 0),
        "out_groups": model.o_groups or 1,
        "out_rank": model.o_lora_rank or 0,
        "streams": model.hc_mult or 0 if model.enable_hyper_connections else 0,
    }


def _mamba(model: Model) -> dict[str, object]:
    sizes = {name: getattr(model, name) or usual for name, usual in MAMBA.items()}
    dim = sizes["mamba_head_dim"]
    heads = model.mamba_num_heads or (model.hidden_size or 0) * sizes["mamba_expand"] // dim
    return {
        "pattern": model.hybrid_override_pattern or "M" * (model.num_hidden_layers or 0),
        "state": sizes["mamba_state_dim"],
        "mamba_heads": heads,
        "mamba_dim": dim,
        "groups": sizes["mamba_num_groups"],
        "mamba_conv": sizes["mamba_d_conv"],
    }


@cache
def kind_of(mixer: str, feed: str) -> Kind:
    """Return the object of a kind."""
    return Kind(mixer=mixer, feed=feed)


# Source: megatron-core 0.16.1 ssm/mamba_hybrid_layer_allocation.py, Symbols.
_SYMBOLS = {
    "M": kind_of("mamba", "none"),
    "*": kind_of("softmax", "none"),
    "-": kind_of("none", "dense"),
    "E": kind_of("none", "moe"),
}


def kind_at(variants: Variants, index: int, moe: bool) -> Kind:
    """Return the kind of layer `index` (from 0).

    Args:
        moe: whether it has experts, see `Transformer.has_experts_at`.
    """
    if variants.pattern:
        return _SYMBOLS.get(variants.pattern[index : index + 1], _SYMBOLS["M"])
    mixer = "softmax"
    if variants.full_every and (index + 1) % variants.full_every:
        mixer = "linear"
    elif variants.ratios:
        mixer = COMPRESSED.get(variants.ratios[index] if index < len(variants.ratios) else 0, "hca")
    elif variants.indexed:
        mixer = "sparse" if variants.indexed[index] else "shared"
    elif index in variants.unwindowed or (variants.window_every and (index + 1) % variants.window_every == 0):
        mixer = "unwindowed"
    return kind_of(mixer, "moe" if moe else "dense")
