"""config.json keys that several families share, and keys that must have their usual value."""

from typing import Final

from launcher.families.attention import INDEXER_LAYERS, dense_first
from launcher.families.parts import SHARED_EXPERTS, routing
from launcher.families.record import Key, Pinned
from launcher.job.schema import Value

SIZES = tuple(
    Key(field=name)
    for name in (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
    )
)


def common(norm_eps: float = 1e-6, *, tied: bool = False) -> tuple[Key, ...]:
    """Return the keys of every family; `norm_eps` and `tied` (embeddings) are the defaults of its class."""
    return (
        *SIZES,
        Key(field="rms_norm_eps", default=norm_eps),
        Key(field="tie_word_embeddings", default=tied),
        Key(field="initializer_range", default=0.02),
        Key(field="attention_dropout", default=0.0),
    )


def experts_only(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """Return the keys of a family without dense layers, whose config.json has no intermediate_size."""
    return tuple(key for key in keys if key.field != "intermediate_size")


SILU = Pinned(name="hidden_act", value="silu", why="these families are known with SwiGLU (silu) only")
NO_BIAS = Pinned(
    name="attention_bias", value=False, why="a bias on the output projection, too, has no canonical field of its own"
)
NO_PRUNING = Pinned(name="pruned_heads", value={}, why="pruned heads have no canonical field")
PINNED = (SILU, NO_PRUNING)
QWEN2_PINNED = (*PINNED, Pinned(name="use_mrope", value=False, why="multi-modal positions have no canonical field"))

LATENT = (
    # transformers defaults to 1536, but V2-Lite uses null: no default is assumed.
    Key(field="q_lora_rank", null=True),
    Key(field="kv_lora_rank"),
    Key(field="qk_nope_head_dim"),
    Key(field="qk_rope_head_dim"),
    Key(field="v_head_dim"),
)


def qwen_experts(*, norm_topk_prob: bool = False) -> tuple[Key, ...]:
    """Return the keys of Qwen's experts, with the default of the family's class."""
    return (
        Key(field="num_experts", names=("num_experts", "num_local_experts")),
        Key(field="num_experts_per_tok"),
        Key(field="moe_intermediate_size"),
        Key(field="norm_topk_prob", default=norm_topk_prob),
    )


def routed(*, norm_topk_prob: bool, scaling: float) -> tuple[Key, ...]:
    """Return the keys of DeepSeek's experts, with the defaults of the family's class."""
    return (
        Key(field="num_experts", names=("n_routed_experts", "num_local_experts")),
        Key(field="num_experts_per_tok"),
        Key(field="moe_intermediate_size"),
        Key(field="norm_topk_prob", default=norm_topk_prob),
        Key(field="routed_scaling_factor", default=scaling),
        # The classes default to 1 but build no such layer: without the key there is none.
        Key(field="num_nextn_predict_layers", names=("num_nextn_predict_layers", "num_mtp_layers"), default=0),
    )


def deepseek_keys(*, norm_topk_prob: bool, scaling: float) -> tuple[Key, ...]:
    """Return the keys of DeepSeek-V2 and -V3, with the defaults of the family's class."""
    return (
        *common(),
        *LATENT,
        *routed(norm_topk_prob=norm_topk_prob, scaling=scaling),
        Key(field="first_k_dense_replace"),
        Key(field="moe_layer_freq", default=1),
    )


def indexed_keys(norm_eps: float) -> tuple[Key, ...]:
    """Return the config.json keys of latent attention with an indexer: DeepSeek-V3.2, GLM-5."""
    return (
        *common(norm_eps),
        *LATENT,
        *routed(norm_topk_prob=True, scaling=2.5),
        Key(field="moe_layer_freq", default=1),
        Key(field="index_n_heads"),
        Key(field="index_head_dim"),
        Key(field="index_topk"),
    )


ROTATED = Pinned(name="rope_interleave", value=True, why="the published layout of rotated dimensions is interleaved")
NO_MLP_BIAS = Pinned(name="mlp_bias", value=False, why="biases there have no canonical field")


# Megatron's name for the norms on the compressed queries and keys, which latent attention always has.
LATENT_FIXED: Final[dict[str, Value]] = {"qk_layernorm": True}
INDEXED: Final[dict[str, Value]] = {"experimental_attention_variant": "dsa"}
INDEXED_PINNED = (*PINNED, NO_BIAS, NO_MLP_BIAS, ROTATED)
INDEXED_PARTS = (
    routing(scoring="sigmoid", method="noaux_tc"),
    SHARED_EXPERTS,
    dense_first(3),
    INDEXER_LAYERS,
)
