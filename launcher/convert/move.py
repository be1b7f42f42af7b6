"""Executes planned moves: plain copies for contiguous blocks, a bounded buffer otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from launcher.convert.casts import decode, dequantised, encode, word
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.transfer import OpenFiles, copy, write
from launcher.convert.layouts.content import Content
from launcher.convert.losses import Losses
from launcher.convert.mxfp4 import unpacked
from launcher.convert.plan import Move
from launcher.convert.scales import scale_values
from launcher.convert.slices import narrowed, stored_dim
from launcher.convert.spans import array, block, chunks, direct, forget_slot, within

# Elements per buffer, bytes per plain copy: large enough for speed, with negligible memory use.
BUFFER = 4 * 1024 * 1024
PIECE = 64 * 1024 * 1024
Advance = Callable[[int], None]


def fill(
    files: OpenFiles,
    source: Sequence[Content],
    target: Content,
    moves: Sequence[Move],
    advance: Advance,
    losses: Losses | None = None,
) -> None:
    """Write one target tensor. Padding stays a hole (zeros).

    Args:
        files: open files.
        source: contents that the moves read.
        target: the tensor to write.
        moves: the moves that fill it.
        advance: callback with the number of bytes written.
        losses: counts of cast values, updated in place.
    """
    plain = [direct(move, source[move.source].slot, target.slot) for move in moves]
    if all(found is not None for found in plain):
        for move, found in zip(moves, plain, strict=True):
            assert found is not None
            _copy(files, source[move.source], target, found, advance)
        return
    _assemble(files, source, target, moves, advance, losses)


def _copy(files: OpenFiles, source: Content, target: Content, found: tuple[int, int, int], advance: Advance) -> None:
    here, there, count = found
    for done in range(0, count, PIECE):
        size = min(PIECE, count - done)
        copy(files, source.slot.path, here + done, target.slot.path, there + done, size)
        advance(size)


def _assemble(
    files: OpenFiles,
    source: Sequence[Content],
    target: Content,
    moves: Sequence[Move],
    advance: Advance,
    losses: Losses | None,
) -> None:
    import numpy as np

    slot = target.slot
    size = itemsize(slot.dtype)
    row = 0
    for at, shape in chunks(slot.shape, BUFFER):
        buffer: Any = np.zeros(shape, dtype=word(size))
        for move in moves:
            found = within(move, at, shape)
            if found is not None:
                box, part = found
                taken = values(files, source[move.source], part, slot.dtype, losses)
                block(buffer, box, box.stored_at)[...] = taken
        write(files, slot.path, slot.offset + row * size, memoryview(buffer).cast("B"))
        row += buffer.size
        advance(buffer.size * size)
    for content in {move.source: source[move.source] for move in moves}.values():
        forget_slot(files, content.slot)


def values(files: OpenFiles, content: Content, move: Move, dtype: str, losses: Losses | None = None) -> Any:
    """Return a move's source block as bit patterns of format `dtype`, in the logical tensor's orientation.

    Losses of a cast are added to `losses`.
    """
    slot, box = content.slot, move.source_box
    if content.packed:
        numbers = unpacked(files, content, move)
    else:
        found = block(array(files, slot), box, narrowed(box, move.region))
        if slot.dtype == dtype:
            return found
        numbers = decode(found, slot.dtype) if content.scale is None else _dequantised(files, content, move, found)
    words = encode(numbers, dtype)
    if losses is not None:
        losses.count(numbers, words, dtype)
    return words


def _dequantised(files: OpenFiles, content: Content, move: Move, found: Any) -> Any:
    slot, box, scale = content.slot, move.source_box, content.scale
    assert scale is not None
    runs = narrowed(box, move.region)
    rows, columns = (runs[stored_dim(box, dim)] for dim in (len(move.region) - 2, len(move.region) - 1))
    if box.transposed or rows.step != 1 or columns.step != 1:
        raise ConvertError(f"{slot.name}: a blockwise scaled tensor must be stored as Hugging Face does")
    return dequantised(found, slot.dtype, scale_values(files, scale), rows.start, columns.start)


def in_parallel(tasks: Sequence[Callable[[], None]], workers: int) -> None:
    """Run tasks on threads (copies release the GIL); the first error cancels the rest and is raised."""
    if workers <= 1 or len(tasks) < 2:
        for task in tasks:
            task()
        return
    waiting = iter(tasks)
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for task in waiting:
                running.add(pool.submit(task))
                if len(running) >= 4 * workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in running:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
