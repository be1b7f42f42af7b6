"""The model families that can be read from config.json: one declarative entry each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from launcher.families.attention import ALTERNATING_WINDOW, INDEXER_LAYERS, LINEAR_LAYERS, dense_first
from launcher.families.parts import (
    LATENT_HEADS,
    LLAMA_BIASES,
    ONE_WIDTH,
    QWEN_WINDOW,
    SHARED_EXPERTS,
    SPARSE_LAYERS,
    Part,
    heads,
    rope,
    routing,
)
from launcher.families.source import NEEDED
from launcher.job.model import LINEAR_HEADS
from launcher.job.schema import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of config.json that maps to one canonical field.

    Attributes:
        field: canonical field below `model`.
        names: spellings of the key, the one of transformers 4 first; empty: the field's name.
        default: default of the family's configuration class in transformers; NEEDED: no safe default.
        null: null in the file is a valid value.
    """

    field: str
    names: tuple[str, ...] = ()
    default: Any = NEEDED
    null: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """All spellings, the one that is written first."""
        return self.names or (self.field,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A key with only one supported value: `name` must be `value` or absent, else `why` is reported."""

    name: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of models.

    Attributes:
        model_type: `model_type` of config.json and of the canonical job.
        aliases: other names of the same family in published files, which are written as model_type.
        stem: start of the class names in `architectures`, such as Qwen3Moe.
        keys: keys that map one-to-one to fields.
        parts: conversions that are not one-to-one.
        fixed: canonical fields that the family's code determines.
        pinned: keys without a canonical field, which must have their usual value.
    """

    model_type: str
    stem: str
    keys: tuple[Key, ...]
    parts: tuple[Part, ...]
    fixed: Mapping[str, Value] = field(default_factory=dict)
    pinned: tuple[Pinned, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """Class name of the causal language model, as in `architectures`."""
        return f"{self.stem}ForCausalLM"

    def decides(self, field: str) -> bool:
        """Return whether config.json or the family's code determines `field`, which not every family has."""
        keys = any(key.field == field for key in self.keys)
        return keys or field in self.fixed or any(field in part.variants for part in self.parts)


_SIZES = tuple(
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


def _common(norm_eps: float = 1e-6) -> tuple[Key, ...]:
    return (
        *_SIZES,
        Key(field="rms_norm_eps", default=norm_eps),
        Key(field="tie_word_embeddings", default=False),
        Key(field="initializer_range", default=0.02),
        Key(field="attention_dropout", default=0.0),
    )


_SILU = Pinned(name="hidden_act", value="silu", why="these families are known with SwiGLU (silu) only")
_NO_BIAS = Pinned(
    name="attention_bias", value=False, why="a bias on the output projection, too, has no canonical field of its own"
)
_NO_PRUNING = Pinned(name="pruned_heads", value={}, why="pruned heads have no canonical field")
_PINNED = (_SILU, _NO_PRUNING)
_QWEN2_PINNED = (*_PINNED, Pinned(name="use_mrope", value=False, why="multi-modal positions have no canonical field"))

# Qwen3-Coder's config.json has keys that transformers' class does not define.
_QWEN3_CODER = (
    Pinned(name="use_qk_norm", value=True, why="its class normalises query and key heads"),
    Pinned(name="qkv_bias", value=False, why="its class has no such bias"),
    Pinned(name="shared_expert_intermediate_size", value=0, why="its class has no shared expert"),
)

_QWEN_EXPERTS = (
    Key(field="num_experts", names=("num_experts", "num_local_experts")),
    Key(field="num_experts_per_tok"),
    Key(field="moe_intermediate_size"),
    Key(field="norm_topk_prob", default=False),
)

_LATENT = (
    # transformers defaults to 1536, but V2-Lite uses null: no default is assumed.
    Key(field="q_lora_rank", null=True),
    Key(field="kv_lora_rank"),
    Key(field="qk_nope_head_dim"),
    Key(field="qk_rope_head_dim"),
    Key(field="v_head_dim"),
)


def _routed(*, norm_topk_prob: bool, scaling: float) -> tuple[Key, ...]:
    return (
        Key(field="num_experts", names=("n_routed_experts", "num_local_experts")),
        Key(field="num_experts_per_tok"),
        Key(field="moe_intermediate_size"),
        Key(field="norm_topk_prob", default=norm_topk_prob),
        Key(field="routed_scaling_factor", default=scaling),
        # The classes default to 1 but build no such layer: without the key there is none.
        Key(field="num_nextn_predict_layers", names=("num_nextn_predict_layers", "num_mtp_layers"), default=0),
    )


def _deepseek(*, norm_topk_prob: bool, scaling: float) -> tuple[Key, ...]:
    return (
        *_common(),
        *_LATENT,
        *_routed(norm_topk_prob=norm_topk_prob, scaling=scaling),
        Key(field="first_k_dense_replace"),
        Key(field="moe_layer_freq", default=1),
    )


def _indexed(norm_eps: float) -> tuple[Key, ...]:
    """Return the config.json keys of latent attention with an indexer: DeepSeek-V3.2, GLM-5."""
    return (
        *_common(norm_eps),
        *_LATENT,
        *_routed(norm_topk_prob=True, scaling=2.5),
        Key(field="moe_layer_freq", default=1),
        Key(field="index_n_heads"),
        Key(field="index_head_dim"),
        Key(field="index_topk"),
    )


_ROTATED = Pinned(name="rope_interleave", value=True, why="the published layout of rotated dimensions is interleaved")
_NO_MLP_BIAS = Pinned(name="mlp_bias", value=False, why="biases there have no canonical field")


# Megatron's name for the norms on the compressed queries and keys, which latent attention always has.
_LATENT_FIXED: Final[dict[str, Value]] = {"qk_layernorm": True}
_INDEXED: Final[dict[str, Value]] = {"experimental_attention_variant": "dsa"}
_INDEXED_PINNED = (*_PINNED, _NO_BIAS, _NO_MLP_BIAS, _ROTATED)
_INDEXED_PARTS = (
    routing(scoring="sigmoid", method="noaux_tc"),
    SHARED_EXPERTS,
    dense_first(3),
    INDEXER_LAYERS,
)

_TABLE: Final = (
    Family(
        model_type="llama",
        stem="Llama",
        keys=_common(),
        parts=(heads(), rope(10000.0), LLAMA_BIASES),
        pinned=_PINNED,
    ),
    Family(
        model_type="qwen2",
        stem="Qwen2",
        keys=_common(),
        parts=(heads(), rope(), QWEN_WINDOW),
        fixed={"attention_bias": True},
        pinned=_QWEN2_PINNED,
    ),
    Family(
        model_type="qwen3",
        stem="Qwen3",
        keys=_common(),
        parts=(heads(explicit=True, default=128), rope(), QWEN_WINDOW),
        fixed={"qk_layernorm": True},
        pinned=(*_PINNED, _NO_BIAS),
    ),
    Family(
        model_type="qwen2_moe",
        stem="Qwen2Moe",
        keys=(
            *_common(),
            *_QWEN_EXPERTS,
            Key(field="shared_expert_intermediate_size"),
            Key(field="attention_bias", names=("qkv_bias",), default=True),
        ),
        parts=(heads(), rope(), QWEN_WINDOW, SPARSE_LAYERS),
        fixed={"shared_expert_gate": True},
        pinned=_QWEN2_PINNED,
    ),
    Family(
        model_type="qwen3_moe",
        stem="Qwen3Moe",
        keys=(*_common(), *_QWEN_EXPERTS),
        parts=(heads(explicit=True), rope(), QWEN_WINDOW, SPARSE_LAYERS),
        fixed={"qk_layernorm": True},
        pinned=(*_PINNED, _NO_BIAS, *_QWEN3_CODER),
    ),
    Family(
        model_type="mixtral",
        stem="Mixtral",
        keys=(
            *_common(1e-5),
            Key(field="num_experts", names=("num_local_experts", "num_experts")),
            Key(field="num_experts_per_tok"),
            Key(field="sliding_window", default=None),
        ),
        parts=(heads(), rope(), ONE_WIDTH),
        # Softmax over the chosen logits equals softmax over all, renormalised over the chosen.
        fixed={"norm_topk_prob": True},
        pinned=_PINNED,
    ),
    Family(
        model_type="deepseek_v2",
        stem="DeepseekV2",
        keys=_deepseek(norm_topk_prob=False, scaling=1.0),
        parts=(LATENT_HEADS, rope(10000.0), routing(scoring="softmax", method="greedy"), SHARED_EXPERTS),
        fixed=_LATENT_FIXED,
        pinned=(*_PINNED, _NO_BIAS, _NO_MLP_BIAS),
    ),
    Family(
        model_type="deepseek_v3",
        stem="DeepseekV3",
        keys=_deepseek(norm_topk_prob=True, scaling=2.5),
        parts=(LATENT_HEADS, rope(10000.0), routing(scoring="sigmoid", method="noaux_tc"), SHARED_EXPERTS),
        fixed=_LATENT_FIXED,
        pinned=(*_PINNED, _NO_BIAS, _ROTATED),
        aliases=("kimi_k2",),
    ),
    Family(
        model_type="deepseek_v32",
        stem="DeepseekV32",
        keys=_indexed(1e-6),
        parts=(LATENT_HEADS, rope(10000.0), *_INDEXED_PARTS),
        fixed=_LATENT_FIXED | _INDEXED,
        pinned=(
            *_INDEXED_PINNED,
            Pinned(name="indexer_rope_interleave", value=False, why="its indexer rotates the halves of a head"),
        ),
    ),
    Family(
        model_type="glm_moe_dsa",
        stem="GlmMoeDsa",
        keys=_indexed(1e-5),
        parts=(LATENT_HEADS, rope(), *_INDEXED_PARTS),
        fixed=_LATENT_FIXED | _INDEXED,
        pinned=(
            *_INDEXED_PINNED,
            Pinned(name="indexer_rope_interleave", value=True, why="its indexer rotates neighbouring dimensions"),
        ),
    ),
    Family(
        model_type="glm4_moe_lite",
        stem="Glm4MoeLite",
        keys=(*_common(1e-5), *_LATENT, *_routed(norm_topk_prob=True, scaling=1.8)),
        parts=(
            LATENT_HEADS,
            rope(),
            routing(scoring="sigmoid", method="noaux_tc"),
            SHARED_EXPERTS,
            dense_first(1),
        ),
        fixed=_LATENT_FIXED,
        pinned=(*_PINNED, _NO_BIAS, _ROTATED),
    ),
    Family(
        model_type="glm4_moe",
        stem="Glm4Moe",
        keys=(
            *_common(1e-5),
            *_routed(norm_topk_prob=True, scaling=1.0),
            Key(field="first_k_dense_replace"),
            Key(field="attention_bias", default=False),
            Key(field="qk_layernorm", names=("use_qk_norm",), default=False),
        ),
        parts=(
            heads(),
            rope(partial=0.5),
            routing(scoring="sigmoid", method="noaux_tc"),
            SHARED_EXPERTS,
        ),
        pinned=_PINNED,
    ),
    Family(
        model_type="qwen3_next",
        stem="Qwen3Next",
        keys=(
            *_common(),
            *_QWEN_EXPERTS,
            Key(field="shared_expert_intermediate_size"),
            *(Key(field=name, default=usual) for name, usual in LINEAR_HEADS.items()),
        ),
        parts=(heads(explicit=True, default=256), rope(partial=0.25), SPARSE_LAYERS, LINEAR_LAYERS),
        fixed={
            "experimental_attention_variant": "gated_delta_net",
            "attention_output_gate": True,
            "norm_zero_centered": True,
            "qk_layernorm": True,
            "shared_expert_gate": True,
        },
        pinned=(
            *_PINNED,
            _NO_BIAS,
            Pinned(name="use_sliding_window", value=False, why="its class knows no window"),
        ),
    ),
    Family(
        model_type="gpt_oss",
        stem="GptOss",
        keys=(
            *_common(1e-5),
            Key(field="num_experts", names=("num_local_experts", "num_experts")),
            Key(field="num_experts_per_tok", names=("num_experts_per_tok", "experts_per_token")),
            Key(field="swiglu_limit", default=7.0),
        ),
        parts=(heads(explicit=True, default=64), rope(150000.0, truncate=False), ALTERNATING_WINDOW, ONE_WIDTH),
        fixed={
            "attention_bias": True,
            "linear_bias": True,
            "hidden_act": "quick_geglu",
            "glu_linear_offset": 1.0,
            "softmax_type": "learnable",
            # Softmax over the chosen logits equals softmax over all, renormalised over the chosen.
            "norm_topk_prob": True,
        },
        pinned=(
            *_PINNED,
            Pinned(name="attention_bias", value=True, why="biases are known in all of its linear layers"),
            Pinned(name="swiglu_alpha", value=1.702, why="it is that of quick_geglu"),
        ),
    ),
)

FAMILIES: Final[Mapping[str, Family]] = {family.model_type: family for family in _TABLE}
