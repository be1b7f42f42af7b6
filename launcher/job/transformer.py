"""The plain transformer, in the terms of Hugging Face's config.json."""

from launcher.job.model_types import MODEL_TYPES
from launcher.job.option import option
from launcher.job.sources import PRETRAINED_CONFIG
from launcher.records import dataclass

_MLA = "Hugging Face DeepseekV3Config"
_MOE = "Hugging Face Qwen3MoeConfig / DeepseekV3Config"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Scaling of rotary position embeddings beyond the pre-training length (`rope_scaling`)."""

    type: str | None = option(
        None,
        "Scaling method; none: plain RoPE.",
        source=PRETRAINED_CONFIG,
        choices=("linear", "dynamic", "yarn", "llama3", "longrope"),
        affects_training=True,
    )
    factor: float | None = option(None, "Stretch factor.", source=PRETRAINED_CONFIG, minimum=1, affects_training=True)
    original_max_position_embeddings: int | None = option(
        None, "Length before stretching.", unit="tokens", source=PRETRAINED_CONFIG, minimum=1, affects_training=True
    )
    low_freq_factor: float | None = option(
        None, "Llama 3: low-frequency bound.", source=PRETRAINED_CONFIG, affects_training=True
    )
    high_freq_factor: float | None = option(
        None, "Llama 3: high-frequency bound.", source=PRETRAINED_CONFIG, affects_training=True
    )
    beta_fast: float | None = option(
        None, "YaRN: fast rotation bound.", source=PRETRAINED_CONFIG, affects_training=True
    )
    beta_slow: float | None = option(
        None, "YaRN: slow rotation bound.", source=PRETRAINED_CONFIG, affects_training=True
    )
    mscale: float | None = option(None, "YaRN: attention temperature.", source=PRETRAINED_CONFIG, affects_training=True)
    mscale_all_dim: float | None = option(
        None, "YaRN: attention temperature, all dimensions.", source=PRETRAINED_CONFIG, affects_training=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """Architecture of a transformer: dense, GQA, MLA, MoE, multi-token prediction."""

    # -- source
    path: str | None = option(
        None, "Local Hugging Face directory; its config.json fills this section.", source=PRETRAINED_CONFIG
    )
    hub_id: str | None = option(
        None, "Name on a model hub, such as Qwen/Qwen3-8B.", source=PRETRAINED_CONFIG, affects_training=True
    )
    pretrained: bool | None = option(
        None,
        "Start from the weights of model.path / model.hub_id (true) or from random weights (false).",
        affects_training=True,
    )
    overridden: tuple[str, ...] = option(
        (), "Derived: fields here that differ from the config.json of model.path / model.hub_id."
    )
    newer_names: tuple[str, ...] = option(
        (), "Derived: names in the config.json of model.path that came with transformers 5, without the older ones."
    )
    model_type: str | None = option(
        None,
        "Architecture family.",
        source=f"{PRETRAINED_CONFIG}.model_type",
        choices=MODEL_TYPES,
        affects_training=True,
    )
    label: str | None = option(None, "Name in logs and file names; none: the family.", source="MindFormers model_name")
    legacy: bool | None = option(
        None, "Build the legacy model classes from before Megatron-core.", source="MindFormers use_legacy"
    )
    # -- sizes
    num_hidden_layers: int | None = option(
        None,
        "Transformer layers, without MTP layers.",
        unit="layers",
        source=PRETRAINED_CONFIG,
        minimum=1,
        affects_training=True,
    )
    hidden_size: int | None = option(
        None, "Width of the residual stream.", source=PRETRAINED_CONFIG, minimum=1, affects_training=True
    )
    intermediate_size: int | None = option(
        None, "Width of the dense feed-forward network.", source=PRETRAINED_CONFIG, minimum=1, affects_training=True
    )
    num_attention_heads: int | None = option(
        None, "Attention (query) heads.", source=PRETRAINED_CONFIG, minimum=1, affects_training=True
    )
    num_key_value_heads: int | None = option(
        None,
        "Key/value heads (query groups); equal to the query heads: no GQA.",
        source=PRETRAINED_CONFIG,
        minimum=1,
        affects_training=True,
    )
    head_dim: int | None = option(
        None,
        "Size of one head; none: hidden_size / num_attention_heads.",
        source=PRETRAINED_CONFIG,
        minimum=1,
        affects_training=True,
    )
    vocab_size: int | None = option(
        None, "Vocabulary before padding.", unit="tokens", source=PRETRAINED_CONFIG, minimum=1, affects_training=True
    )
    max_position_embeddings: int | None = option(
        None,
        "Maximum sequence length of the position embedding.",
        unit="tokens",
        source=PRETRAINED_CONFIG,
        minimum=1,
        affects_training=True,
    )
    # -- layers
    hidden_act: str = option(
        "silu",
        "Activation; silu means SwiGLU, quick_geglu a gated x * sigmoid(1.702 x), geglu_tanh a gated GELU in its tanh "
        "form (Gemma), relu2 the square of ReLU.",
        source=PRETRAINED_CONFIG,
        choices=("silu", "gelu", "quick_geglu", "geglu_tanh", "relu", "relu2"),
        affects_training=True,
    )
    normalization: str = option(
        "RMSNorm",
        "Kind of normalisation.",
        source="Megatron-core TransformerConfig.normalization",
        choices=("RMSNorm", "LayerNorm"),
        affects_training=True,
    )
    rms_norm_eps: float = option(
        1e-6, "Epsilon of the normalisation.", source=PRETRAINED_CONFIG, minimum=0, affects_training=True
    )
    norm_zero_centered: bool | None = option(
        None,
        "Weights of normalisations are stored around zero (1 + weight).",
        source="Megatron-core TransformerConfig.layernorm_zero_centered_gamma",
        affects_training=True,
    )
    post_norm_residual: bool | None = option(
        None,
        "Residual connections start from the normalised values.",
        source="Megatron-core TransformerConfig.apply_residual_connection_post_layernorm",
        affects_training=True,
    )
    norms_of_outputs: bool | None = option(
        None,
        "The outputs of attention and of the feed-forward network are normalised, too, before they are added (Gemma).",
        source="Hugging Face Gemma2DecoderLayer.post_feedforward_layernorm",
        affects_training=True,
    )
    scale_embeddings: bool | None = option(
        None,
        "Token embeddings are multiplied by the square root of hidden_size (Gemma).",
        source="Hugging Face Gemma2Model",
        affects_training=True,
    )
    tie_word_embeddings: bool = option(
        False, "Input and output embeddings are one matrix.", source=PRETRAINED_CONFIG, affects_training=True
    )
    attention_bias: bool = option(
        False,
        "Bias on the query, key and value projections.",
        source=f"{PRETRAINED_CONFIG}.attention_bias",
        affects_training=True,
    )
    attention_output_bias: bool | None = option(
        None,
        "Bias on the output projection of attention; none: as linear_bias.",
        source=f"{PRETRAINED_CONFIG}.attention_bias",
        affects_training=True,
    )
    linear_bias: bool = option(
        False,
        "Bias on all other linear layers.",
        source="Megatron-core TransformerConfig.add_bias_linear",
        affects_training=True,
    )
    qk_layernorm: bool = option(
        False,
        "Normalise query and key heads (Qwen3), or the compressed query and key/value (MLA).",
        source="Megatron-core TransformerConfig.qk_layernorm",
        affects_training=True,
    )
    qk_norm_type: str | None = option(
        None,
        "What qk_layernorm normalises: each head, or queries (and keys) of all heads together; none: each head.",
        source="Hugging Face config.json of MiniMax-M2",
        choices=("per_head", "per_layer"),
        affects_training=True,
    )
    query_pre_attn_scalar: int | None = option(
        None,
        "Attention logits are divided by its square root; none: by that of the head size.",
        source="Hugging Face Gemma2Config",
        minimum=1,
        affects_training=True,
    )
    attn_logit_softcapping: float | None = option(
        None,
        "Attention logits are capped softly: cap * tanh(logit / cap) (Gemma 2).",
        source="Hugging Face Gemma2Config",
        minimum=0,
        affects_training=True,
    )
    final_logit_softcapping: float | None = option(
        None,
        "Output logits are capped softly: cap * tanh(logit / cap) (Gemma 2).",
        source="Hugging Face Gemma2Config",
        minimum=0,
        affects_training=True,
    )
    initializer_range: float = option(
        0.02, "Standard deviation of the initial weights.", source=PRETRAINED_CONFIG, minimum=0, affects_training=True
    )
    cpu_initialization: bool | None = option(
        None,
        "Draw the initial weights on the CPU: the same at any tensor parallelism.",
        source="Megatron-core ModelParallelConfig.use_cpu_initialization",
        affects_training=True,
    )
    init_per_replica: bool | None = option(
        None,
        "Every data-parallel replica draws its own initial weights.",
        source="Megatron-LM --data-parallel-random-init",
        affects_training=True,
    )
    attention_dropout: float = option(
        0.0, "Dropout on attention weights.", source=PRETRAINED_CONFIG, minimum=0, affects_training=True
    )
    hidden_dropout: float = option(
        0.0,
        "Dropout on hidden states.",
        source="Megatron-core TransformerConfig.hidden_dropout",
        minimum=0,
        affects_training=True,
    )
    sliding_window: int | None = option(
        None,
        "Attention window; none: full attention.",
        unit="tokens",
        source=PRETRAINED_CONFIG,
        minimum=1,
        affects_training=True,
    )
    full_attention_layers: tuple[int, ...] = option(
        (),
        "Layers, counted from 0, that attend to everything although sliding_window is set.",
        source=f"{PRETRAINED_CONFIG}.layer_types",
        minimum=0,
        affects_training=True,
    )
    # -- positions
    position_embedding: str = option(
        "rope",
        "Kind of position embedding.",
        source="Megatron-LM --position-embedding-type",
        choices=("rope", "mrope", "learned_absolute", "none"),
        affects_training=True,
    )
    rope_theta: float = option(
        10000.0, "Base of the rotary frequencies.", source=PRETRAINED_CONFIG, minimum=1, affects_training=True
    )
    rope_local_theta: float | None = option(
        None,
        "Base of the rotary frequencies in layers with a window, which rope_scaling leaves alone; none: as all layers "
        "(Gemma 3).",
        source="Hugging Face Gemma3TextConfig.rope_local_base_freq",
        minimum=1,
        affects_training=True,
    )
    partial_rotary_factor: float = option(
        1.0, "Share of the head that is rotated.", source=PRETRAINED_CONFIG, minimum=0, affects_training=True
    )
    rotary_interleaved: bool | None = option(
        None,
        "Neighbouring dimensions are rotated together instead of the two halves of a head.",
        source="Megatron-core TransformerConfig.rotary_interleaved",
        affects_training=True,
    )
    rope_scaling: RopeScaling = RopeScaling()
    # -- mixture of experts
    num_experts: int | None = option(
        None, "Routed experts per MoE layer; none: dense.", source=_MOE, minimum=1, affects_training=True
    )
    num_experts_per_tok: int | None = option(
        None, "Experts per token (top-k).", source=_MOE, minimum=1, affects_training=True
    )
    moe_intermediate_size: int | None = option(
        None, "Width of one routed expert.", source=_MOE, minimum=1, affects_training=True
    )
    shared_expert_intermediate_size: int | None = option(
        None,
        "Width of all shared experts together; none: no shared expert.",
        source=_MOE,
        minimum=1,
        affects_training=True,
    )
    shared_expert_gate: bool = option(
        False,
        "The shared expert's output is gated (Qwen1.5-MoE).",
        source="Hugging Face Qwen2MoeConfig",
        affects_training=True,
    )
    first_k_dense_replace: int = option(
        0,
        "Number of dense layers before the first MoE layer.",
        unit="layers",
        source=_MLA,
        minimum=0,
        affects_training=True,
    )
    moe_layer_freq: int = option(
        1,
        "Every n-th layer (after the dense ones) is an MoE layer.",
        unit="layers",
        source=_MLA,
        minimum=1,
        affects_training=True,
    )
    mlp_only_layers: tuple[int, ...] = option(
        (),
        "Further dense layers, counted from 0.",
        source="Hugging Face Qwen3MoeConfig",
        minimum=0,
        affects_training=True,
    )
    norm_topk_prob: bool = option(
        True, "Gate weights of the chosen experts are normalised to one.", source=_MOE, affects_training=True
    )
    scoring_func: str = option(
        "softmax",
        "Function from router logits to scores.",
        source=_MLA,
        choices=("softmax", "sigmoid", "sqrtsoftplus"),
        affects_training=True,
    )
    router_expert_bias: bool = option(
        False,
        "A bias learned from the load is added to the scores for choosing (DeepSeek-V3, noaux_tc).",
        source="Megatron-core TransformerConfig.moe_router_enable_expert_bias",
        affects_training=True,
    )
    n_group: int | None = option(
        None, "Groups of experts for group-limited routing.", source=_MLA, minimum=1, affects_training=True
    )
    topk_group: int | None = option(None, "Groups of experts per token.", source=_MLA, minimum=1, affects_training=True)
    routed_scaling_factor: float | None = option(
        None, "Factor on the routed experts' output.", source=_MLA, minimum=0, affects_training=True
    )
    # -- multi-head latent attention
    q_lora_rank: int | None = option(
        None, "MLA: rank of the query projection; none: not compressed.", source=_MLA, minimum=1, affects_training=True
    )
    kv_lora_rank: int | None = option(
        None, "MLA: rank of the key/value projection; none: no MLA.", source=_MLA, minimum=1, affects_training=True
    )
    qk_nope_head_dim: int | None = option(
        None, "MLA: head size without rotation.", source=_MLA, minimum=1, affects_training=True
    )
    qk_rope_head_dim: int | None = option(
        None, "MLA: rotated head size.", source=_MLA, minimum=1, affects_training=True
    )
    v_head_dim: int | None = option(None, "MLA: head size of values.", source=_MLA, minimum=1, affects_training=True)
    # -- multi-token prediction
    num_nextn_predict_layers: int = option(
        0,
        "Multi-token-prediction layers after the last layer.",
        unit="layers",
        source=_MLA,
        minimum=0,
        affects_training=True,
    )
    mtp_loss_scaling_factor: float | None = option(
        None,
        "Weight of the multi-token-prediction loss.",
        source="Megatron-core TransformerConfig.mtp_loss_scaling_factor",
        minimum=0,
        affects_training=True,
    )

    @property
    def is_moe(self) -> bool:
        """Whether the model has routed experts."""
        return self.num_experts is not None

    def has_experts_at(self, layer: int) -> bool:
        """Return whether a decoder layer, counted from 0, has routed experts."""
        if not self.is_moe or layer < self.first_k_dense_replace or layer in self.mlp_only_layers:
            return False
        return layer % self.moe_layer_freq == 0

    @property
    def mixes_dense_layers(self) -> bool:
        """Whether some layers of a model with experts have none."""
        if not self.is_moe or not (self.first_k_dense_replace or self.mlp_only_layers or self.moe_layer_freq > 1):
            return False
        return not all(map(self.has_experts_at, range(self.num_hidden_layers or 0)))

    @property
    def normalises_all_heads(self) -> bool:
        """Whether queries (and keys) of all heads are normalised together."""
        return self.qk_layernorm and self.qk_norm_type == "per_layer"

    @property
    def has_attention_output_bias(self) -> bool:
        """Whether the output projection of attention has a bias."""
        return self.linear_bias if self.attention_output_bias is None else self.attention_output_bias

    @property
    def is_mla(self) -> bool:
        """Whether attention is multi-head latent attention."""
        return self.kv_lora_rank is not None

    @property
    def starts_from_weights(self) -> bool:
        """Whether training starts from Hugging Face weights: as set, else if the model is named."""
        return bool(self.path or self.hub_id) if self.pretrained is None else self.pretrained

    @property
    def head_size(self) -> int | None:
        """Size of one attention head, given or derived; None while the sizes are unknown."""
        if self.head_dim is not None or self.hidden_size is None or self.num_attention_heads is None:
            return self.head_dim
        return self.hidden_size // self.num_attention_heads


def within(listed: tuple[int, ...], layers: int) -> tuple[int, ...]:
    """Return the listed layers that a model of fewer layers has."""
    return tuple(layer for layer in listed if layer < layers)
