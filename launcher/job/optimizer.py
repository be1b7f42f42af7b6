"""The optimizer and its hyper-parameters."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, OPTIMIZER_CONFIG, TRANSFORMER_CONFIG
from launcher.records import dataclass

# Default of optimizer.muon_momentum.
MUON_MOMENTUM = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer and its hyper-parameters."""

    type: str = option(
        "adam",
        "Optimizer; adam is AdamW.",
        source=f"{OPTIMIZER_CONFIG}.optimizer",
        choices=("adam", "sgd", "muon"),
        affects_training=True,
    )
    lr: float | None = option(
        None, "Highest learning rate.", source=f"{OPTIMIZER_CONFIG}.lr", minimum=0, affects_training=True
    )
    min_lr: float = option(
        0.0, "Lowest learning rate of the decay.", source=f"{OPTIMIZER_CONFIG}.min_lr", minimum=0, affects_training=True
    )
    weight_decay: float = option(
        0.1, "Decoupled weight decay.", source=f"{OPTIMIZER_CONFIG}.weight_decay", minimum=0, affects_training=True
    )
    adam_beta1: float = option(
        0.9, "Adam: first moment.", source=f"{OPTIMIZER_CONFIG}.adam_beta1", minimum=0, affects_training=True
    )
    adam_beta2: float = option(
        0.95, "Adam: second moment.", source=f"{OPTIMIZER_CONFIG}.adam_beta2", minimum=0, affects_training=True
    )
    adam_eps: float = option(
        1e-8, "Adam: epsilon.", source=f"{OPTIMIZER_CONFIG}.adam_eps", minimum=0, affects_training=True
    )
    sgd_momentum: float | None = option(
        None, "SGD: momentum.", source=f"{OPTIMIZER_CONFIG}.sgd_momentum", minimum=0, affects_training=True
    )
    weight_decay_style: str | None = option(
        None,
        "Schedule of increasing weight decay; none: constant.",
        source=f"{ARGUMENTS} --weight-decay-incr-style",
        choices=("constant", "linear", "cosine"),
        affects_training=True,
    )
    start_weight_decay: float | None = option(
        None,
        "Weight decay at the first step, where it grows.",
        source=f"{OPTIMIZER_CONFIG}.start_weight_decay",
        minimum=0,
        affects_training=True,
    )
    end_weight_decay: float | None = option(
        None,
        "Weight decay at the last step, where it grows.",
        source=f"{OPTIMIZER_CONFIG}.end_weight_decay",
        minimum=0,
        affects_training=True,
    )
    decay_qk_layernorm: bool | None = option(
        None,
        "Weight decay on the norms of query and key too.",
        source=f"{ARGUMENTS} --apply-wd-to-qk-layernorm",
        affects_training=True,
    )
    decoupled_lr: float | None = option(
        None,
        "Learning rate of the input and output layer; none: lr.",
        source=f"{OPTIMIZER_CONFIG}.decoupled_lr",
        minimum=0,
        affects_training=True,
    )
    decoupled_min_lr: float | None = option(
        None,
        "Lowest learning rate of the input and output layer.",
        source=f"{OPTIMIZER_CONFIG}.decoupled_min_lr",
        minimum=0,
        affects_training=True,
    )
    muon_momentum: float | None = option(
        None,
        "Muon: momentum; none: 0.95.",
        source=f"{OPTIMIZER_CONFIG}.muon_momentum",
        minimum=0,
        affects_training=True,
    )
    muon_nesterov: bool | None = option(
        None, "Muon: Nesterov momentum.", source=f"{OPTIMIZER_CONFIG}.muon_use_nesterov", affects_training=True
    )
    muon_ns_steps: int | None = option(
        None,
        "Muon: Newton-Schulz steps.",
        source=f"{OPTIMIZER_CONFIG}.muon_num_ns_steps",
        minimum=1,
        affects_training=True,
    )
    muon_scale_mode: str | None = option(
        None,
        "Muon: how updates are scaled.",
        source=f"{OPTIMIZER_CONFIG}.muon_scale_mode",
        choices=("spectral", "unit_rms_norm", "shape_scaling"),
        affects_training=True,
    )
    muon_extra_scale_factor: float | None = option(
        None,
        "Muon: further factor of the update.",
        source=f"{OPTIMIZER_CONFIG}.muon_extra_scale_factor",
        minimum=0,
        affects_training=True,
    )
    muon_split_qkv: bool | None = option(
        None,
        "Muon: treat query, key and value as separate matrices.",
        source=f"{OPTIMIZER_CONFIG}.muon_split_qkv",
        affects_training=True,
    )
    muon_tp_mode: str | None = option(
        None,
        "Muon: how matrices that are split over tp are orthogonalised.",
        source=f"{OPTIMIZER_CONFIG}.muon_tp_mode",
        choices=("blockwise", "duplicated", "distributed"),
        affects_training=True,
    )
    muon_matmul_precision: str | None = option(
        None,
        "Muon: precision of fp32 products.",
        source=f"{OPTIMIZER_CONFIG}.muon_fp32_matmul_prec",
        choices=("low", "medium", "high"),
        affects_training=True,
    )
    qk_clip: bool | None = option(
        None,
        "Scale down query and key weights whose attention logits grow (QK-clip).",
        source=f"{TRANSFORMER_CONFIG}.qk_clip",
        affects_training=True,
    )
    qk_clip_alpha: float | None = option(
        None,
        "Exponent share of that scaling applied to the query.",
        source=f"{TRANSFORMER_CONFIG}.qk_clip_alpha",
        minimum=0,
        affects_training=True,
    )
    qk_clip_threshold: float | None = option(
        None,
        "Attention logit above which they are scaled down.",
        source=f"{TRANSFORMER_CONFIG}.qk_clip_threshold",
        minimum=0,
        affects_training=True,
    )
    muon_coefficient_type: str | None = option(
        None,
        "Muon: polynomial of the Newton-Schulz iteration, such as quintic.",
        source=f"{OPTIMIZER_CONFIG}.muon_coefficient_type",
        affects_training=True,
    )
    muon_scalar_optimizer: str | None = option(
        None,
        "Muon: optimizer of embeddings, norms and biases.",
        source=f"{OPTIMIZER_CONFIG}.muon_scalar_optimizer",
        choices=("adam", "lion", "sgd"),
        affects_training=True,
    )
    clip_grad: float = option(
        1.0,
        "Largest L2 norm of the gradient; 0: no clipping.",
        source=f"{OPTIMIZER_CONFIG}.clip_grad",
        minimum=0,
        affects_training=True,
    )
    precision_aware: bool | None = option(
        None,
        "Keep optimizer states in lower precision.",
        source=f"{OPTIMIZER_CONFIG}.use_precision_aware_optimizer",
        affects_training=True,
    )
    main_grads_dtype: str | None = option(
        None,
        "Precision of main gradients.",
        source=f"{OPTIMIZER_CONFIG}.main_grads_dtype",
        choices=("fp32", "bf16"),
        affects_training=True,
    )
    main_params_dtype: str | None = option(
        None,
        "Precision of main weights.",
        source=f"{OPTIMIZER_CONFIG}.main_params_dtype",
        choices=("fp32", "fp16"),
        affects_training=True,
    )
    exp_avg_dtype: str | None = option(
        None,
        "Precision of the first moment.",
        source=f"{OPTIMIZER_CONFIG}.exp_avg_dtype",
        choices=("fp32", "fp16", "bf16", "fp8"),
        affects_training=True,
    )
    exp_avg_sq_dtype: str | None = option(
        None,
        "Precision of the second moment.",
        source=f"{OPTIMIZER_CONFIG}.exp_avg_sq_dtype",
        choices=("fp32", "fp16", "bf16", "fp8"),
        affects_training=True,
    )
