"""Which micro-batch of which chunk a stage runs when: 1F1B and Megatron-core's interleaved schedule, simulated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

# One step of a stage: backward?, micro-batch, chunk.
Step = tuple[bool, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A step of a stage on the time axis (seconds)."""

    stage: int
    chunk: int
    micro_batch: int
    backward: bool
    start: float
    end: float


def warm_up(stage: int, pp: int, vpp: int, micro_batches: int, group: int) -> int:
    """Return how many forward steps a stage runs before its first backward (megatron-core schedules.py)."""
    if vpp == 1:
        return min(pp - stage - 1, micro_batches)
    return min((pp - stage - 1) * 2 + (vpp - 1) * group, micro_batches * vpp)


@lru_cache(maxsize=512)
def order(stage: int, pp: int, vpp: int, micro_batches: int, group: int) -> tuple[Step, ...]:
    """Return the steps of one stage in order."""
    table = [
        (micro_batch, chunk)
        for start in range(0, micro_batches, group)
        for chunk in range(vpp)
        for micro_batch in range(start, min(start + group, micro_batches))
    ]
    forward: list[Step] = [(False, micro_batch, chunk) for micro_batch, chunk in table]
    backward: list[Step] = [(True, micro_batch, vpp - 1 - chunk) for micro_batch, chunk in table]
    lead = warm_up(stage, pp, vpp, micro_batches, group)
    steps = forward[:lead]
    for index in range(len(table) - lead):
        steps += (forward[lead + index], backward[index])
    return tuple(steps + backward[len(table) - lead :])


def most_live(
    steps: Sequence[Step], keeps: Sequence[float], forward: Sequence[float], backward: Sequence[float]
) -> float:
    """Return the most bytes of activations that a stage holds over its steps.

    Args:
        keeps, forward, backward: per chunk, bytes kept, and peaks of its forward and backward.
    """
    live = peak = 0.0
    for is_backward, _, chunk in steps:
        if is_backward:
            live -= keeps[chunk]
            peak = max(peak, live + backward[chunk])
        else:
            peak = max(peak, live + forward[chunk])
            live += keeps[chunk]
    return peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline to simulate.

    Attributes:
        forward, backward: seconds of a micro-batch, per stage and chunk.
        transfer: seconds to pass a tensor to the next stage.
        blocking: the sender waits for it.
    """

    forward: tuple[tuple[float, ...], ...]
    backward: tuple[tuple[float, ...], ...]
    transfer: float
    blocking: bool
    micro_batches: int
    group: int

    @property
    def pp(self) -> int:
        """Stages."""
        return len(self.forward)

    @property
    def vpp(self) -> int:
        """Chunks per stage."""
        return len(self.forward[0])


def simulate(pipeline: Pipeline, events: list[Event] | None = None) -> list[float]:
    """Return when each stage has finished its last step; append every step to `events` where a list is given."""
    pp, vpp, count = pipeline.pp, pipeline.vpp, pipeline.micro_batches
    orders = [order(stage, pp, vpp, count, pipeline.group) for stage in range(pp)]
    free, place, last = [0.0] * pp, [0] * pp, pp * vpp - 1
    # When the input of a step has arrived, by direction, position in the model, and micro-batch.
    arrived: list[list[list[float | None]]] = [[[None] * count for _ in range(last + 1)] for _ in range(2)]
    arrived[0][0] = [0.0] * count
    transfer, blocking = (pipeline.transfer if pp > 1 else 0.0), pipeline.blocking
    waits = transfer if blocking else 0.0
    moving = True
    while moving:
        moving = False
        for stage in range(pp):
            steps, at, now = orders[stage], place[stage], free[stage]
            first, total = at, len(steps)
            forward, backward = pipeline.forward[stage], pipeline.backward[stage]
            while at < total:
                is_backward, micro_batch, chunk = steps[at]
                position = chunk * pp + stage
                ready = arrived[is_backward][position][micro_batch]
                if ready is None:
                    break
                start = ready if ready > now else now
                now = start + (backward if is_backward else forward)[chunk]
                if events is not None:
                    events.append(_event(stage, steps[at], start, now))
                if is_backward:
                    if position:
                        arrived[1][position - 1][micro_batch] = now + transfer
                        now += waits
                elif position == last:
                    arrived[1][last][micro_batch] = now
                else:
                    arrived[0][position + 1][micro_batch] = now + transfer
                    now += waits
                at += 1
            moving = moving or at > first
            place[stage], free[stage] = at, now
    assert all(at == len(steps) for at, steps in zip(place, orders, strict=True)), "the schedule is stuck"
    return free


def _event(stage: int, step: Step, start: float, end: float) -> Event:
    is_backward, micro_batch, chunk = step
    return Event(stage=stage, chunk=chunk, micro_batch=micro_batch, backward=is_backward, start=start, end=end)


def finish(pipeline: Pipeline, events: list[Event] | None = None, *, whole: bool = False) -> float:
    """Return the seconds until the last stage has finished.

    Unless `whole` or with `events`, only the first micro-batches of a long step are simulated; the rest adds the time
    of the slowest stage for each, because the schedule is periodic once all stages are busy.
    """
    pp, vpp, count = pipeline.pp, pipeline.vpp, pipeline.micro_batches
    if events is not None:
        return max(simulate(pipeline, events))
    if pp == 1:
        return count * (sum(pipeline.forward[0]) + sum(pipeline.backward[0]))
    enough = pp + 2 if vpp == 1 else 3 * pipeline.group
    enough += (count - enough) % pipeline.group if vpp > 1 else 0
    if whole or count <= enough:
        return max(simulate(pipeline, events))
    head = max(simulate(replace(pipeline, micro_batches=enough)))
    return head + (count - enough) * _period(pipeline)


def _period(pipeline: Pipeline) -> float:
    slowest = 0.0
    for stage in range(pipeline.pp):
        sends = 0.0
        if pipeline.blocking:
            edges = 2 * pipeline.vpp - (stage == 0) - (stage == pipeline.pp - 1)
            sends = edges * pipeline.transfer
        slowest = max(slowest, sum(pipeline.forward[stage]) + sum(pipeline.backward[stage]) + sends)
    return slowest
