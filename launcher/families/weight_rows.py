"""Parameters that several families share: outer tensors, attention (grouped and latent), dense and sparse layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from launcher.families.weights import Enclosing, Row, Spelling, Weights, hf

_GATED: Final = ("gate_proj", "up_proj", "down_proj")

EMBEDDING: Final = (
    Row(
        core="embedding.word_embeddings.weight",
        hf=(hf("model.embed_tokens.weight", "vocab", "hidden"),),
        kind="vocabulary",
    ),
)

FINAL: Final = (
    Row(core="decoder.final_layernorm.weight", hf=(hf("model.norm.weight", "hidden"),)),
    Row(
        core="output_layer.weight",
        hf=(hf("lm_head.weight", "vocab", "hidden"),),
        kind="vocabulary",
        unless="tie_word_embeddings",
    ),
)

# transformers up to 4.31 stored them (models/llama/modeling_llama.py:100 @4.31.0; 4.32.0: persistent=False); every
# version computes them.
IGNORED: Final = {r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq": "computed from config.json, not a weight"}

GROUPED_ATTENTION: Final = (
    Row(
        core="self_attention.linear_qkv.layer_norm_weight",
        local="input_layernorm.weight",
        hf=(hf("input_layernorm.weight", "hidden"),),
    ),
    Row(
        core="self_attention.linear_qkv.weight",
        hf=(
            hf("self_attn.q_proj.weight", "query", "hidden"),
            hf("self_attn.k_proj.weight", "key", "hidden"),
            hf("self_attn.v_proj.weight", "key", "hidden"),
        ),
        kind="qkv",
    ),
    Row(
        core="self_attention.linear_qkv.bias",
        hf=(
            hf("self_attn.q_proj.bias", "query"),
            hf("self_attn.k_proj.bias", "key"),
            hf("self_attn.v_proj.bias", "key"),
        ),
        kind="qkv",
        needs="attention_bias",
    ),
    Row(core="self_attention.q_layernorm.weight", hf=(hf("self_attn.q_norm.weight", "head"),), needs="qk_layernorm"),
    Row(core="self_attention.k_layernorm.weight", hf=(hf("self_attn.k_norm.weight", "head"),), needs="qk_layernorm"),
    Row(core="self_attention.linear_proj.weight", hf=(hf("self_attn.o_proj.weight", "hidden", "query"),), kind="row"),
    Row(
        core="self_attention.linear_proj.bias",
        hf=(hf("self_attn.o_proj.bias", "hidden"),),
        needs="has_attention_output_bias",
    ),
)


def fused_attention() -> tuple[Row, ...]:
    """Return the rows of grouped attention with query, key and value in one tensor, one after the other (Phi-3)."""
    fused = Row(
        core="self_attention.linear_qkv.weight",
        hf=(hf("self_attn.qkv_proj.weight", "query+2*key", "hidden"),),
        kind="qkv",
    )
    return tuple(fused if row.core == fused.core else row for row in GROUPED_ATTENTION)


def fused_dense() -> tuple[Row, ...]:
    """Return the rows of a dense layer with gate and up projection in one tensor (Phi-3)."""
    fused = Row(core="mlp.linear_fc1.weight", hf=(hf("mlp.gate_up_proj.weight", "2*ffn", "hidden"),), kind="gate_up")
    return tuple(fused if row.core == fused.core else row for row in DENSE)


# Norms over all heads together, by mcore-bridge's names (1.6.5 model/gpts/olmoe.py:110, minimax_m2.py:85): OLMoE,
# MiniMax-M2.
WIDE_NORM_ATTENTION: Final = (
    *(row for row in GROUPED_ATTENTION if "_layernorm.weight" not in row.core or row.needs is None),
    Row(core="self_attention.q_norm.weight", hf=(hf("self_attn.q_norm.weight", "query"),)),
    Row(core="self_attention.k_norm.weight", hf=(hf("self_attn.k_norm.weight", "key"),)),
)

# The down projections are duplicated with Transformer Engine and split (then gathered) with local layers:
# megatron-core 0.16.1 transformer/multi_latent_attention.py, MLASelfAttention.__init__.
LATENT_ATTENTION: Final = (
    Row(core="input_layernorm.weight", hf=(hf("input_layernorm.weight", "hidden"),)),
    Row(
        core="self_attention.linear_q_proj.weight",
        hf=(hf("self_attn.q_proj.weight", "latent_query", "hidden"),),
        kind="column",
        unless="q_lora_rank",
    ),
    Row(
        core="self_attention.linear_q_down_proj.weight",
        hf=(hf("self_attn.q_a_proj.weight", "q_rank", "hidden"),),
        local_kind="column",
        needs="q_lora_rank",
    ),
    Row(
        core="self_attention.linear_q_up_proj.layer_norm_weight",
        local="self_attention.q_layernorm.weight",
        hf=(hf("self_attn.q_a_layernorm.weight", "q_rank"),),
        needs="q_lora_rank",
    ),
    Row(
        core="self_attention.linear_q_up_proj.weight",
        hf=(hf("self_attn.q_b_proj.weight", "latent_query", "q_rank"),),
        kind="column",
        needs="q_lora_rank",
    ),
    Row(
        core="self_attention.linear_kv_down_proj.weight",
        hf=(hf("self_attn.kv_a_proj_with_mqa.weight", "kv_rank+rotated", "hidden"),),
        local_kind="column",
    ),
    Row(
        core="self_attention.linear_kv_up_proj.layer_norm_weight",
        local="self_attention.kv_layernorm.weight",
        hf=(hf("self_attn.kv_a_layernorm.weight", "kv_rank"),),
    ),
    Row(
        core="self_attention.linear_kv_up_proj.weight",
        hf=(hf("self_attn.kv_b_proj.weight", "latent_key_value", "kv_rank"),),
        kind="column",
    ),
    Row(
        core="self_attention.linear_proj.weight",
        hf=(hf("self_attn.o_proj.weight", "hidden", "latent_value"),),
        kind="row",
    ),
)


# Latent attention whose indexer selects keys, as mcore-bridge 1.6.5 builds it: the norms of the low ranks are modules
# (model/register.py _replace_spec_dsa), the indexer's heads are those of Hugging Face (modules/dsa_indexer.py).
_NORMS_APART: Final = {
    "self_attention.linear_q_up_proj.layer_norm_weight": "self_attention.q_layernorm.weight",
    "self_attention.linear_kv_up_proj.layer_norm_weight": "self_attention.kv_layernorm.weight",
}
_INDEXER: Final = "self_attention.core_attention.indexer"
INDEXED_ATTENTION: Final = (
    *(replace(row, core=_NORMS_APART.get(row.core, row.core)) for row in LATENT_ATTENTION),
    *(
        Row(core=f"{_INDEXER}.{core}", hf=(hf(f"self_attn.indexer.{name}", *shape),), mixer="indexed")
        for core, name, *shape in (
            ("linear_wq_b.weight", "wq_b.weight", "index_query", "q_rank"),
            ("linear_wk.weight", "wk.weight", "index_head", "hidden"),
            ("k_norm.weight", "k_norm.weight", "index_head"),
            ("k_norm.bias", "k_norm.bias", "index_head"),
            ("linear_weights_proj.weight", "weights_proj.weight", "index_heads", "hidden"),
        )
    ),
)


def gated(core: str, prefix: str, width: str, names: tuple[str, str, str] = _GATED) -> tuple[Row, ...]:
    """Return the rows of a gated MLP: gate and up projection in `linear_fc1`, down projection in `linear_fc2`."""
    gate, up, down = (f"{prefix}.{name}.weight" for name in names)
    return (
        Row(
            core=f"{core}.linear_fc1.weight",
            hf=(hf(gate, width, "hidden"), hf(up, width, "hidden")),
            kind="gate_up",
        ),
        Row(core=f"{core}.linear_fc2.weight", hf=(hf(down, "hidden", width),), kind="row"),
    )


DENSE: Final = (
    Row(
        core="mlp.linear_fc1.layer_norm_weight",
        local="pre_mlp_layernorm.weight",
        hf=(hf("post_attention_layernorm.weight", "hidden"),),
    ),
    *gated("mlp", "mlp", "ffn"),
    Row(
        core="mlp.linear_fc1.bias",
        hf=(hf("mlp.gate_proj.bias", "ffn"), hf("mlp.up_proj.bias", "ffn")),
        kind="gate_up",
        needs="linear_bias",
    ),
    Row(core="mlp.linear_fc2.bias", hf=(hf("mlp.down_proj.bias", "hidden"),), needs="linear_bias"),
)


def with_norms_of_outputs(dense: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of a dense layer that has norms before and after attention and feed-forward network (Gemma).

    Megatron-core has no such layer; the names are MindSpeed-LLM's, whose norms are all modules (26.1.0
    tasks/models/transformer/transformer_layer.py:48, spec/gemma2_spec.py).
    """
    before = Row(core="pre_mlp_layernorm.weight", hf=(hf("pre_feedforward_layernorm.weight", "hidden"),))
    after = (
        Row(core="post_attn_norm.weight", hf=(hf("post_attention_layernorm.weight", "hidden"),)),
        Row(core="post_mlp_layernorm.weight", hf=(hf("post_feedforward_layernorm.weight", "hidden"),)),
    )
    return (before, *(row for row in dense if row.core != "mlp.linear_fc1.layer_norm_weight"), *after)


