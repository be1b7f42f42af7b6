"""What is trained and how: task, LoRA, batch, schedule, optimizer."""

from dataclasses import dataclass

from launcher.job.option import option

_MEGATRON = "Megatron-LM arguments.py"
_CORE = "Megatron-core TransformerConfig"
_OPT = "Megatron-core OptimizerConfig"
_TRL = "TRL DPOConfig / CPOConfig / KTOConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The kind of training, and the loss of preference training."""

    type: str = option(
        "pretrain",
        "Kind of training.",
        choices=("pretrain", "sft", "dpo", "simpo", "kto", "cpo", "orpo", "reward_model", "grpo", "gkd"),
        affects_training=True,
    )
    beta: float | None = option(
        None,
        "Strength of the reference (or margin) in preference losses.",
        source=_TRL,
        minimum=0,
        affects_training=True,
    )
    loss_type: str | None = option(None, "Variant of the preference loss.", source=_TRL, affects_training=True)
    label_smoothing: float | None = option(
        None, "Probability that a preference label is wrong.", source=_TRL, minimum=0, affects_training=True
    )
    simpo_gamma: float | None = option(None, "SimPO: target reward margin.", source=_TRL, affects_training=True)
    rpo_alpha: float | None = option(None, "Weight of the SFT loss beside DPO.", source=_TRL, affects_training=True)
    desirable_weight: float | None = option(
        None, "KTO: weight of desirable samples.", source=_TRL, affects_training=True
    )
    undesirable_weight: float | None = option(
        None, "KTO: weight of undesirable samples.", source=_TRL, affects_training=True
    )
    reference_model: str | None = option(
        None, "Checkpoint of the reference model; none: the start model.", affects_training=True
    )
    reward_models: tuple[str, ...] = option(
        (), "GRPO: models that score the answers.", source=_TRL, affects_training=True
    )


