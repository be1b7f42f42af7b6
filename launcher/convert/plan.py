"""Plans a conversion from names and shapes alone: the source block of every block of every target tensor."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from launcher.convert.containers.errors import ConvertError
from launcher.convert.layouts.content import Content
from launcher.convert.records import TensorSlice
from launcher.convert.slices import Region, common, volume
from launcher.records import dataclass

# Below this, testing all slices of a tensor is faster than an index lookup.
_FEW = 8


@dataclass(slots=True, eq=False, repr=False)
class Move:
    """A block that two stored tensors share: `region` of a logical tensor, inside a slice of each of them.

    `source` and `target` are indices into the planned contents. Not frozen, for speed: there are millions of them.
    """

    source: int
    source_box: TensorSlice
    target: int
    target_box: TensorSlice
    region: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A conversion.

    Attributes:
        moves: for each target content the moves that fill it.
        repeats: source contents that are not copied, since an identical one is.
    """

    moves: tuple[tuple[Move, ...], ...]
    repeats: tuple[int, ...]


class _Index:
    """Slices of one logical tensor, sorted by their first logical dimension."""

    def __init__(self, entries: list[tuple[int, TensorSlice]]) -> None:
        self.entries = sorted(entries, key=lambda entry: entry[1].logical_at[:1])
        self.starts = [box.logical_at[0][0] if box.logical_at else 0 for _, box in self.entries]
        self.longest = max((box.logical_at[0][1] if box.logical_at else 1 for _, box in self.entries), default=0)

    def near(self, box: TensorSlice) -> Sequence[tuple[int, TensorSlice]]:
        """Return the slices that may overlap `box`."""
        if len(self.entries) <= _FEW or not box.logical_at:
            return self.entries
        start, count = box.logical_at[0]
        low = bisect_left(self.starts, start - self.longest + 1)
        return self.entries[low : bisect_left(self.starts, start + count)]


def by_logical(contents: Sequence[Content]) -> dict[str, list[tuple[int, TensorSlice]]]:
    """Return, for each logical tensor, its slices and the contents that they belong to."""
    found: dict[str, list[tuple[int, TensorSlice]]] = {}
    for index, content in enumerate(contents):
        for box in content.boxes:
            found.setdefault(box.logical, []).append((index, box))
    return found


def make_plan(
    source: Sequence[Content],
    target: Sequence[Content],
    tensors: Mapping[str, tuple[int, ...]],
) -> Plan:
    """Return the plan that fills every target tensor from the source.

    Args:
        source: stored tensors with their content.
        target: tensors to fill; every element belongs to a slice or is fill.
        tensors: the model's logical tensors; source and target must both have all of them.

    Raises:
        ConvertError: a part of the source is missing in the target, or a part of the target has no source.
    """
    problems = [*_unfilled(target)]
    held, wanted = by_logical(source), by_logical(target)
    moves: list[list[Move]] = [[] for _ in target]
    used: set[int] = set()
    for name, shape in tensors.items():
        unique = _distinct(held.get(name, []))
        problems.extend(_not_whole(name, shape, unique, "the source has"))
        problems.extend(_not_whole(name, shape, _distinct(wanted.get(name, [])), "the target takes"))
        index = _Index(unique)
        for number, box in wanted.get(name, []):
            produced = 0
            for holder, source_box in index.near(box):
                region = common(source_box.logical_at, box.logical_at)
                if region is not None:
                    moves[number].append(Move(holder, source_box, number, box, region))
                    used.add(holder)
                    produced += volume(region)
            if produced != volume(box.logical_at):
                problems.append(f"{target[number].slot.name}: {name} {_shown(box.logical_at)} has no source")
    problems.extend(f"{name}: not a tensor of the model" for name in (held.keys() | wanted.keys()) - tensors.keys())
    if problems:
        raise ConvertError(problems)
    repeats = tuple(index for index in range(len(source)) if index not in used)
    return Plan(moves=tuple(tuple(found) for found in moves), repeats=repeats)


def all_shared(left: Sequence[Content], right: Sequence[Content]) -> list[list[Move]]:
    """Return, for each content of `left`, every block that a content of `right` also holds (including repeats).

    Used for verification: compares each byte on the left with each position on the right that should equal it.
    """
    held = {name: _Index(entries) for name, entries in by_logical(right).items()}
    nothing = _Index([])
    moves: list[list[Move]] = []
    for number, content in enumerate(left):
        found = []
        for box in content.boxes:
            for other, other_box in held.get(box.logical, nothing).near(box):
                region = common(other_box.logical_at, box.logical_at)
                if region is not None:
                    found.append(Move(number, box, other, other_box, region))
        moves.append(found)
    return moves


def _unfilled(target: Sequence[Content]) -> list[str]:
    problems = []
    for content in target:
        filled = sum(volume(box.logical_at) for box in content.boxes) + content.fill
        if filled != content.elements:
            problems.append(
                f"{content.slot.name} {list(content.slot.shape)}: {filled} of {content.elements} elements"
                " have a meaning"
            )
    return problems


def _distinct(entries: Sequence[tuple[int, TensorSlice]]) -> list[tuple[int, TensorSlice]]:
    """Return the first slice of each region: replicas on other ranks are repeats."""
    if len(entries) < 2:
        return list(entries)
    first: dict[Region, tuple[int, TensorSlice]] = {}
    for entry in entries:
        first.setdefault(entry[1].logical_at, entry)
    return list(first.values())


def _not_whole(name: str, shape: Sequence[int], entries: Sequence[tuple[int, TensorSlice]], who: str) -> list[str]:
    count, total = sum(volume(box.logical_at) for _, box in entries), math.prod(shape)
    if count == total:
        return []
    return [f"{name} {list(shape)}: {who} {count} of {total} elements"]


def _shown(region: Region) -> str:
    return "[" + ", ".join(f"{start}:{start + count}" for start, count in region) + "]"
