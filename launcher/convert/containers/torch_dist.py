"""Reads a torch_dist checkpoint (torch.distributed.checkpoint as megatron-core uses it) without torch.

Every chunk of every global tensor becomes a slot with its offset in the global tensor; pickles are never executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from launcher.convert.containers import torch_file
from launcher.convert.containers.dtypes import TORCH_DTYPES
from launcher.convert.containers.errors import Damaged, Unsupported, shown
from launcher.convert.containers.files import open_to_read, read_exactly
from launcher.convert.containers.records import Inert, Slot
from launcher.convert.containers.torch_dist_layout import (
    METADATA,
    STORAGE_INFO,
    ChunkSpec,
    ObjectSpec,
    chunk_name,
    create,
    tiling_problem,
)
from launcher.convert.containers.torch_objects import load
from launcher.convert.containers.tracker import TRACKER, read_tracker
from launcher.records import dataclass
from launcher.syntax import is_count

__all__ = [
    "Checkpoint",
    "Chunk",
    "ChunkSpec",
    "ObjectSpec",
    "StoredObject",
    "chunk_name",
    "create",
    "locate",
    "read",
    "read_object",
]

_MODULES = ("torch.distributed.",)
_COMMON = "common_state/shard_0_1"
# Upper bounds, above any real checkpoint, on what is read at once, whatever sizes a file (or a hole) declares.
_MOST_METADATA = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A stored block of the global tensor `key`, at offset `at` in `global_shape`, with the slot's shape."""

    slot: Slot
    key: str
    global_shape: tuple[int, ...]
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """A small object stored beside the tensors (transformer-engine's extra state, random state)."""

    key: str
    path: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Contents of one iteration's directory; `skipped` are the keys of tensors that `wanted` excluded."""

    directory: Path
    iteration: int | None
    common: dict[str, Any]
    content_metadata: dict[str, Any] | None
    chunks: tuple[Chunk, ...]
    objects: tuple[StoredObject, ...]
    skipped: tuple[str, ...]


def locate(path: Path) -> Path:
    """Return the directory of the iteration: `path` itself, or the one that its tracker names."""
    if (path / ".metadata").is_file() or (path / "metadata.json").is_file():
        return path
    tracker = path / TRACKER
    if not path.is_dir():
        raise Damaged(path, "not a directory" if path.exists() else "no such directory")
    if not tracker.is_file():
        found = sorted(entry.name for entry in path.iterdir())[:5]
        raise Damaged(
            path, "no torch_dist checkpoint", expected=f".metadata or {TRACKER}", found=found or "an empty directory"
        )
    word = read_tracker(tracker)
    directory = path / (word if word == "release" else f"iter_{word:07d}")
    if not directory.is_dir():
        raise Damaged(tracker, f"names {word}, but {directory.name} is missing")
    return directory


def read(path: Path, *, wanted: Callable[[str], bool] = lambda key: True, allow: tuple[str, ...] = ()) -> Checkpoint:
    """Read the root (with its tracker) or one iteration's directory; reads no tensor data, executes nothing.

    `wanted` selects global tensors by key (optimizer states are many). Damaged if metadata and files disagree.
    """
    directory = locate(path)
    _check_config(directory)
    entries, places = _metadata(directory / ".metadata")
    objects = tuple(_object(directory, key, places) for key, entry in entries.items() if _is_bytes(entry))
    common = _common(directory, objects, allow)
    content = common.get("content_metadata")
    objects = tuple(stored for stored in objects if stored.key != _COMMON)
    tensors = {key: entry for key, entry in entries.items() if not _is_bytes(entry)}
    with ExitStack() as stack:
        chunks = [chunk for key, entry in tensors.items() if wanted(key) for chunk in _chunks(directory, key, entry)]
        opened = _Files(directory, stack)
        stored = tuple(_stored(opened, chunk, places, allow) for chunk in chunks)
    return Checkpoint(
        directory=directory,
        iteration=_iteration(directory, common),
        common=common,
        content_metadata=content if isinstance(content, dict) else None,
        chunks=stored,
        objects=objects,
        skipped=tuple(key for key in tensors if not wanted(key)),
    )


