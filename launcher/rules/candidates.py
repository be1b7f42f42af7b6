"""Values that a fix tries for a field: those that its neighbours allow, usual ones, one step more or less."""

import math
import types
import typing
from collections.abc import Iterator

from launcher.job import FieldInfo, Job, Value, fields, value_at
from launcher.rules.changes import ARGS, ENV

_SIZES = tuple(sorted({*range(1, 17), *(2**power for power in range(5, 11)), 24, 48, 96}))
_MOST = 12
# Rules on the environment concern one variable; these values are tried.
_OF_ENVIRONMENT = ("1", "8")
# Sizes that divide the number of devices.
_OF_DEVICES = (
    "parallel.tp",
    "parallel.pp",
    "parallel.cp",
    "parallel.ep",
    "parallel.etp",
    "parallel.ulysses_degree",
    "parallel.cp_window",
)
_STAGES = ("parallel.first_stage_layers", "parallel.last_stage_layers")
_LENGTHS = ("schedule.lr_warmup_iters", "schedule.lr_decay_iters", "schedule.lr_wsd_decay_iters")
# How long a job trains. Of other lengths only those that an error's own number suggests make sense, never one step.
LENGTHS = ("schedule.train_iters", "schedule.train_samples", "schedule.epochs")
# Larger numbers of nodes that are tried.
_NODE_STEPS = 4
# Usual values where nothing is set; for all other numbers, small ones.
_USUAL = {
    "checkpoint.save_interval": (500, 1000, 100),
    "evaluation.interval": (500, 1000, 100),
    "schedule.train_iters": (1000,),
    "schedule.train_samples": (),
}
_SMALL = (1, 2, 4, 8)


def candidates(job: Job, path: str) -> Iterator[Value]:
    """Yield values other than the job's own, in no particular order."""
    if path.startswith(ARGS):
        yield None
        return
    if path.startswith(ENV):
        yield from _OF_ENVIRONMENT
        return
    info, now = fields()[path], value_at(job, path)
    kinds = typing.get_args(info.type) if isinstance(info.type, types.UnionType) else (info.type,)
    values: list[Value] = []
    if path == "parallel.dp":
        pass
    elif bool in kinds:
        values = [not now] if now is not None else [True, False]
    elif int in kinds:
        low = int(info.meta.minimum or 0)
        values = [value for value in _numbers(job, info, now) if value >= low]
    elif path == "optimizer.min_lr":
        values = [float(f"{0.1 * job.optimizer.lr:.6g}")] if job.optimizer.lr else []
    elif str in kinds:
        values = list(info.meta.choices)
    if type(None) in kinds and now is not True:
        # Only false is proposed as "off", not null as well.
        values.append(None)
    elif any(typing.get_origin(kind) is tuple for kind in kinds):
        values = [*_shorter(now), ()]
    yield from (value for value in dict.fromkeys(values) if value != now or type(value) is not type(now))


def _shorter(now: Value) -> Iterator[Value]:
    """Yield a list without one of its items."""
    if isinstance(now, tuple) and 1 < len(now) <= _MOST:
        yield from (now[:place] + now[place + 1 :] for place in range(len(now)))


def _numbers(job: Job, info: FieldInfo, now: Value) -> Iterator[int]:
    path = info.path
    if path in _OF_DEVICES:
        yield from _divisors(job.cluster.world_size)
    elif path in _STAGES:
        yield from _uneven(job, path)
    elif path == "parallel.vpp":
        layers = job.model.num_hidden_layers or 0
        yield from (size for size in range(2, _MOST) if layers % (job.parallel.pp * size) == 0)
    elif path == "batch.micro_batch_size":
        share = (job.batch.global_batch_size or 0) // (job.parallel.dp or 1)
        yield from _divisors(share) if share else _SMALL
    elif path == "batch.global_batch_size" and isinstance(now, int):
        yield from _multiples(now, job.batch.micro_batch_size * (job.parallel.dp or 1) * _groups(job))
        yield from _multiples(now, job.batch.micro_batch_size * (job.parallel.dp or 1))
    elif path == "batch.seq_length" and isinstance(now, int):
        yield from _multiples(now, 2 * job.parallel.cp * job.parallel.tp)
        if job.model.max_position_embeddings is not None:
            yield job.model.max_position_embeddings
    elif path in _LENGTHS and isinstance(now, int):
        yield from (now // 10, now // 100, (job.schedule.train_iters or 0) // 10)
    elif isinstance(now, int):
        yield from _near(now)
    else:
        yield from _USUAL.get(path, _SMALL)


def node_counts(job: Job) -> Iterator[int]:
    """Yield numbers of nodes that the sizes of the layout divide, fewer ones first, in each direction the nearest."""
    parallel, cluster = job.parallel, job.cluster
    if not cluster.nodes or not cluster.devices_per_node:
        return
    ranks = parallel.tp * parallel.pp * parallel.cp
    if job.model.is_moe:
        ranks = math.lcm(ranks, (parallel.etp or 1) * parallel.ep * parallel.pp)
    step = ranks // math.gcd(ranks, cluster.devices_per_node)
    below = cluster.nodes // step * step
    counts = (*range(below, 0, -step), *range(below + step, below + (_NODE_STEPS + 1) * step, step))
    yield from (each for each in counts if each != cluster.nodes)


def _groups(job: Job) -> int:
    return job.parallel.pp if job.parallel.vpp is not None and job.parallel.vpp > 1 else 1


def _near(now: int) -> list[int]:
    sizes = {size for size in _SIZES if size <= max(64, 8 * now)} | {now - 1, now + 1}
    return sorted(sizes, key=lambda size: abs(math.log2(max(size, 1) / max(now, 1))))[: 2 * _MOST]


def _divisors(size: int) -> list[int]:
    return [each for each in range(1, min(size, 4096) + 1) if size % each == 0]


def _multiples(now: int, step: int) -> Iterator[int]:
    yield from (step * count for count in (now // step, now // step + 1) if count)


def _uneven(job: Job, path: str) -> Iterator[int]:
    """Yield the sizes of one stage with which the other stages are even, nearest to an even share first."""
    parallel, layers = job.parallel, job.model.num_hidden_layers
    if layers is None or parallel.pp < 2:
        return
    other = parallel.last_stage_layers if path == _STAGES[0] else parallel.first_stage_layers
    rest, stages, chunks = layers - (other or 0), parallel.pp - 1 - (other is not None), parallel.vpp or 1
    even = layers / parallel.pp
    fitting = [
        size
        for size in range(chunks, rest + 1, chunks)
        if (size < rest and (rest - size) % (stages * chunks) == 0 if stages else size == rest)
    ]
    yield from sorted(fitting, key=lambda size: abs(size - even))[:4]
