"""Good splits quickly: layers per chunk are given, recomputation follows from memory; one layer at a time is moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.balance.problem import Kind, Problem, Split
from launcher.balance.schedule import Schedule


def kinds_in_order(problem: Problem, layers: Sequence[int]) -> list[list[int]]:
    """Return layers per kind and chunk when the model's layers are dealt out in order."""
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
    """Return layers per chunk as even as they come, the longer ones in the middle."""
    share, rest = divmod(problem.layers, problem.parts)
    first = (problem.parts - rest) // 2
    return [share + (first <= chunk < first + rest) for chunk in range(problem.parts)]


def rounded(problem: Problem, fractions: Sequence[float]) -> list[int] | None:
    """Return whole layers per chunk whose running sum stays next to that of fractions; None: a chunk has too few."""
    layers, total, before = [], 0.0, 0
    for chunk in range(problem.parts):
        total += fractions[chunk]
        now = round(total)
        layers.append(now - before)
        before = now
    return layers if before == problem.layers and _enough(problem, layers) else None


def _enough(problem: Problem, layers: Sequence[int]) -> bool:
    return all(count >= (0 if chunk in problem.may_be_empty else problem.fewest) for chunk, count in enumerate(layers))


def treated(problem: Problem, steps: Schedule, layers: Sequence[int]) -> Split | None:
    """Return these layers with as little recomputation as each stage's memory allows; None: it does not fit."""
    dealt = kinds_in_order(problem, layers)
    counts = [[[0] * problem.parts for _ in kind.modes] for kind in problem.kinds]
    for index, kind in enumerate(dealt):
        counts[index][0] = list(kind)
    if problem.covered is not None:
        _cover(problem, counts, problem.covered)
        split = Split(counts=tuple(tuple(tuple(mode) for mode in kind) for kind in counts))
        memory = split.memory(problem, steps.in_flight)
        return split if all(used <= limit for used, limit in zip(memory, problem.limits, strict=True)) else None
    for stage in range(problem.stages):
        if not _recompute(problem, steps.in_flight[stage], stage, counts):
            return None
    return Split(counts=tuple(tuple(tuple(mode) for mode in kind) for kind in counts))


def _cover(problem: Problem, counts: list[list[list[int]]], covered: int) -> None:
    for chunk in range(problem.parts):
        left = covered
        for kind in counts:
            if len(kind) > 1:
                taken = min(left, kind[0][chunk])
                kind[0][chunk] -= taken
                kind[1][chunk] += taken
                left -= taken


def _recompute(problem: Problem, in_flight: Sequence[Sequence[int]], stage: int, counts: list[list[list[int]]]) -> bool:
    """Recompute layers of one stage, those that free most for their time first, until it fits; tell whether it does."""
    chunks = [virtual * problem.stages + stage for virtual in range(problem.chunks)]
    held = sum(kind.memory * counts[index][0][chunk] for index, kind in enumerate(problem.kinds) for chunk in chunks)
    live = []
    for numbers in in_flight:
        used = held
        for virtual, chunk in enumerate(chunks):
            keeps = problem.fixed_of(chunk).keeps
            keeps += sum(kind.modes[0].keeps * counts[index][0][chunk] for index, kind in enumerate(problem.kinds))
            used += numbers[virtual] * keeps
        live.append(used)
    while max(live) > problem.limits[stage]:
        worst = in_flight[max(range(len(live)), key=live.__getitem__)]
        best = max(_choices(problem, counts, chunks, worst), default=None)
        if best is None:
            return False
        _, index, mode, virtual = best
        counts[index][0][chunks[virtual]] -= 1
        counts[index][mode][chunks[virtual]] += 1
        modes = problem.kinds[index].modes
        freed = modes[0].keeps - modes[mode].keeps
        live = [used - numbers[virtual] * freed for used, numbers in zip(live, in_flight, strict=True)]
    return True


def _choices(
    problem: Problem, counts: list[list[list[int]]], chunks: Sequence[int], worst: Sequence[int]
) -> Iterator[tuple[float, int, int, int]]:
    """Yield what can be recomputed at the stage's fullest moment: bytes freed per time, kind, mode, virtual chunk."""
    for virtual, chunk in enumerate(chunks):
        used = (
            {m for kind in counts for m in range(1, len(kind)) if kind[m][chunk]} if problem.one_mode_a_chunk else set()
        )
        for index, kind in enumerate(problem.kinds):
            if not counts[index][0][chunk]:
                continue
            if problem.in_order and any(counts[earlier][0][chunk] for earlier in range(index)):
                break
            for mode in range(1, len(kind.modes)):
                freed = worst[virtual] * (kind.modes[0].keeps - kind.modes[mode].keeps)
                if freed > 0 and used <= {mode}:
                    yield freed / _cost(kind, mode), index, mode, virtual


def _cost(kind: Kind, mode: int) -> float:
    return max(kind.modes[mode].backward - kind.modes[0].backward, 1e-12)


def neighbours(problem: Problem, steps: Schedule, layers: Sequence[int]) -> Iterator[tuple[list[int], Split]]:
    """Yield every split that differs by one layer moved from one chunk to another and fits."""
    for source in range(problem.parts):
        for target in range(problem.parts):
            if source == target:
                continue
            moved = list(layers)
            moved[source] -= 1
            moved[target] += 1
            if _enough(problem, moved):
                split = treated(problem, steps, moved)
                if split is not None:
                    yield moved, split
