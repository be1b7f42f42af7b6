"""Merges an adapter into its model: copies unchanged tensors, adds the factors in float32 by blocks of rows.

PEFT's merge_and_unload rounds the product to the factors' number format and then the sum to the model's; here the sum
is rounded once. Memory use is one block per thread, independent of the model's size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import cast, decode, not_finite, word
from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import itemsize, nbytes
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.containers.transfer import OpenFiles, copy, write
from launcher.convert.convert import refuse_overlap, why_kept
from launcher.convert.fingerprint import changed_meanwhile, merge_fingerprint, starting_anew
from launcher.convert.formats.huggingface import copy_along, files_along
from launcher.convert.layouts.content import Content
from launcher.convert.lora.adapter import Adapter, Factors, read_adapter
from launcher.convert.lora.held import Held, factor_words
from launcher.convert.losses import Losses, Values, overflows
from launcher.convert.move import in_parallel, thread_count
from launcher.convert.ownership import REPORT, checkpoint_contents, files_written
from launcher.convert.progress import Progress, size
from launcher.convert.scales import unscaled
from launcher.convert.slices import whole
from launcher.convert.spans import array, span
from launcher.convert.staging import Staging
from launcher.records import dataclass
from launcher.terminal import duration

# Elements of a block: 4 M, i.e. 16 MB of float32 for each of weight and product, on each thread.
_BLOCK: Final = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A planned merge: nothing has been written yet."""

    model: Path
    out: Path
    adapter: Adapter
    slots: tuple[Slot, ...]

    @property
    def bytes_written(self) -> int:
        """Bytes of the merged model."""
        return sum(nbytes(slot) for slot in self.slots)

    @property
    def read(self) -> Mapping[str, Path | None]:
        """The folders that are read, by display name."""
        return {"--model": self.model, "--adapter": self.adapter.folder}

    @property
    def files(self) -> int:
        """Approximate number of files to write."""
        return 8

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        factors = self.adapter.factors
        return {
            "model": str(self.model),
            "adapter": str(self.adapter.folder),
            "out": str(self.out),
            "tensors": len(self.slots),
            "bytes": self.bytes_written,
            "merged": {name: {"rank": one[0].rank, "scale": one[0].scale} for name, one in sorted(factors.items())},
            "replaced": sorted(self.adapter.replaced),
        }

    def lines(self) -> list[str]:
        """Return the plan as human-readable lines."""
        changed = self.adapter.factors
        factors = [one for parts in changed.values() for one in parts]
        ranks = sorted({one.rank for one in factors})
        scales = sorted({round(one.scale, 6) for one in factors})
        shown = f", rank {', '.join(map(str, ranks))}, scale {', '.join(map(str, scales))}" if ranks else ""
        return [
            f"{self.model} + {self.adapter.folder} -> {self.out}",
            f"  merged    {len(changed)} tensors{shown}",
            f"  replaced  {len(self.adapter.replaced)} tensors",
            f"  copied    {len(self.slots) - len(changed) - len(self.adapter.replaced)} tensors"
            f" ({size(self.bytes_written)} in all)",
        ]


def plan_merge(model: Path, adapter: Path, out: Path) -> Merge:
    """Read names and shapes of a model and its adapter.

    Raises:
        ConvertError: all reasons why they cannot be merged.
        ContainerError: a file is damaged.
    """
    slots = safetensors.read(model).slots
    config = model / "config.json"
    if not config.is_file():
        raise ConvertError(f"{config}: no such file; works: --model DIR, the folder of the model it was trained on")
    whole_slots = [Content(slot=slot, boxes=(whole(slot.name, slot.shape),)) for slot in slots]
    problems = unscaled(whole_slots, (slot.name for slot in slots))
    if problems:
        raise ConvertError(problems)
    tied = bool(json.loads(config.read_text(encoding="utf-8")).get("tie_word_embeddings"))
    return Merge(model=model, out=out, adapter=read_adapter(adapter, model, slots, tied=tied), slots=slots)


