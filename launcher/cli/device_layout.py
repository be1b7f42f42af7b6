"""What lies on which device, in one line."""

from launcher.job import Job
from launcher.pipeline import Outcome
from launcher.terminal import counted


def device_layout(outcome: Outcome) -> list[str]:
    """Return the groups of devices and the layers of each pipeline stage; empty: the sizes do not fit the devices.

    Devices are numbered as Megatron-core numbers ranks: tensor parallel ranks are next to each other, then context and
    data parallel ones, pipeline stages outermost (megatron-core 0.16.1 parallel_state.py, order tp-cp-ep-dp-pp).
    """
    job = _as_run(outcome.job)
    parallel, world = job.parallel, job.cluster.world_size
    stage = parallel.tp * parallel.cp * (parallel.dp or 0)
    if stage * parallel.pp != world or not world:
        return []
    sizes = {"pp": parallel.pp, "dp": parallel.dp, "cp": parallel.cp, "tp": parallel.tp}
    shown = " × ".join(f"{name} {size}" for name, size in sizes.items() if size and size > 1) or "no parallelism"
    experts = f", experts ep {parallel.ep}" if parallel.ep > 1 else ""
    if parallel.ep > 1 and parallel.etp and parallel.etp > 1:
        experts += f" × etp {parallel.etp}"
    parts = [f"{counted(world, 'device')}: {shown}{experts}"]
    if parallel.tp > 1:
        parts.append(f"each tensor is split over {parallel.tp} neighbours, such as {_range(0, parallel.tp)}")
    if parallel.pp > 1 and not parallel.dp_outermost:
        parts += _stages(job, stage)
    return parts


def _as_run(job: Job) -> Job:
    """Return the job as its backend runs it, as far as the order of its devices is concerned."""
    if not job.backend.args and not job.parallel.dp_outermost:
        return job  # nothing that the backend replaces decides it, and the import takes a tenth of a dry run
    from launcher.estimate.as_run import as_run

    return as_run(job)[0]


def _stages(job: Job, devices: int) -> list[str]:
    layers = _layers(job)
    chunks = f" in {job.parallel.vpp} chunks" if (job.parallel.vpp or 1) > 1 else ""
    rows = []
    for number in range(job.parallel.pp):
        held = "" if layers is None else f" has {counted(layers[number], 'layer')}{chunks}"
        rows.append(f"stage {number}{held} on {_range(number * devices, devices)}")
    if len(rows) > 4:
        rows = [rows[0], rows[1], "…", rows[-1]]
    return rows


def _layers(job: Job) -> list[int] | None:
    """Return the number of layers of every stage; None: not known."""
    parallel, total = job.parallel, job.model.num_hidden_layers
    uneven = (parallel.first_stage_layers, parallel.last_stage_layers, parallel.layout, parallel.noop_layers)
    if not total:
        return None
    if not any(uneven) and not parallel.account_for_embedding and not parallel.account_for_loss:
        return None if total % parallel.pp else [total // parallel.pp] * parallel.pp
    # Uneven splits are the estimate's; its import takes a tenth of a dry run, and most splits are even.
    from launcher.estimate.placement import place
    from launcher.estimate.sizes import read_sizes

    try:
        return [sum(len(chunk.kinds) for chunk in stage) for stage in place(job, read_sizes(job)[0])]
    except (ValueError, ArithmeticError, TypeError):
        return None  # a finding says what is wrong with the split


def _range(first: int, count: int) -> str:
    return f"device {first}" if count == 1 else f"devices {first}–{first + count - 1}"
