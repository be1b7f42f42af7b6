"""The training task and LoRA."""

from launcher.job.option import option
from launcher.records import dataclass

_TRL = "TRL DPOConfig / CPOConfig / KTOConfig"
PREFERENCE_OPTIONS = (
    *("beta", "loss_type", "label_smoothing", "simpo_gamma", "rpo_alpha", "desirable_weight", "undesirable_weight"),
    "reference_model",
)
"""Options of preference training, without effect on other tasks (SENSE-TASK)."""


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
        "Beta of preference losses: weight of the reference (or margin).",
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


# Defaults of lora.alpha and lora.dropout, written out because backends' own defaults differ.
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
    merge: bool | None = option(None, "Write merged weights in addition to the adapters.")
    quantization: str | None = option(
        None, "Quantised base weights (QLoRA).", choices=("nf4", "int8"), affects_training=True
    )
    load: str | None = option(None, "Adapters to continue from.", affects_training=True)
