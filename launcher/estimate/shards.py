"""Weights, gradients and optimizer states spread over data parallel ranks: shares, what is gathered, communication.

Stages 2 and 3 of ZeRO are Megatron-core's FSDP, or torch's (FSDP2): weights and gradients are whole only while a unit
(a transformer layer) needs them, in every micro-batch. Sources, all megatron-core 0.16.1 core/distributed:
fsdp/src/megatron_fsdp/megatron_fsdp.py (MF) and param_and_grad_buffer.py (PG), torch_fully_sharded_data_parallel.py.
"""

from dataclasses import replace

from launcher.estimate import network
from launcher.estimate.machine import Machine
from launcher.estimate.parameters import Counts, chunk_parameters, layer_parameters
from launcher.estimate.placement import Chunk
from launcher.estimate.sizes import Sizes
from launcher.estimate.stages import ChunkCost
from launcher.records import record

# Elements whose reduction may be queued, and half of them gathered ahead, where the job sets nothing: the constant of
# what is meant as a cap is the lower bound (MF, suggested_communication_unit_size: max(1_000_000_000, …)).
_UNIT = 1_000_000_000
# Units of torch's FSDP2 that are whole at once: one computes while the next is gathered, or the last one reduced
# (torch 2.13 distributed/fsdp/_fully_shard/_fsdp_param_group.py: all_gather_state, reduce_scatter_states).
_TORCH_UNITS = 2