# What lora.alpha and lora.dropout mean where a job does not say: backends' own defaults differ, so these are written.
LORA_ALPHA = 32.0
LORA_DROPOUT = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adaptation; `rank` none means that all parameters are trained."""

    rank: int | None = option(
        None, "Rank of the adapters; none: full-parameter training.", minimum=1, affects_training=True
    )
    alpha: float | None = option(
        None, "Scale of the adapters; none: 32.", source="PEFT LoraConfig.lora_alpha", affects_training=True
    )
    dropout: float | None = option(
        None,
        "Dropout before the adapters; none: no dropout.",
        source="PEFT LoraConfig.lora_dropout",
        minimum=0,
        affects_training=True,
    )
    target_modules: tuple[str, ...] = option(
        (), "Linear layers with adapters, in Megatron-core names; `all-linear`: every one.", affects_training=True
    )
    rslora: bool | None = option(
        None, "Scale by alpha / sqrt(rank).", source="PEFT LoraConfig.use_rslora", affects_training=True
    )
    merge: bool | None = option(None, "Write merged weights beside the adapters.")
    quantization: str | None = option(
        None, "Quantised base weights (QLoRA).", choices=("nf4", "int8"), affects_training=True
    )
    load: str | None = option(None, "Adapters to continue from.", affects_training=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Batch sizes and sequence length."""

    micro_batch_size: int = option(
        1,
        "Sequences per device and forward pass.",
        unit="sequences",
        source=f"{_MEGATRON} --micro-batch-size",
        minimum=1,
    )
    global_batch_size: int | None = option(
        None,
        "Sequences per optimizer step over all devices.",
        unit="sequences",
        source=f"{_MEGATRON} --global-batch-size",
        minimum=1,
        affects_training=True,
    )
    rampup_batch_size: tuple[int, ...] = option(
        (),
        "Growing batch: its first size, the step by which it grows, and the sequences after which it is whole.",
        unit="sequences",
        source=f"{_MEGATRON} --rampup-batch-size",
        affects_training=True,
    )
    decrease_batch_size_if_needed: bool | None = option(
        None,
        "A global batch that the processes do not divide becomes the next smaller one.",
        source=f"{_MEGATRON} --decrease-batch-size-if-needed",
        affects_training=True,
    )
    seq_length: int | None = option(
        None,
        "Tokens per sequence.",
        unit="tokens",
        source=f"{_MEGATRON} --seq-length",
        minimum=1,
        affects_training=True,
    )
    packing: bool | None = option(None, "Several samples fill one sequence.", affects_training=True)
    padding_free: bool | None = option(None, "Samples of a batch are concatenated instead of padded.")
    variable_seq_lengths: bool | None = option(
        None, "Micro-batches may differ in length.", source=f"{_CORE}.variable_seq_lengths"
    )
    interleave: int | None = option(
        None,
        "Micro-batches computed in turns, so that one's communication hides behind another's arithmetic.",
        source="MindFormers micro_batch_interleave_num",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long training lasts and how the learning rate moves; one of iterations, samples, epochs."""

    train_iters: int | None = option(
        None,
        "Optimizer steps.",
        unit="iterations",
        source=f"{_MEGATRON} --train-iters",
        minimum=1,
        affects_training=True,
    )
    train_samples: int | None = option(
        None,
        "Sequences seen.",
        unit="sequences",
        source=f"{_MEGATRON} --train-samples",
        minimum=1,
        affects_training=True,
    )
    epochs: float | None = option(None, "Passes over the data.", unit="epochs", minimum=0, affects_training=True)
    lr_decay_style: str = option(
        "cosine",
        "Shape of the learning-rate decay.",
        source=f"{_MEGATRON} --lr-decay-style",
        choices=("constant", "linear", "cosine", "inverse-square-root", "WSD"),
        affects_training=True,
    )
    lr_decay_iters: int | None = option(
        None,
        "Steps until min_lr; none: all of training.",
        unit="iterations",
        source=f"{_MEGATRON} --lr-decay-iters",
        minimum=1,
        affects_training=True,
    )
    lr_decay_samples: int | None = option(
        None,
        "lr_decay_iters, counted in sequences.",
        unit="sequences",
        source=f"{_MEGATRON} --lr-decay-samples",
        minimum=1,
        affects_training=True,
    )
    lr_warmup_iters: int | None = option(
        None,
        "Linear warm-up.",
        unit="iterations",
        source=f"{_MEGATRON} --lr-warmup-iters",
        minimum=0,
        affects_training=True,
    )
    lr_warmup_samples: int | None = option(
        None,
        "lr_warmup_iters, counted in sequences.",
        unit="sequences",
        source=f"{_MEGATRON} --lr-warmup-samples",
        minimum=0,
        affects_training=True,
    )
    lr_warmup_fraction: float | None = option(
        None,
        "Linear warm-up as a share of the decay steps.",
        source=f"{_MEGATRON} --lr-warmup-fraction",
        minimum=0,
        affects_training=True,
    )
    lr_warmup_init: float | None = option(
        None,
        "Learning rate at the first step of warm-up.",
        source=f"{_MEGATRON} --lr-warmup-init",
        affects_training=True,
    )
    lr_wsd_decay_style: str | None = option(
        None,
        "WSD: shape of the annealing.",
        source=f"{_MEGATRON} --lr-wsd-decay-style",
        choices=("exponential", "linear", "cosine", "minus_sqrt"),
        affects_training=True,
    )
    lr_wsd_decay_iters: int | None = option(
        None,
        "WSD: length of the annealing.",
        unit="iterations",
        source=f"{_MEGATRON} --lr-wsd-decay-iters",
        minimum=1,
        affects_training=True,
    )
    lr_wsd_decay_samples: int | None = option(
        None,
        "lr_wsd_decay_iters, counted in sequences.",
        unit="sequences",
        source=f"{_MEGATRON} --lr-wsd-decay-samples",
        minimum=1,
        affects_training=True,
    )
    skip_iterations: tuple[int, ...] = option(
        (),
        "Steps whose batch is read and not trained on.",
        unit="iterations",
        source=f"{_MEGATRON} --iterations-to-skip",
        affects_training=True,
    )
    exit_interval: int | None = option(
        None,
        "Training ends, with a checkpoint, at the first step that is a multiple of this.",
        unit="iterations",
        source=f"{_MEGATRON} --exit-interval",
        minimum=1,
        affects_training=True,
    )
    exit_minutes: int | None = option(
        None,
        "Training ends, with a checkpoint, after this time.",
        unit="minutes",
        source=f"{_MEGATRON} --exit-duration-in-mins",
        minimum=1,
        affects_training=True,
    )
    skip_train: bool | None = option(
        None, "Evaluate and test only.", source=f"{_MEGATRON} --skip-train", affects_training=True
    )
    sync_interval: int | None = option(
        None,
        "Steps after which the host waits for its device.",
        unit="iterations",
        source=f"{_MEGATRON} --train-sync-interval",
        minimum=1,
    )
    layerwise: bool | None = option(
        None,
        "Lower layers learn more slowly, by layer_decay each.",
        source="MindFormers layer_scale",
        affects_training=True,
    )
    layer_decay: float | None = option(
        None, "layerwise: learning rate of a layer over that of the next.", source="MindFormers layer_decay", minimum=0
    )
    scale_by_batch: bool | None = option(
        None,
        "Multiply optimizer.lr by batch / reference_batch_size.",
        source="MindFormers lr_scale",
        affects_training=True,
    )
    reference_batch_size: int | None = option(
        None,
        "scale_by_batch: the batch that optimizer.lr is for.",
        unit="sequences",
        source="MindFormers lr_scale_factor",
        minimum=1,
    )


# What optimizer.muon_momentum means where a job does not say.
MUON_MOMENTUM = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer and its hyper-parameters."""

    type: str = option(
        "adam",
        "Optimizer; adam is AdamW.",
        source=f"{_OPT}.optimizer",
        choices=("adam", "sgd", "muon"),
        affects_training=True,
    )
    lr: float | None = option(None, "Highest learning rate.", source=f"{_OPT}.lr", minimum=0, affects_training=True)
    min_lr: float = option(
        0.0, "Lowest learning rate of the decay.", source=f"{_OPT}.min_lr", minimum=0, affects_training=True
    )
    weight_decay: float = option(
        0.1, "Decoupled weight decay.", source=f"{_OPT}.weight_decay", minimum=0, affects_training=True
    )
    adam_beta1: float = option(
        0.9, "Adam: first moment.", source=f"{_OPT}.adam_beta1", minimum=0, affects_training=True
    )
    adam_beta2: float = option(
        0.95, "Adam: second moment.", source=f"{_OPT}.adam_beta2", minimum=0, affects_training=True
    )
    adam_eps: float = option(1e-8, "Adam: epsilon.", source=f"{_OPT}.adam_eps", minimum=0, affects_training=True)
    sgd_momentum: float | None = option(
        None, "SGD: momentum.", source=f"{_OPT}.sgd_momentum", minimum=0, affects_training=True
    )
    weight_decay_style: str | None = option(
        None,
        "How the weight decay grows; none: it is constant.",
        source=f"{_MEGATRON} --weight-decay-incr-style",
        choices=("constant", "linear", "cosine"),
        affects_training=True,
    )
    start_weight_decay: float | None = option(
        None,
        "Weight decay at the first step, where it grows.",
        source=f"{_OPT}.start_weight_decay",
        minimum=0,
        affects_training=True,
    )
    end_weight_decay: float | None = option(
        None,
        "Weight decay at the last step, where it grows.",
        source=f"{_OPT}.end_weight_decay",
        minimum=0,
        affects_training=True,
    )
    decay_qk_layernorm: bool | None = option(
        None,
        "Weight decay on the norms of query and key too.",
        source=f"{_MEGATRON} --apply-wd-to-qk-layernorm",
        affects_training=True,
    )
    decoupled_lr: float | None = option(
        None,
        "Learning rate of the input and output layer; none: lr.",
        source=f"{_OPT}.decoupled_lr",
        minimum=0,
        affects_training=True,
    )
    decoupled_min_lr: float | None = option(
        None,
        "Lowest learning rate of the input and output layer.",
        source=f"{_OPT}.decoupled_min_lr",
        minimum=0,
        affects_training=True,
    )
    muon_momentum: float | None = option(
        None, "Muon: momentum; none: 0.95.", source=f"{_OPT}.muon_momentum", minimum=0, affects_training=True
    )
    muon_nesterov: bool | None = option(
        None, "Muon: Nesterov momentum.", source=f"{_OPT}.muon_use_nesterov", affects_training=True
    )
    muon_ns_steps: int | None = option(
        None, "Muon: Newton-Schulz steps.", source=f"{_OPT}.muon_num_ns_steps", minimum=1, affects_training=True
    )
    muon_scale_mode: str | None = option(
        None,
        "Muon: how updates are scaled.",
        source=f"{_OPT}.muon_scale_mode",
        choices=("spectral", "unit_rms_norm", "shape_scaling"),
        affects_training=True,
    )
    muon_extra_scale_factor: float | None = option(
        None,
        "Muon: further factor of the update.",
        source=f"{_OPT}.muon_extra_scale_factor",
        minimum=0,
        affects_training=True,
    )
    muon_split_qkv: bool | None = option(
        None,
        "Muon: query, key and value are matrices of their own.",
        source=f"{_OPT}.muon_split_qkv",
        affects_training=True,
    )
    muon_tp_mode: str | None = option(
        None,
        "Muon: how matrices that are split over tp are orthogonalised.",
        source=f"{_OPT}.muon_tp_mode",
        choices=("blockwise", "duplicated", "distributed"),
        affects_training=True,
    )
    muon_matmul_precision: str | None = option(
        None,
        "Muon: precision of fp32 products.",
        source=f"{_OPT}.muon_fp32_matmul_prec",
        choices=("low", "medium", "high"),
        affects_training=True,
    )
    qk_clip: bool | None = option(
        None,
        "Shrink query and key weights whose attention logits grow.",
        source=f"{_CORE}.qk_clip",
        affects_training=True,
    )
    qk_clip_alpha: float | None = option(
        None,
        "Share of that shrinking that falls to the query.",
        source=f"{_CORE}.qk_clip_alpha",
        minimum=0,
        affects_training=True,
    )
    qk_clip_threshold: float | None = option(
        None, "Logit from which on they shrink.", source=f"{_CORE}.qk_clip_threshold", minimum=0, affects_training=True
    )
    muon_coefficient_type: str | None = option(
        None,
        "Muon: polynomial of the Newton-Schulz iteration, such as quintic.",
        source=f"{_OPT}.muon_coefficient_type",
        affects_training=True,
    )
    muon_scalar_optimizer: str | None = option(
        None,
        "Muon: optimizer of embeddings, norms and biases.",
        source=f"{_OPT}.muon_scalar_optimizer",
        choices=("adam", "lion", "sgd"),
        affects_training=True,
    )
    clip_grad: float = option(
        1.0,
        "Largest L2 norm of the gradient; 0: no clipping.",
        source=f"{_OPT}.clip_grad",
        minimum=0,
        affects_training=True,
    )
    precision_aware: bool | None = option(
        None,
        "Keep optimizer states in lower precision.",
        source=f"{_OPT}.use_precision_aware_optimizer",
        affects_training=True,
    )
    main_grads_dtype: str | None = option(
        None,
        "Precision of main gradients.",
        source=f"{_OPT}.main_grads_dtype",
        choices=("fp32", "bf16"),
        affects_training=True,
    )
    main_params_dtype: str | None = option(
        None,
        "Precision of main weights.",
        source=f"{_OPT}.main_params_dtype",
        choices=("fp32", "fp16"),
        affects_training=True,
    )
    exp_avg_dtype: str | None = option(
        None,
        "Precision of the first moment.",
        source=f"{_OPT}.exp_avg_dtype",
        choices=("fp32", "fp16", "bf16", "fp8"),
        affects_training=True,
    )
    exp_avg_sq_dtype: str | None = option(
        None,
        "Precision of the second moment.",
        source=f"{_OPT}.exp_avg_sq_dtype",
        choices=("fp32", "fp16", "bf16", "fp8"),
        affects_training=True,
    )
