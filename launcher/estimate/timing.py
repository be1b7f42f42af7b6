"""Time of one optimizer step: the pipeline, gradient reduction and optimizer after it, and model FLOPs."""

from collections.abc import Sequence

from launcher.estimate import network
from launcher.estimate.kinds import PLAIN
from launcher.estimate.machine import Machine
from launcher.estimate.mixers import delta_flops, index_flops, state_flops
from launcher.estimate.parameters import Counts
from launcher.estimate.result import StepTime
from launcher.estimate.schedule import schedule_of
from launcher.estimate.shards import once_a_step, shares
from launcher.estimate.sizes import Sizes
from launcher.estimate.stages import ChunkCost
from launcher.pipeline_schedule.long_step import Middle, finish
from launcher.pipeline_schedule.simulation import Pipeline
from launcher.records import record


@record()
class Tail:
    """Seconds after the last backward of a stage: exposed reduction and gathering, and the optimizer."""

    comm: float
    optimizer: float


def tail(sizes: Sizes, machine: Machine, counts: Counts, trained: int, hidden_by: float) -> Tail:
    """Return the times after the pipeline on one stage.

    Args:
        trained: parameters of the rank that are trained (adapters with LoRA).
        hidden_by: seconds of the last micro-batch's backward, behind which overlapped reductions run.
    """
    if sizes.lora:
        counts = Counts(dense=trained)
    reduce, gather = once_a_step(sizes, machine, counts)
    if sizes.overlap_grad or sizes.fsdp:
        reduce = max(0.1 * reduce, reduce - hidden_by)
    if sizes.overlap_param or sizes.fsdp:
        gather = max(0.1 * gather, gather - hidden_by / 2)
    return Tail(
        comm=reduce + gather,
        optimizer=_optimizer(sizes, machine, counts.dense, counts.expert) + _requantised(sizes, machine, counts),
    )


def _requantised(sizes: Sizes, machine: Machine, counts: Counts) -> float:
    """Return the seconds in which the weights of products are quantised, in the first micro-batch of a step.

    Transformer Engine keeps them for the others (megatron-core 0.16.1 extensions/transformer_engine.py,
    is_first_microbatch).
    """
    if sizes.quantisation is None or sizes.fp8_weights:
        return 0.0
    moved = sizes.quantisation.weight_reads * sizes.dtype + sizes.quantised_copies * sizes.gemm_bytes
    return counts.matmul * moved / machine.memory


def _optimizer(sizes: Sizes, machine: Machine, dense: int, expert: int) -> float:
    """Return seconds of zeroing and scaling gradients, their norm, and the update of the rank's share."""
    total = dense + expert
    owned = float(total)
    if sizes.zero >= 1:
        share, expert_share = shares(sizes)
        owned = dense / share + expert / expert_share
    scaling = 2 if sizes.dp * sizes.cp > 1 else 0
    moved = float(total * sizes.grad_bytes * (1 + scaling))
    moved += owned * (2 * sizes.grad_bytes + 2 * (sizes.master_bytes + sizes.state_bytes) + 2 * sizes.dtype)
    seconds = moved / machine.optimizer + 50 * machine.latency
    swapped = owned * (sizes.master_bytes + sizes.state_bytes) * (1 - sizes.optimizer_fraction)
    return seconds + 2 * swapped / machine.host


def pipeline_of(sizes: Sizes, machine: Machine, costs: Sequence[Sequence[ChunkCost]]) -> Pipeline:
    """Return the pipeline of a job, ready to be simulated."""
    size = sizes.local_tokens * sizes.hidden * float(sizes.act)
    stride = sizes.tp * sizes.cp if sizes.dp_outermost else sizes.world // sizes.pp
    transfer = network.send(machine, size, stride) if sizes.pp > 1 else 0.0
    schedule = schedule_of(sizes)
    if schedule.splits_backward:
        numbers = range(sizes.pp * sizes.vpp)
        chunks = [costs[schedule.stage(number)][number // sizes.pp] for number in numbers]
    else:
        chunks = [stage[chunk] for chunk in range(sizes.vpp) for stage in costs]
    return Pipeline(
        schedule=schedule,
        forward=tuple([chunk.forward_total for chunk in chunks]),
        backward=tuple([chunk.backward_total for chunk in chunks]),
        transfer=transfer,
        blocking=not sizes.overlap_p2p,
        weights=tuple([chunk.weights for chunk in chunks]) if schedule.splits_backward else (),
    )


def step_time(
    sizes: Sizes,
    machine: Machine,
    costs: Sequence[Sequence[ChunkCost]],
    tails: Sequence[Tail],
    *,
    whole: bool = False,
) -> StepTime:
    """Return the time of one step; its parts are those of the stage that works longest.

    Args:
        whole: simulate every micro-batch, also those in the periodic middle of a long step.
    """
    total = finish(pipeline_of(sizes, machine, costs), Middle.SIMULATED if whole else Middle.BUSIEST)
    slowest = max(range(sizes.pp), key=lambda stage: sum(c.forward_total + c.backward_total for c in costs[stage]))
    last = max(tails, key=lambda item: item.comm + item.optimizer)
    count = sizes.micro_batches
    forward = count * sum(chunk.forward for chunk in costs[slowest])
    backward = count * sum(chunk.backward for chunk in costs[slowest])
    comm = count * sum(chunk.forward_comm + chunk.backward_comm for chunk in costs[slowest])
    return StepTime(
        step_s=total + last.comm + last.optimizer,
        forward_s=forward,
        backward_s=backward,
        bubble_s=max(0.0, total - forward - backward - comm),
        exposed_comm_s=comm + last.comm,
        optimizer_s=last.optimizer,
        recompute_s=count * sum(chunk.recompute for chunk in costs[slowest]),
    )


def model_flops(sizes: Sizes, active_matmul: float) -> float:
    """Return the floating-point operations that one token costs in training, without recomputation.

    Forward and backward are three times the forward; attention counts the causal half (or the window, or the keys that
    an indexer chooses), routed experts count as often as a token visits them, the embedding look-up counts nothing, the
    output layer counts in full.
    """
    if sizes.variants is PLAIN:
        attention = _mixing(sizes, "softmax") * (sizes.layers + sizes.mtp)
    else:
        mixers = [sizes.kind(index).mixer for index in range(sizes.layers)]
        attention = sum(_mixing(sizes, mixer) for mixer in mixers + mixers[-1:] * sizes.mtp)
    return 3 * (2 * active_matmul + attention)


def _mixing(sizes: Sizes, mixer: str) -> float:
    """Return the FLOPs per token of a layer's token mixer, beyond products with weights."""
    v, half = sizes.variants, sizes.seq / 2
    if mixer == "none":
        return 0.0
    if mixer == "linear":
        return delta_flops(v.value_heads, v.key_dim, v.value_dim)
    if mixer == "mamba":
        return state_flops(v.mamba_heads, v.mamba_dim, v.groups, v.state)
    head = (sizes.nope_dim + sizes.rope_dim + sizes.v_dim) if sizes.mla else 2 * sizes.head_dim
    length = min(half, sizes.window) if sizes.window and mixer != "unwindowed" else half
    if mixer in ("sparse", "shared"):
        length = min(length, v.topk)
    own = index_flops(v.index_heads, v.index_dim, half) if mixer == "sparse" else 0.0
    return 2.0 * sizes.heads * head * length + own
