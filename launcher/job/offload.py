"""Offloading and swapping to host memory."""

from dataclasses import dataclass

from launcher.job.option import option
from launcher.job.sources import MODEL_PARALLEL_CONFIG, OPTIMIZER_CONFIG

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
        None, "Pieces in which the optimizer is swapped.", source=f"{_ASCEND} --swap-optimizer-times", minimum=1
    )
    torch_optimizer: bool | None = option(
        None,
        "torch's own optimizer steps on the host, instead of one made for it.",
        source=f"{OPTIMIZER_CONFIG}.use_torch_optimizer_for_cpu_offload",
    )
    overlap_cpu_optimizer_d2h_h2d: bool | None = option(
        None,
        "Copy gradients and weights while the host steps.",
        source=f"{OPTIMIZER_CONFIG}.overlap_cpu_optimizer_d2h_h2d",
    )
    pin_cpu_grads: bool | None = option(
        None, "Page-lock the host's gradients, for faster copies.", source=f"{OPTIMIZER_CONFIG}.pin_cpu_grads"
    )
    pin_cpu_params: bool | None = option(
        None, "Page-lock the host's weights, for faster copies.", source=f"{OPTIMIZER_CONFIG}.pin_cpu_params"
    )
    activation_layers: int | None = option(
        None,
        "Layers whose activations go to the host.",
        unit="layers",
        source=f"{MODEL_PARALLEL_CONFIG}.cpu_offloading_num_layers",
        minimum=0,
    )
