"""Times of long steps, of which only the first micro-batches are simulated: the middle of a step is periodic."""

from dataclasses import replace

from launcher.pipeline_schedule.order import Schedule
from launcher.pipeline_schedule.simulation import Pipeline, simulate, timeline

_ROUNDS = 5


def shortened(schedule: Schedule) -> Schedule:
    """Return the schedule with so few micro-batches that every stage is just busy; what it holds peaks within them."""
    count, stages = schedule.micro_batches, schedule.stages
    if schedule.chunks == 1:
        enough = stages + 2
    else:
        enough = 3 * max(schedule.group, stages)
        # The first group takes the remainder: it must stay.
        enough += (count - enough) % schedule.group
    return replace(schedule, micro_batches=enough) if enough < count else schedule


def finish(pipeline: Pipeline, *, whole: bool = False) -> float:
    """Return the seconds until the last stage has finished.

    Unless `whole`, only the first micro-batches of a long step are simulated; each of the others adds the time of the
    busiest stage. With chunks of similar length that is within 5 %; it is too short where transfers beside other work
    or very uneven chunks of a stage let every stage wait.
    """
    schedule = pipeline.schedule
    if schedule.stages == 1:
        return schedule.micro_batches * (sum(pipeline.forward) + sum(pipeline.backward))
    head = schedule if whole else shortened(schedule)
    if head is schedule:
        return max(simulate(pipeline))
    rest = schedule.micro_batches - head.micro_batches
    return max(simulate(replace(pipeline, schedule=head))) + rest * _busiest(pipeline)


def _busiest(pipeline: Pipeline) -> float:
    """Return the seconds that the busiest stage works on a micro-batch, sends that block it included."""
    stages, chunks = pipeline.schedule.stages, pipeline.schedule.chunks
    slowest = 0.0
    for stage in range(stages):
        sends = 0.0
        if pipeline.blocking:
            edges = 2 * chunks - (stage == 0) - (stage == stages - 1)
            sends = edges * pipeline.transfer
        slowest = max(slowest, sum(pipeline.forward[stage::stages]) + sum(pipeline.backward[stage::stages]) + sends)
    return slowest


def rounds(schedule: Schedule) -> tuple[Schedule, int]:
    """Return the schedule with the rounds of `stages` micro-batches that are laid out, and how many are not.

    At most five are laid out; each other costs one period (Taylor, mindspore/toolkits e8d3573 math_model.py:51-57;
    measured there: at most 0.19 % off). The first round takes the remainder.
    """
    count, stages = schedule.micro_batches, schedule.stages
    repeated = max(0, count // stages - _ROUNDS)
    return replace(schedule, micro_batches=count - repeated * stages), repeated


def last_rounds(schedule: Schedule) -> tuple[int, ...]:
    """Return the first micro-batch of the last round and of the round before; none if there is only one round."""
    count, stages = schedule.micro_batches, schedule.stages
    if count < 2 * stages:
        return ()
    # The first round, with the remainder, begins with micro-batch 0.
    return count - stages, count - 2 * stages if count >= 3 * stages else 0


def finish_by_rounds(pipeline: Pipeline) -> float:
    """Return the seconds until the last stage has finished; a round that is not laid out costs the last round's period.

    The period is the longest time between the first forwards of the last two rounds, on any stage. Linear programs can
    state it, and with chunks of similar length it is within 1 % of the whole simulation.

    Args:
        pipeline: with groups of `stages` micro-batches, sends that do not block.
    """
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
