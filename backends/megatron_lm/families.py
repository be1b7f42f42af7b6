"""Model families that Megatron-LM trains, by version, and models that it cannot build.

Its mapping table uses the same conditions to reject them.
"""

from collections.abc import Mapping

from launcher.mapping.family_row import FamilyRow, by_family
from launcher.mapping.unbuildable_models import Unbuildable

# It has no names for families: GPTModel is built from arguments.
_MODEL = "GPTModel"
_ARGUMENTS = "Megatron-LM core_v0.16.1 training/arguments.py"
_ONE_BY_ONE = "query and key heads are normalised one by one"
_LAYER = "megatron-core 0.16.1, 0.19.0 transformer/transformer_layer.py TransformerLayer.__init__"
_POSITIONS = (
    "pretrain_gpt.py gives one position for each token, and positions in time, height and width (mrope) are three"
)
_MROPE = (
    "megatron-core 0.16.1 models/common/embeddings/rotary_pos_embedding.py:307; Megatron-LM core_v0.16.1"
    " training/utils.py get_batch_on_this_tp_rank"
)
_COMPRESSED = "compressed attention is in its development branch only, not in a release"
_SPARSE = "sparse attention (DSA) came with core 0.16"


# Hugging Face's indexer rotates the first dimensions of a head: by halves (DeepSeek-V3.2) or in pairs (GLM-5).
# Source: core 0.16.1 transformer/experimental_attention_variant/dsa.py:455, _apply_rope.
_INDEXER = (
    "its indexer rotates the last dimensions of a head, in pairs; published weights were trained with the first ones"
)
# Source: core 0.16.1 ssm/gated_delta_net.py, transformer/attention.py get_query_key_value_tensors.
_LINEAR = "it orders the heads of linear attention and of gates in another way, which is not written yet"


def _since(model_type: str, version: str | None = None, cannot: str = "", no_weights: str = "") -> FamilyRow:
    names = ((version, None, _MODEL),)
    return FamilyRow(model_type=model_type, names=names, cannot=cannot, no_weights=no_weights, source=_ARGUMENTS)


FAMILIES = by_family(
    _since("llama"),
    _since("qwen2"),
    _since("qwen3"),
    _since("qwen2_moe", "0.16", "the shared expert has no gate before core 0.16"),
    _since("qwen3_moe"),
    _since("mistral"),
    _since("mixtral"),
    _since("phi3"),
    _since("internlm2"),
    _since("internlm3"),
    _since("ernie4_5"),
    _since("seed_oss"),
    _since("deepseek_v2"),
    _since("deepseek_v3"),
    _since("deepseek_v32", "0.16", _SPARSE, _INDEXER),
    _since("glm_moe_dsa", "0.16", _SPARSE, _INDEXER),
    _since("glm4_moe"),
    _since("glm4_moe_lite"),
    _since("qwen3_next", "0.16", "linear attention came with core 0.16", _LINEAR),
    FamilyRow(model_type="olmoe", cannot=_ONE_BY_ONE, source=_ARGUMENTS),
    FamilyRow(model_type="minimax_m2", cannot=_ONE_BY_ONE, source=_ARGUMENTS),
    *(
        FamilyRow(model_type=name, cannot="the outputs of its layers are not normalised", source=_LAYER)
        for name in ("gemma2", "gemma3_text")
    ),
    _since("llama4_text", "0.13", "layers without rotary positions came with core 0.13"),
    FamilyRow(
        model_type="deepseek_v4",
        cannot=_COMPRESSED,
        no_weights=_COMPRESSED,
        source="Megatron-LM core_v0.19.0 core/transformer/experimental_attention_variant (dev d48bd6be has it)",
    ),
    *(
        FamilyRow(model_type=name, cannot=_POSITIONS, source=_MROPE)
        for name in ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
    ),
    _since("gpt_oss", "0.19", "YaRN scaling of ordinary attention has no argument before core 0.19"),
)

