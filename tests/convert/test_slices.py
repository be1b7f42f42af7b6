"""Boxes and plans hold for any cut: whatever is split, stacked, transposed or interleaved comes together again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import Copy
from launcher.convert.layouts.content import Content
from launcher.convert.move import plain_copies
from launcher.convert.plan import Move, Plan, all_shared, make_plan
from launcher.convert.records import TensorSlice
from launcher.convert.slices import Split, cut, moved, rows, shard, stacked, whole
from launcher.convert.spans import alternating, block, chunks, parts, runs, span, within


def _content(name: str, shape: tuple[int, ...], *boxes: TensorSlice, fill: int = 0) -> Content:
    slot = Slot(name=name, shape=shape, dtype="F32", path=Path(name), offset=0)
    return Content(slot=slot, boxes=boxes, fill=fill)


def _run(plan: Plan, source: list[Any], target: list[Content], limit: int = 7) -> list[Any]:
    """Carry a plan out in memory, chunk by chunk as the engine does."""
    made = []
    for content, moves in zip(target, plan.moves, strict=True):
        out = numpy.zeros(content.slot.shape, dtype="float32")
        for at, shape in chunks(content.slot.shape, limit):
            buffer = numpy.zeros(shape, dtype="float32")
            for move in moves:
                found = within(move, at, shape)
                if found is not None:
                    box, part = found
                    from launcher.convert.slices import narrowed

                    values = block(source[move.source], move.source_box, narrowed(move.source_box, part.region))
                    block(buffer, box, box.stored_at)[...] = values
            out[tuple(slice(a, a + s) for a, s in zip(at, shape, strict=True))] = buffer
        made.append(out)
    return made


def _logical(shape: tuple[int, ...]) -> Any:
    return numpy.arange(1, math.prod(shape) + 1, dtype="float32").reshape(shape)


SPLITS = [None, Split(axis=0), Split(axis=1), Split(axis=0, parts=2)]


@st.composite
def layouts(draw: st.DrawFn) -> list[Content]:
    """The logical tensor t [8, 12], split, perhaps transposed, perhaps stacked behind another."""
    split = draw(st.sampled_from(SPLITS))
    size = draw(st.sampled_from([1, 2, 4] if split != Split(axis=0, parts=2) else [1, 2]))
    transposed, deep = draw(st.booleans()), draw(st.booleans())
    found = []
    for rank in range(size):
        boxes: tuple[TensorSlice, ...] = (whole("t", (8, 12)),)
        shape: tuple[int, ...] = (8, 12)
        if split is not None:
            boxes, shape = shard(boxes, shape, split, rank, size)
        if transposed:
            turned = []
            for box in boxes:
                runs = (box.stored_at[1], box.stored_at[0])
                turned.append(TensorSlice(logical="t", logical_at=box.logical_at, stored_at=runs, transposed=True))
            boxes, shape = tuple(turned), shape[::-1]
        if deep:
            boxes, shape = tuple(stacked(box, 0) for box in boxes), (1, *shape)
        found.append(_content(f"{rank}", shape, *boxes))
    return found


@given(layouts(), layouts(), st.integers(1, 100))
def test_any_layout_becomes_any_other_and_back(left: list[Content], right: list[Content], limit: int) -> None:
    tensors = {"t": (8, 12)}
    origin = [_content("o", (8, 12), whole("t", (8, 12)))]
    first = _run(make_plan(origin, left, tensors), [_logical((8, 12))], left, limit)
    second = _run(make_plan(left, right, tensors), first, right, limit)
    (back,) = _run(make_plan(right, origin, tensors), second, origin, limit)
    assert (back == _logical((8, 12))).all()


@given(layouts(), layouts(), st.integers(1, 50))
def test_everything_shared_is_compared(left: list[Content], right: list[Content], limit: int) -> None:
    """The parts of moves cover each tensor of the left once for every replica on the right."""
    replicas = len(right) if sum(math.prod(c.slot.shape) for c in right) > 96 else 1
    for content, moves in zip(left, all_shared(left, right), strict=True):
        back = [Move(move.target, move.target_box, move.source, move.source_box, move.region) for move in moves]
        counts = numpy.zeros(content.slot.shape)
        for first, shape, inside in parts(content.slot.shape, back, limit):
            chunk = numpy.zeros(shape)
            for _, box, _ in inside:
                block(chunk, box, box.stored_at)[...] += 1
            counts.reshape(-1)[first : first + chunk.size] += chunk.reshape(-1)
        assert (counts == replicas).all()


@pytest.mark.parametrize("short", [0, 2**30], ids=["copy by copy", "rows together"])
@given(layouts(), layouts())
def test_plain_copies_are_the_moves_of_which_they_are_made(
    short: int, left: list[Content], right: list[Content]
) -> None:
    """Copied byte by byte, as the engine does where runs of bytes are long, tensors are the same as chunk by chunk."""
    tensors = {"t": (8, 12)}
    origin = [_content("o", (8, 12), whole("t", (8, 12)))]
    source = _run(make_plan(origin, left, tensors), [_logical((8, 12))], left)
    plan = make_plan(left, right, tensors)
    with patch.multiple("launcher.convert.spans", _SHORT=short, _SHORT_ROW=0):
        for content, moves, expected in zip(right, plan.moves, _run(plan, source, right), strict=True):
            copies = [(move.source, runs(move, left[move.source].slot, content.slot)) for move in moves]
            turned = any(move.source_box.transposed != move.target_box.transposed for move in moves)
            unplanned = any(found is None for _, found in copies)
            assert turned == unplanned or (short and not turned)
            if unplanned:
                continue
            made = bytearray(4 * math.prod(content.slot.shape))
            for number, found in copies:
                for there, here, count, _, rows, step, apart in found or ():
                    for row in range(rows):
                        piece = source[number].tobytes()[here + row * step :][:count]
                        made[(at := there + row * (apart or count)) : at + count] = piece
            assert bytes(made) == expected.tobytes()


def test_columns_are_one_copy_of_many_rows() -> None:
    """A row-parallel weight: each rank has a part of every row."""
    (first, second) = (_content("r", shape, *boxes) for boxes, shape in _columns((4, 1024)))
    original = _content("o", (4, 1024), whole("t", (4, 1024)))
    plan = make_plan([original], [first, second], {"t": (4, 1024)})
    for rank, target in enumerate((first, second)):
        (move,) = plan.moves[rank]
        assert runs(move, original.slot, target.slot) == [Copy(0, 2048 * rank, 2048, Path("o"), 4, 4096)]


def test_parts_of_rows_alternate_in_the_whole() -> None:
    """The ranks of a row-parallel weight on the way back: of every row, each has a part."""
    (first, second) = (
        _content(name, shape, *boxes) for name, (boxes, shape) in zip("rs", _columns((4, 1024)), strict=True)
    )
    original = _content("o", (4, 1024), whole("t", (4, 1024)))
    (moves,) = make_plan([first, second], [original], {"t": (4, 1024)}).moves
    copies = [Copy(2048 * rank, 0, 2048, Path(path), 4, 2048, 4096) for rank, path in enumerate("rs")]
    assert plain_copies([first, second], original, moves) == [copies]
    assert plain_copies([first, second], original, moves[:1]) is None


GAPS = {
    "another number of rows": {"rows": 3},
    "another distance": {"apart": 5000},
    "a gap inside of each row": {"there": 2050},
    "rows over the next ones": {"length": 3000},
    "not at all": {},
}


@pytest.mark.parametrize("change", GAPS.values(), ids=GAPS.keys())
def test_only_rows_without_gaps_alternate(change: dict[str, int]) -> None:
    first = Copy(0, 0, 2048, Path("r"), 4, 2048, 4096)
    second = first._replace(there=2048)._replace(**change)
    after = Copy(4 * 4096, 0, 100, Path("r"))
    assert alternating([first, second, after]) == (None if change else [[first, second], [after]])


def _columns(shape: tuple[int, int]) -> list[tuple[tuple[TensorSlice, ...], tuple[int, ...]]]:
    return [shard((whole("t", shape),), shape, Split(axis=1), rank, 2) for rank in range(2)]


def test_interleaved_rows() -> None:
    """MindFormers stores gate and up row by row in turn."""
    mixed = [
        _content(
            "w",
            (8, 3),
            rows("g", (4, 3), 0, 4, stored_first=0, step=2),
            rows("u", (4, 3), 0, 4, stored_first=1, step=2),
        )
    ]
    plain = [_content("g", (4, 3), whole("g", (4, 3))), _content("u", (4, 3), whole("u", (4, 3)))]
    tensors = {"g": (4, 3), "u": (4, 3)}
    gate, up = _logical((4, 3)), -_logical((4, 3))
    (made,) = _run(make_plan(plain, mixed, tensors), [gate, up], mixed)
    assert (made[0::2] == gate).all()
    assert (made[1::2] == up).all()
    back = _run(make_plan(mixed, plain, tensors), [made], plain)
    assert (back[0] == gate).all()
    assert (back[1] == up).all()


def test_cut_counts_in_steps() -> None:
    box = rows("t", (10, 2), 0, 10, stored_first=1, step=3)
    inside = cut(box, (5, 0), (10, 2))
    assert inside is not None
    assert inside.logical_at == ((2, 3), (0, 2))
    assert (inside.stored_at[0].start, inside.stored_at[0].count) == (2, 3)
    assert cut(box, (2, 0), (2, 2)) is None


def test_uneven_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be split"):
        shard((whole("t", (6, 2)),), (6, 2), Split(axis=0), 0, 4)


SPANS = {
    "all of it": ((4, 6), [(0, 4), (0, 6)], (0, 24)),
    "rows": ((4, 6), [(1, 2), (0, 6)], (6, 12)),
    "columns": ((4, 6), [(0, 4), (0, 3)], None),
    "part of one row": ((4, 6), [(2, 1), (1, 3)], (13, 3)),
    "one expert": ((2, 3, 4), [(1, 1), (0, 3), (0, 4)], (12, 12)),
    "rows of one expert": ((2, 3, 4), [(1, 1), (1, 2), (0, 4)], (16, 8)),
    "the same row of two experts": ((2, 3, 4), [(0, 2), (1, 1), (0, 4)], None),
}


@pytest.mark.parametrize("shape,runs,expected", SPANS.values(), ids=SPANS.keys())
def test_contiguous_blocks_are_known(
    shape: tuple[int, ...], runs: list[tuple[int, int]], expected: tuple[int, int] | None
) -> None:
    from launcher.convert.records import StridedRange

    assert span(shape, [StridedRange(start=start, count=count) for start, count in runs]) == expected


PROBLEMS = {
    "the source lacks rows": (
        [_content("s", (3, 2), rows("t", (4, 2), 0, 3, stored_first=0))],
        [_content("o", (4, 2), whole("t", (4, 2)))],
        "the source has 6 of 8 elements",
    ),
    "the target leaves rows out": (
        [_content("s", (4, 2), whole("t", (4, 2)))],
        [_content("o", (3, 2), rows("t", (4, 2), 0, 3, stored_first=0))],
        "the target takes 6 of 8 elements",
    ),
    "part of the target is nothing": (
        [_content("s", (4, 2), whole("t", (4, 2)))],
        [_content("o", (5, 2), whole("t", (4, 2)))],
        "8 of 10 elements",
    ),
    "a tensor that the model does not have": (
        [_content("s", (4, 2), whole("t", (4, 2))), _content("x", (1,), whole("x", (1,)))],
        [_content("o", (4, 2), whole("t", (4, 2)))],
        "x: not a tensor of the model",
    ),
}


@pytest.mark.parametrize("source,target,args", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_does_not_fit_is_reported_before_anything_moves(
    source: list[Content], target: list[Content], args: str
) -> None:
    with pytest.raises(ConvertError, match=args):
        make_plan(source, target, {"t": (4, 2)})


def test_padding_is_named() -> None:
    target = [_content("o", (5, 2), whole("t", (4, 2)), fill=2)]
    plan = make_plan([_content("s", (4, 2), whole("t", (4, 2)))], target, {"t": (4, 2)})
    (made,) = _run(plan, [_logical((4, 2))], target)
    assert (made[:4] == _logical((4, 2))).all()
    assert not made[4].any()


def test_repeats_are_read_once() -> None:
    source = [_content(name, (4, 2), whole("t", (4, 2))) for name in ("first", "second")]
    plan = make_plan(source, [_content("o", (4, 2), whole("t", (4, 2)))], {"t": (4, 2)})
    assert [move.source for move in plan.moves[0]] == [0]
    assert plan.repeats == (1,)


def test_moved_boxes() -> None:
    assert moved(whole("t", (4, 2)), 0, 3).stored_at[0].start == 3
