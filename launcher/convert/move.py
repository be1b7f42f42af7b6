"""Executes planned moves: plain copies for contiguous blocks, a bounded buffer otherwise."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from launcher.convert.casts import decode, dequantised, encode, word
from launcher.convert.containers.dtypes import itemsize, nbytes
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.transfer import STEP, Copy, OnBytes, OpenFiles, copy, copy_rows, write, zeros
from launcher.convert.layouts.content import Content
from launcher.convert.losses import Losses
from launcher.convert.mxfp4 import unpacked
from launcher.convert.plan import Move
from launcher.convert.scales import scale_values
from launcher.convert.slices import narrowed, stored_dim
from launcher.convert.spans import alternating, array, block, forget_slot, loaded, parts, runs

# Elements per buffer: few enough for a processor's cache, from which they are written.
BUFFER = 1024 * 1024
Advance = Callable[[int], None]
Copies = Sequence[Sequence[Copy]]
"""Plain copies, in the target's order; the rows of those in one group alternate there."""
_of_thread = threading.local()


def fill(
    files: OpenFiles,
    source: Sequence[Content],
    target: Content,
    moves: Sequence[Move],
    copies: Copies | None,
    advance: Advance,
    losses: Losses | None = None,
    on_bytes: OnBytes | None = None,
) -> None:
    """Write one target tensor. Padding stays a hole (zeros).

    Args:
        files: open files.
        source: contents that the moves read.
        target: the tensor to write.
        moves: the moves that fill it.
        copies: their `plain_copies`.
        advance: callback with the number of bytes written.
        losses: counts of cast values, updated in place.
        on_bytes: callback with all bytes of the tensor, in order.
    """
    if not any(files.has_holes(path) for path in {source[move.source].slot.path for move in moves}):
        files.reserve(target.slot.path, target.slot.offset, nbytes(target.slot))
    if copies is None:
        _assemble(files, source, target, moves, advance, losses, on_bytes)
        return
    end, last = target.slot.offset, target.slot.offset + nbytes(target.slot)
    for group in copies:
        there, here, count, path, rows, _, _ = group[0]
        if on_bytes is not None:
            on_bytes(zeros(there - end))
        if rows > 1:
            for size in copy_rows(files, target.slot.path, group, on_bytes):
                advance(size)
        for done in range(0, count if rows == 1 else 0, STEP):
            size = min(STEP, count - done)
            copy(files, path, here + done, target.slot.path, there + done, size, on_bytes)
            advance(size)
        end = there + sum(each.size for each in group)
    if on_bytes is not None:
        on_bytes(zeros(last - end))


def plain_copies(source: Sequence[Content], target: Content, moves: Sequence[Move]) -> Copies | None:
    """Return the plain copies that a tensor consists of; None if not all of it does."""
    found: list[Copy] = []
    for move in moves:
        plain = runs(move, source[move.source].slot, target.slot)
        if plain is None:
            return None
        found += plain
    return alternating(sorted(found))


def _assemble(
    files: OpenFiles,
    source: Sequence[Content],
    target: Content,
    moves: Sequence[Move],
    advance: Advance,
    losses: Losses | None,
    on_bytes: OnBytes | None,
) -> None:
    slot = target.slot
    size = itemsize(slot.dtype)
    for first, shape, inside in parts(slot.shape, moves, BUFFER):
        buffer = _buffer(shape, size)
        if target.fill:
            buffer[...] = 0
        for _, box, part in inside:
            with loaded(files, source[part.source].slot, part):
                block(buffer, box, box.stored_at)[...] = values(files, source[part.source], part, slot.dtype, losses)
        data = memoryview(buffer).cast("B")
        write(files, slot.path, slot.offset + first * size, [data], on_bytes=on_bytes)
        advance(buffer.size * size)
    for content in {move.source: source[move.source] for move in moves}.values():
        forget_slot(files, content.slot)


def _buffer(shape: Sequence[int], size: int) -> Any:
    """Return this thread's buffer; a new one for each chunk is zeroed by the kernel, which costs as much as a copy."""
    import numpy as np

    count = math.prod(shape)
    kept = getattr(_of_thread, "buffer", None)
    if kept is None or kept.nbytes < count * size:
        kept = _of_thread.buffer = np.empty(count * size, np.uint8)
    return kept[: count * size].view(word(size)).reshape(shape)


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


def thread_count(wanted: int | None) -> int:
    """Return the number of threads to use; None: one for every two processors, at most 8.

    Two are often the halves of one core. There a second thread takes more time of the processor and saves none:
    2 GB on two such processors, from memory and from a disk.
    """
    return wanted or min(8, max(1, (os.cpu_count() or 1) // 2))


def in_parallel(tasks: Sequence[Callable[[], None]], workers: int) -> None:
    """Run tasks on threads (copies release the GIL); the first error cancels the rest and is raised."""
    if workers <= 1 or len(tasks) < 2:
        for task in tasks:
            task()
        return
    # Imported here: it loads logging, and many conversions have one worker.
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

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
