"""Batch and world size arithmetic of MindFormers; uneven values are rejected with the nearest valid ones.

World size = data_parallel x model_parallel x pipeline_stage x context_parallel; expert parallelism is not a factor.
Global batch = batch_size x data_parallel x micro_batch_num x micro_batch_interleave_num with pipeline stages, and
batch_size x data_parallel x gradient_accumulation_steps x micro_batch_interleave_num without
(trainer/base_trainer.py:201-275 @2.1.0). The factor that does not apply is silently reset to 1, so it is written as 1.
"""

import math

from launcher.job import Job
from launcher.mapping.rows import NativeView, Unsupported

INTERLEAVE = "micro_batch_interleave_num"
SIZES = "train_dataset.data_loader.sizes"
EPOCHS = "runner_config.epochs"
STOP_STEP = "callbacks.TrainCallBack.stop_step"


def data_parallel(job: Job) -> int | None:
    """Return the data-parallel size for the world size, or None if it is not divisible."""
    parallel = job.parallel
    ranks = parallel.tp * parallel.pp * parallel.cp
    world = job.cluster.world_size
    return world // ranks if world % ranks == 0 else None


def checked_data_parallel(job: Job) -> int:
    """Return the data-parallel size.

    Raises:
        Unsupported: the world size is not divisible, or `parallel.dp` differs.
    """
    parallel, world = job.parallel, job.cluster.world_size
    ranks = parallel.tp * parallel.pp * parallel.cp
    dp = data_parallel(job)
    if dp is None:
        why = f"{world} devices are not a multiple of tp {parallel.tp} x pp {parallel.pp} x cp {parallel.cp} = {ranks}"
        raise Unsupported("parallel.dp", why, _worlds_near(job, ranks))
    if parallel.dp is not None and parallel.dp != dp:
        why = f"{world} devices / (tp {parallel.tp} x pp {parallel.pp} x cp {parallel.cp}) = {dp}, not {parallel.dp}"
        raise Unsupported("parallel.dp", why, (f"parallel.dp={dp}",))
    return dp


def _worlds_near(job: Job, ranks: int) -> tuple[str, ...]:
    per_node, world = job.cluster.devices_per_node, job.cluster.world_size
    below, above = world // ranks * ranks, -(-world // ranks) * ranks
    sizes = [size for size in (below, above) if size > 0]
    nodes = [f"cluster.nodes={size // per_node}" for size in sizes if size % per_node == 0]
    return tuple(nodes) or tuple(f"cluster.devices_per_node={size}" for size in sizes if job.cluster.nodes == 1)


def interleave(job: Job) -> int:
    """Return the number of interleaved micro-batches, each of the given size."""
    value = job.backend.passthrough.get(INTERLEAVE, job.batch.interleave or 1)
    return value if isinstance(value, int) and value > 0 else 1


def micro_batches(job: Job) -> int | None:
    """Return the number of micro-batches per step and data-parallel rank.

    Without a global batch: one micro-batch, as in Megatron; None if the world size is not divisible.

    Raises:
        Unsupported: the global batch is not a multiple, or there are fewer micro-batches than stages (MindSpore then
            fails while compiling: "MicroBatch size ... can't less than stage num").
    """
    dp = data_parallel(job)
    if dp is None:
        return None
    batch, pp = job.batch, job.parallel.pp
    unit = batch.micro_batch_size * dp * interleave(job)
    size = batch.global_batch_size
    if size is None:
        if pp > 1:
            why = f"with {pp} pipeline stages MindFormers needs at least {pp} micro-batches: set the batch size"
            raise Unsupported("batch.global_batch_size", why, (f"batch.global_batch_size={unit * pp}",))
        return 1
    if size % unit:
        near = sorted({max(size // unit, pp) * unit, max(-(-size // unit), pp) * unit})
        why = f"{size} is not a multiple of micro_batch_size {batch.micro_batch_size} x dp {dp}{_times(job)} = {unit}"
        raise Unsupported("batch.global_batch_size", why, tuple(f"batch.global_batch_size={each}" for each in near))
    count = size // unit
    if pp > 1 and count < pp:
        why = f"{count} micro-batches are fewer than the {pp} pipeline stages, which MindSpore refuses when it compiles"
        raise Unsupported("batch.global_batch_size", why, (f"batch.global_batch_size={unit * pp}",))
    return count


def _times(job: Job) -> str:
    factor = interleave(job)
    return f" x {INTERLEAVE} {factor}" if factor > 1 else ""


def global_batch(job: Job) -> int | None:
    """Return the sequences per step, given or derived; None if unknown."""
    if job.batch.global_batch_size is not None:
        return job.batch.global_batch_size
    dp = data_parallel(job)
    return None if dp is None else job.batch.micro_batch_size * dp * interleave(job)


def batch_of(view: NativeView) -> int:
    """Return the sequences per step of a MindFormers file."""
    is_pipeline = view.number("parallel_config.pipeline_stage", 1) > 1
    count = "parallel_config.micro_batch_num" if is_pipeline else "runner_config.gradient_accumulation_steps"
    factors = ("runner_config.batch_size", "parallel_config.data_parallel", count, INTERLEAVE)
    return math.prod(view.number(flag, 1) for flag in factors)


def steps_of(view: NativeView) -> int | None:
    """Return the training steps of a MindFormers file; None if they depend on the data."""
    stop = view.peek(STOP_STEP)
    if isinstance(stop, int):
        return stop
    sizes, epochs = view.peek(SIZES), view.peek(EPOCHS, 1)
    if not isinstance(sizes, (list, tuple)) or not sizes or not isinstance(sizes[0], int) or epochs != 1:
        return None
    try:
        return sizes[0] // batch_of(view)
    except (TypeError, ArithmeticError):  # a value that is 0 or not a number is rejected by a rule
        return None
