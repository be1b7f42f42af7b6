"""Local search: moves one layer at a time; recomputation follows from the layers per chunk and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from launcher.balance.problem import Kind, Problem, Split
from launcher.pipeline_schedule.precedence import Precedence


def kinds_in_order(problem: Problem, layers: Sequence[int]) -> list[list[int]]:
    """Return layers per kind and chunk when the model's layers are assigned in order."""
    left = [kind.count for kind in problem.kinds]
    dealt = [[0] * problem.parts for _ in problem.kinds]
    for chunk, count in enumerate(layers):
        for index in range(len(left)):
            taken = min(count, left[index])
            dealt[index][chunk] = taken
            left[index] -= taken
            count -= taken
    return dealt


def even(problem: Problem) -> list[int]:
    """Return layers per chunk, as even as possible, the longer ones in the middle."""
    share, rest = divmod(problem.layers, problem.parts)
    first = (problem.parts - rest) // 2
    return [share + (first <= chunk < first + rest) for chunk in range(problem.parts)]


def rounded(problem: Problem, fractions: Sequence[float]) -> list[int] | None:
    """Return integer layers per chunk with the rounded running sum of `fractions`; None: a chunk has too few."""
    layers, total, before = [], 0.0, 0
    for chunk in range(problem.parts):
        total += fractions[chunk]
        now = round(total)
        layers.append(now - before)
        before = now
    return layers if before == problem.layers and _enough(problem, layers) else None


def _enough(problem: Problem, layers: Sequence[int]) -> bool:
    return all(count >= (0 if chunk in problem.may_be_empty else problem.fewest) for chunk, count in enumerate(layers))


# Cache: a stage and its layers by kind and chunk, to its layers by kind, mode and chunk.
Known = dict[tuple[int, tuple[tuple[int, ...], ...]], tuple[tuple[tuple[int, ...], ...], ...] | None]


def treated(problem: Problem, steps: Precedence, layers: Sequence[int], known: Known | None = None) -> Split | None:
    """Return these layers with as little recomputation as each stage's memory allows; None: it does not fit.

    Args:
        known: cache of stages for calls with the same problem; updated in place.
    """
    dealt = kinds_in_order(problem, layers)
    if problem.covered is not None:
        counts = [[list(kind), *([0] * problem.parts for _ in each.modes[1:])] for kind, each in _with(problem, dealt)]
        _cover(problem, counts, problem.covered)
        split = Split(counts=tuple(tuple(tuple(mode) for mode in kind) for kind in counts))
        memory = split.memory(problem, steps.in_flight)
        return split if all(used <= limit for used, limit in zip(memory, problem.limits, strict=True)) else None
    known = {} if known is None else known
    stages = []
    for stage in range(problem.stages):
        own = tuple(tuple(kind[stage :: problem.stages]) for kind in dealt)
        if (stage, own) not in known:
            known[stage, own] = _stage(problem, steps.in_flight[stage], stage, own)
        found = known[stage, own]
        if found is None:
            return None
        stages.append(found)
    return Split(
        counts=tuple(
            tuple(
                tuple(
                    stages[chunk % problem.stages][index][mode][chunk // problem.stages]
                    for chunk in range(problem.parts)
                )
                for mode in range(len(kind.modes))
            )
            for index, kind in enumerate(problem.kinds)
        )
    )


def _with(problem: Problem, dealt: list[list[int]]) -> Iterator[tuple[list[int], Kind]]:
    return zip(dealt, problem.kinds, strict=True)


def _cover(problem: Problem, counts: list[list[list[int]]], covered: int) -> None:
    for chunk in range(problem.parts):
        left = covered
        for kind in counts:
            if len(kind) > 1:
                taken = min(left, kind[0][chunk])
                kind[0][chunk] -= taken
                kind[-1][chunk] += taken
                left -= taken


def _stage(
    problem: Problem, in_flight: Sequence[Sequence[int]], stage: int, own: tuple[tuple[int, ...], ...]
) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    """Return a stage's layers by kind, mode and chunk: those that free most memory per time are recomputed first.

    None: they do not fit.
    """
    virtuals = range(problem.chunks)
    counts = [
        [list(kind), *([0] * problem.chunks for _ in each.modes[1:])]
        for kind, each in zip(own, problem.kinds, strict=True)
    ]
    held = sum(kind.memory * sum(each) for kind, each in zip(problem.kinds, own, strict=True))
    keeps = [problem.fixed_of(virtual * problem.stages + stage).keeps for virtual in virtuals]
    for kind, each in zip(problem.kinds, own, strict=True):
        keeps = [kept + kind.modes[0].keeps * count for kept, count in zip(keeps, each, strict=True)]
    live = [held + sum(number * kept for number, kept in zip(numbers, keeps, strict=True)) for numbers in in_flight]
    while max(live) > problem.limits[stage]:
        worst = in_flight[max(range(len(live)), key=live.__getitem__)]
        best = max(_choices(problem, counts, worst), default=None)
        if best is None:
            return None
        _, index, before, after, virtual = best
        counts[index][before][virtual] -= 1
        counts[index][after][virtual] += 1
        modes = problem.kinds[index].modes
        freed = modes[before].keeps - modes[after].keeps
        live = [used - numbers[virtual] * freed for used, numbers in zip(live, in_flight, strict=True)]
    return tuple(tuple(tuple(mode) for mode in kind) for kind in counts)


def _choices(
    problem: Problem, counts: list[list[list[int]]], worst: Sequence[int]
) -> Iterator[tuple[float, int, int, int, int]]:
    """Yield the possible further recomputations at the stage's memory peak.

    Yields:
        Bytes freed per time, kind, mode before, mode after, virtual chunk.
    """
    for virtual in range(problem.chunks):
        used = {m for kind in counts for m in range(1, len(kind)) if kind[m][virtual]}
        for index, kind in enumerate(problem.kinds):
            for before, after in combinations(range(len(kind.modes)), 2):
                if not counts[index][before][virtual]:
                    continue
                if problem.one_mode_a_chunk and (before or not used <= {after}):
                    continue
                if problem.in_order and any(sum(n[virtual] for n in earlier[:after]) for earlier in counts[:index]):
                    continue
                freed = worst[virtual] * (kind.modes[before].keeps - kind.modes[after].keeps)
                if freed > 0:
                    yield freed / _cost(kind, before, after), index, before, after, virtual


def _cost(kind: Kind, before: int, after: int) -> float:
    return max(kind.modes[after].backward - kind.modes[before].backward, 1e-12)


def neighbours(
    problem: Problem, steps: Precedence, layers: Sequence[int], known: Known
) -> Iterator[tuple[list[int], Split]]:
    """Yield every split that fits with one layer moved from one chunk to another."""
    for source in range(problem.parts):
        for target in range(problem.parts):
            if source == target:
                continue
            moved = list(layers)
            moved[source] -= 1
            moved[target] += 1
            if _enough(problem, moved):
                split = treated(problem, steps, moved, known)
                if split is not None:
                    yield moved, split
