"""Reads and writes MindSpore's strategy files: how parameters are split over the ranks of a pipeline stage.

Source: mindspore/train/node_strategy_pb2.py (the protobuf), parallel/_tensor.py (semantics) @2.7.0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers.errors import Damaged
from launcher.records import dataclass
from launcher.syntax import is_count

_STAGE, _NODES, _LAYOUTS = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ALL: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a parameter is split.

    Attributes:
        devices: shape of the device matrix of the stage.
        axes: for each dimension of a parameter the axes of `devices` that split it, from the right; outer first.
        step, optimizer: replicas further split the first dimension into `optimizer` parts, at a distance of `step`
            ranks (parallel optimizer); 0: not split.
    """

    devices: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    step: int = 0
    optimizer: int = 0

    @property
    def ranks(self) -> int:
        """Number of ranks of the stage."""
        return math.prod(self.devices)

    @property
    def pieces(self) -> tuple[int, ...]:
        """Number of parts along each dimension."""
        counts = self._counts
        return (counts[0] * self._further, *counts[1:]) if counts else ()

    @property
    def _further(self) -> int:
        if not self.step or not self.optimizer:
            return 1
        return self.ranks // math.prod(self._counts) if self.optimizer == _ALL else self.optimizer

    @property
    def _counts(self) -> list[int]:
        return [math.prod(self.devices[-1 - axis] for axis in axes) for axes in self.axes]

    def place(self, rank: int) -> tuple[int, ...]:
        """Return the index of a rank's part along each dimension; `rank` is relative to the stage."""
        where, rest = [], rank
        for size in reversed(self.devices):
            where.append(rest % size)
            rest //= size
        found = []
        for axes in self.axes:
            number = 0
            for axis in axes:
                number = number * self.devices[-1 - axis] + where[axis]
            found.append(number)
        if self._further > 1:
            found[0] = found[0] * self._further + self._repeat(where, rank)
        return tuple(found)

    def _repeat(self, where: list[int], rank: int) -> int:
        """Return the index of this rank among its replicas (_construct_tensor_layout_for_opt_shard)."""
        cutting = {axis for axes in self.axes for axis in axes}
        free = [axis for axis in range(len(self.devices)) if axis not in cutting and self.devices[-1 - axis] > 1]
        if len(free) <= 1:
            return rank // self.step % self._further
        number, weight = 0, 1
        for axis in free:
            size = min(self.devices[-1 - axis], self._further // weight)
            number += where[axis] % size * weight
            weight *= size
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Strategies of a checkpoint: (stage, parameter) to its split."""

    cuts: Mapping[tuple[int, str], Cut]

    @property
    def stage_ranks(self) -> int:
        """Number of ranks of each stage."""
        return max((cut.ranks for cut in self.cuts.values()), default=1)

    def of(self, rank: int, parameter: str) -> Cut | None:
        """Return the split of a parameter in a rank's stage; None if the strategy does not contain it."""
        return self.cuts.get((rank // self.stage_ranks, parameter))


def read_strategy(files: list[Path]) -> Strategy:
    """Read strategy files: one per rank or stage, or a merged one; protobuf, or JSON by file suffix.

    Raises:
        Damaged: a file has neither format.
    """
    found: dict[tuple[int, str], Cut] = {}
    seen: set[bytes] = set()
    for file in files:
        data = file.read_bytes()
        if data in seen:
            continue
        seen.add(data)
        try:
            entries = list(_json(json.loads(data)) if file.suffix == ".json" else _protobuf(data))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise Damaged(file, f"not a strategy file of MindSpore: {error}") from None
        for stage, name, cut in entries:
            found.setdefault((stage, name), cut)
    return Strategy(cuts=found)


def _named(stage: int, name: str, cut: Cut) -> tuple[int, str, Cut]:
    """Take the stage from the name, where merged files have it (merge_pipeline_strategys)."""
    number, dash, rest = name.partition("-")
    return (int(number), rest, cut) if dash and is_count(number) else (stage, name, cut)


def _json(tree: Mapping[str, Any]) -> Iterator[tuple[int, str, Cut]]:
    stage = next((int(item["stage"]) for item in tree.get("parallel_strategy_item", {}).values()), 0)
    for name, item in tree["parallel_layout_item"].items():
        axes = item["tensor_map"]
        yield _named(
            stage,
            name,
            Cut(
                devices=tuple(item["dev_matrix"]),
                axes=tuple(tuple(one for one in _listed(axis) if one >= 0) for axis in axes),
                step=item.get("opt_weight_shard_step") or 0,
                optimizer=item.get("opt_weight_shard_size") or 0,
            ),
        )


def _listed(axis: Any) -> list[int]:
    return list(axis) if isinstance(axis, list) else [axis]


def _protobuf(data: bytes) -> Iterator[tuple[int, str, Cut]]:
    fields = list(_fields(data))
    if not fields or any(number not in (_STAGE, _NODES, _LAYOUTS) for number, _ in fields):
        raise ValueError("other fields than ParallelStrategyMap's")
    stage = 0
    for number, value in fields:
        if number == _NODES:
            stage = _one(_message(_message(value), 2), 1)
            break
    for number, value in fields:
        if number == _LAYOUTS:
            item = _message(value)
            yield _named(stage, bytes(item[1][0]).decode(), _cut(_message(item, 2)))


def _cut(layout: Mapping[int, list[Any]]) -> Cut:
    maps = [_numbers(one) for one in layout.get(2, [])]
    several = len(maps) > 1
    # With a dimension split by several axes, each dimension has a separate map; otherwise one map covers all.
    axes = [one for one in maps if one] if several else [[axis] for axis in (maps[0] if maps else [])]
    return Cut(
        devices=tuple(_numbers(layout[1][0])) if 1 in layout else (1,),
        axes=tuple(tuple(axis for axis in one if axis >= 0) for one in axes),
        step=_one(layout, 6),
        optimizer=_one(layout, 7),
    )


def _one(message: Mapping[int, list[Any]], number: int) -> int:
    return int(message[number][0]) if number in message else 0


def _message(value: Any, number: int | None = None) -> dict[int, list[Any]]:
    data = value if number is None else value[number][0]
    found: dict[int, list[Any]] = {}
    for field, content in _fields(data):
        found.setdefault(field, []).append(content)
    return found


def _numbers(data: Any) -> list[int]:
    """Return the repeated integers (field 1) of a message, packed or not."""
    found: list[int] = []
    for _, content in _fields(data):
        if isinstance(content, int):
            found.append(content)
            continue
        at = 0
        while at < len(content):
            number, at = _varint(content, at)
            found.append(number)
    return found


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: an int, or the bytes of a string or a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size, at = _varint(data, at) if kind == _BYTES else ({_FIXED64: 8, _FIXED32: 4}[kind], at)
        if at + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (value - (1 << 64) if value >> 63 else value), at


def strategy_bytes(stage: int, cuts: Mapping[str, tuple[Cut, tuple[int, ...]]]) -> bytes:
    """Return the strategy file of one stage; `cuts`: parameter to its split and the shape of a part."""
    # Readers take the stage from the entry of one operator.
    found = _field(_STAGE, 1)
    found += _field(_NODES, _field(1, b"launch") + _field(2, _field(1, stage)))
    for name, (cut, shape) in cuts.items():
        axes = [axis[0] if axis else -1 for axis in cut.axes]
        layout = _field(1, _repeated(cut.devices)) + _field(2, _repeated(axes)) + _field(3, _repeated(shape))
        layout += _field(4, b"") + _field(5, 0) + _field(6, cut.step) + _field(7, cut.optimizer)
        found += _field(_LAYOUTS, _field(1, name.encode()) + _field(2, layout))
    return found


def _repeated(numbers: tuple[int, ...] | list[int]) -> bytes:
    return b"".join(_field(1, number) for number in numbers)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _encoded(number << 3 | _VARINT) + _encoded(value)
    return _encoded(number << 3 | _BYTES) + _encoded(len(value)) + value


def _encoded(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