def shares(sizes: Sizes) -> tuple[int, int]:
    """Return the number of ranks over which ZeRO shards dense parameters and expert parameters."""
    return max(1, sizes.dp * sizes.cp // sizes.instances), max(1, sizes.edp // sizes.instances)


@record()
class _Groups:
    """Ranks among which dense and expert parameters are sharded, and their distance in the world."""

    dense: int
    expert: int
    stride: int
    expert_stride: int
    instances: int

    def gather(self, machine: Machine, counts: Counts, size: float) -> float:
        """Return the seconds to gather `size` bytes a parameter."""
        return network.all_gather(machine, counts.dense * size, self.dense, self.stride) + network.all_gather(
            machine, counts.expert * size, self.expert, self.expert_stride
        )

    def reduce(self, machine: Machine, counts: Counts, size: float) -> float:
        """Return the seconds to reduce `size` bytes a parameter and leave each rank its share."""
        return network.reduce_scatter(machine, counts.dense * size, self.dense, self.stride) + network.reduce_scatter(
            machine, counts.expert * size, self.expert, self.expert_stride
        )

    def among_instances(self, machine: Machine, counts: Counts, size: float) -> float:
        """Return the seconds to sum a rank's share of gradients over the groups that hold the same shares."""
        found = 0.0
        for number, members, stride in (
            (counts.dense, self.dense, self.stride),
            (counts.expert, self.expert, self.expert_stride),
        ):
            found += network.all_reduce(machine, number * size / members, self.instances, stride * members)
        return found

    def sum_all(self, machine: Machine, counts: Counts, size: float) -> float:
        """Return the seconds to sum gradients that every rank keeps whole."""
        return network.all_reduce(machine, counts.dense * size, self.dense, self.stride) + network.all_reduce(
            machine, counts.expert * size, self.expert, self.expert_stride
        )


def _groups(sizes: Sizes) -> _Groups:
    # Context-parallel ranks, which share the reduction, stay next to each other: counted as if they were as far apart.
    stages = sizes.pp if sizes.dp_outermost else 1
    dense, expert = shares(sizes) if sizes.zero >= 1 else (sizes.dp * sizes.cp, sizes.edp)
    instances = sizes.instances if sizes.zero >= 1 else 1
    return _Groups(
        dense=dense,
        expert=expert,
        stride=sizes.tp * stages,
        expert_stride=sizes.ep * sizes.etp * stages,
        instances=instances,
    )


def once_a_step(sizes: Sizes, machine: Machine, trained: Counts) -> tuple[float, float]:
    """Return the seconds in which a stage reduces gradients and gathers weights once a step, before any overlap.

    Args:
        trained: parameters of a rank that are trained (adapters with LoRA).
    """
    groups = _groups(sizes)
    weight = 1.0 if sizes.fp8_weights else float(sizes.dtype)
    if sizes.zero < 1:
        return groups.sum_all(machine, trained, float(sizes.grad_bytes)), 0.0
    reduce = groups.among_instances(machine, trained, float(sizes.grad_bytes))
    if not sizes.fsdp:
        reduce += groups.reduce(machine, trained, float(sizes.grad_bytes))
    if sizes.fsdp and sizes.zero >= 3:
        return reduce, 0.0
    return reduce, groups.gather(machine, trained, weight)


def with_shards(sizes: Sizes, machine: Machine, chunk: Chunk, made: ChunkCost, kept: float) -> ChunkCost:
    """Return a chunk's costs with the weights that it gathers and the gradients that it reduces in each micro-batch.

    The first gathering and the last reduction have nothing to hide behind; the others hide behind the computation of
    the chunk, and no more of them than there is of it (both are always asynchronous, MF:276).

    Args:
        kept: bytes that the chunk's layers keep for a micro-batch.
    """
    groups, total = _groups(sizes), chunk_parameters(sizes, chunk)
    layers = Counts.sum(layer_parameters(sizes, kind) for kind in chunk.kinds)
    count = max(1, len(chunk.kinds))
    unit = Counts(dense=layers.dense // count, expert=layers.expert // count)
    weight, gradient = 1.0 if sizes.fp8_weights else float(sizes.dtype), float(sizes.grad_bytes)
    gather = reduce = 0.0
    if sizes.zero >= 3:
        gather = groups.gather(machine, unit, weight)
    if not sizes.lora:
        reduce = groups.reduce(machine, unit, gradient)
    rest = Counts(dense=total.dense - layers.dense, expert=total.expert - layers.expert)
    ends = 0.0 if sizes.lora else groups.reduce(machine, rest, gradient)
    once, outside = 0.0, 0.0
    if sizes.zero >= 3:
        outside = groups.gather(machine, rest, weight)
        if sizes.fsdp != "torch":
            once, outside = outside / sizes.micro_batches, 0.0  # gathered in the first micro-batch of a step
    forward_comm = made.forward_comm + once + _exposed(gather, (count - 1) * gather + outside, made.forward)
    hidden = (count - 1) * (gather + reduce) + ends + outside
    backward_comm = made.backward_comm + _exposed(gather + reduce, hidden, made.backward)
    weights = _gathered(sizes, unit.rank, layers.rank, rest.rank) * weight if sizes.zero >= 3 else 0.0
    return replace(
        made,
        forward_peak=made.forward_peak + weights,
        backward_peak=_backward_peak(sizes, made.backward_peak + weights, kept / count, unit.rank, total.rank),
        forward_comm=forward_comm,
        backward_comm=backward_comm,
    )


def _exposed(first: float, others: float, computation: float) -> float:
    return first + max(0.0, others - computation)


def _gathered(sizes: Sizes, unit: int, layers: int, rest: int) -> int:
    """Return the parameters that are whole while a layer computes.

    Megatron-core gathers ahead until half of the unit of communication is reached, whole units each time (PG,
    all_gather_params). What is outside the layers stays whole from its first use (only units are released, MF,
    _post_forward); torch releases it.
    """
    if sizes.fsdp == "torch":
        return max(min(layers, _TORCH_UNITS * unit), min(layers, unit) + sizes.vocab * sizes.hidden // sizes.tp)
    ahead = (sizes.fsdp_unit or max(_UNIT, 2 * unit)) // 2
    units = -(-ahead // unit) if unit else 0
    return min(layers, unit + units * unit) + rest


# Elements of a bucket of gradients outside units: max(40,000,000, 1,000,000 x ranks) (distributed_data_parallel.py).
_BUCKET, _BUCKET_OF_RANK = 40_000_000, 1_000_000


def _backward_peak(sizes: Sizes, peak: float, kept: float, unit: int, total: int) -> float:
    """Return the peak bytes of a backward with the gradients that wait for their reduction.

    They are freed when the queue is longer than the unit of communication, or the backward ends (PG,
    wait_for_previous_grad_reduce). They come while activations go: `kept` bytes a layer.
    """
    if sizes.lora:
        return peak
    one = unit
    if sizes.fsdp == "torch":
        most = _TORCH_UNITS * unit
    else:
        if sizes.zero < 3:
            one = max(_BUCKET, _BUCKET_OF_RANK * sizes.dp * sizes.cp)
        most = (sizes.fsdp_unit or max(_UNIT, 2 * unit)) + one
    most, first = min(total, most), min(total, one)
    layers = (most - first) / unit if unit else 0.0
    return max(peak + first * sizes.grad_bytes, peak + most * sizes.grad_bytes - layers * kept)
