"""Simulates pipeline schedules: 1F1B and Megatron-core's interleaved 1F1B."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

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


def groups_of(pp: int, micro_batches: int, group: int) -> list[range]:
    """Return the micro-batches that one chunk runs in a row.

    A remainder smaller than `pp` would stall the pipeline: Megatron-core rejects it (schedules.py), MindSpore runs it
    with the first group (mindspore/toolkits e8d3573 pp_util.py:193).
    """
    rest = micro_batches % group
    first = min(micro_batches, group + rest if rest < pp else group)
    starts = range(first, micro_batches, group)
    return [range(first), *(range(start, min(start + group, micro_batches)) for start in starts)]


def warm_up(stage: int, pp: int, vpp: int, micro_batches: int, group: int) -> int:
    """Return how many forward steps a stage runs before its first backward (megatron-core schedules.py)."""
    if vpp == 1:
        return min(pp - stage - 1, micro_batches)
    first = len(groups_of(pp, micro_batches, group)[0])
    return min((pp - stage - 1) * 2 + (vpp - 1) * first, micro_batches * vpp)


@lru_cache(maxsize=512)
def order(stage: int, pp: int, vpp: int, micro_batches: int, group: int) -> tuple[Step, ...]:
    """Return the steps of one stage in order."""
    table = [
        (micro_batch, chunk)
        for members in groups_of(pp, micro_batches, group)
        for chunk in range(vpp)
        for micro_batch in members
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
    """Return the peak activation bytes of a stage over its steps.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The steps of all stages in a topological order, valid for any durations.

    Attributes:
        steps: stage and step.
        moves: per step the stage, the index of its duration, the arrival it waits for, the arrival it produces, and
            where its result goes (0: another stage, 1: the same stage or none).
        arrivals: number of arrivals; no step waits for the last one.
    """

    steps: tuple[tuple[int, Step], ...]
    moves: tuple[tuple[int, int, int, int, int], ...]
    arrivals: int


def _program(pp: int, vpp: int, count: int, group: int) -> Program:
    orders = [order(stage, pp, vpp, count, group) for stage in range(pp)]
    positions = pp * vpp
    last, nobody = positions - 1, 2 * positions * count
    reached = [False] * (nobody + 1)
    reached[:count] = [True] * count
    place = [0] * pp
    steps: list[tuple[int, Step]] = []
    moves: list[tuple[int, int, int, int, int]] = []
    moving = True
    while moving:
        moving = False
        for stage, own in enumerate(orders):
            at = first = place[stage]
            while at < len(own):
                is_backward, micro_batch, chunk = own[at]
                position = chunk * pp + stage
                needs = (is_backward * positions + position) * count + micro_batch
                if not reached[needs]:
                    break
                if is_backward:
                    gives, ends = (needs - count, 0) if position else (nobody, 1)
                else:
                    gives, ends = (
                        (needs + count, 0) if position < last else ((positions + last) * count + micro_batch, 1)
                    )
                reached[gives] = True
                steps.append((stage, own[at]))
                moves.append((stage, (is_backward * pp + stage) * vpp + chunk, needs, gives, ends))
                at += 1
            moving = moving or at > first
            place[stage] = at
    assert all(at == len(own) for at, own in zip(place, orders, strict=True)), "the schedule is stuck"
    return Program(steps=tuple(steps), moves=tuple(moves), arrivals=nobody + 1)


_cached_program = lru_cache(maxsize=128)(_program)
_MOST_CACHED = 10_000  # steps


def simulate(pipeline: Pipeline, events: list[Event] | None = None) -> list[float]:
    """Return when each stage has finished its last step; append every step to `events` where a list is given."""
    pp, vpp, count = pipeline.pp, pipeline.vpp, pipeline.micro_batches
    make = _cached_program if 2 * pp * vpp * count <= _MOST_CACHED else _program
    program = make(pp, vpp, count, pipeline.group)
    durations = [*chain.from_iterable(pipeline.forward), *chain.from_iterable(pipeline.backward)]
    transfer = pipeline.transfer if pp > 1 else 0.0
    passing = (transfer, 0.0)
    waiting = (transfer if pipeline.blocking else 0.0, 0.0)
    free, arrived = [0.0] * pp, [0.0] * program.arrivals
    ends: list[float] = []
    for stage, duration, needs, gives, how in program.moves:
        now, ready = free[stage], arrived[needs]
        if ready > now:
            now = ready
        now += durations[duration]
        arrived[gives] = now + passing[how]
        free[stage] = now + waiting[how]
        if events is not None:
            ends.append(now)
    if events is not None:
        for (stage, step), move, end in zip(program.steps, program.moves, ends, strict=True):
            events.append(_event(stage, step, end - durations[move[1]], end))
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
