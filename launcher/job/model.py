"""Extensions of the transformer: linear and sparse attention, hyper-connections, Mamba, heterogeneous layers."""

from launcher.job.option import option
from launcher.job.sources import TRANSFORMER_CONFIG
from launcher.job.transformer import RopeScaling, Transformer
from launcher.records import dataclass

_NEXT = "Hugging Face Qwen3NextConfig"
_V32 = "Hugging Face DeepseekV32Config / GlmMoeDsaConfig"
_V4 = "Hugging Face DeepseekV4Config"
_OSS = "Hugging Face GptOssConfig"
_LLAMA4 = "Hugging Face Llama4TextConfig"
_BAMBA = "Hugging Face BambaConfig"

# Defaults of attention variants, written out because backends' own defaults differ or are missing: Qwen3-Next's (and
# Megatron-core's), DeepSeek-V3.2's, and the weight of the indexer's loss from its paper.
LINEAR_HEADS = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
# Defaults of Mamba-2 and of Megatron-core's Mamba layers.
MAMBA = {
    "mamba_state_dim": 128,
    "mamba_head_dim": 64,
    "mamba_num_groups": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
INDEXER = {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "dsa_indexer_loss_coeff": 1.0}
# `index_skip_topk_offset` where config.json has none (transformers GlmMoeDsaConfig.__post_init__).
INDEXER_OFFSET = 2


def selects_keys(layer: int, every: int, offset: int) -> bool:
    """Return whether a layer (from 0) has an indexer, where others reuse the keys that one selected.

    Args:
        every: `index_topk_freq`.
        offset: `index_skip_topk_offset`: the first layer, counted from 1, that is followed by layers without one.
    """
    return max(layer - offset + 1, 0) % every == 0


DSA_SPARSE_LOSS = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Transformer):
    """Architecture of the model: a transformer, and the variants of some families."""

    # -- other kinds of attention
    experimental_attention_variant: str | None = option(
        None,
        "Attention that is not softmax over all keys: Qwen3-Next's gated delta net, DeepSeek-V3.2's sparse attention, "
        "DeepSeek-V4's compressed one.",
        source=f"{TRANSFORMER_CONFIG}.experimental_attention_variant",
        choices=("gated_delta_net", "dsa", "dsv4_hybrid"),
        affects_training=True,
    )
    full_attention_interval: int | None = option(
        None,
        "Every n-th layer has softmax attention, the others linear attention.",
        unit="layers",
        source=_NEXT,
        minimum=1,
        affects_training=True,
    )
    linear_num_key_heads: int | None = option(
        None, "Linear attention: query and key heads; none: 16.", source=_NEXT, minimum=1, affects_training=True
    )
    linear_num_value_heads: int | None = option(
        None, "Linear attention: value and gate heads; none: 32.", source=_NEXT, minimum=1, affects_training=True
    )
    linear_key_head_dim: int | None = option(
        None,
        "Linear attention: size of a query or key head; none: 128.",
        source=_NEXT,
        minimum=1,
        affects_training=True,
    )
    linear_value_head_dim: int | None = option(
        None, "Linear attention: size of a value head; none: 128.", source=_NEXT, minimum=1, affects_training=True
    )
    linear_conv_kernel_dim: int | None = option(
        None, "Linear attention: width of the convolution; none: 4.", source=_NEXT, minimum=1, affects_training=True
    )
    attention_output_gate: bool | None = option(
        None,
        "Gate the output of softmax attention; none: true with linear attention (Qwen3-Next).",
        source=f"{TRANSFORMER_CONFIG}.attention_output_gate",
        affects_training=True,
    )
    index_n_heads: int | None = option(
        None, "Sparse attention: heads of the indexer; none: 64.", source=_V32, minimum=1, affects_training=True
    )
    index_head_dim: int | None = option(
        None, "Sparse attention: size of the indexer's heads; none: 128.", source=_V32, minimum=1, affects_training=True
    )
    index_topk: int | None = option(
        None,
        "Sparse attention: keys that each token attends to; none: 2048.",
        unit="tokens",
        source=_V32,
        minimum=1,
        affects_training=True,
    )
    index_topk_freq: int | None = option(
        None,
        "Sparse attention: every n-th layer selects keys, the next ones reuse them.",
        unit="layers",
        source=_V32,
        minimum=1,
        affects_training=True,
    )
    index_skip_topk_offset: int | None = option(
        None,
        "Sparse attention: number of the layer, counted from 1, from which index_topk_freq counts.",
        unit="layers",
        source=_V32,
        minimum=1,
        affects_training=True,
    )
    indexer_types: tuple[str, ...] = option(
        (),
        "Sparse attention: full (selects keys) or shared (reuses those of the last full one), of every layer.",
        source="Hugging Face GlmMoeDsaConfig",
        choices=("full", "shared"),
        affects_training=True,
    )
    dsa_indexer_loss_coeff: float | None = option(
        None,
        "Sparse attention: weight of the indexer's loss; none: 1.",
        source=f"{TRANSFORMER_CONFIG}.dsa_indexer_loss_coeff",
        minimum=0,
        affects_training=True,
    )
    dsa_indexer_use_sparse_loss: bool | None = option(
        None,
        "Sparse attention: the indexer learns from the selected keys only, not from all; none: true.",
        source=f"{TRANSFORMER_CONFIG}.dsa_indexer_use_sparse_loss",
        affects_training=True,
    )
    csa_window_size: int | None = option(
        None,
        "Compressed attention: tokens before each token that are not compressed.",
        unit="tokens",
        source="Megatron-core MLATransformerConfig.csa_window_size",
        minimum=1,
        affects_training=True,
    )
    compress_ratios: tuple[int, ...] = option(
        (),
        "Compressed attention: tokens per key, of every layer; 0: not compressed.",
        source=_V4,
        affects_training=True,
    )
    compress_rope_theta: float | None = option(
        None, "Compressed attention: base of the rotary frequencies.", source=_V4, minimum=1, affects_training=True
    )
    o_groups: int | None = option(
        None, "Compressed attention: groups of the output projection.", source=_V4, minimum=1, affects_training=True
    )
    o_lora_rank: int | None = option(
        None, "Compressed attention: rank of the output projection.", source=_V4, minimum=1, affects_training=True
    )
    softmax_type: str | None = option(
        None,
        "Softmax of attention; learnable: with a learned sink (GPT-OSS).",
        source=f"{TRANSFORMER_CONFIG}.softmax_type",
        choices=("vanilla", "off-by-one", "learnable"),
        affects_training=True,
    )
    window_attn_skip_freq: int | None = option(
        None,
        "Every n-th layer has full attention, the others attention within sliding_window.",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.window_attn_skip_freq",
        minimum=1,
        affects_training=True,
    )
    no_rope_freq: int | None = option(
        None,
        "Every n-th layer has no rotary positions (Llama 4).",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.no_rope_freq",
        minimum=1,
        affects_training=True,
    )
    qk_l2_norm: bool | None = option(
        None,
        "L2-normalise query and key heads (Llama 4).",
        source=f"{TRANSFORMER_CONFIG}.qk_l2_norm",
        affects_training=True,
    )
    qk_l2_norm_rope_only: bool | None = option(
        None,
        "L2-normalise query and key heads only in layers with rotary positions (Llama 4); none: in all layers.",
        source=f"{_LLAMA4}.use_qk_norm",
        affects_training=True,
    )
    attention_chunk_size: int | None = option(
        None,
        "Layers with rotary positions attend within chunks of so many tokens (Llama 4).",
        unit="tokens",
        source=f"{_LLAMA4}.attention_chunk_size",
        minimum=1,
        affects_training=True,
    )
    floor_scale: int | None = option(
        None,
        "Layers without rotary positions multiply the query at position p by 1 + attn_scale log(1 + floor((p + 1) / "
        "floor_scale)) (Llama 4); none: they do not.",
        unit="tokens",
        source=f"{_LLAMA4}.floor_scale",
        minimum=1,
        affects_training=True,
    )
    attn_scale: float | None = option(
        None,
        "Strength of the scale of queries by position, see floor_scale; none: 0.1.",
        source=f"{_LLAMA4}.attn_scale",
        minimum=0,
        affects_training=True,
    )
    apply_probs_on_input: bool | None = option(
        None,
        "Router weights scale what experts receive instead of what they return (Llama 4).",
        source=f"{TRANSFORMER_CONFIG}.moe_apply_probs_on_input",
        affects_training=True,
    )
    mrope_section: tuple[int, ...] = option(
        (),
        "Rotated dimensions for time, height and width (position_embedding=mrope).",
        source="Hugging Face rope_scaling.mrope_section",
        affects_training=True,
    )
    # -- residual streams and activations
    enable_hyper_connections: bool | None = option(
        None,
        "Hyper-connections: several residual streams (DeepSeek-V4).",
        source=f"{TRANSFORMER_CONFIG}.enable_hyper_connections",
        affects_training=True,
    )
    hc_mult: int | None = option(
        None, "Hyper-connections: residual streams.", source=_V4, minimum=1, affects_training=True
    )
    hc_sinkhorn_iters: int | None = option(
        None,
        "Hyper-connections: Sinkhorn iterations of the mixing matrix.",
        source=_V4,
        minimum=0,
        affects_training=True,
    )
    hc_eps: float | None = option(None, "Hyper-connections: epsilon.", source=_V4, minimum=0, affects_training=True)
    num_hash_layers: int | None = option(
        None,
        "First MoE layers that choose experts by a hash of the token.",
        unit="layers",
        source=_V4,
        minimum=0,
        affects_training=True,
    )
    swiglu_limit: float | None = option(
        None, "Gate and input of SwiGLU are clamped to this value.", source=_OSS, minimum=0, affects_training=True
    )
    glu_linear_offset: float | None = option(
        None,
        "Added to the ungated half of a gated activation.",
        source=f"{TRANSFORMER_CONFIG}.glu_linear_offset",
        affects_training=True,
    )
    # -- state spaces
    mamba: bool | None = option(
        None,
        "Mamba-2 layers, or a hybrid with attention: trained by another entry point of a backend.",
        source="Megatron-LM pretrain_mamba.py",
        affects_training=True,
    )
    mamba_state_dim: int | None = option(
        None,
        "Mamba: size of the state; none: 128.",
        source=f"{TRANSFORMER_CONFIG}.mamba_state_dim",
        minimum=1,
        affects_training=True,
    )
    mamba_head_dim: int | None = option(
        None,
        "Mamba: size of a head; none: 64.",
        source=f"{TRANSFORMER_CONFIG}.mamba_head_dim",
        minimum=1,
        affects_training=True,
    )
    mamba_num_heads: int | None = option(
        None,
        "Mamba: heads; none: hidden_size * mamba_expand / mamba_head_dim.",
        source=f"{TRANSFORMER_CONFIG}.mamba_num_heads",
        minimum=1,
        affects_training=True,
    )
    mamba_num_groups: int | None = option(
        None,
        "Mamba: groups of heads; none: 8.",
        source=f"{TRANSFORMER_CONFIG}.mamba_num_groups",
        minimum=1,
        affects_training=True,
    )
    mamba_d_conv: int | None = option(
        None, "Mamba: width of the convolution; none: 4.", source=_BAMBA, minimum=1, affects_training=True
    )
    mamba_expand: int | None = option(
        None, "Mamba: inner width in units of hidden_size; none: 2.", source=_BAMBA, minimum=1, affects_training=True
    )
    mamba_chunk_size: int | None = option(
        None, "Mamba: tokens per chunk of the kernel.", unit="tokens", source=_BAMBA, minimum=1
    )
    hybrid_attention_ratio: float | None = option(
        None,
        "Share of layers with attention.",
        source="Megatron-LM --hybrid-attention-ratio",
        minimum=0,
        affects_training=True,
    )
    hybrid_mlp_ratio: float | None = option(
        None, "Share of feed-forward layers.", source="Megatron-LM --hybrid-mlp-ratio", minimum=0, affects_training=True
    )
    hybrid_override_pattern: str | None = option(
        None,
        "Kind of every layer: M Mamba, * attention, - feed-forward, E experts.",
        source="Megatron-LM --hybrid-override-pattern; Hugging Face NemotronHConfig",
        affects_training=True,
    )
    is_hybrid_model: bool | None = option(
        None,
        "Scale the initial weights of output layers for one residual addition per layer.",
        source=f"{TRANSFORMER_CONFIG}.is_hybrid_model",
        affects_training=True,
    )
    # -- older classes, heterogeneous layers, and weight initialization
    use_legacy_models: bool | None = option(
        None,
        "Megatron-LM's legacy model classes from before Megatron-core.",
        source="Megatron-LM --use-legacy-models",
        affects_training=True,
    )
    heterogeneous_layers_config_path: str | None = option(
        None,
        "JSON file with the shape of every layer (block_configs of Llama-Nemotron's config.json).",
        source="Megatron-LM --heterogeneous-layers-config-path",
        affects_training=True,
    )
    heterogeneous_layers_config_encoded_json: str | None = option(
        None,
        "The same as text.",
        source="Megatron-LM --heterogeneous-layers-config-encoded-json",
        affects_training=True,
    )
    init_method_xavier_uniform: bool | None = option(
        None,
        "Draw initial weights uniformly (Xavier) instead of normally.",
        source="Megatron-LM --init-method-xavier-uniform",
        affects_training=True,
    )
    perform_initialization: bool | None = option(
        None,
        "Initialise weights; false: for weights that are loaded.",
        source="Megatron-core ModelParallelConfig.perform_initialization",
        affects_training=True,
    )


__all__ = [
    "DSA_SPARSE_LOSS",
    "INDEXER",
    "INDEXER_OFFSET",
    "LINEAR_HEADS",
    "MAMBA",
    "Model",
    "RopeScaling",
    "Transformer",
    "selects_keys",
]
