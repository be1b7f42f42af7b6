"""safetensors reader and layout: a length, a JSON header, then the tensors back to back.

Format: huggingface/safetensors README "Format" and safetensors/src/tensor.rs (what its reader rejects).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from launcher.convert.containers.dtypes import SIZES, nbytes
from launcher.convert.containers.errors import Damaged, Unsupported
from launcher.convert.containers.files import create_sized, open_to_read, read_exactly
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.records import dataclass

INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # safetensors/src/tensor.rs MAX_HEADER_SIZE
_MAX_INDEX = 2**28
_SIGNED_64 = 2**63
_SMALL_DTYPES = ("F4", "F6_E2M3", "F6_E3M2")
PT = {"format": "pt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of a safetensors file or a directory of them, in file order."""

    slots: tuple[Slot, ...]
    metadata: dict[str, str]
    files: tuple[Path, ...]


def read(path: Path) -> Contents:
    """Read the headers of a file, or of a directory with an index or a single file; reads no tensor data.

    Damaged if a header, an offset or the index contradicts the files.
    """
    if not path.is_dir():
        return _read_file(path)
    indexes = sorted(path.glob("*.safetensors.index.json"))
    if len(indexes) > 1:
        raise Unsupported(path, f"{len(indexes)} indexes: {', '.join(index.name for index in indexes)}")
    if indexes:
        return _read_index(indexes[0])
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise Damaged(path, "no *.safetensors file there", works="a directory of a Hugging Face model in safetensors")
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:3])
        raise Damaged(
            path, f"{len(files)} *.safetensors files ({names}, …) and no index", works=f"a {INDEX} beside them"
        )
    return _read_file(files[0])


def _read_index(index: Path) -> Contents:
    weight_map = _index_map(index)
    files = [index.parent / name for name in dict.fromkeys(weight_map.values())]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise Damaged(index, f"{len(missing)} of {len(files)} shards are missing: {', '.join(missing[:5])}")
    slots: list[Slot] = []
    metadata: dict[str, str] = {}
    where: dict[str, str] = {}
    for file in files:
        contents = _read_file(file)
        metadata |= contents.metadata
        for slot in contents.slots:
            if slot.name in where:
                raise Damaged(index, f"stored twice, in {where[slot.name]} and {file.name}", tensor=slot.name)
            where[slot.name] = file.name
            slots.append(slot)
    for name, file_name in weight_map.items():
        if where.get(name) != file_name:
            raise Damaged(index, "not where the index says", tensor=name, expected=file_name, found=where.get(name))
    unnamed = sorted(where.keys() - weight_map.keys())
    if unnamed:
        raise Damaged(index, f"{len(unnamed)} tensors of the shards are not in the index", tensor=unnamed[0])
    return Contents(slots=tuple(slots), metadata=metadata, files=tuple(files))


