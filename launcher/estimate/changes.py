"""Finds changes that make a job fit: estimates candidates one by one and returns the fastest."""

from collections.abc import Callable, Iterator
from itertools import combinations, product

from launcher.estimate.check import problems
from launcher.estimate.result import Change, Estimate
from launcher.job import Job, Value, override_text, value_at, with_values
from launcher.job.hardware import close_devices

_MOST = 3


def cheapest(job: Job, quick: Callable[[Job], Estimate]) -> tuple[Change, ...]:
    """Return at most three changes that make the job fit, the fastest first: single ones, pairs, or many at once.

    Args:
        quick: estimates a valid job.
    """
    singles = [values for values in _candidates(job) if any(value_at(job, path) != new for path, new in values.items())]
    found: list[tuple[float, Change]] = []
    enough: list[dict[str, Value]] = []

    def try_change(values: dict[str, Value]) -> None:
        changed = with_values(job, values)
        if problems(changed):
            return
        answer = quick(changed)
        if answer.fits:
            peak = answer.fullest.peak_reserved + answer.outside
            seconds = answer.time.step_s if answer.time else None
            change = Change(overrides=_overrides(values), peak_reserved=peak, step_s=seconds)
            per_token = 1 / answer.tokens_per_s_per_device if answer.tokens_per_s_per_device else float(peak)
            found.append((per_token, change))
            enough.append(values)

    for values in singles:
        try_change(values)
    if len(found) < _MOST:
        rest = [values for values in singles if values not in enough]
        for one, other in combinations(rest, 2):
            if not set(one) & set(other):
                try_change({**one, **other})
    if len(found) < _MOST:
        for values in _together(job):
            if not any(less.items() <= values.items() for less in enough):
                try_change(values)
    found.sort(key=lambda item: item[0])
    return tuple(change for _, change in found[:_MOST])


def _overrides(values: dict[str, Value]) -> tuple[str, ...]:
    return tuple(f"{path}={override_text(value)}" for path, value in values.items())


def _candidates(job: Job) -> Iterator[dict[str, Value]]:
    """Yield changes of one aspect each that do not affect training."""
    yield from _recompute(job)
    yield from _layout(job)
    if not job.parallel.distributed_optimizer and not job.parallel.zero_stage:
        yield {"parallel.distributed_optimizer": True}
    if job.parallel.tp > 1 and not job.parallel.sequence_parallel:
        yield {"parallel.sequence_parallel": True}
    if not job.kernels.cross_entropy_fusion:
        yield {"kernels.cross_entropy_fusion": True, "kernels.cross_entropy_fusion_impl": "te"}
    if not job.offload.optimizer:
        yield {"offload.optimizer": True}
    if job.batch.micro_batch_size > 1:
        yield {"batch.micro_batch_size": max(1, job.batch.micro_batch_size // 2)}


# Factors by which a parallel size is multiplied.
_FACTORS = (1, 2, 4, 8)


def _together(job: Job) -> Iterator[dict[str, Value]]:
    """Yield larger parallel sizes, with and without full recomputation and offloading, plus all cheap changes."""
    parallel = job.parallel
    fixed = parallel.layout or parallel.first_stage_layers is not None or parallel.last_stage_layers is not None
    free: dict[str, Value] = {}
    if not parallel.zero_stage:
        free["parallel.distributed_optimizer"] = True
    if not job.kernels.cross_entropy_fusion:
        free |= {"kernels.cross_entropy_fusion": True, "kernels.cross_entropy_fusion_impl": "te"}
    *_, full = _recompute(job)
    for tp, pp, ep in product(_FACTORS, (1,) if fixed else _FACTORS, _FACTORS if job.model.is_moe else (1,)):
        layout: dict[str, Value] = {}
        if tp > 1 and parallel.tp * tp <= _node(job):
            layout |= {"parallel.tp": parallel.tp * tp, "parallel.sequence_parallel": True}
        elif tp > 1:
            continue
        layout |= {"parallel.pp": parallel.pp * pp} if pp > 1 else {}
        layout |= {"parallel.ep": parallel.ep * ep} if ep > 1 else {}
        for recompute, offload in product(({}, full), ({}, {"offload.optimizer": True})):
            values = {**layout, **free, **recompute, **offload}
            yield {path: value for path, value in values.items() if value_at(job, path) != value}


def _recompute(job: Job) -> Iterator[dict[str, Value]]:
    recompute = job.recompute
    if recompute.granularity != "full":
        modules = ("moe_act",) if job.model.is_moe else ("mlp",)
        for chosen in (modules, ("moe",) if job.model.is_moe else ("mlp", "core_attn")):
            if not set(chosen) <= set(recompute.modules):
                merged = tuple(dict.fromkeys((*recompute.modules, *chosen)))
                yield {"recompute.granularity": "selective", "recompute.modules": merged}
        layers = job.model.num_hidden_layers or 1
        per_chunk = max(1, layers // job.parallel.pp // (job.parallel.vpp or 1))
        for number in dict.fromkeys((max(1, per_chunk // 4), max(1, per_chunk // 2), per_chunk)):
            yield {
                "recompute.granularity": "full",
                "recompute.method": "block",
                "recompute.num_layers": number,
                "recompute.modules": (),
            }
    yield {
        "recompute.granularity": "full",
        "recompute.method": "uniform",
        "recompute.num_layers": 1,
        "recompute.modules": (),
        **({"recompute.layers_per_chunk": ()} if recompute.layers_per_chunk else {}),
    }


def _layout(job: Job) -> Iterator[dict[str, Value]]:
    parallel = job.parallel
    if parallel.tp * 2 <= _node(job):
        yield {"parallel.tp": parallel.tp * 2, "parallel.sequence_parallel": True}
    if parallel.layout is None and parallel.first_stage_layers is None and parallel.last_stage_layers is None:
        yield {"parallel.pp": parallel.pp * 2}
    if job.model.is_moe:
        yield {"parallel.ep": parallel.ep * 2}
    yield {"parallel.cp": parallel.cp * 2}


def _node(job: Job) -> int:
    return close_devices(job.hardware, job.cluster.devices_per_node, job.cluster.world_size)
