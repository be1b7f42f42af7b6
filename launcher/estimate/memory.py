"""Memory of a stage: weights, gradients, optimizer, activations in flight, workspace; peak allocated and reserved."""

from collections.abc import Sequence

from launcher.estimate.operation import Operation
from launcher.estimate.parameters import Counts
from launcher.estimate.result import StageMemory
from launcher.estimate.shards import shares
from launcher.estimate.sizes import Sizes
from launcher.estimate.stages import ChunkCost
from launcher.pipeline_schedule.in_flight import peak
from launcher.pipeline_schedule.order import Schedule

GIB = 1024**3


def static(sizes: Sizes, counts: Counts, adapters: int) -> tuple[float, float, float]:
    """Return bytes of weights, gradients and optimizer of a rank.

    Args:
        adapters: parameters of LoRA adapters on the rank; they alone are trained where there are any.
    """
    dense_share, expert_share = shares(sizes)
    weight = float(sizes.stored_bytes)
    weights_dense, weights_expert = counts.dense * weight, counts.expert * weight
    if sizes.fp8:
        # Copies by row and by column in FP8 or NVFP4 beside the weights, or instead of them.
        copies = sizes.quantised_copies * sizes.gemm_bytes - (weight if sizes.fp8_weights else 0)
        weights_dense += (counts.matmul - counts.expert) * copies
        weights_expert += counts.expert * copies
    dense, expert = (adapters, 0) if sizes.lora else (counts.dense, counts.expert)
    gradients_dense, gradients_expert = dense * float(sizes.grad_bytes), expert * float(sizes.grad_bytes)
    # Gradients that wait for their reduction take the place of gathered weights that backward no longer needs.
    waiting = sizes.grad_groups and not sizes.copy_bytes
    unreduced = (dense + expert) * sizes.dtype / sizes.grad_groups if waiting else 0.0
    states = (sizes.master_bytes + sizes.state_bytes) * sizes.optimizer_fraction
    optimizer_dense, optimizer_expert = dense * states, expert * states
    if sizes.zero >= 1:
        optimizer_dense, optimizer_expert = optimizer_dense / dense_share, optimizer_expert / expert_share
    if sizes.zero >= 2 or (sizes.grad_groups and sizes.zero):
        gradients_dense, gradients_expert = gradients_dense / dense_share, gradients_expert / expert_share
    if sizes.zero_weights:
        weights_dense, weights_expert = weights_dense / dense_share, weights_expert / expert_share
    if sizes.lora:
        weights_dense += adapters * weight
    weights = weights_dense + weights_expert + (counts.dense + counts.expert) * sizes.copy_bytes
    return weights, gradients_dense + gradients_expert + unreduced, optimizer_dense + optimizer_expert


def step_peak(sizes: Sizes, counts: Counts, adapters: int) -> float:
    """Return the temporary bytes of a rank's reduction and optimizer update, when no activations are live."""
    dense, expert = (adapters, 0) if sizes.lora else (counts.dense, counts.expert)
    copied = sizes.grad_bytes * float(max(dense, expert)) if sizes.copied_gradients and sizes.zero >= 1 else 0.0
    share, expert_share = shares(sizes) if sizes.zero >= 1 else (1, 1)
    return max(copied, _updated(sizes, dense / share + expert / expert_share))


def _updated(sizes: Sizes, owned: float) -> float:
    """Return bytes of the fp32 copies that the update makes of `owned` parameters."""
    return sizes.step_bytes * sizes.optimizer_fraction * owned


# Tokens, masks, rotary tables, optimizer scalars: what every measured run holds beyond the terms here, 30 to 60 MiB.
_SMALL_BUFFERS = 40 * 2**20


def library_workspace(sizes: Sizes, one: float, small_buffers: float | None = None) -> float:
    """Return bytes of the workspaces of GEMM libraries, `one` bytes for each stream and library, and of small buffers.

    Args:
        small_buffers: bytes of them; None: those of a GPU.
    """
    libraries = 2 + (sizes.grouped_workspaces if sizes.experts and sizes.grouped else 0)
    return libraries * one + (_SMALL_BUFFERS if small_buffers is None else small_buffers)


def placeholders(sizes: Sizes, operations: Sequence[Operation]) -> float:
    """Return bytes of the placeholder weight gradients, one for each weight shape.

    Transformer Engine accumulates into the main gradient and returns a cached tensor of the weight's shape to autograd.
    Source: get_dummy_wgrad, transformer_engine/pytorch/module/base.py (2.3; grouped products 2.10).
    """
    if not sizes.placeholders or not sizes.duplicated_mla or sizes.lora:
        return 0.0
    shapes = {op.weight for op in operations if op.weight is not None and op.name != "router"}
    return float(sizes.act * sum(outer * inner for outer, inner in shapes))


def activations(schedule: Schedule, stage: int, chunks: Sequence[ChunkCost], element: float) -> float:
    """Return the peak bytes of the micro-batches in flight on a stage, kernel temporaries included.

    Args:
        element: bytes of an element of activations.
    """
    return peak(
        schedule,
        stage,
        [chunk.keeps for chunk in chunks],
        [chunk.forward_peak for chunk in chunks],
        [chunk.backward_peak for chunk in chunks],
        [chunk.products * element for chunk in chunks] if schedule.splits_backward else None,
    )


def stage_memory(
    stage: int,
    parts: tuple[float, float, float],
    held: float,
    workspace: float,
    mem_factor: float,
) -> StageMemory:
    """Assemble the memory of one stage.

    Args:
        parts: weights, gradients, optimizer (bytes).
        held: peak activations (bytes).
    """
    weights, gradients, optimizer = parts
    allocated = weights + gradients + optimizer + held + workspace
    return StageMemory(
        stage=stage,
        weights=round(weights),
        gradients=round(gradients),
        optimizer=round(optimizer),
        activations=round(held),
        workspace=round(workspace),
        peak_allocated=round(allocated),
        peak_reserved=round(allocated / mem_factor),
    )
