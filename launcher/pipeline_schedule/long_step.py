"""Times of long steps, whose middle need not be simulated.

After the warm-up, every round of `group` micro-batches repeats the order of the round before. A start time is a maximum
of sums of earlier start times and durations: where all of them shift by the same time, it shifts by that time, and else
by no less than the least and no more than the largest of their shifts. Therefore k more rounds make a step longer by at
least k times the least and at most k times the largest shift that one more round causes. `Middle` names the two figures
that stand for this shift.
"""

from dataclasses import replace
from enum import Enum, auto

from launcher.pipeline_schedule.order import GPIPE, Schedule
from launcher.pipeline_schedule.simulation import Pipeline, simulate, timeline

_ROUNDS = 5


class Middle(Enum):
    """How the time of the middle of a long step is found. Without such a middle all three give the same time.

    None is below the time that the busiest stage works. What else is said here holds for all pipelines that were drawn
    (tests/pipeline_schedule), without a proof.

    Attributes:
        SIMULATED: exact.
        BUSIEST: the time that the busiest stage works, sends that block it included, for each micro-batch beyond the
            first few: the fastest. With one chunk a stage it is never too short, transfers beside other work excepted.
            With chunks of similar length it is within 5 %; it is too short where transfers beside other work or very
            uneven chunks of a stage let every stage wait.
        PERIOD: the longest time between the first forwards of the last two rounds that are laid out, on any stage, for
            each other round. Linear programs can state it (`precedence`). With one chunk a stage it is exact, transfers
            beside other work excepted; with chunks of similar length and sends that do not block it is within 1 %.
    """

    SIMULATED = auto()
    BUSIEST = auto()
    PERIOD = auto()


def shortened(schedule: Schedule) -> Schedule:
    """Return the schedule with so few micro-batches that every stage is just busy; what it holds peaks within them."""
    count, stages = schedule.micro_batches, schedule.stages
    if schedule.kind == GPIPE:
        return schedule  # all forwards, then all backwards: there is no repeated middle
    if schedule.chunks == 1:
        enough = stages + 2
    else:
        enough = 3 * max(schedule.group, stages)
        # The first group takes the remainder: it must stay.
        enough += (count - enough) % schedule.group
    return replace(schedule, micro_batches=enough) if enough < count else schedule


def finish(pipeline: Pipeline, middle: Middle) -> float:
    """Return the seconds until the last stage has finished."""
    schedule = pipeline.schedule
    if schedule.stages == 1:
        return schedule.micro_batches * (sum(pipeline.forward) + sum(pipeline.backward))
    if middle is Middle.PERIOD:
        return _with_periods(pipeline)
    head = schedule if middle is Middle.SIMULATED else shortened(schedule)
    time = max(simulate(replace(pipeline, schedule=head)))
    rest = schedule.micro_batches - head.micro_batches
    return time + rest * _busiest(pipeline) if rest else time


def _busiest(pipeline: Pipeline) -> float:
    """Return the seconds that the busiest stage works on a micro-batch, sends that block it included."""
    stages, chunks = pipeline.schedule.stages, pipeline.schedule.chunks
    slowest = 0.0
    for stage in range(stages):
        sends = 0.0
        if pipeline.blocking:
            ends = (stage == 0) + (stage == stages - 1)
            edges = 2 * chunks - ends * (2 if pipeline.schedule.splits_backward else 1)
            sends = edges * pipeline.transfer
        numbers = [pipeline.schedule.number(stage, chunk) for chunk in range(chunks)]
        slowest = max(slowest, sum(pipeline.forward[n] + pipeline.backward[n] for n in numbers) + sends)
    return slowest


def rounds(schedule: Schedule) -> tuple[Schedule, int]:
    """Return the schedule with the rounds of `group` micro-batches that are laid out, and how many are not.

    At most five are laid out; each other costs one period (Taylor, mindspore/toolkits e8d3573 math_model.py:51-57;
    measured there: at most 0.19 % off). The first round takes the remainder.
    """
    count, group = schedule.micro_batches, schedule.group
    repeated = max(0, count // group - _ROUNDS)
    return replace(schedule, micro_batches=count - repeated * group), repeated


def last_rounds(schedule: Schedule) -> tuple[int, ...]:
    """Return the first micro-batch of the last round and of the round before; none if there is only one round."""
    count, group = schedule.micro_batches, schedule.group
    if count < 2 * group:
        return ()
    # The first round, with the remainder, begins with micro-batch 0.
    return count - group, count - 2 * group if count >= 3 * group else 0


def _with_periods(pipeline: Pipeline) -> float:
    laid_out, repeated = rounds(pipeline.schedule)
    head = replace(pipeline, schedule=laid_out)
    if not repeated:
        return max(simulate(head))
    borders = last_rounds(laid_out)
    events = timeline(head)
    begun = {
        (event.stage, event.micro_batch): event.start
        for event in events
        if not event.backward and event.chunk == 0 and event.micro_batch in borders
    }
    last, before = borders
    period = max(begun[stage, last] - begun[stage, before] for stage in range(laid_out.stages))
    return max(event.end for event in events) + repeated * period
