"""What a training stack keeps and does, by backend and version, resolved once per job from the backend's own table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from launcher.job import Job
from launcher.mapping.backend import get_backend
from launcher.mapping.stack_figure import StackFigure
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Figures of a stack; the defaults are those of PyTorch with Megatron-core and Transformer Engine.

    Attributes:
        title: name and version of the stack; "": the job names no backend.
        host_launch: share of `hardware.host_launch_us` that starting a kernel costs the host, 0 to 1.
        placeholder_gradients: one tensor is kept for each shape of weight, in place of its gradient
            (get_dummy_wgrad, transformer_engine/pytorch/module/base.py @2.3).
        grouped_workspaces: workspaces of libraries that grouped products add to the two of others
            (four streams, transformer_engine/pytorch/module/base.py @2.3).
        weights_are_main: weights are kept in optimizer.main_params_dtype alone (default fp32), and cast for arithmetic;
            otherwise they are in the job's format, with main weights beside them.
        weight_bytes: bytes of a weight as it is kept, where arguments without a field decide it; None: the fields do.
        weights_follow_optimizer: where optimizer states are sharded, so are weights; a gathered copy is kept from
            forward to backward.
        gradient_buffer: gradients are kept in a buffer also where a step has one micro-batch; otherwise they live until
            they are reduced, a group of weights at a time.
        gradient_groups: groups of weights whose gradients are reduced together, where there is no buffer.
        main_weight_bytes: bytes a parameter of main weights beside weights in 16 bits, where not 4.
        update_copies: the update makes fp32 copies of all gradients at once (distrib_optimizer.py,
            _copy_model_grads_to_main_grads, megatron-core 0.16.1).
        experts_over_tp: weights of experts are split over tensor parallelism beside expert parallelism.
        grouped_experts: the products of a rank's experts are one kernel for unequal numbers of tokens, unless
            moe.grouped_gemm says otherwise.
        pads_to_capacity: with moe.capacity_factor every expert computes and gets its capacity, also where fewer tokens
            chose it (moe.pad_to_capacity).
        fragments: the allocator leaves gaps (estimate.mem_factor).
        overlaps_data_parallel: gradients are reduced during backward and weights gathered during forward, without a
            setting.
        parts_exposed: share of the communication of tensor parallelism that stays exposed with overlap.sequence_parts
            above 1, 0 to 1.
        repeats_unread: full recomputation runs all kernels of a layer again, as torch's does; otherwise not those whose
            output the backward does not read.
        rope_bytes: bytes that rotary positions move for an element of query and key, each way, where they are not one
            kernel; 0: they are.
        late_weights: the schedule dualpipev computes the last micro-batches' gradients of weights after those of all
            inputs, without a setting.
        cuda_graphs: kernels.cuda_graph captures kernels.
        group_buffer_gib: GiB outside the framework's allocator for each group of devices that communicates.
        context_gib: GiB outside it beside those; None: hardware.reserved_gib's default covers all.
        offload_smallest: bytes below which a tensor stays on the device where activations go to the host
            (min_offloaded_tensor_size, 1024 x 1024 elements of 16 bits, transformer_config.py, megatron-core 0.16.1).
        pool_gib: GiB that the framework takes at most; None: what the device has left.
        figures: the backend's rows that hold for the job.
    """

    title: str = ""
    host_launch: float = 1.0
    placeholder_gradients: bool = True
    grouped_workspaces: int = 4
    weights_are_main: bool = False
    weight_bytes: int | None = None
    weights_follow_optimizer: bool = False
    gradient_buffer: bool = True
    gradient_groups: int = 1
    main_weight_bytes: int | None = None
    update_copies: bool = True
    experts_over_tp: bool = False
    grouped_experts: bool = True
    pads_to_capacity: bool = False
    fragments: bool = True
    overlaps_data_parallel: bool = False
    parts_exposed: float = 1.0
    repeats_unread: bool = True
    rope_bytes: float = 0.0
    late_weights: bool = False
    cuda_graphs: bool = True
    group_buffer_gib: float = 0.0
    context_gib: float | None = None
    offload_smallest: float = 2.0 * 2**20
    pool_gib: float | None = None
    figures: tuple[StackFigure, ...] = ()

    def as_tree(self) -> dict[str, Any]:
        """Return the profile's name and what differs from Megatron-core, each with its source."""
        figures = [{"name": row.name, "value": row.value, "source": row.source} for row in self.figures]
        return {"stack": self.title or "Megatron-core (no backend)", "figures": figures}


PLAIN = Profile()
FIGURES = frozenset(field.name for field in fields(Profile)) - {"title", "figures"}


def profile_of(job: Job) -> Profile:
    """Return the profile of a job's backend and version; Megatron-core's where the job names none."""
    if job.backend.name is None:
        return PLAIN
    return _of(job, *_rows(job.backend.name, job.backend.version))


def _of(job: Job, title: str, rows: tuple[StackFigure, ...]) -> Profile:
    return _resolved(title, tuple([row for row in rows if row.when is None or row.when(job)]))


@lru_cache(maxsize=256)
def _rows(name: str, wanted: str | None) -> tuple[str, tuple[StackFigure, ...]]:
    backend = get_backend(name)
    known = wanted is None or wanted in backend.versions or wanted in backend.aliases
    version = backend.version(wanted if known else None)
    return f"{backend.title} {version}", backend.figures(version)


@lru_cache(maxsize=256)
def _resolved(title: str, rows: tuple[StackFigure, ...]) -> Profile:
    last = {row.name: row for row in rows}
    values: Mapping[str, Any] = {name: row.value for name, row in last.items()}
    return replace(PLAIN, title=title, figures=tuple(last.values()), **values)
