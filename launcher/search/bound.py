"""The least time that a step can take with these sizes, whatever the stages, before anything is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from launcher.estimate.check import resolved
from launcher.estimate.layout import CannotSplit
from launcher.estimate.machine import read_machine
from launcher.estimate.placement import Chunk
from launcher.estimate.sizes import kernel_sizes
from launcher.estimate.stages import cost, parts_of
from launcher.job import Job, Value, with_values

# What the time of a micro-batch through all layers depends on. Stages only share it out.
_READS = (
    *("parallel.tp", "parallel.cp", "parallel.ep", "parallel.etp", "parallel.sequence_parallel"),
    "batch.micro_batch_size",
)


class Floor:
    """Lower bounds of step times: each stage works through all micro-batches, and the longest of them takes its share.

    The bound is that of an even pipeline without bubble, recomputation, transfers, reduction and optimizer.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._known: dict[tuple[Value, ...], float] = {}

    def __call__(self, point: Mapping[str, Value]) -> float:
        """Return seconds that the step of a point takes at least; 0 where nothing can be said."""
        key = tuple(point[path] for path in _READS)
        if key not in self._known:
            self._known[key] = self._seconds(point)
        return self._known[key]

    def _seconds(self, point: Mapping[str, Value]) -> float:
        job = with_values(self._job, point)
        split = resolved(job)
        if isinstance(split, CannotSplit):
            return 0.0
        sizes = replace(split.sizes, recompute="none", recompute_modules=()) if _chosen(point) else split.sizes
        machine, _ = read_machine(
            job.hardware,
            dtype=job.precision.dtype,
            fp8=sizes.fp8,
            node=job.cluster.devices_per_node,
            experts=sizes.experts > 0,
            nodes=job.cluster.nodes,
        )
        kinds = tuple(moe for virtual in zip(*split.stages, strict=True) for chunk in virtual for moe in chunk.kinds)
        whole = Chunk(kinds=kinds, embedding=True, mtp=sizes.mtp, norm=True, head=True)
        made = cost(parts_of(kernel_sizes(sizes), machine, whole))
        return sizes.micro_batches * (made.forward_total + made.backward_total) / sizes.pp


def _chosen(point: Mapping[str, Value]) -> bool:
    return point["recompute.granularity"] is None