def merge(
    planned: Merge,
    *,
    verify: bool = True,
    overwrite: bool = False,
    quiet: bool = False,
    workers: int | None = None,
    allow_overflow: bool = False,
    warn: Callable[[str], None] = lambda text: None,
) -> tuple[list[str], Values]:
    """Write the merged model, verify it and rename it; return report lines and value statistics.

    Raises:
        ConvertError: a finite sum is out of range of the model's number format (unless `allow_overflow`), or the
            verification fails.
        ContainerError: not enough space, the target exists, or a file is damaged.
    """
    threads, digest = thread_count(workers), _fingerprint(planned)
    refuse_overlap(planned.out, planned.read)
    with (
        Staging(planned.out, digest=digest, overwrite=overwrite, judge=checkpoint_contents) as place,
        OpenFiles() as files,
    ):
        if not place.resumed:
            why = starting_anew(planned.out, place, digest)
            if why is not None:
                warn(why)
            place.check_space(planned.bytes_written, planned.files)
        targets = _laid_out(place, planned)
        seconds, named = _write(planned, place, files, targets, threads, quiet=quiet)
        problems = [] if allow_overflow else overflows(named)
        if problems:
            place.discard()
            raise ConvertError(problems)
        values = Values.of(named)
        lines = [f"  merged in {duration(seconds)}"]
        if verify:
            line, nan, infinite = _proved(planned, files, targets, threads, quiet=quiet)
            values = values.with_copied(nan, infinite)
            lines.append(line)
        changed = changed_meanwhile(planned.out, digest, lambda: _fingerprint(planned))
        if changed:
            place.discard()
            raise ConvertError(changed)
        tree = {**planned.as_tree(), "values": values.as_tree(), "files": files_written(place.directory)}
        (place.directory / REPORT).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
        place.publish(durable=False, proven=verify)
    if place.kept is not None:
        lines.append(f"  {why_kept(place.kept, planned.out, proven=verify)}")
    return [lines[0], *values.lines(), *lines[1:]], values


def _write(
    planned: Merge, place: Staging, files: OpenFiles, targets: list[Slot], threads: int, *, quiet: bool
) -> tuple[float, dict[str, Losses]]:
    todo = [number for number in range(len(targets)) if str(number) not in place.finished]
    progress = Progress("merging", sum(nbytes(targets[number]) for number in todo), quiet=quiet)
    named = {
        targets[int(number)].name: Losses(**note) for number, note in place.notes.items() if number in place.finished
    }

    def task(number: int) -> Callable[[], None]:
        def run() -> None:
            losses = Losses()
            _fill(planned, files, planned.slots[number], targets[number], losses)
            if losses.values:
                named[targets[number].name] = losses
            if not losses.overflowed:
                place.finish([str(number)], losses.as_tree() if losses.values else None)
            progress.advance(nbytes(targets[number]))

        return run

    in_parallel([task(number) for number in todo], threads)
    return progress.finish(), named


def _laid_out(place: Staging, planned: Merge) -> list[Slot]:
    root = place.directory
    if place.layout is not None:
        return [
            Slot(name=name, shape=tuple(shape), dtype=dtype, path=root / path, offset=offset)
            for name, shape, dtype, path, offset in place.layout
        ]
    copy_along(planned.model, root)
    specs = [TensorSpec(name=slot.name, shape=slot.shape, dtype=slot.dtype) for slot in planned.slots]
    made = safetensors.create(root, specs)
    place.laid_out(
        [[slot.name, list(slot.shape), slot.dtype, str(slot.path.relative_to(root)), slot.offset] for slot in made]
    )
    return made


def _fingerprint(planned: Merge) -> str:
    adapter = planned.adapter
    factors = [held.slot for parts in adapter.factors.values() for one in parts for held in (one.a, one.b)]
    slots = [*planned.slots, *factors, *adapter.replaced.values()]
    files = [*files_along(planned.model), *sorted(adapter.folder.glob("adapter_config.json"))]
    return merge_fingerprint(planned.as_tree(), slots, files)


def _fill(planned: Merge, files: OpenFiles, source: Slot, target: Slot, losses: Losses) -> None:
    blocks = _blocks(planned, files, source, losses)
    if not _covered(planned, source):
        copy(files, source.path, source.offset, target.path, target.offset, nbytes(source))
    for at, block in blocks:
        write(files, target.path, target.offset + at, [block])


def _covered(planned: Merge, source: Slot) -> bool:
    """Return whether all of a tensor is computed and nothing of it copied."""
    if source.name in planned.adapter.replaced:
        return True
    parts = planned.adapter.factors.get(source.name, ())
    return sum(math.prod(one.weight.shape) for one in parts) == math.prod(source.shape) and bool(parts)


