"""MindFormers' checkpoints on disk: writes files for its loaders, reads files written by its training."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from backends.mindformers.checkpoint.chunks import Chunk, whole_chunks
from backends.mindformers.checkpoint.classes import network_of, title_of, version_of
from backends.mindformers.checkpoint.found import checkpoint_folder, found_in, recognises
from backends.mindformers.checkpoint.meaning import meanings
from backends.mindformers.checkpoint.metadata import metadata_json
from backends.mindformers.checkpoint.older import older_of, older_parameters
from backends.mindformers.checkpoint.options import is_old, per_rank
from backends.mindformers.checkpoint.rank_folders import CHECKPOINT, STRATEGY, rank_parts, write_strategies
from backends.mindformers.checkpoint.ranks import rank_chunks
from backends.mindformers.checkpoint.tensors import OPTIONS, Parameter, arrangement_of, parameters
from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.containers.tracker import TRACKER, write_tracker
from launcher.convert.formats.format import Draft, Format, Layout, Target, below, vocabulary_of
from launcher.convert.formats.huggingface import CONFIGURATION, copy_along
from launcher.convert.layouts.content import Stored, Wanted
from launcher.convert.logical import Logical
from launcher.records import dataclass

# Folder of the checkpoint for config.json and the tokenizer, which suffices to convert back to Hugging Face.
CONFIG: Final = "huggingface"
ITERATION: Final = 1
_FOLDER: Final = f"iteration_{ITERATION:08d}"
_FILE: Final = 5 * 10**9
# checkpoint/checkpoint.py, CommonInfo @1.8.0: the fields in every version with this file.
_COMMON: Final = ("epoch_num", "step_num", "global_step", "loss_scale", "global_batch_size")
# Iterations as saved by 1.7 and later, ranks and strategies as saved by 1.6, whole files for legacy classes.
_FILES: Final = (
    *(TRACKER, "param_name_map.json", "*.safetensors", "*.safetensors.index.json"),
    *below("iteration_*", ("*.safetensors", "metadata.json", "common.json")),
    *(f"{folder}rank_*/{name}" for folder in ("", f"{CHECKPOINT}/") for name in ("*.safetensors", "meta.json")),
    f"{STRATEGY}/ckpt_strategy_rank_*.ckpt",
    *below(CONFIG, CONFIGURATION),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Parameters to write, and their files.

    Attributes:
        named: whole parameters.
        chunks, dtypes, files: parts of them, their number formats, and the file of each below the target.
        old: file layout of 1.6, which the legacy classes load in every version.
        record: metadata in the files' headers.
    """

    named: tuple[Parameter, ...]
    chunks: tuple[Chunk, ...]
    dtypes: tuple[str, ...]
    files: tuple[str, ...]
    old: bool
    record: dict[str, str]


def _read(path: Path, logical: Logical, layout: Layout) -> tuple[Logical, Stored]:
    return meanings(logical, found_in(path, layout), layout)


def _draft(target: Target) -> Draft:
    layout = target.layout
    arrangement = arrangement_of(layout)
    record = {"format": "ms"}
    older = network_of(target.logical, layout) == "older"
    vocabulary = None if layout.vocabulary is None else vocabulary_of(target.logical, layout)
    if older:
        choice = older_of(target.logical, layout)
        named = tuple(older_parameters(target.logical, choice, vocabulary=vocabulary))
    else:
        named = tuple(parameters(target.logical, arrangement, vocabulary=vocabulary))
        record["arrangement"] = json.dumps(dataclasses.asdict(arrangement))
    old = older or is_old(layout)
    if per_rank(layout):
        chunks = tuple((rank_parts if old else rank_chunks)(target.logical, named, layout))
    else:
        chunks = tuple(whole_chunks(named))
    wanted = tuple(Wanted(name=chunk.label, shape=chunk.shape, boxes=chunk.boxes, fill=chunk.fill) for chunk in chunks)
    dtypes = target.dtypes_of([(chunk.name, each) for chunk, each in zip(chunks, wanted, strict=True)])
    files = tuple(_files(chunks, dtypes, old=old))
    placed = _Placed(named=named, chunks=chunks, dtypes=dtypes, files=files, old=old, record=record)

    def create(directory: Path) -> list[Slot]:
        return _create(directory, target, placed)

    chosen = f"for MindFormers {version_of(layout)} with use_legacy: {older} ({title_of(target.logical, layout)})"
    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=6 + 2 * len(set(files)), notes=(chosen,))


