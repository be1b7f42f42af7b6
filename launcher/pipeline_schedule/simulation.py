"""Simulates a pipeline event by event: every step starts when its stage is free and its input has arrived."""

from functools import lru_cache

from launcher.pipeline_schedule.order import Part, Schedule, Step, order, path
from launcher.records import dataclass, record


@record()
class Event:
    """A step of a stage on the time axis (seconds)."""

    stage: int
    chunk: int
    micro_batch: int
    part: Part
    start: float
    end: float

    @property
    def backward(self) -> bool:
        """It is a backward or a part of one."""
        return self.part is not Part.FORWARD


@record()
class Pipeline:
    """A pipeline to simulate.

    Attributes:
        forward, backward: seconds of a micro-batch, by number of the chunk.
        transfer: seconds to pass a tensor to the next stage.
        blocking: the sender waits for it.
        weights: of the backward, seconds of gradients of weights; read where the schedule splits the backward.
    """

    schedule: Schedule
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    transfer: float
    blocking: bool
    weights: tuple[float, ...] = ()

    @property
    def durations(self) -> tuple[float, ...]:
        """Seconds of each part of each chunk: all forwards, all backwards, gradients of inputs, of weights."""
        whole = self.forward + self.backward
        if not self.schedule.splits_backward:
            return whole
        inputs = tuple(both - weights for both, weights in zip(self.backward, self.weights, strict=True))
        return whole + inputs + self.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The steps of all stages in a topological order, valid for any durations.

    Attributes:
        steps: stage and step.
        moves: per step the stage, the index of its duration, the arrival it waits for, the arrival it produces, and
            whether its result stays on the stage (or there is none).
        arrivals: number of arrivals.
    """

    steps: tuple[tuple[int, Step], ...]
    moves: tuple[tuple[int, int, int, int, bool], ...]
    arrivals: int


def _program(schedule: Schedule) -> _Program:
    stages, count = schedule.stages, schedule.micro_batches
    numbers, route = stages * schedule.chunks, path(schedule)
    orders = [order(schedule, stage) for stage in range(stages)]
    # The place of a step on its micro-batch's way is also the number of the arrival that it waits for.
    last = len(route) - 1
    stays = [
        place == last or schedule.stage(route[place + 1][1]) == schedule.stage(route[place][1])
        for place in range(len(route))
    ]
    reached = [False] * ((last + 2) * count)
    reached[:count] = [True] * count
    # Gradients of weights wait for nothing but their stage, and nothing waits for them.
    unused = len(reached)
    next_of = [0] * stages
    steps: list[tuple[int, Step]] = []
    moves: list[tuple[int, int, int, int, bool]] = []
    moving = True
    while moving:
        moving = False
        for stage, own in enumerate(orders):
            at = first = next_of[stage]
            while at < len(own):
                part, micro_batch, chunk = own[at]
                number = schedule.number(stage, chunk)
                if part == Part.WEIGHTS:
                    steps.append((stage, own[at]))
                    moves.append((stage, part * numbers + number, micro_batch, unused, True))
                    at += 1
                    continue
                place = last - number if part else number
                needs = place * count + micro_batch
                if not reached[needs]:
                    break
                reached[needs + count] = True
                steps.append((stage, own[at]))
                moves.append((stage, part * numbers + number, needs, needs + count, stays[place]))
                at += 1
            moving = moving or at > first
            next_of[stage] = at
    assert all(at == len(own) for at, own in zip(next_of, orders, strict=True)), "the schedule is stuck"
    return _Program(steps=tuple(steps), moves=tuple(moves), arrivals=unused + 1)


# A search estimates layouts of the same schedule one after another: of long ones, the last two are enough.
_cached, _cached_long = lru_cache(maxsize=128)(_program), lru_cache(maxsize=2)(_program)
_LONG, _TOO_LONG = 10_000, 100_000  # steps; a step takes some 250 bytes


def _program_of(schedule: Schedule) -> _Program:
    count = 2 * schedule.stages * schedule.chunks * schedule.micro_batches
    if count > _TOO_LONG:
        return _program(schedule)
    return (_cached_long if count > _LONG else _cached)(schedule)


def simulate(pipeline: Pipeline, starts: list[float] | None = None) -> list[float]:
    """Return when each stage has finished its last step.

    Args:
        starts: takes the start of every step, in the order of `_program`.
    """
    program = _program_of(pipeline.schedule)
    durations = pipeline.durations
    transfer = pipeline.transfer
    waiting = transfer if pipeline.blocking else 0.0
    free, arrived = [0.0] * pipeline.schedule.stages, [0.0] * program.arrivals
    for stage, duration, needs, gives, stays in program.moves:
        now, ready = free[stage], arrived[needs]
        if ready > now:
            now = ready
        if starts is not None:
            starts.append(now)
        now += durations[duration]
        if stays:
            arrived[gives] = free[stage] = now
        else:
            arrived[gives] = now + transfer
            free[stage] = now + waiting
    return free


def timeline(pipeline: Pipeline) -> list[Event]:
    """Return every step of every stage on the time axis."""
    starts: list[float] = []
    simulate(pipeline, starts)
    program, durations = _program_of(pipeline.schedule), pipeline.durations
    return [
        Event(
            stage=stage,
            chunk=chunk,
            micro_batch=micro_batch,
            part=Part(part),
            start=start,
            end=start + durations[move[1]],
        )
        for (stage, (part, micro_batch, chunk)), move, start in zip(program.steps, program.moves, starts, strict=True)
    ]
