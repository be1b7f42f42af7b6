"""Finds the files of a MindFormers checkpoint and their parameters; reads only headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Final

from backends.mindformers.checkpoint.metadata import FILE, Part, parts_of
from backends.mindformers.checkpoint.rank_folders import ARGUMENT, rank_folders, read_ranks
from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ContainerError, Damaged
from launcher.convert.containers.records import Slot
from launcher.convert.containers.tracker import TRACKER, read_tracker
from launcher.convert.formats.format import Layout
from launcher.records import dataclass

MAP: Final = "param_name_map.json"
_OPTIMIZER: Final = re.compile(r"(.+-)?opt-\d+-\d+\.safetensors")
_OURS: Final = re.compile(
    r"(embedding\.word_embeddings\.|decoder\.|output_layer\.|model\.tok_embeddings\.embedding_weight|model\.norm_out\."
    # Qwen3-Next's files have mtp.layers, too.
    r"|mtp\.layers\.\d+\.(transformer_layer|enorm|hnorm|eh_proj|final_layernorm)\."
    # InternLM2's layers have an attention and a feed_forward, too, Llama 4's a feed_forward.
    r"|model\.layers\.\d+\.attention\.(?!wqkv\.|wo\.|rotary_emb\.)"
    r"|model\.layers\.\d+\.feed_forward\.(?!w[123]\.|(gate|up|down)_proj|experts\.|shared_expert\.|router\.weight))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedPart:
    """A part of a parameter and the location of its bytes."""

    part: Part
    slot: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Contents of a checkpoint folder.

    Attributes:
        parts: parts of parameters.
        skipped: optimizer files, which are ignored.
        record: metadata in the files' headers.
        notes: choices made between several candidates.
        hint: another possible cause if the parts do not fit the model.
    """

    parts: tuple[LocatedPart, ...]
    skipped: tuple[str, ...] = ()
    record: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    hint: str | None = None


def checkpoint_folder(path: Path) -> Path:
    """Return the folder with the files: the given one, or that of its last iteration."""
    tracker = path / TRACKER
    if not tracker.is_file():
        return path
    word = read_tracker(tracker)
    return path / (word if word == "release" else f"iteration_{word:08d}")


def recognises(path: Path) -> bool:
    """Return whether a folder is a MindFormers checkpoint, by file names (or one header if names are ambiguous)."""
    if not path.is_dir():
        return False
    folder = checkpoint_folder(path)
    if (folder / FILE).is_file() and any(folder.glob("*.safetensors")):
        return True
    if (folder / MAP).is_file() or any(
        next(one.glob(kind), None) for one in rank_folders(path).values() for kind in ("*.safetensors", "*.ckpt")
    ):
        return True
    first = next(iter(sorted(folder.glob("*.safetensors"))), None)
    if first is None or (folder / safetensors.INDEX).is_file():
        return False
    try:
        return any(_OURS.match(slot.name) for slot in safetensors.read(first).slots)
    except ContainerError:
        return False


def found_in(path: Path, layout: Layout) -> Found:
    """Return the parameters of a checkpoint.

    Raises:
        Damaged: a file is missing or contradicts metadata.json or the strategy.
        ConvertError: unsupported file format.
    """
    folder = checkpoint_folder(path)
    if not folder.is_dir():
        raise Damaged(folder, f"{path / TRACKER} names it, and it is not there")
    if (folder / FILE).is_file():
        return _by_metadata(folder)
    folders = rank_folders(path)
    if not folders:
        return _whole(folder)
    ranks = read_ranks(path, folders, layout)
    hint = (
        f"{len(folders)} rank(s) without strategy files: every tensor was taken as whole; if the training cut them,"
        f" works: its strategy folder beside them, or"
        f" --source backend=mindformers --source '+backend.args={{{ARGUMENT}:DIR}}'"
    )
    parts = tuple(LocatedPart(part=part, slot=slot) for part, slot in ranks.parts)
    return Found(parts=parts, notes=ranks.notes, hint=hint if ranks.whole else None)


def _by_metadata(folder: Path) -> Found:
    contents: dict[str, safetensors.Contents] = {}
    slots: dict[str, dict[str, Slot]] = {}
    parts, skipped = [], set()
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
        parts.append(LocatedPart(part=part, slot=slot))
    return Found(parts=tuple(parts), skipped=tuple(sorted(skipped)), record=_record(contents.values()))


def _whole(folder: Path) -> Found:
    files = sorted(folder.glob("*.safetensors"))
    _check_map(folder, files)
    contents = [safetensors.read(file) for file in files if not _OPTIMIZER.fullmatch(file.name)]
    parts: list[LocatedPart] = []
    # A tensor in two files is a duplicate (the toolkit writes the embedding with an MTP layer again): all are compared.
    for slot in (slot for found in contents for slot in found.slots):
        at = (0,) * len(slot.shape)
        part = Part(name=slot.name, whole=slot.shape, at=at, shape=slot.shape, file=slot.path.name)
        parts.append(LocatedPart(part=part, slot=slot))
    skipped = tuple(file.name for file in files if _OPTIMIZER.fullmatch(file.name))
    return Found(parts=tuple(parts), skipped=skipped, record=_record(contents))


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
