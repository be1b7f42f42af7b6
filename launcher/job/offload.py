"""Offloading and swapping to host memory."""

from launcher.job.option import option
from launcher.job.sources import MODEL_PARALLEL_CONFIG, OPTIMIZER_CONFIG
from launcher.records import dataclass

_ASCEND = "Ascend MindSpeed features"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """State moved to host memory while it is not needed."""

    attention: bool | None = option(None, "Swap attention activations.", source=f"{_ASCEND} --swap-attention")
    modules: tuple[str, ...] = option((), "Modules whose activations are swapped.", source=f"{_ASCEND} --swap-modules")
    optimizer: bool | None = option(
        None,
        "Keep optimizer states on the host.",
        source="Megatron --optimizer-cpu-offload; MindSpeed --swap-optimizer",
    )
    optimizer_fraction: float | None = option(
        None,
        "Share of optimizer states on the host.",
        source=f"{OPTIMIZER_CONFIG}.optimizer_offload_fraction",
        minimum=0,
    )
    optimizer_times: int | None = option(
        None,
        "Number of chunks in which the optimizer is swapped.",
        source=f"{_ASCEND} --swap-optimizer-times",
        minimum=1,
    )
    torch_optimizer: bool | None = option(
        None,
        "Use torch's own optimizer on the host instead of a specialised one.",
        source=f"{OPTIMIZER_CONFIG}.use_torch_optimizer_for_cpu_offload",
    )
    overlap_cpu_optimizer_d2h_h2d: bool | None = option(
        None,
        "Overlap copies of gradients and weights with the optimizer step on the host.",
        source=f"{OPTIMIZER_CONFIG}.overlap_cpu_optimizer_d2h_h2d",
    )
    pin_cpu_grads: bool | None = option(
        None, "Pin the host's gradients in memory, for faster copies.", source=f"{OPTIMIZER_CONFIG}.pin_cpu_grads"
    )
    pin_cpu_params: bool | None = option(
        None, "Pin the host's weights in memory, for faster copies.", source=f"{OPTIMIZER_CONFIG}.pin_cpu_params"
    )
    activation_layers: int | None = option(
        None,
        "Layers whose activations go to the host.",
        unit="layers",
        source=f"{MODEL_PARALLEL_CONFIG}.cpu_offloading_num_layers",
        minimum=0,
    )