SPARSE_NORM: Final = Row(core="pre_mlp_layernorm.weight", hf=(hf("post_attention_layernorm.weight", "hidden"),))

EXPERTS: Final = gated("mlp.experts.{expert}", "mlp.experts.{expert}", "expert_ffn")

ROUTER: Final = Row(core="mlp.router.weight", hf=(hf("mlp.gate.weight", "experts", "hidden"),))


# Qwen's experts beside one shared expert that has a gate.
QWEN_SPARSE: Final = (
    SPARSE_NORM,
    ROUTER,
    *EXPERTS,
    *gated("mlp.shared_experts", "mlp.shared_expert", "shared_ffn"),
    Row(core="mlp.shared_experts.gate_weight", hf=(hf("mlp.shared_expert_gate.weight", 1, "hidden"),)),
)


def fused(prefix: str = "mlp.experts", names: tuple[str, str, str] = _GATED, **how: bool) -> tuple[Spelling, ...]:
    """Return the fused expert tensors of transformers 5 (in memory, optionally on disk): one for all experts."""
    gate, up, down = (f"{prefix}.{{expert}}.{name}.weight" for name in names)
    return (
        Spelling(stored="mlp.experts.gate_up_proj", parts=(gate, up), **how),
        Spelling(stored="mlp.experts.down_proj", parts=(down,), **how),
    )


