"""Logs and experiment trackers."""

from launcher.job.option import option
from launcher.job.services import OneLogger, Straggler
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is written while training."""

    interval: int = option(
        1, "Steps between log lines.", unit="iterations", source=f"{ARGUMENTS} --log-interval", minimum=1
    )
    tensorboard_dir: str | None = option(
        None, "Directory of TensorBoard events.", source=f"{ARGUMENTS} --tensorboard-dir"
    )
    tensorboard_interval: int | None = option(
        None,
        "Steps between TensorBoard events.",
        unit="iterations",
        source=f"{ARGUMENTS} --tensorboard-log-interval",
        minimum=1,
    )
    tensorboard_queue_size: int | None = option(
        None,
        "TensorBoard events buffered before they are written.",
        source=f"{ARGUMENTS} --tensorboard-queue-size",
        minimum=1,
    )
    wandb_project: str | None = option(None, "Weights & Biases project.", source=f"{ARGUMENTS} --wandb-project")
    wandb_name: str | None = option(None, "Weights & Biases run.", source=f"{ARGUMENTS} --wandb-exp-name")
    wandb_dir: str | None = option(
        None, "Directory of Weights & Biases' files.", source=f"{ARGUMENTS} --wandb-save-dir"
    )
    swanlab_project: str | None = option(None, "SwanLab project.", source="ms-swift 4.6.0 swanlab_project")
    swanlab_name: str | None = option(None, "SwanLab run.", source="ms-swift 4.6.0 swanlab_exp_name")
    level: int | None = option(
        None,
        "Python log level: 10 debug, 20 info, 30 warning.",
        source=f"{ARGUMENTS} --logging-level",
        minimum=0,
    )
    progress: bool | None = option(None, "Keep a progress file.", source=f"{ARGUMENTS} --log-progress")
    loss_scale: bool | None = option(
        None, "Write the loss scale to TensorBoard.", source=f"{ARGUMENTS} --no-log-loss-scale-to-tensorboard"
    )
    world_size: bool | None = option(
        None,
        "Write the number of processes to TensorBoard too.",
        source=f"{ARGUMENTS} --log-world-size-to-tensorboard",
    )
    experts_by_layer: bool | None = option(
        None, "Log the balancing loss of every layer.", source=f"{ARGUMENTS} --moe-per-layer-logging"
    )
    config_dir: str | None = option(
        None, "Directory that gets a file of the settings of every module.", source=f"{ARGUMENTS} --config-logger-dir"
    )
    one_logger: OneLogger = OneLogger()
    straggler: Straggler = Straggler()
    throughput: bool | None = option(None, "Log TFLOP/s per device.", source=f"{ARGUMENTS} --log-throughput")
    params_norm: bool | None = option(None, "Log the norm of the weights.", source=f"{ARGUMENTS} --log-params-norm")
    zero_gradients: bool | None = option(
        None, "Log how many gradients are zero.", source=f"{ARGUMENTS} --log-num-zeros-in-grad"
    )
    timer_level: int | None = option(
        None, "What is timed: 0 iterations, 1 their parts, 2 all.", source=f"{ARGUMENTS} --timing-log-level", minimum=0
    )
    timer_ranks: str | None = option(
        None,
        "Ranks whose timers are logged: the slowest, slowest and fastest, or all.",
        source=f"{ARGUMENTS} --timing-log-option",
        choices=("max", "minmax", "all"),
    )
    timer_barrier: bool | None = option(
        None,
        "Ranks wait for each other before the parts of a step are timed.",
        source=f"{ARGUMENTS} --no-barrier-with-level-1-timing",
    )
    timers: bool | None = option(
        None, "Write timers to TensorBoard too.", source=f"{ARGUMENTS} --log-timers-to-tensorboard"
    )
    memory: bool | None = option(
        None, "Write device memory to TensorBoard too.", source=f"{ARGUMENTS} --log-memory-to-tensorboard"
    )
    perplexity: bool | None = option(
        None,
        "Write the perplexity of evaluations to TensorBoard too.",
        source=f"{ARGUMENTS} --log-validation-ppl-to-tensorboard",
    )
    loss: bool | None = option(None, "Log loss and speed; none: yes.", source="MindFormers MFLossMonitor")
    dir: str | None = option(
        None, "Folder for the backend's own files; none: below output_dir.", source="MindFormers output_dir"
    )