ALL_DENSE = Unbuildable(
    doc="A mixture of experts all of whose layers are dense.",
    when=lambda model: (
        model.is_moe
        and bool(model.first_k_dense_replace or model.mlp_only_layers)
        and not any(map(model.has_experts_at, range(model.num_hidden_layers or 0)))
    ),
    describe=lambda model: "the pattern of layers needs more layers than dense ones",
    fields=("model.first_k_dense_replace", "model.mlp_only_layers"),
    source="Megatron-LM core_v0.16.1 training/arguments.py:231 moe_freq_type",
)
SHARED_GATE = Unbuildable(
    doc="Shared experts with a gate.",
    when=lambda model: model.is_moe and bool(model.shared_expert_gate),
    describe=lambda model: "the shared expert has no gate before core 0.16",
    fields=("model.shared_expert_gate",),
    source="Megatron-LM core_v0.12.1 core/transformer/moe/shared_experts.py",
    until="0.15.9",
)


OUTPUT_BIAS = Unbuildable(
    doc="A bias on the output projection of attention, but not on the MLP.",
    when=lambda model: model.has_attention_output_bias != model.linear_bias,
    describe=lambda model: (
        "attention_output_bias: the output projection of attention has a bias if and only if the MLP has"
        " (add_bias_linear)"
    ),
    fields=("model.attention_output_bias", "model.linear_bias"),
    source="megatron-core 0.16.1 transformer/attention.py:355; Megatron-LM core_v0.12.1 core/transformer/attention.py",
)
SOME_WINDOWS = Unbuildable(
    doc="An attention window in some layers only.",
    when=lambda model: model.sliding_window is not None and bool(model.full_attention_layers),
    describe=lambda model: "full_attention_layers: a window in some layers came with core 0.15",
    fields=("model.full_attention_layers",),
    source="Megatron-LM core_v0.12.1, core_v0.14.0 core/transformer/transformer_config.py (no window_attn_skip_freq)",
    until="0.14.99",
)


NORMS_OF_OUTPUTS = Unbuildable(
    doc="Norms of the outputs of attention and feed-forward network.",
    when=lambda model: bool(model.norms_of_outputs),
    describe=lambda model: "norms_of_outputs: the outputs of its layers are not normalised",
    fields=("model.norms_of_outputs",),
    source=_LAYER,
)
WIDE_NORM = Unbuildable(
    doc="Queries and keys normalised over all heads together.",
    when=lambda model: model.normalises_all_heads,
    describe=lambda model: "qk_norm_type per_layer: query and key heads are normalised one by one",
    fields=("model.qk_norm_type",),
    source="megatron-core 0.16.1 transformer/attention.py SelfAttention.__init__ (q_layernorm)",
)
NORM_WITHOUT_ROPE = Unbuildable(
    doc="Queries and keys normalised in layers with rotary positions only.",
    when=lambda model: bool(model.qk_l2_norm and model.qk_l2_norm_rope_only and model.no_rope_freq),
    describe=lambda model: (
        "qk_l2_norm_rope_only: query and key heads of all layers are normalised, those of layers without rotary"
        " positions, too"
    ),
    fields=("model.qk_l2_norm_rope_only", "model.qk_l2_norm", "model.no_rope_freq"),
    source="megatron-core 0.16.1 models/gpt/gpt_layer_specs.py:283, 0.19.0 models/gpt/gpt_layer_specs.py:328",
)


THREE_POSITIONS = Unbuildable(
    doc="Positions in time, height and width (mrope).",
    when=lambda model: model.position_embedding == "mrope",
    describe=lambda model: _POSITIONS,
    fields=("model.position_embedding",),
    source=_MROPE,
)


def rows() -> tuple[Unbuildable, ...]:
    """Return the models that Megatron-LM cannot build."""
    norms = NORMS_OF_OUTPUTS, WIDE_NORM, NORM_WITHOUT_ROPE
    return ALL_DENSE, SHARED_GATE, OUTPUT_BIAS, SOME_WINDOWS, THREE_POSITIONS, *norms


def families() -> Mapping[str, FamilyRow]:
    """Return the rows of all families."""
    return FAMILIES
