"""The order in which stages run micro-batches: 1F1B, Megatron-core's interleaved 1F1B, GPipe and DualPipeV.

Chunks are numbered in the model's order: chunk `c` of stage `s` is number `c * stages + s`. With DualPipeV the second
chunks run through the stages backwards, so that the first stage has both ends of the model.
"""

from enum import IntEnum
from functools import lru_cache

from launcher.pipeline_schedule import dualpipev
from launcher.records import record


class Part(IntEnum):
    """What a step computes: forward, backward, gradients of inputs alone, or gradients of weights alone."""

    FORWARD = 0
    BACKWARD = 1
    INPUTS = 2
    WEIGHTS = 3


# One step of a stage: part, micro-batch, chunk.
Step = tuple[int, int, int]
PLAIN, GPIPE, DUALPIPEV = "1f1b", "gpipe", "dualpipev"
SIMULATED = (PLAIN, GPIPE, DUALPIPEV)


@record()
class Schedule:
    """What the order of steps depends on.

    Attributes:
        chunks: model chunks of a stage.
        group: micro-batches that a chunk runs in a row, at least `stages`; no effect with one chunk a stage.
        few_in_flight: warm up with one step for each later stage instead of two (always with one chunk a stage).
        kind: 1f1b (interleaved with several chunks), gpipe, or dualpipev (two chunks a stage).
        late_weights: dualpipev's last micro-batches compute gradients of weights after those of all inputs.
    """

    stages: int
    chunks: int
    micro_batches: int
    group: int
    few_in_flight: bool = False
    kind: str = PLAIN
    late_weights: bool = False

    def number(self, stage: int, chunk: int) -> int:
        """Return a chunk's number in the model's order."""
        if chunk and self.kind == DUALPIPEV:
            return 2 * self.stages - 1 - stage
        return chunk * self.stages + stage

    def stage(self, number: int) -> int:
        """Return the stage that a chunk is on, by its number in the model's order."""
        chunk, stage = divmod(number, self.stages)
        return self.stages - 1 - stage if chunk and self.kind == DUALPIPEV else stage

    @property
    def splits_backward(self) -> bool:
        """Some gradients of weights are steps of their own."""
        return self.kind == DUALPIPEV and self.stages > 1


def groups(schedule: Schedule) -> list[range]:
    """Return the micro-batches that a chunk runs in a row.

    A remainder smaller than the number of stages would stall the pipeline: Megatron-core rejects it (schedules.py),
    MindSpore runs it with the first group (mindspore/toolkits e8d3573 pp_util.py:193).
    """
    count, group = schedule.micro_batches, schedule.group
    rest = count % group
    first = min(count, group + rest if rest < schedule.stages else group)
    starts = range(first, count, group)
    return [range(first), *(range(start, min(start + group, count)) for start in starts)]


def warm_up(schedule: Schedule, stage: int) -> int:
    """Return how many forward steps a stage runs before its first backward (megatron-core schedules.py)."""
    if schedule.kind == GPIPE:
        return schedule.micro_batches * schedule.chunks
    later, chunks = schedule.stages - stage - 1, schedule.chunks
    if chunks == 1:
        return min(later, schedule.micro_batches)
    ahead = later if schedule.few_in_flight else 2 * later
    return min(ahead + (chunks - 1) * len(groups(schedule)[0]), schedule.micro_batches * chunks)


@lru_cache(maxsize=512)
def order(schedule: Schedule, stage: int) -> tuple[Step, ...]:
    """Return the steps of a stage: warm-up, then forwards and backwards in turn, then the other backwards.

    Raises:
        ValueError: fewer micro-batches than a schedule with its own phases needs.
    """
    if schedule.splits_backward:
        return dualpipev.order(schedule.stages, schedule.micro_batches, stage, late_weights=schedule.late_weights)
    chunks = schedule.chunks
    table = [(micro_batch, chunk) for members in groups(schedule) for chunk in range(chunks) for micro_batch in members]
    forward: list[Step] = [(Part.FORWARD, micro_batch, chunk) for micro_batch, chunk in table]
    backward: list[Step] = [(Part.BACKWARD, micro_batch, chunks - 1 - chunk) for micro_batch, chunk in table]
    lead = warm_up(schedule, stage)
    steps = forward[:lead]
    for index in range(len(table) - lead):
        steps += (forward[lead + index], backward[index])
    return tuple(steps + backward[len(table) - lead :])


def path(schedule: Schedule) -> list[tuple[bool, int]]:
    """Return the path of a micro-batch through the pipeline: backward?, number of the chunk.

    Each needs the one before it; between chunks of two stages an activation or gradient is sent.
    """
    numbers = range(schedule.stages * schedule.chunks)
    return [*((False, number) for number in numbers), *((True, number) for number in reversed(numbers))]
