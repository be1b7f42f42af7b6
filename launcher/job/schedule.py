"""Length of training and the learning-rate schedule."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long training lasts and how the learning rate changes; one of iterations, samples, epochs."""

    train_iters: int | None = option(
        None,
        "Optimizer steps.",
        unit="iterations",
        source=f"{ARGUMENTS} --train-iters",
        minimum=1,
        affects_training=True,
    )
    train_samples: int | None = option(
        None,
        "Sequences seen.",
        unit="sequences",
        source=f"{ARGUMENTS} --train-samples",
        minimum=1,
        affects_training=True,
    )
    epochs: float | None = option(None, "Passes over the data.", unit="epochs", minimum=0, affects_training=True)
    lr_decay_style: str = option(
        "cosine",
        "Shape of the learning-rate decay.",
        source=f"{ARGUMENTS} --lr-decay-style",
        choices=("constant", "linear", "cosine", "inverse-square-root", "WSD"),
        affects_training=True,
    )
    lr_decay_iters: int | None = option(
        None,
        "Steps until min_lr; none: all of training.",
        unit="iterations",
        source=f"{ARGUMENTS} --lr-decay-iters",
        minimum=1,
        affects_training=True,
    )
    lr_decay_samples: int | None = option(
        None,
        "lr_decay_iters, counted in sequences.",
        unit="sequences",
        source=f"{ARGUMENTS} --lr-decay-samples",
        minimum=1,
        affects_training=True,
    )
    lr_warmup_iters: int | None = option(
        None,
        "Linear warm-up.",
        unit="iterations",
        source=f"{ARGUMENTS} --lr-warmup-iters",
        minimum=0,
        affects_training=True,
    )
    lr_warmup_samples: int | None = option(
        None,
        "lr_warmup_iters, counted in sequences.",
        unit="sequences",
        source=f"{ARGUMENTS} --lr-warmup-samples",
        minimum=0,
        affects_training=True,
    )
    lr_warmup_fraction: float | None = option(
        None,
        "Linear warm-up as a share of the decay steps.",
        source=f"{ARGUMENTS} --lr-warmup-fraction",
        minimum=0,
        affects_training=True,
    )
    lr_warmup_init: float | None = option(
        None,
        "Learning rate at the first step of warm-up.",
        source=f"{ARGUMENTS} --lr-warmup-init",
        affects_training=True,
    )
    lr_wsd_decay_style: str | None = option(
        None,
        "WSD: shape of the annealing.",
        source=f"{ARGUMENTS} --lr-wsd-decay-style",
        choices=("exponential", "linear", "cosine", "minus_sqrt"),
        affects_training=True,
    )
    lr_wsd_decay_iters: int | None = option(
        None,
        "WSD: length of the annealing.",
        unit="iterations",
        source=f"{ARGUMENTS} --lr-wsd-decay-iters",
        minimum=1,
        affects_training=True,
    )
    lr_wsd_decay_samples: int | None = option(
        None,
        "lr_wsd_decay_iters, counted in sequences.",
        unit="sequences",
        source=f"{ARGUMENTS} --lr-wsd-decay-samples",
        minimum=1,
        affects_training=True,
    )
    skip_iterations: tuple[int, ...] = option(
        (),
        "Steps whose batch is read and skipped.",
        unit="iterations",
        source=f"{ARGUMENTS} --iterations-to-skip",
        affects_training=True,
    )
    exit_interval: int | None = option(
        None,
        "Training ends, with a checkpoint, at the first step that is a multiple of this.",
        unit="iterations",
        source=f"{ARGUMENTS} --exit-interval",
        minimum=1,
        affects_training=True,
    )
    exit_minutes: int | None = option(
        None,
        "Training ends, with a checkpoint, after this time.",
        unit="minutes",
        source=f"{ARGUMENTS} --exit-duration-in-mins",
        minimum=1,
        affects_training=True,
    )
    skip_train: bool | None = option(
        None, "Evaluate and test only.", source=f"{ARGUMENTS} --skip-train", affects_training=True
    )
    sync_interval: int | None = option(
        None,
        "Steps between synchronisations of host and device.",
        unit="iterations",
        source=f"{ARGUMENTS} --train-sync-interval",
        minimum=1,
    )
    layerwise: bool | None = option(
        None,
        "Layer-wise learning-rate decay, by layer_decay per layer.",
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
