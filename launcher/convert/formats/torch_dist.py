"""megatron-core's `torch_dist` checkpoints on disk, with what its loaders need besides weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from launcher.convert.containers import torch_dist
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.containers.tracker import TRACKER, write_tracker
from launcher.convert.formats.arguments import megatron_arguments
from launcher.convert.formats.format import Draft, Format, Layout, Target, below, vocabulary_of
from launcher.convert.formats.huggingface import CONFIGURATION, copy_along
from launcher.convert.layouts.content import Stored, Wanted
from launcher.convert.layouts.core import Naming, undivided
from launcher.convert.layouts.torch_dist import (
    Chunk,
    Found,
    extra_states,
    other_state,
    torch_dist_chunks,
    torch_dist_read,
)
from launcher.convert.logical import Logical

# Folder of the checkpoint with config.json and the tokenizer, so that the reverse conversion needs nothing else.
CONFIG = "huggingface"
ITERATION = 1
_FILE = 5 * 10**9
# Extra state that transformer-engine 2 stores for a layer without FP8 (module/base.py get_extra_state).
_EMPTY = TensorSpec(name="_extra_state", shape=(0,), dtype="U8")
# Tensor naming for megatron-core 0.16's loader: plain chunks, layers stacked if all are of one kind.
_CONTENT_METADATA = {"singleton_local_shards": False}


# One iteration's files: torch/distributed/checkpoint/filesystem.py, megatron-core dist_checkpointing/core.py.
_FILES = (".metadata", "*.distcp", "common.pt", "metadata.json", "args.json")
HOLDS = (
    *(TRACKER, *_FILES),
    *(pattern for folder in ("iter_*", "release") for pattern in below(folder, _FILES)),
    *below(CONFIG, CONFIGURATION),
)


def _recognises(path: Path) -> bool:
    return any((folder / ".metadata").is_file() for folder in (path, *_iterations(path)))


def _iterations(path: Path) -> list[Path]:
    return [*path.glob("iter_*"), *path.glob("release")]


def _read(path: Path, logical: Logical, _layout: Layout) -> tuple[Logical, Stored]:
    checkpoint = torch_dist.read(path, wanted=lambda key: other_state(key) is None)
    found = [
        Found(key=chunk.key, whole=chunk.global_shape, at=chunk.at, slot=chunk.slot) for chunk in checkpoint.chunks
    ]
    logical, stored = torch_dist_read(logical, found)
    skipped = {key: other_state(key) or "not asked for" for key in checkpoint.skipped}
    return logical, dataclasses.replace(stored, dropped=skipped)


def _draft(target: Target) -> Draft:
    layout = target.layout
    naming: Naming = layout.naming or "transformer_engine"
    vocabulary = vocabulary_of(target.logical, layout)
    chunks = list(torch_dist_chunks(target.logical, naming=naming, vocabulary=vocabulary, stack=layout.stack))
    wanted = tuple(Wanted(name=chunk.key, shape=chunk.shape, boxes=chunk.boxes, fill=chunk.fill) for chunk in chunks)
    dtypes = tuple(chunk.dtype or target.dtype(tensor) for chunk, tensor in zip(chunks, wanted, strict=True))

    def create(directory: Path) -> list[Slot]:
        return _create(directory, target, chunks, dtypes, naming)

    total = sum(_elements(tensor.shape) * itemsize(dtype) for tensor, dtype in zip(wanted, dtypes, strict=True))
    # The checkpoint is the same for every layout; only the padding of the vocabulary depends on tp.
    notes = tuple(
        f"{problem.text}: no backend trains with this parallel.tp; the checkpoint does not depend on it"
        for problem in undivided(target.logical.model, vocabulary, layout.tp)
    )
    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=5 + total // _FILE, notes=notes)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _create(
    directory: Path, target: Target, chunks: list[Chunk], dtypes: tuple[str, ...], naming: Naming
) -> list[Slot]:
    specs = [
        torch_dist.ChunkSpec(key=chunk.key, global_shape=chunk.whole, at=chunk.at, shape=chunk.shape, dtype=dtype)
        for chunk, dtype in zip(chunks, dtypes, strict=True)
    ]
    states = extra_states(target.logical, naming=naming, stack=target.layout.stack)
    objects = [torch_dist.ObjectSpec(key=key, value=_EMPTY) for key in states]
    copy_along(target.donor, directory / CONFIG, target)
    folder = directory / f"iter_{ITERATION:07d}"
    folder.mkdir()
    slots: list[Slot] = torch_dist.create(
        folder,
        specs,
        objects=objects,
        common=_common(target),
        content_metadata=_CONTENT_METADATA,
        file_bytes=_FILE,
    )
    write_tracker(directory, ITERATION)
    return slots


def _common(target: Target) -> dict[str, Any]:
    return {
        "args": megatron_arguments(target, ITERATION),
        "checkpoint_version": 3.0,
        "iteration": ITERATION,
        "num_floating_point_operations_so_far": 0,
    }


def _config(path: Path) -> Path | None:
    folder = path / CONFIG
    return folder if (folder / "config.json").is_file() else None


FORMAT = Format(
    name="torch_dist",
    title="Megatron-core torch_dist",
    kind="mcore",
    recognises=_recognises,
    read=_read,
    draft=_draft,
    config=_config,
    layers=("transformer_engine", "local"),
    holds=HOLDS,
)
