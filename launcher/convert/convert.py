"""One conversion from beginning to end: read names, plan, lay out, move, prove, rename."""

from __future__ import annotations

import gc
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher.convert.casts import FLOATS
from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.containers.workplace import Workplace, check_target
from launcher.convert.conversion import Conversion, Prepared
from launcher.convert.errors import ConvertError
from launcher.convert.formats.format import Draft, Target
from launcher.convert.fp8 import check_source, originals, quantise, stated, to_quantise, with_scales
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.logical import Logical, logical_model
from launcher.convert.move import fill, in_parallel
from launcher.convert.plan import make_plan
from launcher.convert.progress import Progress
from launcher.convert.prove import prove
from launcher.convert.records import Slot
from launcher.convert.report import Report
from launcher.convert.verify import only_nan

REPORT = "conversion.json"


def prepare(asked: Conversion) -> Prepared:
    """Read the source's names and shapes, and plan where every byte goes.

    Raises:
        ConvertError: the source does not fit its config.json, or cannot be written as asked; every problem at once.
        ContainerError: a file is damaged, unsafe or of an unknown kind, or the target cannot be written.
    """
    refuse_overlap(asked.out, asked.source, asked.donor)
    check_target(Path(os.path.realpath(asked.out)), overwrite=asked.overwrite)
    with _without_collector():
        return _prepared(asked)


def refuse_overlap(out: Path, source: Path, donor: Path | None) -> None:
    """Refuse a target that is, holds or lies in what is read: replacing it would take the source away.

    Raises:
        ConvertError: it is, holds or lies in `source` or `donor`.
    """
    target = out.resolve()
    for what, folder in (("the checkpoint that is read", source), ("--model", donor)):
        if folder is None:
            continue
        other = folder.resolve()
        if target == other or target in other.parents or other in target.parents:
            raise ConvertError(f"--out {out} and {what} ({folder}) overlap; works: another folder beside it")


@contextmanager
def _without_collector() -> Iterator[None]:
    """A plan is millions of small objects and no garbage; looking through them again and again takes half the time."""
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
    if problems:
        raise ConvertError(problems)
    if to_hf and asked.dtype is None:
        logical, stored = with_scales(logical, stored)
    dtypes = _dtypes(logical, stored, asked.dtype)
    known, fp8 = _quantised(asked, logical, dtypes)
    target = Target(logical=logical, dtypes=dtypes, layout=asked.layout, donor=asked.donor, fp8=fp8)
    try:
        draft = asked.target_format.draft(target)
    except ValueError as error:
        raise ConvertError(str(error)) from None
    plan = make_plan(stored.contents, draft.placeless(), logical.tensors)
    return Prepared(asked=asked, logical=logical, stored=stored, draft=draft, plan=plan, originals=known)


def _quantised(
    asked: Conversion, logical: Logical, dtypes: Mapping[str, str]
) -> tuple[Mapping[str, Content], frozenset[str]]:
    """Return the weights that `--model` has in FP8, and the names of those to store so: these, or DeepSeek's."""
    if not asked.fp8:
        return {}, frozenset()
    if asked.target_format.name != "hf":
        raise ConvertError(f"--fp8: {asked.target_format.title} cannot hold FP8 weights; works: mcore-to-hf")
    held = asked.donor is not None and any(asked.donor.glob("*.safetensors"))
    config, known = stated(asked.donor), {}
    if held and asked.donor:
        known = dict(originals(logical, logical_model(asked.model), safetensors.read(asked.donor).slots))
    names = to_quantise(logical, known, config)
    return known, frozenset(name for name in names if dtypes[name] != "F8_E4M3")


def _dtypes(logical: Logical, stored: Stored, wanted: str | None) -> Mapping[str, str]:
    """Return the number format in which each logical tensor is to be stored."""
    exact = {name for instance in logical.instances if instance.row.exact for name in instance.logical}
    found: dict[str, str] = {}
    problems = []
    for content in stored.contents:
        dtype = content.slot.dtype
        if content.boxes and dtype not in FLOATS:
            slot = content.slot
            problems.append(f"{slot.path.name}: {slot.name} is {dtype}; expected a weight: {', '.join(FLOATS)}")
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
    """Write what was planned, prove it, and give it its name.

    Raises:
        ConvertError: the result cannot be proved, or a tensor is nothing but NaN.
        ContainerError: no room, the target exists, a file is damaged.
    """
    asked = prepared.asked
    with (
        Workplace(asked.out, digest=_fingerprint(prepared), overwrite=asked.overwrite) as place,
        OpenFiles() as files,
    ):
        _refuse_nan(prepared.stored, files)
        if place.resumed:
            warn(f"{asked.out}: continuing an interrupted conversion")
        else:
            place.check_space(prepared.bytes_needed, prepared.draft.files)
        contents = prepared.draft.contents(_laid_out(place, prepared.draft))
        seconds = _move(prepared, contents, place, files, quiet=quiet)
        report = Report.of(prepared, seconds=seconds)
        if asked.verify:
            proof = prove(prepared, place.directory, files, quiet=quiet)
            if proof.problems:
                place.discard()
                raise ConvertError(proof.problems)
            report = report.proved(proof)
        (place.directory / REPORT).write_text(report.as_json(), encoding="utf-8")
        place.publish(durable=asked.durable)
    return report


def _move(
    prepared: Prepared, contents: tuple[Content, ...], place: Workplace, files: OpenFiles, *, quiet: bool
) -> float:
    progress = Progress("converting", prepared.bytes_written - prepared.bytes_padding, quiet=quiet)
    source = prepared.stored.contents

    def task(number: int) -> Callable[[], None]:
        def run() -> None:
            target, moves = contents[number], prepared.plan.moves[number]
            if target.scale is None:
                fill(files, source, target, moves, progress.advance)
            else:
                quantise(files, source, target, moves, progress.advance, prepared.original(number))
            place.finish([str(number)])

        return run

    todo = [number for number in range(len(contents)) if str(number) not in place.finished]
    done = sum(nbytes(content.slot) for number, content in enumerate(contents) if str(number) in place.finished)
    progress.advance(done)
    in_parallel([task(number) for number in todo], prepared.asked.threads)
    return progress.finish()


def _laid_out(place: Workplace, draft: Draft) -> list[Slot]:
    """Make room for all tensors, or find the room that an interrupted conversion made."""
    root = place.directory
    if place.layout is not None:
        return [
            Slot(name=name, shape=tuple(shape), dtype=dtype, path=root / path, offset=offset)
            for name, shape, dtype, path, offset in place.layout
        ]
    slots = draft.create(root)
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
                f"{slot.path.name}: {slot.name} {list(slot.shape)} holds nothing but NaN: the source is broken"
                for slot in broken
            ]
        )


def _fingerprint(prepared: Prepared) -> str:
    """Identify a conversion: the same one may continue where it was interrupted."""
    asked = prepared.asked
    files = sorted({content.slot.path for content in prepared.stored.contents})
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    wanted = [(tensor.name, tensor.shape) for tensor in prepared.draft.wanted]
    parts = [asked.source_format.name, asked.target_format.name, stats, wanted, prepared.draft.dtypes]
    return hashlib.sha256(json.dumps([*parts, repr(asked.layout), sorted(prepared.originals)]).encode()).hexdigest()