def _common(directory: Path, objects: tuple[StoredObject, ...], allow: tuple[str, ...]) -> dict[str, Any]:
    """Read what is not sharded: a file, or an object since megatron-core 0.19 (dist_checkpointing/serialization.py)."""
    path = directory / "common.pt"
    stored = next((stored for stored in objects if stored.key == _COMMON), None)
    if stored is None or path.exists():
        common = torch_file.read(path, allow=allow)
    else:
        path, common = stored.path, read_object(stored, allow=allow)
    if not isinstance(common, dict):
        raise Damaged(path, "not a table", expected="args, iteration …", found=type(common).__name__)
    return common


def _iteration(directory: Path, common: Mapping[str, Any]) -> int | None:
    iteration = common.get("iteration")
    if type(iteration) is int:
        return iteration
    word = directory.name.removeprefix("iter_")
    return int(word) if is_count(word) else None


def _check_config(directory: Path) -> None:
    path = directory / "metadata.json"
    try:
        config = json.loads(path.read_bytes())
        backend = config["sharded_backend"]
    except FileNotFoundError:
        raise Damaged(path, "missing: an interrupted save, or no torch_dist checkpoint") from None
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise Damaged(path, f"not megatron-core's table of backends: {shown(error)}") from None
    if backend != "torch_dist":
        raise Unsupported(path, "another sharded_backend", expected="torch_dist", found=backend)


_Places = dict[tuple[str, tuple[int, ...] | None], tuple[str, int, int]]


def _metadata(path: Path) -> tuple[dict[str, Inert], _Places]:
    """Read `.metadata`: the entries by key, and the file, offset and length of each item (key, offsets or None)."""
    descriptor = open_to_read(path)
    try:
        length = os.fstat(descriptor).st_size
        if length > _MOST_METADATA:
            raise Damaged(path, "too large", expected=f"at most {_MOST_METADATA} bytes", found=length)
        data = read_exactly(descriptor, path, 0, length, "the metadata")
    finally:
        os.close(descriptor)
    top = load(data, path, allow=_MODULES)
    if not isinstance(top, Inert) or top.name != f"{METADATA}.Metadata":
        raise Damaged(path, "not the metadata of torch.distributed.checkpoint")
    entries, items = top.attributes.get("state_dict_metadata"), top.attributes.get("storage_data")
    if not isinstance(entries, dict) or not isinstance(items, dict):
        raise Damaged(path, "lacks state_dict_metadata or storage_data")
    places: _Places = {}
    for index, info in items.items():
        if not isinstance(index, Inert) or not isinstance(info, Inert) or info.name != STORAGE_INFO:
            raise Damaged(path, "an entry of its storage_data is not a location in a file")
        key, at = index.attributes.get("fqn"), index.attributes.get("offset")
        place: Any = tuple(info.attributes.get(field) for field in ("relative_path", "offset", "length"))
        if type(key) is not str or not (at is None or _is_sizes(at)) or not _is_place(place):
            raise Damaged(path, "an entry of its storage_data is malformed", tensor=str(key))
        if info.attributes.get("transform_descriptors"):
            raise Unsupported(path, "stored through a transform (compressed)", tensor=key)
        places[key, at] = place
    if not all(type(key) is str and isinstance(entry, Inert) for key, entry in entries.items()):
        raise Damaged(path, "an entry of its state_dict_metadata is malformed")
    return entries, places


def _is_place(place: tuple[Any, ...]) -> bool:
    name, offset, length = place
    plain = type(name) is str and name == os.path.basename(name) and name not in ("", ".", "..") and name.isprintable()
    return plain and _is_sizes((offset, length))


def _is_sizes(values: Any) -> bool:
    return type(values) is tuple and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _is_bytes(entry: Inert) -> bool:
    return entry.name == f"{METADATA}.BytesStorageMetadata"


def _object(directory: Path, key: str, places: _Places) -> StoredObject:
    if (key, None) not in places:
        raise Damaged(directory / ".metadata", "its location in a file is not recorded", tensor=key)
    name, offset, length = places[key, None]
    return StoredObject(key=key, path=directory / name, offset=offset, length=length)


