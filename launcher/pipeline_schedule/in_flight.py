"""Micro-batches in flight: those of which a stage holds activations, and the memory peak that follows."""

from collections.abc import Sequence

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
    return peak_of(order(shortened(schedule), stage), keeps, forward, backward, waiting)


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
    live, seen = [0] * chunks, set()
    for part, _, chunk in steps:
        live[chunk] += -1 if part else 1
        if not part:
            seen.add(tuple(live))
    return tuple(
        sorted(a for a in seen if not any(b != a and all(x <= y for x, y in zip(a, b, strict=True)) for b in seen))
    )
