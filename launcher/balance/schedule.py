"""The order in which stages run micro-batches, interleaved or not, and the precedence of steps.

A long step is periodic in its middle. Beyond six rounds of `stages` micro-batches only five are laid out; the others
cost one period each (Taylor, mindspore/toolkits e8d3573 math_model.py:51-57; measured there: at most 0.19 % off).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_ROUNDS = 5


class Step(NamedTuple):
    """One forward or backward of one micro-batch through one chunk."""

    backward: bool
    virtual: int
    round: int
    micro_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All steps of a pipeline and their precedence.

    Steps are numbered; `chunk_of[n]` is the chunk of step n, plus the number of chunks where it is a backward.

    Attributes:
        arcs: pairs of steps of which the second starts after the end of the first.
        sends: of the arcs, whether an activation or gradient is sent to another stage in between.
        end: the step that ends last.
        period: per stage, the first forward of the last round and of the round before.
        repeated: rounds that are not laid out; each costs one period.
        in_flight: per stage, numbers of micro-batches in flight per virtual chunk, one of which is the memory peak.
    """

    chunk_of: tuple[int, ...]
    arcs: tuple[tuple[int, int], ...]
    sends: tuple[bool, ...]
    end: int
    period: tuple[tuple[int, int], ...]
    repeated: int
    in_flight: tuple[tuple[tuple[int, ...], ...], ...]


def rounds_of(stages: int, micro_batches: int, *, whole: bool = False) -> tuple[list[int], int]:
    """Return micro-batches per round that are laid out, and how many rounds are not.

    The first round takes the remainder; it is the only one where there are fewer micro-batches than stages. With
    `whole`, all rounds are laid out.
    """
    rounds, rest = divmod(micro_batches, stages)
    if rounds == 0:
        return [rest], 0
    repeated = 0 if whole or rounds <= _ROUNDS else rounds - _ROUNDS
    laid_out = [stages] * (rounds - repeated)
    laid_out[0] += rest
    return laid_out, repeated


def steps_of(stage: int, stages: int, chunks: int, rounds: list[int], few_in_flight: bool) -> list[Step]:
    """Return the steps of one stage in order: warm-up, then alternating forwards and backwards, then cool-down."""
    forward, backward = [], []
    for number, size in enumerate(rounds):
        for virtual in range(chunks):
            forward += [Step(False, virtual, number, micro_batch) for micro_batch in range(size)]
            backward += [Step(True, chunks - 1 - virtual, number, micro_batch) for micro_batch in range(size)]
    ahead = (stages - stage - 1) * (1 if few_in_flight or chunks == 1 else 2)
    warm_up = min((chunks - 1) * rounds[0] + ahead, len(forward))
    steps = forward[:warm_up]
    for late, early in zip(forward[warm_up:], backward, strict=False):
        steps += [late, early]
    return steps + backward[len(forward) - warm_up :]


@lru_cache(maxsize=16)
def schedule(
    stages: int, chunks: int, micro_batches: int, few_in_flight: bool = False, *, whole: bool = False
) -> Schedule:
    """Return the schedule of a pipeline.

    Args:
        whole: lay out every micro-batch, also those in the periodic middle.
    """
    rounds, repeated = rounds_of(stages, micro_batches, whole=whole)
    orders = [steps_of(stage, stages, chunks, rounds, few_in_flight) for stage in range(stages)]
    number: dict[tuple[int, Step], int] = {}
    chunk_of: list[int] = []
    for stage, steps in enumerate(orders):
        for step in steps:
            number[stage, step] = len(chunk_of)
            chunk_of.append(step.virtual * stages + stage + (stages * chunks if step.backward else 0))
    arcs: list[tuple[int, int]] = []
    for stage, steps in enumerate(orders):
        arcs += [(number[stage, a], number[stage, b]) for a, b in pairwise(steps)]
    sends = [False] * len(arcs)
    for index, size in enumerate(rounds):
        for micro_batch in range(size):
            way = [(s, Step(False, v, index, micro_batch)) for v in range(chunks) for s in range(stages)]
            way += [(s, Step(True, v, index, micro_batch)) for v in reversed(range(chunks)) for s in _back(stages)]
            arcs += [(number[a], number[b]) for a, b in pairwise(way)]
            sends += [a[0] != b[0] for a, b in pairwise(way)]
    last = len(rounds) - 1
    starts = [tuple(number[s, Step(False, 0, index, 0)] for index in (last, last - 1)) for s in range(stages) if last]
    return Schedule(
        chunk_of=tuple(chunk_of),
        arcs=tuple(arcs),
        sends=tuple(sends),
        end=number[0, Step(True, 0, last, rounds[-1] - 1)],
        period=tuple((a, b) for a, b in starts),
        repeated=repeated,
        in_flight=tuple(_peaks(steps, chunks) for steps in orders),
    )


def _back(stages: int) -> range:
    return range(stages - 1, -1, -1)


def _peaks(steps: list[Step], chunks: int) -> tuple[tuple[int, ...], ...]:
    """Return the Pareto-maximal numbers of micro-batches in flight per chunk."""
    live, seen = [0] * chunks, set()
    for step in steps:
        live[step.virtual] += -1 if step.backward else 1
        if not step.backward:
            seen.add(tuple(live))
    return tuple(
        sorted(a for a in seen if not any(b != a and all(x <= y for x, y in zip(a, b, strict=True)) for b in seen))
    )