def _chunks(directory: Path, key: str, entry: Inert) -> Iterator[ChunkSpec]:
    path = directory / ".metadata"
    properties: Any = entry.attributes.get("properties")
    shape: Any = entry.attributes.get("size")
    parts: Any = entry.attributes.get("chunks")
    state = properties.state if isinstance(properties, Inert) else None
    dtype = state[0] if type(state) is tuple and state and isinstance(state[0], Inert) else None
    name = TORCH_DTYPES.get(dtype.name.removeprefix("torch.")) if dtype else None
    if name is None or not _is_sizes(shape) or type(parts) is not list:
        raise Damaged(path, "its entry is malformed or of an unknown dtype", tensor=key, found=dtype and dtype.name)
    fields = [part.attributes if isinstance(part, Inert) else {} for part in parts]
    blocks: list[Any] = [(part.get("offsets"), part.get("sizes")) for part in fields]
    if not all(_is_sizes(at) and _is_sizes(sizes) for at, sizes in blocks):
        raise Damaged(path, "its chunks are malformed", tensor=key)
    problem = tiling_problem(shape, blocks)
    if problem:
        raise Damaged(path, problem, tensor=key)
    for at, sizes in blocks:
        yield ChunkSpec(key=key, global_shape=shape, at=at, shape=sizes, dtype=name)


class _Files:
    """The .distcp files of a directory, each opened once."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self._opened: dict[str, tuple[int, Path, int]] = {}

    def get(self, name: str, key: str) -> tuple[int, Path, int]:
        """Return descriptor, path and size."""
        if name not in self._opened:
            path = self.directory / name
            if not path.is_file():
                raise Damaged(path, "the file is missing", tensor=key)
            descriptor = open_to_read(path)
            self._stack.callback(os.close, descriptor)
            self._opened[name] = descriptor, path, os.fstat(descriptor).st_size
        return self._opened[name]

    def check(self, name: str, key: str, offset: int, length: int) -> tuple[int, Path]:
        """Return descriptor and path of the file that holds an item; Damaged if the file ends before the item."""
        descriptor, path, size = self.get(name, key)
        if offset + length > size:
            raise Damaged(path, "truncated", tensor=key, expected=f"{offset + length} bytes", found=f"{size} bytes")
        return descriptor, path


def _stored(files: _Files, chunk: ChunkSpec, places: _Places, allow: tuple[str, ...]) -> Chunk:
    place = places.get((chunk.key, chunk.at))
    if place is None:
        raise Damaged(files.directory / ".metadata", "its location in a file is not recorded", tensor=chunk.name)
    name, offset, length = place
    descriptor, path = files.check(name, chunk.key, offset, length)
    slot = torch_file.read_part(descriptor, path, offset, length, allow=allow, what=chunk.name)
    if not isinstance(slot, Slot):
        raise Damaged(path, "its item is not a tensor", tensor=chunk.name, found=type(slot).__name__)
    if (slot.shape, slot.dtype) != (chunk.shape, chunk.dtype):
        expected, found = f"{chunk.dtype} {chunk.shape}", f"{slot.dtype} {slot.shape}"
        raise Damaged(path, "another tensor than .metadata says", tensor=chunk.name, expected=expected, found=found)
    return Chunk(slot=slot, key=chunk.key, global_shape=chunk.global_shape, at=chunk.at)


def read_object(stored: StoredObject, *, allow: tuple[str, ...] = ()) -> Any:
    """Read one small object: the structure of a ShardedObject, with slots in place of tensors."""
    with ExitStack() as stack:
        files = _Files(stored.path.parent, stack)
        descriptor, path = files.check(stored.path.name, stored.key, stored.offset, stored.length)
        values = torch_file.read_part(descriptor, path, stored.offset, stored.length, allow=allow, what=stored.key)
    if type(values) is not list or len(values) != 1:
        raise Damaged(path, "not the list of one object that megatron-core stores", tensor=stored.key)
    return values[0]
