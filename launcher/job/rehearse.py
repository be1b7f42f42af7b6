"""Options of a rehearsal."""

from collections.abc import Mapping

from launcher.job.option import option
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """What a rehearsal may leave out: fields that are reset with it, and what is computed instead."""

    fields: tuple[str, ...]
    instead: str


_SELECTED_LAYERS = (
    "precision.first_last_layers_bf16",
    "precision.num_layers_at_start_in_bf16",
    "precision.num_layers_at_end_in_bf16",
)
SWITCHES: Mapping[str, Switch] = {
    "precision.fp8_format": Switch(
        fields=(
            "precision.fp8_recipe",
            "precision.fp8_param_gather",
            "precision.fp8_amax_history_len",
            "precision.fp8_amax_compute_algo",
            "precision.fp8_margin",
            "precision.fp8_wgrad",
            *_SELECTED_LAYERS,
        ),
        instead="matrix products are computed, and weights kept, in precision.dtype",
    ),
    "precision.fp4_format": Switch(
        fields=("precision.fp4_recipe", "precision.fp4_param_gather", *_SELECTED_LAYERS),
        instead="matrix products are computed, and weights kept, in precision.dtype",
    ),
    "optimizer.precision_aware": Switch(
        fields=(
            "optimizer.main_grads_dtype",
            "optimizer.main_params_dtype",
            "optimizer.exp_avg_dtype",
            "optimizer.exp_avg_sq_dtype",
        ),
        instead="the optimizer's states are kept in fp32",
    ),
}
"""Number formats that need kernels of a device. Topology, model, data and loss are what a rehearsal is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """How a rehearsal runs the job where there is no accelerator or no native stack."""

    entry: str | None = option(
        None,
        "Entry point: Launch's trainer on the real megatron-core, or the backend's own on CPU; none: core, with shrink "
        "native where core refuses the job and the backend is installed (cluster.python).",
        choices=("core", "native"),
    )
    device: str | None = option(
        None,
        "entry=core: device of the processes; none: cuda where torch sees one, else cpu. FP8 needs cuda here.",
        choices=("cpu", "cuda"),
    )
    shrink: bool = option(False, "Scale the model down to this machine, keeping topology and switches.")
    fake_world: bool = option(False, "Simulate ranks of the full world size in one process, one iteration.")
    ranks: tuple[int, ...] = option(
        (), "fake_world: ranks to simulate; none: first and last rank of every pipeline stage."
    )
    max_processes: int | None = option(
        None, "shrink: maximum number of processes on this machine; none: one per core, at least 2.", minimum=1
    )
    leave_out: tuple[str, ...] = option(
        (),
        "Number formats that this rehearsal does without, as it says; none: a job that needs one to train the same is "
        "refused.",
        choices=tuple(SWITCHES),
    )
