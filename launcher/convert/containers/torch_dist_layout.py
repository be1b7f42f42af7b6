"""Lays out a torch_dist checkpoint without torch: chunks as holes in .distcp files, and the metadata for them.

Source: torch/distributed/checkpoint/{metadata,filesystem}.py; megatron-core 0.16.1 dist_checkpointing/serialization.py
and strategies/torch.py (what they write and assert), compared file by file with a checkpoint that they saved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from launcher.convert.containers import torch_file
from launcher.convert.containers.archive import ALIGNMENT
from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.files import create_sized
from launcher.convert.containers.pickling import Pickler
from launcher.convert.containers.records import Dtype, Inert, Slot, TensorSpec
from launcher.records import dataclass

CONFIG = {
    "sharded_backend": "torch_dist",
    "sharded_backend_version": 1,
    "common_backend": "torch",
    "common_backend_version": 1,
}
METADATA = "torch.distributed.checkpoint.metadata"
STORAGE_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpec:
    """A chunk to allocate: the block of `shape` at offset `at` of the global tensor `key`."""

    key: str
    global_shape: tuple[int, ...]
    at: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def name(self) -> str:
        """Return the name of the chunk's slot."""
        return chunk_name(self.key, self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSpec:
    """A small object to store under `key` ("..._extra_state/shard_0_4"), as one rank's ShardedObject holds it."""

    key: str
    value: Any


def chunk_name(key: str, at: Sequence[int]) -> str:
    """Return the name of a chunk: its global tensor and its offset in it."""
    return f"{key}@{','.join(map(str, at))}"


@dataclass(frozen=True, slots=True)
class _Item:
    file: str
    offset: int
    length: int


class _Writer:
    """Places items one after the other in .distcp files of limited size."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.files: list[list[tuple[int, bytes]]] = [[]]
        self.ends = [0]

    @property
    def name(self) -> str:
        return f"__0_{len(self.files) - 1}.distcp"

    def add(self, structure: Any, size: int) -> tuple[_Item, list[tuple[TensorSpec, int]]]:
        """Add the torch.save layout of `structure`, whose tensors have `size` bytes."""
        if self.ends[-1] and self.ends[-1] + size > self.limit:
            self.files.append([])
            self.ends.append(0)
        start = self.ends[-1] + -self.ends[-1] % ALIGNMENT
        layout, tensors = torch_file.lay_out_part(structure, "archive", start=start)
        self.files[-1] += layout.pieces
        self.ends[-1] = start + layout.size
        return _Item(self.name, start, layout.size), tensors


def create(
    directory: Path,
    chunks: Iterable[ChunkSpec],
    *,
    objects: Iterable[ObjectSpec] = (),
    common: Mapping[str, Any],
    content_metadata: Mapping[str, Any] | None = None,
    file_bytes: int = 5 * 10**9,
) -> list[Slot]:
    """Create a torch_dist checkpoint in `directory` (…/iter_0000001), with a hole for every chunk.

    Returns the chunks' slots in the order given. ValueError if the chunks of a tensor do not tile it exactly, or an
    object holds tensors with elements. `common` (args, iteration, checkpoint_version …) goes into common.pt.
    """
    wanted, small = list(chunks), list(objects)
    check_tiling(wanted)
    writer = _Writer(file_bytes)
    slots: list[Slot] = []
    items: list[_Item] = []
    for chunk in wanted:
        tensor = TensorSpec(name=chunk.name, shape=chunk.shape, dtype=chunk.dtype)
        item, ((_, at),) = writer.add(tensor, nbytes(tensor))
        items.append(item)
        slots.append(Slot(name=chunk.name, shape=chunk.shape, dtype=chunk.dtype, path=directory / item.file, offset=at))
    kept = [_object(writer, entry) for entry in small]
    for number, (pieces, end) in enumerate(zip(writer.files, writer.ends, strict=True)):
        create_sized(directory / f"__0_{number}.distcp", pieces, end)
    state = dict(common) | ({"content_metadata": dict(content_metadata)} if content_metadata is not None else {})
    if torch_file.create(directory / "common.pt", state):
        raise ValueError("common.pt: tensors are not stored there")
    raw = Pickler().dump(_metadata(wanted, items, small, kept))
    create_sized(directory / ".metadata", [(0, raw)], len(raw))
    config = json.dumps(CONFIG).encode()
    create_sized(directory / "metadata.json", [(0, config)], len(config))
    return slots


def _object(writer: _Writer, entry: ObjectSpec) -> _Item:
    # megatron-core stores a list of this rank's objects for a key: always one (strategies/torch.py:296).
    item, tensors = writer.add([entry.value], 0)
    if any(nbytes(tensor) for tensor, _ in tensors):
        raise ValueError(f"{entry.key}: an object cannot hold tensors with elements")
    return item


def _metadata(
    chunks: Sequence[ChunkSpec], items: Sequence[_Item], objects: Sequence[ObjectSpec], kept: Sequence[_Item]
) -> Inert:
    entries: dict[str, Inert] = {}
    places: dict[Inert, Inert] = {}
    by_key: dict[str, list[ChunkSpec]] = {}
    for chunk, item in zip(chunks, items, strict=True):
        by_key.setdefault(chunk.key, []).append(chunk)
        places[_index(chunk.key, chunk.at)] = _info(item)
    for key, parts in by_key.items():
        entries[key] = _tensor_entry(parts)
    for entry, item in zip(objects, kept, strict=True):
        if entry.key in entries:
            raise ValueError(f"{entry.key}: appears twice")
        entries[entry.key] = Inert(name=f"{METADATA}.BytesStorageMetadata")
        places[_index(entry.key, None)] = _info(item)
    state = {
        "state_dict_metadata": entries,
        "planner_data": None,
        "storage_data": places,
        "storage_meta": None,
        "version": "1.0.0",
    }
    return Inert(name=f"{METADATA}.Metadata", state=state)


def _size(sizes: Sequence[int]) -> Inert:
    return Inert(name="torch.Size", made="call", arguments=(tuple(sizes),))


def _tensor_entry(parts: Sequence[ChunkSpec]) -> Inert:
    layout = Inert(name="torch.serialization._get_layout", made="call", arguments=("torch.strided",))
    contiguous = Inert(name=f"{METADATA}._MEM_FORMAT_ENCODING", made="call", arguments=(0,))
    properties = (Dtype(name=parts[0].dtype), layout, False, contiguous, False)
    state = {
        "properties": Inert(name=f"{METADATA}.TensorProperties", state=properties),
        "size": _size(parts[0].global_shape),
        "chunks": [
            Inert(
                name=f"{METADATA}.ChunkStorageMetadata",
                state={"offsets": _size(part.at), "sizes": _size(part.shape)},
            )
            for part in parts
        ],
    }
    return Inert(name=f"{METADATA}.TensorStorageMetadata", state=state)


def _index(key: str, at: Sequence[int] | None) -> Inert:
    offset = {} if at is None else {"offset": _size(at)}
    return Inert(name=f"{METADATA}.MetadataIndex", state={"fqn": key, "index": None, **offset})


def _info(item: _Item) -> Inert:
    state = {"relative_path": item.file, "offset": item.offset, "length": item.length}
    return Inert(name=STORAGE_INFO, state=state)


def check_tiling(chunks: Iterable[ChunkSpec]) -> None:
    """Raise ValueError for global tensors whose chunks leave a gap, overlap, or disagree in shape or dtype."""
    by_key: dict[str, list[ChunkSpec]] = {}
    for chunk in chunks:
        by_key.setdefault(chunk.key, []).append(chunk)
    for key, parts in by_key.items():
        shapes = {(part.global_shape, part.dtype) for part in parts}
        if len(shapes) > 1:
            raise ValueError(f"{key}: its chunks disagree about the global tensor: {sorted(shapes)[:2]}")
        problem = tiling_problem(parts[0].global_shape, [(part.at, part.shape) for part in parts])
        if problem:
            raise ValueError(f"{key}: {problem}")


Block = tuple[tuple[int, ...], tuple[int, ...]]


def tiling_problem(shape: tuple[int, ...], blocks: Sequence[Block]) -> str | None:
    """Return why blocks (offsets, sizes) do not tile a tensor of this shape exactly; None if they do."""
    for at, sizes in blocks:
        if len(at) != len(shape) or len(sizes) != len(shape):
            return f"a chunk at {at} of shape {sizes} does not have the {len(shape)} dimensions of {shape}"
        if any(first + size > whole for first, size, whole in zip(at, sizes, shape, strict=True)):
            return f"the chunk at {at} of shape {sizes} reaches out of {shape}"
    covered = sum(prod(sizes) for _, sizes in blocks)
    if covered != prod(shape):
        return f"its chunks hold {covered} of {prod(shape)} elements"
    if not _is_grid(shape, blocks):
        pair = _overlap(sorted(block for block in blocks if prod(block[1])))
        return f"the chunks at {pair[0][0]} and {pair[1][0]} overlap" if pair else None
    return None


def _is_grid(shape: tuple[int, ...], blocks: Sequence[Block]) -> bool:
    """Return whether the blocks are a full regular grid, without comparing them pairwise."""
    cells = 1
    for axis in range(len(shape)):
        cuts = {(at[axis], sizes[axis]) for at, sizes in blocks}
        cells *= len(cuts)
        end = 0
        for first, size in sorted(cuts):
            if first != end:
                return False
            end = first + size
    return cells == len(blocks) == len(set(blocks))


def _overlap(blocks: Sequence[Block]) -> tuple[Block, Block] | None:
    """Return two blocks that share an element, among blocks sorted by their first offset."""
    live: list[Block] = []
    for block in blocks:
        live = [other for other in live if other[0][0] + other[1][0] > block[0][0]] if block[0] else live
        for other in live:
            if _meet(block, other):
                return other, block
        live.append(block)
    return None


def _meet(one: Block, other: Block) -> bool:
    rows = zip(one[0], one[1], other[0], other[1], strict=True)
    return all(first < second + length and second < first + size for first, size, second, length in rows)
