"""MindFormers' checkpoints on disk: what is written for its loaders, and what its training writes, read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from backends.mindformers.checkpoint.chunks import Chunk, whole_chunks
from backends.mindformers.checkpoint.found import checkpoint_folder, found_in, recognises
from backends.mindformers.checkpoint.meaning import meanings
from backends.mindformers.checkpoint.metadata import metadata_json
from backends.mindformers.checkpoint.ranks import rank_chunks
from backends.mindformers.checkpoint.tensors import Arrangement, arrangement_of, is_old, parameters, truth
from backends.mindformers.mapping_support import TRAINABLE
from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.records import TensorSpec
from launcher.convert.errors import ConvertError
from launcher.convert.formats.format import Draft, Format, Layout, Target
from launcher.convert.formats.huggingface import copy_along
from launcher.convert.layouts.content import Stored, Wanted
from launcher.convert.logical import Logical
from launcher.convert.records import Slot

# Folder of the checkpoint that keeps config.json and the tokenizer, so that the way back needs nothing else.
CONFIG: Final = "huggingface"
ITERATION: Final = 1
_FILE: Final = 5 * 10**9
# checkpoint/checkpoint.py, CommonInfo @1.8.0: the fields that every version with this file knows.
_COMMON: Final = ("epoch_num", "step_num", "global_step", "loss_scale", "global_batch_size")


def _read(path: Path, logical: Logical, layout: Layout) -> tuple[Logical, Stored]:
    return meanings(logical, found_in(path), layout)


def _draft(target: Target) -> Draft:
    layout = target.layout
    arrangement = arrangement_of(layout)
    _refuse_untrainable(target, layout)
    named = parameters(target.logical, arrangement, vocabulary=layout.vocabulary)
    if truth("per_rank", layout.options.get("per_rank", "false")):
        if is_old(layout):
            raise ConvertError(
                "--set per_rank=true: MindFormers 1.6 finds ranks by a strategy file that only its compiler writes;"
                " works: without it, and auto_trans_ckpt=True in the job"
            )
        chunks = list(rank_chunks(target.logical, named, layout))
    else:
        chunks = list(whole_chunks(named))
    wanted = tuple(Wanted(name=chunk.label, shape=chunk.shape, boxes=chunk.boxes, fill=chunk.fill) for chunk in chunks)
    dtypes = tuple(target.dtype(tensor) for tensor in wanted)
    sizes = [math.prod(chunk.shape) * itemsize(dtype) for chunk, dtype in zip(chunks, dtypes, strict=True)]
    files = _files(chunks, sizes)

    def create(directory: Path) -> list[Slot]:
        return _create(directory, target, arrangement, chunks, dtypes, files)

    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=6 + max(files, default=0))


def _refuse_untrainable(target: Target, layout: Layout) -> None:
    kind = target.logical.model.model_type or ""
    version = next(name for name in TRAINABLE if name.startswith("1.6") == is_old(layout))
    if kind not in TRAINABLE[version]:
        others = ", ".join(TRAINABLE[version])
        raise ConvertError(
            f"MindFormers {version} has no class of its mcore graph that trains {kind}: no file would be loaded"
            f" (it trains {others}; its older classes load Hugging Face's folder as it is)"
        )


def _files(chunks: list[Chunk], sizes: list[int]) -> list[int]:
    """The number of the file of each chunk: its rank's, or 5 GB after the other."""
    if any(chunk.rank is not None for chunk in chunks):
        return [chunk.rank or 0 for chunk in chunks]
    numbers, number, filled = [], 0, 0
    for size in sizes:
        if filled and filled + size > _FILE:
            number, filled = number + 1, 0
        filled += size
        numbers.append(number)
    return numbers


def _create(
    directory: Path,
    target: Target,
    arrangement: Arrangement,
    chunks: list[Chunk],
    dtypes: tuple[str, ...],
    files: list[int],
) -> list[Slot]:
    copy_along(target.donor, directory / CONFIG, target)
    old, count = is_old(target.layout), max(files, default=0) + 1
    folder = directory if old else directory / f"iteration_{ITERATION:08d}"
    folder.mkdir(exist_ok=True)
    named = [f"ms-model-{n + 1:05d}-of-{count:05d}" if old else f"model-{n:07d}-{count:07d}" for n in range(count)]
    record = {"format": "ms", "arrangement": json.dumps(_as_tree(arrangement))}
    slots: dict[int, Slot] = {}
    for number, stem in enumerate(named):
        own = [index for index, file in enumerate(files) if file == number]
        specs = [TensorSpec(name=chunks[i].name, shape=chunks[i].declared, dtype=dtypes[i]) for i in own]
        made = safetensors.create_file(folder / f"{stem}.safetensors", specs, metadata=record)
        slots.update(zip(own, made, strict=True))
    placed = [f"{named[file]}.safetensors" for file in files]
    if old:
        _write(folder / "param_name_map.json", {chunk.name: file for chunk, file in zip(chunks, placed, strict=True)})
    else:
        # Whole tensors need none (generate_default_metadata_from_checkpoint); 1.8.0 cannot take theirs back.
        if any(chunk.rank is not None for chunk in chunks):
            _write(folder / "metadata.json", metadata_json(chunks, dtypes, placed))
        _write(folder / "common.json", dict.fromkeys(_COMMON, 0) | {"loss_scale": None, "global_batch_size": None})
        (directory / "latest_checkpointed_iteration.txt").write_text(str(ITERATION), encoding="utf-8")
    return [_as_planned(slots[index], chunk) for index, chunk in enumerate(chunks)]


def _as_planned(slot: Slot, chunk: Chunk) -> Slot:
    """The same bytes under the chunk's own shape."""
    return Slot(name=chunk.label, shape=chunk.shape, dtype=slot.dtype, path=slot.path, offset=slot.offset)


def _as_tree(arrangement: Arrangement) -> dict[str, bool]:
    return {
        "interleaved_mlp": arrangement.interleaved_mlp,
        "contiguous_qkv": arrangement.contiguous_qkv,
        "mla_concat": arrangement.mla_concat,
    }


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
)
