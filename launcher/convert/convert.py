"""The conversion pipeline: read names, plan, lay out, copy, verify, rename."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launcher.convert.casts import FLOATS
from launcher.convert.containers import safetensors
from launcher.convert.containers.archive import Checksum, seal
from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.conversion import Conversion, Prepared
from launcher.convert.fingerprint import changed_meanwhile, fingerprint, starting_anew
from launcher.convert.formats.format import Draft, Format, Target
from launcher.convert.fp8 import check_source, originals, quantise, stated, to_quantise, with_scales
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.layouts.offers import Changes, Undivided
from launcher.convert.logical import Logical, logical_model
from launcher.convert.losses import Losses, Values, named_losses, overflows
from launcher.convert.move import Advance, fill, in_parallel, plain_copies
from launcher.convert.mxfp4 import BLOCKS, note, other_method
from launcher.convert.others import with_others_of
from launcher.convert.ownership import REPORT, checkpoint_contents, files_written
from launcher.convert.plan import Move, Plan, make_plan
from launcher.convert.progress import Progress
from launcher.convert.report import Report
from launcher.convert.scales import other_scheme
from launcher.convert.staging import Staging, another_target, check_start
from launcher.convert.unfinished import mark, unmark
from launcher.convert.verify import Written, hasher, only_nan
from launcher.outputs.protected import located, overlap

# Ending of torch.save files, whose entries have a CRC-32.
_TORCH_FILE = ".pt"


def prepare(asked: Conversion) -> Prepared:
    """Read the source's names and shapes, and plan the target position of every byte.

    Raises:
        ConvertError: the source does not match its config.json, or cannot be written as requested; all problems.
        ContainerError: a file is damaged, unsafe or of an unknown kind, or the target cannot be written.
    """
    refuse_overlap(asked.out, {"the checkpoint that is read": asked.source, "--model": asked.donor})
    check_start(located(asked.out), overwrite=asked.overwrite, judge=checkpoint_contents)
    with _without_collector():
        return _prepared(asked)


def refuse_overlap(out: Path, read: Mapping[str, Path | None]) -> None:
    """Reject a target that overlaps a folder that is read: replacing it would delete the source.

    Args:
        read: display name of each folder to its path.

    Raises:
        ConvertError: the target is, contains or is inside one of them.
    """
    folders = [(what, folder) for what, folder in read.items() if folder is not None]
    found = overlap(Path(os.path.realpath(out)), folders)
    if found is None:
        return
    works = another_target(found[1], accept=lambda path: overlap(path, folders) is None)
    suffix = f"; works: {works}" if works else ""
    raise ConvertError(f"--out {out} and {found[0]} ({found[1]}) overlap{suffix}")


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable garbage collection: a plan is millions of small live objects, and scanning them takes half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _prepared(asked: Conversion) -> Prepared:
    logical, stored = asked.source_format.read(asked.source, logical_model(asked.model), asked.source_layout)
    to_hf = asked.target_format.name == "hf"
    problems = check_source(stored, to_hf=to_hf, title=asked.target_format.title, cast_to=asked.dtype)
    packed = [content for content in stored.contents if content.packed]
    if packed:
        stored = dataclasses.replace(stored, notes=(*stored.notes, note(len(packed))))
    if any(content.slot.name.endswith(BLOCKS) for content in packed):
        problems += other_method(asked.source)
    elif any(content.scale is not None for content in stored.contents):
        problems += other_scheme(asked.source)
    if problems:
        raise ConvertError(problems)
    if to_hf:
        logical, stored = with_others_of(asked.donor, logical, stored)
    if to_hf and asked.dtype is None:
        logical, stored = with_scales(logical, stored)
    dtypes = _dtypes(logical, stored, asked.dtype)
    known, fp8 = _quantised(asked, logical, dtypes)
    target = Target(logical=logical, dtypes=dtypes, layout=asked.layout, donor=asked.donor, fp8=fp8)
    try:
        draft, plan = _planned(asked.target_format, target, stored)
    except Undivided as error:
        raise error.with_offers(lambda changes: _refusal(asked.target_format, target, stored, changes)) from None
    return Prepared(asked=asked, logical=logical, stored=stored, draft=draft, plan=plan, originals=known)


def _planned(wanted: Format, target: Target, stored: Stored) -> tuple[Draft, Plan]:
    draft = wanted.draft(target)
    return draft, make_plan(stored.contents, draft.placeless(), target.logical.tensors)


def _refusal(wanted: Format, target: Target, stored: Stored, changes: Changes) -> ConvertError | None:
    """Return why there is no plan with these sizes of the layout; None: there is one."""
    sizes: Mapping[str, Any] = changes
    layout = dataclasses.replace(target.layout, **sizes)
    try:
        _planned(wanted, dataclasses.replace(target, layout=layout), stored)
    except ConvertError as error:
        return error
    return None


def _quantised(
    asked: Conversion, logical: Logical, dtypes: Mapping[str, str]
) -> tuple[Mapping[str, Content], frozenset[str]]:
    """Return the FP8 weights of `--model`, and the names of weights to store in FP8: these, or DeepSeek's."""
    if not asked.fp8:
        return {}, frozenset()
    if asked.target_format.name != "hf":
        raise ConvertError(f"--fp8: {asked.target_format.title} cannot store FP8 weights; works: mcore-to-hf")
    held = asked.donor is not None and any(asked.donor.glob("*.safetensors"))
    config, known = stated(asked.donor), {}
    if held and asked.donor:
        known = dict(originals(logical, logical_model(asked.model), safetensors.read(asked.donor).slots))
    names = to_quantise(logical, known, config)
    return known, frozenset(name for name in names if dtypes[name] != "F8_E4M3")


