"""The steps of a schedule and their precedence as a graph, for linear programs over start times."""

from functools import lru_cache
from itertools import pairwise

from launcher.pipeline_schedule.in_flight import maxima
from launcher.pipeline_schedule.long_step import last_rounds, rounds
from launcher.pipeline_schedule.order import PLAIN, Schedule, Step, order, path
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """All steps that are laid out, and what each waits for.

    Steps are numbered; `chunk_of[n]` is the chunk of step n, plus the number of chunks where it is a backward.

    Attributes:
        arcs: pairs of steps of which the second starts after the end of the first.
        sends: of the arcs, whether an activation or gradient is sent to another stage in between.
        end: the step that ends last.
        period: per stage, the first forward of the last round and of the round before.
        repeated: rounds that are not laid out; each costs one period.
        in_flight: per stage, numbers of micro-batches in flight per chunk, one of which is the memory peak.
    """

    chunk_of: tuple[int, ...]
    arcs: tuple[tuple[int, int], ...]
    sends: tuple[bool, ...]
    end: int
    period: tuple[tuple[int, int], ...]
    repeated: int
    in_flight: tuple[tuple[tuple[int, ...], ...], ...]


@lru_cache(maxsize=16)
def precedence(schedule: Schedule) -> Precedence:
    """Return the graph of a schedule, without the periodic middle of a long one.

    Raises:
        ValueError: the schedule splits the backward; its graph is not stated here.
    """
    if schedule.kind != PLAIN:
        raise ValueError(f"no precedence graph of {schedule.kind}")
    laid_out, repeated = rounds(schedule)
    stages, numbers = laid_out.stages, laid_out.stages * laid_out.chunks
    orders = [order(laid_out, stage) for stage in range(stages)]
    number: dict[tuple[int, Step], int] = {}
    chunk_of: list[int] = []
    for stage, steps in enumerate(orders):
        for step in steps:
            number[stage, step] = len(chunk_of)
            chunk_of.append(step[2] * stages + stage + (numbers if step[0] else 0))
    arcs: list[tuple[int, int]] = []
    for stage, steps in enumerate(orders):
        arcs += [(number[stage, a], number[stage, b]) for a, b in pairwise(steps)]
    sends = [False] * len(arcs)
    for micro_batch in range(laid_out.micro_batches):
        route = [(chunk % stages, (int(backward), micro_batch, chunk // stages)) for backward, chunk in path(laid_out)]
        arcs += [(number[a], number[b]) for a, b in pairwise(route)]
        sends += [a[0] != b[0] for a, b in pairwise(route)]
    borders = last_rounds(laid_out)
    starts = [tuple(number[stage, (0, first, 0)] for first in borders) for stage in range(stages) if borders]
    return Precedence(
        chunk_of=tuple(chunk_of),
        arcs=tuple(arcs),
        sends=tuple(sends),
        end=number[0, (1, laid_out.micro_batches - 1, 0)],
        period=tuple((last, before) for last, before in starts),
        repeated=repeated,
        in_flight=tuple(maxima(steps, laid_out.chunks) for steps in orders),
    )
