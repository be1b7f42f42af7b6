"""Finds the files of a MindFormers checkpoint and the parameters in them; nothing is read but headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backends.mindformers.checkpoint.metadata import FILE, Part, parts_of
from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ContainerError, Damaged
from launcher.convert.errors import ConvertError
from launcher.convert.records import Slot

TRACKER: Final = "latest_checkpointed_iteration.txt"
MAP: Final = "param_name_map.json"
_OPTIMIZER: Final = re.compile(r"(.+-)?opt-\d+-\d+\.safetensors")
_OURS: Final = re.compile(r"(embedding\.word_embeddings\.|decoder\.|mtp\.|output_layer\.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A part of a parameter and where its bytes lie."""

    part: Part
    slot: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a folder holds: parts, optimizer files that are left alone, and what the files' own record says."""

    held: tuple[Held, ...]
    skipped: tuple[str, ...] = ()
    record: dict[str, str] = field(default_factory=dict)


def checkpoint_folder(path: Path) -> Path:
    """Return the folder that holds the files: the one given, or the last iteration in it."""
    tracker = path / TRACKER
    if not tracker.is_file():
        return path
    text = tracker.read_text(encoding="utf-8", errors="replace").strip()
    return path / (f"iteration_{int(text):08d}" if text.isdigit() else text)


def recognises(path: Path) -> bool:
    """Tell whether a folder holds what MindFormers writes, by names alone (one header where names do not tell)."""
    if not path.is_dir():
        return False
    folder = checkpoint_folder(path)
    if (folder / FILE).is_file() and any(folder.glob("*.safetensors")):
        return True
    if (folder / MAP).is_file() or any(path.glob("rank_*/*.safetensors")):
        return True
    first = next(iter(sorted(folder.glob("*.safetensors"))), None)
    if first is None or (folder / safetensors.INDEX).is_file():
        return False
    try:
        return any(_OURS.match(slot.name) for slot in safetensors.read(first).slots)
    except ContainerError:
        return False


def found_in(path: Path) -> Found:
    """Return the parameters of a checkpoint.

    Raises:
        Damaged: a file is missing or does not hold what metadata.json says.
        ConvertError: ranks of an older version, whose cut is not told by their files.
    """
    folder = checkpoint_folder(path)
    if not folder.is_dir():
        raise Damaged(folder, f"{path / TRACKER} names it, and it is not there")
    if (folder / FILE).is_file():
        return _by_metadata(folder)
    ranks = sorted(path.glob("rank_*/*.safetensors"))
    if ranks:
        raise ConvertError(
            f"{path}: {len({file.parent for file in ranks})} rank(s) without metadata.json: how their tensors were cut"
            " is in MindSpore's strategy files only; works: MindFormers' toolkit/safetensors/unified_safetensors.py"
            " --src_strategy_dirs STRATEGY --mindspore_ckpt_dir THIS --output_dir WHOLE"
            " --filter_out_param_prefix adam_, then this conversion on WHOLE"
        )
    return _whole(folder)


def _by_metadata(folder: Path) -> Found:
    contents: dict[str, safetensors.Contents] = {}
    slots: dict[str, dict[str, Slot]] = {}
    held, skipped = [], set()
    for part in parts_of(folder / FILE):
        if _OPTIMIZER.fullmatch(part.file):
            skipped.add(part.file)
            continue
        if part.file not in contents:
            contents[part.file] = safetensors.read(folder / part.file)
            slots[part.file] = {slot.name: slot for slot in contents[part.file].slots}
        slot = slots[part.file].get(part.name)
        if slot is None:
            raise Damaged(folder / part.file, f"{FILE} says that it is here", tensor=part.name)
        if slot.shape != part.shape:
            raise Damaged(
                folder / part.file, f"not as {FILE} says", tensor=part.name, expected=part.shape, found=slot.shape
            )
        held.append(Held(part=part, slot=slot))
    return Found(held=tuple(held), skipped=tuple(sorted(skipped)), record=_record(contents.values()))


def _whole(folder: Path) -> Found:
    files = sorted(folder.glob("*.safetensors"))
    _check_map(folder, files)
    contents = [safetensors.read(file) for file in files if not _OPTIMIZER.fullmatch(file.name)]
    held: list[Held] = []
    # A tensor in two files is a repeat (the toolkit writes the embedding with an MTP layer again): all are compared.
    for slot in (slot for found in contents for slot in found.slots):
        at = (0,) * len(slot.shape)
        part = Part(name=slot.name, whole=slot.shape, at=at, shape=slot.shape, file=slot.path.name)
        held.append(Held(part=part, slot=slot))
    skipped = tuple(file.name for file in files if _OPTIMIZER.fullmatch(file.name))
    return Found(held=tuple(held), skipped=skipped, record=_record(contents))


def _check_map(folder: Path, files: list[Path]) -> None:
    path = folder / MAP
    if not path.is_file():
        return
    try:
        named = set(json.loads(path.read_bytes()).values())
    except (ValueError, AttributeError, TypeError) as error:
        raise Damaged(path, f"not a table of file names: {error}") from None
    missing = sorted(map(str, named - {file.name for file in files}))
    if missing:
        raise Damaged(path, f"{len(missing)} of {len(named)} files are missing: {', '.join(missing[:5])}")


def _record(contents: Iterable[safetensors.Contents]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in contents:
        found |= one.metadata
    return found