def _files(chunks: tuple[Chunk, ...], dtypes: tuple[str, ...], *, old: bool) -> list[str]:
    """Return the file of each chunk: one per rank, or files of up to 5 GB."""
    if any(chunk.rank is not None for chunk in chunks):
        numbers = [chunk.rank or 0 for chunk in chunks]
        if old:
            return [f"{CHECKPOINT}/rank_{n}/model_rank_{n}-{ITERATION}_{ITERATION}.safetensors" for n in numbers]
    else:
        numbers, number, filled = [], 0, 0
        for chunk, dtype in zip(chunks, dtypes, strict=True):
            size = math.prod(chunk.shape) * itemsize(dtype)
            if filled and filled + size > _FILE:
                number, filled = number + 1, 0
            filled += size
            numbers.append(number)
    count = max(numbers, default=0) + 1
    if old:
        return [f"ms-model-{n + 1:05d}-of-{count:05d}.safetensors" for n in numbers]
    return [f"{_FOLDER}/model-{n:07d}-{count:07d}.safetensors" for n in numbers]


def _create(directory: Path, target: Target, placed: _Placed) -> list[Slot]:
    copy_along(target.donor, directory / CONFIG, target)
    slots: dict[int, Slot] = {}
    for file in dict.fromkeys(placed.files):
        own = [index for index, name in enumerate(placed.files) if name == file]
        chunks = [placed.chunks[index] for index in own]
        specs = [
            TensorSpec(name=one.name, shape=one.declared, dtype=placed.dtypes[i])
            for i, one in zip(own, chunks, strict=True)
        ]
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        made = safetensors.create_file(directory / file, specs, metadata=placed.record)
        slots.update(zip(own, made, strict=True))
    _write_beside(directory, target, placed)
    return [_as_planned(slots[index], chunk) for index, chunk in enumerate(placed.chunks)]


def _write_beside(directory: Path, target: Target, placed: _Placed) -> None:
    """Write the files that loaders need besides the tensors."""
    chunks, files = placed.chunks, [Path(file).name for file in placed.files]
    of_ranks = any(chunk.rank is not None for chunk in chunks)
    if placed.old and of_ranks:
        write_strategies(directory / STRATEGY, target.logical, placed.named, target.layout, chunks)
    elif placed.old:
        _write(directory / "param_name_map.json", {one.name: file for one, file in zip(chunks, files, strict=True)})
    else:
        folder = directory / _FOLDER
        # Not needed for whole tensors (generate_default_metadata_from_checkpoint), and 1.8.0 cannot load it for them.
        if of_ranks:
            _write(folder / "metadata.json", metadata_json(chunks, placed.dtypes, files))
        _write(folder / "common.json", dict.fromkeys(_COMMON, 0) | {"loss_scale": None, "global_batch_size": None})
        write_tracker(directory, ITERATION)


def _as_planned(slot: Slot, chunk: Chunk) -> Slot:
    """Return the slot with the chunk's shape; the same bytes."""
    return Slot(name=chunk.label, shape=chunk.shape, dtype=slot.dtype, path=slot.path, offset=slot.offset)


def _write(path: Path, tree: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(tree, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _config(path: Path) -> Path | None:
    for folder in (path, checkpoint_folder(path).parent):
        if (folder / CONFIG / "config.json").is_file():
            return folder / CONFIG
    return None


FORMAT = Format(
    name="mindformers",
    title="MindFormers safetensors",
    kind="mcore",
    recognises=recognises,
    read=_read,
    draft=_draft,
    config=_config,
    options=OPTIONS,
    holds=_FILES,
)