def _index_map(index: Path) -> dict[str, str]:
    if index.stat().st_size > _MAX_INDEX:
        raise Damaged(index, "too large", expected=f"at most {_MAX_INDEX} bytes", found=index.stat().st_size)
    try:
        tree = json.loads(index.read_bytes(), object_pairs_hook=_unique)
        weight_map = tree["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise Damaged(index, f"not an index with a weight_map: {error}") from None
    if not isinstance(weight_map, dict) or not weight_map:
        raise Damaged(index, "its weight_map names no tensors")
    for name, file_name in weight_map.items():
        plain = (
            isinstance(file_name, str) and file_name == os.path.basename(file_name) and file_name not in ("", ".", "..")
        )
        if not plain or "\0" in file_name:
            raise Damaged(index, "its shard is not a file name", tensor=name, found=file_name)
    return weight_map


def _read_file(path: Path) -> Contents:
    descriptor = open_to_read(path)
    try:
        size = os.fstat(descriptor).st_size
        length = int.from_bytes(read_exactly(descriptor, path, 0, 8, "the header's length"), "little")
        if length > _MAX_HEADER or 8 + length > size:
            raise Damaged(path, f"the header claims {length} bytes", expected="at most the file", found=f"{size} bytes")
        raw = read_exactly(descriptor, path, 8, length, "the header")
    finally:
        os.close(descriptor)
    header = _parse(path, raw)
    metadata = _metadata(path, header.pop("__metadata__", {}))
    slots = sorted((_slot(path, name, entry, 8 + length) for name, entry in header.items()), key=_by_place)
    _check_cover(path, slots, 8 + length, size)
    return Contents(slots=tuple(slots), metadata=metadata, files=(path,))


def _by_place(slot: Slot) -> tuple[int, int]:
    return slot.offset, nbytes(slot)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice")
    return tree


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        raise Damaged(path, "the header is not JSON: not a safetensors file", expected="{", found=raw[:8])
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise Damaged(path, f"the header is not UTF-8 at byte {8 + error.start}") from None
    except (ValueError, RecursionError) as error:
        raise Damaged(path, f"the header is not valid JSON: {error}") from None
    assert isinstance(header, dict)
    return header


def _metadata(path: Path, entry: object) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise Damaged(path, "its __metadata__ is not a table of strings")
    return entry


def _slot(path: Path, name: str, entry: object, data_at: int) -> Slot:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Damaged(path, "its entry does not have exactly dtype, shape and data_offsets", tensor=name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype in _SMALL_DTYPES:
        raise Unsupported(path, f"dtype {dtype} has less than a byte per element", tensor=name)
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise Damaged(path, "unknown dtype", tensor=name, expected=", ".join(SIZES), found=dtype)
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise Damaged(path, "shape and data_offsets are not lists of sizes", tensor=name, found=f"{shape}, {offsets}")
    begin, end = offsets
    expected = prod(shape) * SIZES[dtype]
    if end - begin != expected:
        found = f"{end - begin} (data_offsets {begin}..{end})"
        raise Damaged(path, f"{dtype} {shape} has another size", tensor=name, expected=f"{expected} bytes", found=found)
    return Slot(name=name, shape=tuple(shape), dtype=dtype, path=path, offset=data_at + begin)


def _naturals(values: object) -> bool:
    if not isinstance(values, list):
        return False
    return all(type(value) is int and 0 <= value < _SIGNED_64 for value in values)


def _check_cover(path: Path, slots: list[Slot], data_at: int, size: int) -> None:
    """Reject gaps, overlaps and a file that does not end with its last tensor, as safetensors' own reader does."""
    at = data_at
    for slot in slots:
        if slot.offset != at:
            problem = "overlaps the tensor before it" if slot.offset < at else "there is a gap before it"
            raise Damaged(path, problem, tensor=slot.name, expected=f"byte {at}", found=f"byte {slot.offset}")
        at += nbytes(slot)
    if at != size:
        problem = "truncated" if at > size else "bytes after the last tensor"
        raise Damaged(path, problem, expected=f"{at} bytes", found=f"{size} bytes")


def create(
    directory: Path,
    tensors: Iterable[TensorSpec],
    *,
    shard_bytes: int = 5 * 10**9,
    metadata: Mapping[str, str] = PT,
    stem: str = "model",
) -> list[Slot]:
    """Allocate the tensors in shards of at most `shard_bytes` (a larger tensor has its own) and write the index.

    Returns their slots in the order given; the files contain headers and otherwise holes.
    """
    wanted = list(tensors)
    shards = _shards(wanted, shard_bytes)
    if len(shards) == 1:
        return create_file(directory / f"{stem}.safetensors", wanted, metadata=metadata)
    slots: list[Slot] = []
    weight_map: dict[str, str] = {}
    _check_unique(directory, wanted)
    for number, shard in enumerate(shards, 1):
        path = directory / f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"
        slots += create_file(path, shard, metadata=metadata)
        weight_map |= {tensor.name: path.name for tensor in shard}
    index = {"metadata": {"total_size": sum(map(nbytes, wanted))}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n"
    create_sized(directory / f"{stem}.safetensors.index.json", [(0, text)], len(text))
    return slots


def _shards(tensors: list[TensorSpec], limit: int) -> list[list[TensorSpec]]:
    shards: list[list[TensorSpec]] = [[]]
    filled = 0
    for tensor in tensors:
        if shards[-1] and filled + nbytes(tensor) > limit:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += nbytes(tensor)
    return shards


def _check_unique(path: Path, tensors: list[TensorSpec]) -> None:
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors) or "__metadata__" in names:
        every = ["__metadata__", *(tensor.name for tensor in tensors)]
        twice = next(name for name in every if every.count(name) > 1)
        raise ValueError(f"{path}: two tensors are called {twice}")


def create_file(path: Path, tensors: Iterable[TensorSpec], *, metadata: Mapping[str, str] = PT) -> list[Slot]:
    """Allocate the tensors in one file; returns their slots in the order given.

    Wider elements come first, as in safetensors' own writer, so every tensor is aligned to its element size.
    """
    wanted = list(tensors)
    _check_unique(path, wanted)
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    places: dict[str, int] = {}
    at = 0
    for tensor in sorted(wanted, key=lambda tensor: -SIZES[tensor.dtype]):
        end = at + nbytes(tensor)
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
        places[tensor.name] = at
        at = end
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)
    create_sized(path, [(0, len(raw).to_bytes(8, "little") + raw)], 8 + len(raw) + at)
    start = 8 + len(raw)
    return [
        Slot(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, path=path, offset=start + places[tensor.name])
        for tensor in wanted
    ]
