"""Micro-batches in flight: those of which a stage holds activations, and the memory peak that follows."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import ge, mul

from launcher.pipeline_schedule.long_step import shortened
from launcher.pipeline_schedule.order import PLAIN, Part, Schedule, Step, order, warm_up


def most_in_flight(schedule: Schedule, stage: int) -> int:
    """Return the maximum of forwards without their backward on a stage: its warm-up and one more (closed form).

    For 1F1B and GPipe; `peak_of` counts the steps of any order.
    """
    return min(warm_up(schedule, stage) + 1, schedule.micro_batches * schedule.chunks)


def peak(
    schedule: Schedule,
    stage: int,
    keeps: Sequence[float],
    forward: Sequence[float],
    backward: Sequence[float],
    waiting: Sequence[float] | None = None,
) -> float:
    """Return the peak activation bytes of a stage.

    Args:
        keeps, forward, backward: per chunk, bytes kept for a micro-batch, and peaks of its forward and backward.
        waiting: per chunk, bytes that stay between gradients of inputs and of weights, where these are two steps.
    """
    if schedule.chunks == 1 and schedule.kind == PLAIN:
        return (most_in_flight(schedule, stage) - 1) * keeps[0] + max(forward[0], backward[0])
    if waiting is not None or schedule.splits_backward:
        return peak_of(order(shortened(schedule), stage), keeps, forward, backward, waiting)
    needs = (forward, backward)
    highest: float = max(
        [sum(map(mul, live, keeps)) + needs[part][chunk] for part, chunk, live in _tops(shortened(schedule), stage)]
    )
    return highest


@lru_cache(maxsize=2048)
def _tops(schedule: Schedule, stage: int) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """Return the steps of a stage of which one is its peak, whatever its chunks need: part, chunk, and what is held.

    What is held are micro-batches of each chunk. Steps of one part and chunk between which it changes by the same
    numbers again and again need most at the first or the last of them; of the others, those count of which no other
    holds at least as many of each chunk.
    """
    live, held = [0] * schedule.chunks, dict[tuple[int, int], list[tuple[int, ...]]]()
    for part, _, chunk in order(schedule, stage):
        live[chunk] -= part
        held.setdefault((part, chunk), []).append(tuple(live))
        live[chunk] += 1 - part
    return tuple([(*step, most) for step, each in held.items() for most in _maximal(_ends(each))])


def _ends(vectors: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Return the vectors without those that lie in the middle between the one before and the one after."""
    inner = {
        place
        for place in range(1, len(vectors) - 1)
        if all(2 * b == a + c for a, b, c in zip(*vectors[place - 1 : place + 2], strict=True))
    }
    return {vector for place, vector in enumerate(vectors) if place not in inner}


def _maximal(vectors: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the vectors that no other one reaches or exceeds in every place."""
    kept: list[tuple[int, ...]] = []
    for one in sorted(vectors, key=sum, reverse=True):
        if not any(all(map(ge, other, one)) for other in kept):
            kept.append(one)
    return kept


def peak_of(
    steps: Sequence[Step],
    keeps: Sequence[float],
    forward: Sequence[float],
    backward: Sequence[float],
    waiting: Sequence[float] | None = None,
) -> float:
    """Return the peak activation bytes over these steps of a stage; arguments as for `peak`."""
    live = highest = 0.0
    held = waiting or keeps
    for part, _, chunk in steps:
        if part == Part.FORWARD:
            highest = max(highest, live + forward[chunk])
            live += keeps[chunk]
        elif part == Part.WEIGHTS:
            live -= held[chunk]
        else:
            live -= keeps[chunk]
            highest = max(highest, live + backward[chunk])
            if part == Part.INPUTS:
                live += held[chunk]
                highest = max(highest, live)
    return highest


def maxima(steps: Sequence[Step], chunks: int) -> tuple[tuple[int, ...], ...]:
    """Return the Pareto-maximal numbers of micro-batches in flight per chunk: one of them is the memory peak."""
    live, seen = [0] * chunks, set[tuple[int, ...]]()
    for part, _, chunk in steps:
        live[chunk] += -1 if part else 1
        if not part:
            seen.add(tuple(live))
    return tuple(sorted(_maximal(seen)))