def _dtypes(logical: Logical, stored: Stored, wanted: str | None) -> Mapping[str, str]:
    """Return the number format in which each logical tensor is to be stored."""
    rows = [(instance.row, name) for instance in logical.instances for name in instance.logical]
    exact = {name for row, name in rows if row.exact}
    integers = {name: row.integer for row, name in rows if row.integer is not None}
    found: dict[str, str] = {}
    problems = []
    for content in stored.contents:
        dtype = content.dtype
        whole = integers.get(content.boxes[0].logical) if content.boxes else None
        if whole is not None and dtype in whole:
            found[content.boxes[0].logical] = whole[0]
            continue
        if content.boxes and dtype not in FLOATS:
            slot = content.slot
            expected = f"a weight: {', '.join(FLOATS)}" if whole is None else " or ".join(whole)
            problems.append(f"{slot.path.name}: {slot.name} is {dtype}; expected {expected}")
            continue
        for box in content.boxes:
            name = box.logical
            if wanted is not None and dtype in FLOATS and name not in exact:
                found[name] = wanted
            elif found.setdefault(name, dtype) != dtype:
                problems.append(f"{name} is stored as {found[name]} and as {dtype}; works: --dtype bf16|fp16|fp32")
    if problems:
        raise ConvertError(problems)
    return found


def execute(prepared: Prepared, *, quiet: bool = False, warn: Callable[[str], None] = lambda text: None) -> Report:
    """Execute the plan: write the tensors, verify them, and rename the folder.

    Raises:
        ConvertError: the verification fails, or a tensor holds only NaN.
        ContainerError: not enough space, the target exists, or a file is damaged.
        ModuleNotFoundError: a library is missing; nothing is written.
    """
    for name in ("numpy", "xxhash") if prepared.asked.verify else ():
        if find_spec(name) is None:  # the verification imports them, after hours of writing
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    asked, digest = prepared.asked, fingerprint(prepared)
    with (
        Staging(asked.out, digest=digest, overwrite=asked.overwrite, judge=checkpoint_contents) as place,
        OpenFiles() as files,
    ):
        if place.restored:
            warn(f"{asked.out}: an interrupted conversion had moved the old folder; it is restored")
        if place.kept is not None:
            warn(f"{asked.out}: an interrupted conversion left the old folder as {place.kept}; it is kept")
        _refuse_nan(prepared.stored, files)
        if place.resumed:
            warn(f"{asked.out}: continuing an interrupted conversion")
        else:
            why = starting_anew(asked.out, place, digest)
            if why is not None:
                warn(why)
            place.check_space(prepared.bytes_needed, prepared.draft.files)
        contents = prepared.draft.contents(_laid_out(place, prepared.draft))
        checksums: dict[Path, dict[int, int]] = {}
        written: dict[tuple[Path, int], Written] = {}
        seconds, losses = _move(prepared, contents, place, files, checksums, written, quiet=quiet)
        problems = [] if asked.allow_overflow else overflows(losses)
        if problems:
            place.discard()
            raise ConvertError(problems)
        unmark(place.directory)
        seconds += _seal(place, checksums, asked.threads)
        report = Report.of(prepared, seconds=seconds, values=Values.of(losses))
        problems = []
        if asked.verify:
            from launcher.convert.prove import prove

            proof = prove(prepared, place.directory, files, written, quiet=quiet)
            problems = list(proof.problems)
            report = report.proved(proof)
        changed = changed_meanwhile(asked.out, digest, lambda: fingerprint(prepared))
        if changed or problems:
            place.discard()
            raise ConvertError(changed or problems)
        report = dataclasses.replace(report, files=files_written(place.directory))
        (place.directory / REPORT).write_text(report.as_json(), encoding="utf-8")
        place.publish(durable=asked.durable, proven=asked.verify)
    if place.kept is not None:
        warn(why_kept(place.kept, asked.out, proven=asked.verify))
    return report