def _blocks(
    planned: Merge, files: OpenFiles, source: Slot, losses: Losses | None = None
) -> Iterator[tuple[int, memoryview]]:
    """Yield the computed blocks of a tensor, in order: (offset in bytes, data); nothing for a copied tensor.

    Losses by rounding to the model's number format are added to `losses`.
    """
    replaced = planned.adapter.replaced.get(source.name)
    if replaced is not None:
        words = _words(files, replaced)
        cast_words = cast(words, replaced.dtype, source.dtype)
        if losses is not None and replaced.dtype != source.dtype:
            losses.count(decode(words, replaced.dtype), cast_words, source.dtype)
        yield 0, memoryview(cast_words).cast("B")
        return
    size = itemsize(source.dtype)
    parts = planned.adapter.factors.get(source.name, ())
    if any(_scattered(source, factors) for factors in parts):
        yield from _experts(files, source, parts, losses)
        return
    for factors in parts:
        left, right = _matrices(files, factors)
        found = span(source.shape, factors.weight.box.stored_at)
        assert found is not None
        rows, columns = factors.weight.shape
        step = max(1, _BLOCK // columns)
        words = factor_words(files, factors.weight)
        for first in range(0, rows, step):
            at = (found[0] + first * columns) * size
            yield at, _sum(words, left, right, factors, first, step, source.dtype, losses)


def _scattered(source: Slot, factors: Factors) -> bool:
    """Return whether a weight's rows do not lie one after another: it is swapped, or alternates with another."""
    box = factors.weight.box
    return box.transposed or span(source.shape, box.stored_at) is None


def _experts(
    files: OpenFiles, source: Slot, parts: tuple[Factors, ...], losses: Losses | None
) -> Iterator[tuple[int, memoryview]]:
    """Yield the computed matrices of a tensor of all experts whose weights are swapped or alternate."""
    import numpy as np

    stored = array(files, source)
    assert stored.ndim == 3, "weights that are swapped or alternate are those of fused experts"
    for expert, own in groupby(parts, key=lambda factors: factors.weight.box.stored_at[0].start):
        words = np.array(stored[expert])
        for factors in own:
            box = factors.weight.box
            rows, columns = (slice(run.start, run.start + run.count * run.step, run.step) for run in box.stored_at[1:])
            view = words[rows, columns].T if box.transposed else words[rows, columns]
            left, right = _matrices(files, factors)
            done = _sum(np.ascontiguousarray(view), left, right, factors, 0, len(view), source.dtype, losses)
            view[...] = np.frombuffer(done, words.dtype).reshape(view.shape)
        yield expert * words.nbytes, memoryview(words).cast("B")


def _matrices(files: OpenFiles, factors: Factors) -> tuple[Any, Any]:
    """Return the two matrices whose product is added, as float32."""
    a, b = (decode(_contiguous(files, held), held.slot.dtype) for held in (factors.a, factors.b))
    return (a.T, b.T) if factors.table else (b, a)


def _contiguous(files: OpenFiles, held: Held) -> Any:
    import numpy as np

    return np.ascontiguousarray(factor_words(files, held))


def _sum(
    words: Any,
    left: Any,
    right: Any,
    factors: Factors,
    first: int,
    step: int,
    dtype: str,
    losses: Losses | None,
) -> memoryview:
    import numpy as np

    added = np.matmul(left[first : first + step], right)
    added *= np.float32(factors.scale)
    added += decode(words[first : first + step], dtype)
    rounded = cast(added.view(np.uint32), "F32", dtype)
    if losses is not None:
        losses.count(added, rounded, dtype)
    return memoryview(rounded).cast("B")


def _words(files: OpenFiles, slot: Slot) -> Any:
    import numpy as np

    view = files.view(slot.path)[slot.offset : slot.offset + nbytes(slot)]
    return np.frombuffer(view, dtype=word(itemsize(slot.dtype))).reshape(slot.shape)


def _proved(
    planned: Merge, files: OpenFiles, targets: list[Slot], threads: int, *, quiet: bool
) -> tuple[str, dict[str, int], dict[str, int]]:
    """Verify the result: copied tensors against the model, merged ones against the recomputed sum.

    Returns:
        The report line, and the tensors with NaN and with infinite values.
    """
    progress = Progress("verifying", planned.bytes_written, quiet=quiet)
    problems: list[str] = []
    nan: dict[str, int] = {}
    infinite: dict[str, int] = {}

    def task(number: int) -> Callable[[], None]:
        def run() -> None:
            if not _same(planned, files, planned.slots[number], targets[number]):
                problems.append(f"{targets[number].path.name}: {targets[number].name} is not what was written")
            slot = targets[number]
            found = not_finite(files.view(slot.path)[slot.offset : slot.offset + nbytes(slot)], slot.dtype)
            for named, count in zip((nan, infinite), found, strict=True):
                if count:
                    named[slot.name] = count
            progress.advance(nbytes(targets[number]))

        return run

    in_parallel([task(number) for number in range(len(targets))], threads)
    seconds = progress.finish()
    if problems:
        raise ConvertError(sorted(problems))
    return f"  verified in {duration(seconds)}: every byte matches", nan, infinite


def _same(planned: Merge, files: OpenFiles, source: Slot, target: Slot) -> bool:
    found = files.view(target.path)[target.offset : target.offset + nbytes(target)]
    own = files.view(source.path)[source.offset : source.offset + nbytes(source)]
    left = 0
    for at, block in _blocks(planned, files, source):
        if found[at : at + len(block)] != block or not _equal(found[left:at], own[left:at]):
            return False
        left = at + len(block)
    return _equal(found[left:], own[left:])


def _equal(left: memoryview, right: memoryview) -> bool:
    import numpy as np

    return bool(np.array_equal(np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)))
