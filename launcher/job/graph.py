"""Settings of a framework that compiles the whole step to one static graph (MindSpore); not for PyTorch."""

from launcher.job.option import option
from launcher.records import dataclass

_CONTEXT = "mindspore.set_context"
_PARALLEL = "mindspore.set_auto_parallel_context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Compilation, memory and data transfer of a static graph; none: as in the backend's own examples."""

    mode: str | None = option(
        None, "Compile the whole step, or run operator by operator.", source=_CONTEXT, choices=("graph", "eager")
    )
    distributed: bool | None = option(
        None, "Distributed training over several devices; none: true.", source="MindFormers use_parallel"
    )
    device_target: str | None = option(
        None, "What the graph is compiled for.", source=_CONTEXT, choices=("Ascend", "GPU", "CPU")
    )
    device_id: int | None = option(None, "Device of a job of one process.", source=_CONTEXT, minimum=0)
    level: str | None = option(
        None, "Level of kernel fusion in compilation.", source="mindspore jit_level", choices=("O0", "O1", "O2")
    )
    max_call_depth: int | None = option(None, "Deepest nesting of calls.", source=_CONTEXT, minimum=1)
    memory_gib: float | None = option(
        None, "Maximum device memory.", unit="GiB", source=f"{_CONTEXT} max_device_memory", minimum=0
    )
    memory_block_gib: float | None = option(
        None, "Block size of the memory pool.", unit="GiB", source=f"{_CONTEXT} mempool_block_size", minimum=0
    )
    memory_optimize_level: str | None = option(
        None, "Reuse of memory: O0 some, O1 all of it.", source=_CONTEXT, choices=("O0", "O1")
    )
    precision_mode: str | None = option(
        None,
        "Precision of operators that do not support the given type.",
        source=f"{_CONTEXT} ascend_config",
        affects_training=True,
    )
    options_file: str | None = option(
        None, "File of options of parallel compilation.", source=f"{_CONTEXT} parallel_speed_up_json_path"
    )
    save: bool | None = option(None, "Write the compiled graphs.", source=f"{_CONTEXT} save_graphs")
    save_path: str | None = option(None, "Folder of the compiled graphs.", source=f"{_CONTEXT} save_graphs_path")
    sink_size: int | None = option(
        None,
        "Steps that the device runs per host call (data sink); 0: the host feeds each batch.",
        unit="iterations",
        minimum=0,
    )
    parallel_mode: str | None = option(
        None,
        "How the graph is parallelised over devices.",
        source=_PARALLEL,
        choices=("data", "semi_auto", "auto", "hybrid"),
    )
    search_mode: str | None = option(
        None, "parallel_mode auto: how a strategy is searched.", source=f"{_PARALLEL} search_mode"
    )
    gradients_mean: bool | None = option(
        None, "Average gradients after their reduction instead of in the loss.", source=_PARALLEL, affects_training=True
    )
    full_batch: bool | None = option(
        None, "Every device reads the whole batch instead of its own share.", source=_PARALLEL
    )
    alltoall: bool | None = option(None, "Reshard by all-to-all.", source=f"{_PARALLEL} enable_alltoall")
    gradient_groups: int | None = option(
        None, "Gradient reduction groups.", source="MindFormers gradient_aggregation_group", minimum=1
    )
    strategy_file: str | None = option(
        None, "File for the layout of every weight.", source=f"{_PARALLEL} strategy_ckpt_config.save_file"
    )
    strategy_trainable_only: bool | None = option(
        None, "The layout leaves frozen weights out.", source=f"{_PARALLEL} strategy_ckpt_config.only_trainable_params"
    )
    strategy_only: bool | None = option(
        None, "Write the layout and end without training.", source="MindFormers only_save_strategy"
    )