def why_kept(kept: Path, out: Path, *, proven: bool) -> str:
    """Return why the replaced folder is kept."""
    why = "it holds files that no conversion wrote" if proven else "the new one is not verified"
    return f"{out}: the previous content is kept as {kept}: {why}"


def _move(
    prepared: Prepared,
    contents: tuple[Content, ...],
    place: Staging,
    files: OpenFiles,
    checksums: dict[Path, dict[int, int]],
    written: dict[tuple[Path, int], Written],
    *,
    quiet: bool,
) -> tuple[float, Mapping[str, Losses]]:
    """Write every tensor; return the seconds and the cast losses by name.

    `checksums` receives the CRC-32 of each tensor written to a torch.save file, by file and position; `written`, if
    the result will be verified, the digest of each tensor that consists of plain copies.
    """
    progress = Progress("converting", prepared.bytes_written - prepared.bytes_padding, quiet=quiet)
    source = prepared.stored.contents
    found = {int(number): Losses(**note) for number, note in place.notes.items() if number in place.finished}

    def task(number: int) -> Callable[[], None]:
        def run() -> None:
            target, moves, losses = contents[number], prepared.plan.moves[number], Losses()
            if target.scale is None:
                _fill(prepared, files, target, moves, progress.advance, losses, checksums, written)
            else:
                quantise(files, source, target, moves, progress.advance, prepared.original(number), losses)
            if losses.values:
                found[number] = losses
            # Not marked as finished: a resumed conversion writes and counts a tensor with overflow again.
            if not losses.overflowed:
                place.finish([str(number)], losses.as_tree() if losses.values else None)

        return run

    def first_read(number: int) -> tuple[Path, int]:
        slots = [source[move.source].slot for move in prepared.plan.moves[number]]
        return min(((slot.path, slot.offset) for slot in slots), default=(Path(), 0))

    # Ranks that read the same tensor follow each other: it is still in memory.
    todo = sorted((number for number in range(len(contents)) if str(number) not in place.finished), key=first_read)
    done = sum(nbytes(content.slot) for number, content in enumerate(contents) if str(number) in place.finished)
    progress.advance(done)
    in_parallel([task(number) for number in todo], prepared.asked.threads)
    return progress.finish(), named_losses(contents, found)


def _fill(
    prepared: Prepared,
    files: OpenFiles,
    target: Content,
    moves: Sequence[Move],
    advance: Advance,
    losses: Losses,
    checksums: dict[Path, dict[int, int]],
    written: dict[tuple[Path, int], Written],
) -> None:
    """Write one tensor, and take the checksums of its bytes while they are in the processor's cache."""
    source, slot = prepared.stored.contents, target.slot
    copies = plain_copies(source, target, moves)
    checksum = Checksum() if slot.path.suffix == _TORCH_FILE else None
    hashed = hasher() if prepared.asked.verify and copies is not None else None

    def on_bytes(pieces: Sequence[memoryview]) -> None:
        if checksum is not None:
            checksum.add(pieces)
        if hashed is not None:
            for piece in pieces:
                hashed.update(piece)

    wanted = on_bytes if checksum is not None or hashed is not None else None
    fill(files, source, target, moves, copies, advance, losses, wanted)
    if checksum is not None:
        checksums.setdefault(slot.path, {})[slot.offset] = checksum.value
    if hashed is not None and copies is not None:
        written[slot.path, slot.offset] = Written(copies=copies, digest=hashed.digest())


def _seal(place: Staging, checksums: Mapping[Path, Mapping[int, int]], workers: int) -> float:
    """Write the checksums of torch.save files; return the seconds.

    What an interrupted conversion wrote is read again for them.
    """
    started = time.monotonic()
    files = sorted(place.directory.rglob(f"*{_TORCH_FILE}"))
    in_parallel([lambda path=path: seal(path, checksums.get(path)) for path in files], workers)  # type: ignore[misc]
    return time.monotonic() - started


def _laid_out(place: Staging, draft: Draft) -> list[Slot]:
    """Allocate all tensors, or return the slots that an interrupted conversion allocated."""
    root = place.directory
    if place.layout is not None:
        return [
            Slot(name=name, shape=tuple(shape), dtype=dtype, path=root / path, offset=offset)
            for name, shape, dtype, path, offset in place.layout
        ]
    slots = draft.create(root)
    mark(root, {slot.path for slot in slots})
    layout: list[Any] = [
        [slot.name, list(slot.shape), slot.dtype, str(slot.path.relative_to(root)), slot.offset] for slot in slots
    ]
    place.laid_out(layout)
    return slots


def _refuse_nan(stored: Stored, files: OpenFiles) -> None:
    broken = [content.slot for content in stored.contents if only_nan(files, content)]
    if broken:
        raise ConvertError(
            [
                f"{slot.path.name}: {slot.name} {list(slot.shape)} contains only NaN: the source is corrupt"
                for slot in broken
            ]
        )
