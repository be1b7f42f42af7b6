"""Lower bounds of the step time for given parallel sizes, independent of the stages, without simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from launcher.estimate.check import resolved
from launcher.estimate.graphs import WHOLE, in_graph
from launcher.estimate.machine import read_machine
from launcher.estimate.placement import Chunk
from launcher.estimate.sizes import kernel_sizes
from launcher.estimate.stages import cost, parts_of
from launcher.job import Job, Value, with_values
from launcher.pipeline_schedule.bounds import even_stages, one_chunk_stages
from launcher.pipeline_schedule.layout import CannotSplit
from launcher.pipeline_schedule.order import DUALPIPEV
from launcher.search.uneven import Work

# Fields that the time of a micro-batch through all layers depends on. Stages only divide it.
READS = (
    *("parallel.tp", "parallel.cp", "parallel.ep", "parallel.etp", "parallel.sequence_parallel"),
    "batch.micro_batch_size",
)


class Floor:
    """Lower bounds of step times: stages run all micro-batches, and the longest takes at least an equal share.

    The bound is that of the best split into stages without recomputation, transfers, reduction and optimizer; with
    several chunks a stage also without bubble.
    """

    def __init__(self, job: Job, more_reads: tuple[str, ...] = (), fastest: Mapping[str, Value] | None = None) -> None:
        self._job = job
        self._reads = (*READS, *more_reads)
        self._fastest = fastest or {}
        self._known: dict[tuple[Value, ...], tuple[Work, float]] = {}
        self._computing: dict[tuple[Value, ...], tuple[float, float]] = {}

    def __call__(self, point: Mapping[str, Value]) -> float:
        """Return the lower bound of a point's step time in seconds; 0 where it is unknown."""
        found = self._found(point)
        return self._pipelined(point, found[0].whole, found[1]) if found else 0.0

    def computing(self, point: Mapping[str, Value]) -> float:
        """Return the lower bound of a point's step time whatever its switches are; 0 where it is unknown.

        That of the computation alone, with the dispatcher that has the smallest kernels (each other one copies at
        least as many tokens) and, where graphs are searched, the whole step as one.
        """
        key = tuple([point[path] for path in READS])
        if key not in self._computing:
            found = self._work({**point, **self._fastest}, communicates=False)
            if found is None:
                return 0.0
            self._computing[key] = found[0].whole, found[1]
        return self._pipelined(point, *self._computing[key])

    def _pipelined(self, point: Mapping[str, Value], work: float, micro_batches_per_stage: float) -> float:
        stages = int(str(point["parallel.pp"]))
        if (point["parallel.vpp"] or 1) == 1 and self._job.parallel.schedule != DUALPIPEV:
            return one_chunk_stages(work, micro_batches_per_stage * stages, stages)
        return even_stages(work, micro_batches_per_stage)

    def work(self, point: Mapping[str, Value]) -> Work | None:
        """Return the seconds of a micro-batch, layer by layer; None where they are unknown."""
        found = self._found(point)
        return found[0] if found else None

    def _found(self, point: Mapping[str, Value]) -> tuple[Work, float] | None:
        key = tuple(point[path] for path in self._reads)
        if key not in self._known:
            found = self._work(point)
            if found is None:
                # Not cached: with other stages the layers may be divisible.
                return None
            self._known[key] = found
        return self._known[key]

    def _work(self, point: Mapping[str, Value], *, communicates: bool = True) -> tuple[Work, float] | None:
        """Return the work, and micro-batches divided by stages: both are independent of the number of stages."""
        job = with_values(self._job, point)
        split = resolved(job)
        if isinstance(split, CannotSplit):
            return None
        sizes = replace(split.sizes, recompute="none", recompute_modules=()) if _chosen(point) else split.sizes
        machine, _ = read_machine(job, experts=sizes.experts > 0)
        if WHOLE in sizes.captured:
            machine = in_graph(machine)
        kinds = tuple(kind for virtual in zip(*split.stages, strict=True) for chunk in virtual for kind in chunk.kinds)
        kernels = kernel_sizes(sizes)

        def seconds(chunk: Chunk) -> float:
            made = cost(parts_of(kernels, machine, chunk))
            return made.forward_total + made.backward_total if communicates else made.forward + made.backward

        each = {kind: seconds(Chunk(kinds=(kind,))) for kind in set(kinds)}
        first = seconds(Chunk(kinds=(), embedding=True))
        last = seconds(Chunk(kinds=(), mtp=sizes.mtp, norm=True, head=True))
        return Work(layers=tuple(each[kind] for kind in kinds), first=first, last=last), sizes.micro_batches / sizes.pp


def _chosen(point: Mapping[str, Value]) -> bool:
    return point["recompute.granularity"] is None
