"""Uneven stages with more even work than equal layer counts, by the estimated times of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Forward and backward seconds of a micro-batch, without recomputation.

    Attributes:
        layers: of each layer, in the model's order.
        first: of the embedding.
        last: of the modules after the layers: MTP layers, output layer and loss.
    """

    layers: tuple[float, ...]
    first: float
    last: float

    @property
    def whole(self) -> float:
        """Seconds of the whole model."""
        return self.first + sum(self.layers) + self.last

    def of_stages(self, counts: Sequence[int], stages: int) -> list[float]:
        """Return the seconds of each stage for layers per chunk, in the model's order."""
        until = [0, *accumulate(counts)]
        sums = [0.0, *accumulate(self.layers)]
        loads = [0.0] * stages
        for chunk in range(len(counts)):
            loads[chunk % stages] += sums[until[chunk + 1]] - sums[until[chunk]]
        loads[0] += self.first
        loads[-1] += self.last
        return loads


def shared(work: Work, stages: int, chunks: int) -> tuple[int, ...] | None:
    """Return layers per chunk that minimise the longest stage; None: there are too few layers.

    With one chunk per stage this is optimal; among equal splits, early stages get fewer layers because they hold most
    micro-batches. With more chunks it is a heuristic.
    """
    if len(work.layers) < stages * chunks:
        return None
    counts = _contiguous(work, stages)
    if chunks == 1:
        return counts
    counts = tuple(max(count, chunks) for count in counts)
    surplus = sum(counts) - len(work.layers)
    own = list(counts)
    while surplus:
        own[max(range(stages), key=own.__getitem__)] -= 1
        surplus -= 1
    # The longer chunks of a stage come last: dense layers and the embedding are in the first chunk.
    return tuple((own[stage] + virtual) // chunks for virtual in range(chunks) for stage in range(stages))


def _contiguous(work: Work, stages: int) -> tuple[int, ...]:
    """Return contiguous layers per stage that minimise the longest stage, by bisection over stage times."""
    low = work.whole / stages
    best, high, _ = _within(work, stages, float("inf"))
    while low < high:
        found, longest, more = _within(work, stages, max(low, (low + high) / 2))
        if found:
            best, high = found, min(longest, high)
            if (low + high) / 2 >= high:
                break
        else:
            low = more
    return best


def _within(work: Work, stages: int, longest: float) -> tuple[tuple[int, ...], float, float]:
    """Fill stages from the last to the first, none longer than `longest` and none empty.

    Returns:
        layers per stage, empty if layers are left; the longest stage; the smallest limit with which more would fit.
    """
    counts, left, reached, more = [], len(work.layers), 0.0, float("inf")
    for stage in range(stages - 1, -1, -1):
        load = (work.last if stage == stages - 1 else 0.0) + (work.first if stage == 0 else 0.0)
        count = 0
        while left > stage:
            next_load = load + work.layers[left - 1]
            if count and next_load > longest:
                more = min(more, next_load)
                break
            load = next_load
            left -= 1
            count += 1
        if load > longest:
            return (), load, min(more, load)
        reached = max(reached, load)
        counts.append(count)
    return (() if left else tuple(reversed(counts))), reached, more


def moves(work: Work, counts: Sequence[int], stages: int, fullest: int) -> Iterator[tuple[int, ...]]:
    """Yield splits with one layer moved and no longer longest stage, first those that relieve the critical stages.

    Args:
        fullest: the stage that needs most memory.
    """
    loads = work.of_stages(counts, stages)
    longest = max(range(stages), key=loads.__getitem__)
    layer, room = max(work.layers), (1 + 1e-3) * max(loads)
    for source in sorted(range(stages), key=lambda stage: (stage not in (longest, fullest), -loads[stage])):
        for target in sorted(range(stages), key=loads.__getitem__):
            if source == target or loads[target] + layer > room:
                continue
            for giving in range(source, len(counts), stages):
                for taking in range(target, len(counts), stages):
                    if counts[giving] > 1:
                        moved = list(counts)
                        moved[giving] -= 1
                        moved[taking] += 1
                        yield tuple(moved)