# Qwen2-VL, Qwen2.5-VL: as published (mcore-bridge 1.6.5 mm_gpts/qwen.py hf_state_dict_mapping); transformers' classes
# have the names of the later models.
BESIDE_LANGUAGE_MODEL: Final = Enclosing(
    language="model.",
    core="language_model.",
    others={"visual.": "visual.visual."},
    aliases={"model.language_model.": "model.", "model.visual.": "visual."},
    module="model.language_model.",
)
# Qwen3-VL, Qwen3.5: names in files (transformers 5.24 modeling_qwen3_5.py) and in mcore-bridge's model (1.6.5
# model/mm_gpt_model.py, mm_gpts/qwen3_5.py module_mapping). A language model saved by itself has shorter names.
IN_LANGUAGE_MODEL: Final = Enclosing(
    language="model.language_model.",
    core="language_model.",
    others={"model.visual.": "visual.visual."},
    aliases={
        name: f"model.language_model.{name[6:]}" for name in ("model.embed_tokens.", "model.layers.", "model.norm.")
    },
)


# Grouped-query attention and dense layers, without anything of its own: Llama, Qwen2, Qwen3.
DENSE_WEIGHTS: Final = Weights(
    embedding=EMBEDDING, final=FINAL, attention=GROUPED_ATTENTION, dense=DENSE, ignored=IGNORED
)

# Sparse layers of DeepSeek-V2 and later, GLM-4.5 and later: a bias that only chooses experts, shared experts.
ROUTED: Final = (
    SPARSE_NORM,
    ROUTER,
    Row(
        core="mlp.router.expert_bias",
        hf=(hf("mlp.gate.e_score_correction_bias", "experts"),),
        needs="router_expert_bias",
        exact=True,
    ),
    *EXPERTS,
    *(
        Row(core=row.core, hf=row.hf, kind=row.kind, needs="shared_expert_intermediate_size")
        for row in gated("mlp.shared_experts", "mlp.shared_experts", "shared_ffn")
    ),
)


def routed_weights(attention: tuple[Row, ...]) -> Weights:
    """Return the parameters of a model with `ROUTED` layers and DeepSeek's MTP layers."""
    return Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=attention,
        dense=DENSE,
        sparse=ROUTED,
        mtp=(
            Row(core="enorm.weight", hf=(hf("enorm.weight", "hidden"),)),
            Row(core="hnorm.weight", hf=(hf("hnorm.weight", "hidden"),)),
            Row(core="eh_proj.weight", hf=(hf("eh_proj.weight", "hidden", "2*hidden"),), kind="column"),
            Row(core="final_layernorm.weight", hf=(hf("shared_head.norm.weight", "hidden"),)),
        ),
        mtp_copies={
            "embed_tokens.weight": "model.embed_tokens.weight",
            "shared_head.head.weight": "lm_head.weight",
        },
        spellings=fused(),
        ignored=IGNORED,
    )


DEEPSEEK_WEIGHTS: Final = routed_weights(LATENT_ATTENTION)
INDEXED_WEIGHTS: Final = routed_weights(INDEXED_ATTENTION)
