"""Rows for logs: training log, TensorBoard, Weights & Biases, timers, One Logger, straggler detection."""

from collections.abc import Mapping

from backends.megatron_lm.mapping.factories import (
    ONLY_MEGATRON_LOOP,
    ONLY_NVIDIA_CLUSTERS,
    added_in_0_9,
    valued,
    when_set,
)
from launcher.mapping.rows import Gap, Row, switch, switch_off, warning

NO_SWANLAB = "it has no option for SwanLab; training is unaffected"
UNSUPPORTED: Mapping[str, Gap] = {
    "logging.swanlab_project": warning(NO_SWANLAB),
    "logging.swanlab_name": warning(NO_SWANLAB),
}


def logging() -> tuple[Row, ...]:
    """Return the rows of the training log, TensorBoard and Weights & Biases."""
    return (
        valued("logging.interval", "log-interval", 100),
        when_set("logging.tensorboard_dir", "tensorboard-dir"),
        when_set("logging.wandb_project", "wandb-project"),
        when_set("logging.wandb_name", "wandb-exp-name"),
        switch("logging.throughput", "log-throughput"),
        switch("logging.params_norm", "log-params-norm"),
        switch("logging.zero_gradients", "log-num-zeros-in-grad"),
        when_set("logging.timer_level", "timing-log-level"),
        switch("logging.timers", "log-timers-to-tensorboard"),
        switch("logging.memory", "log-memory-to-tensorboard"),
        switch("logging.perplexity", "log-validation-ppl-to-tensorboard"),
    )


def further_logging() -> tuple[Row, ...]:
    """Return the rows of further logging settings, One Logger and straggler detection."""
    one_logger, straggler = "logging.one_logger.", "logging.straggler."
    return (
        when_set("logging.tensorboard_interval", "tensorboard-log-interval"),
        when_set("logging.tensorboard_queue_size", "tensorboard-queue-size"),
        when_set("logging.wandb_dir", "wandb-save-dir"),
        when_set("logging.level", "logging-level"),
        switch("logging.progress", "log-progress"),
        switch_off("logging.loss_scale", "no-log-loss-scale-to-tensorboard"),
        switch("logging.world_size", "log-world-size-to-tensorboard"),
        switch("logging.experts_by_layer", "moe-per-layer-logging"),
        when_set("logging.timer_ranks", "timing-log-option"),
        switch_off("logging.timer_barrier", "no-barrier-with-level-1-timing"),
        when_set("logging.config_dir", "config-logger-dir", since="0.12"),
        switch_off(f"{one_logger}enabled", "no-one-logger"),
        when_set(f"{one_logger}project", "one-logger-project"),
        when_set(f"{one_logger}name", "one-logger-run-name"),
        switch(f"{one_logger}asynchronous", "one-logger-async"),
        when_set(f"{one_logger}app_tag", "app-tag-run-name"),
        when_set(f"{one_logger}app_version", "app-tag-run-version"),
        switch(f"{straggler}enabled", "log-straggler"),
        switch_off(f"{straggler}at_start", "disable-straggler-on-startup"),
        when_set(f"{straggler}port", "straggler-ctrlr-port"),
        when_set(f"{straggler}count", "straggler-minmax-count"),
    )


BEFORE_0_12: Mapping[str, Gap] = {"logging.config_dir": added_in_0_9(severity="warning")}
WITHOUT_MEGATRON_LOOP: Mapping[str, Gap] = {
    "logging.timer_barrier": warning(ONLY_MEGATRON_LOOP, True),
    "logging.config_dir": warning(ONLY_MEGATRON_LOOP),
    **{
        f"logging.straggler.{name}": warning("it does not search for slow devices", *neutral)
        for name, neutral in {"enabled": (False,), "at_start": (True, False), "port": (), "count": ()}.items()
    },
    **{
        f"logging.one_logger.{name}": warning(ONLY_NVIDIA_CLUSTERS, *neutral)
        for name, neutral in {
            "enabled": (False,),
            "project": (),
            "name": (),
            "asynchronous": (False,),
            "app_tag": (),
            "app_version": (),
        }.items()
    },
}
