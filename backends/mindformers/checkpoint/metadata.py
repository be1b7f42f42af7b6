"""metadata.json: locations of the parts of each parameter, written and read by MindFormers since 1.7."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.mindformers.checkpoint.chunks import Chunk
from launcher.convert.containers.errors import Damaged, Unsupported
from launcher.records import dataclass

FILE = "metadata.json"
# MindSpore's dtype names without the module prefix (mindspore.common.dtype, str()).
_NAMES = {"F32": "Float32", "BF16": "BFloat16", "F16": "Float16", "F64": "Float64", "I64": "Int64", "I32": "Int32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a parameter in metadata.json."""

    name: str
    whole: tuple[int, ...]
    at: tuple[int, ...]
    shape: tuple[int, ...]
    file: str


def metadata_json(chunks: Sequence[Chunk], dtypes: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    """Return what checkpoint/metadata.py (save_metadata @1.8.0) writes for these parts."""
    state: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    for chunk, dtype, file in zip(chunks, dtypes, files, strict=True):
        entry = state.setdefault(
            chunk.name,
            {
                "properties": {
                    "dtype": _NAMES.get(dtype, dtype),
                    "replica_id": 0,
                    "allow_shape_mismatch": False,
                    "allow_to_save": True,
                },
                "global_shape": list(chunk.whole),
                "axis_fragmentations": list(chunk.pieces),
                "layout": _layout(chunk),
                "chunk": [],
            },
        )
        number = (_number(chunk),)
        entry["chunk"].append({"global_offset": list(number), "local_shape": list(chunk.shape)})
        rank = chunk.rank or 0
        # utils.py, get_sharded_tensor_shard_id
        storage[str((chunk.name, number))] = [{"file_name": file, "storage_rank": rank, "rank_group": [rank]}]
    return {"state_dict_metadata": state, "storage_data": storage}


def _number(chunk: Chunk) -> int:
    """Return the `global_offset` of a part: not an offset but its index, the last dimension varying fastest.

    sharded_tensor.py, _rank_id_with_slice_id @1.8.0 and @2.1.0.
    """
    number = 0
    for at, size, pieces in zip(chunk.at, chunk.shape, chunk.pieces, strict=True):
        number = number * pieces + at // size
    return number


def _begin(number: int, shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...]:
    """Return the offset of the part with that index."""
    at = []
    for size, total in reversed(list(zip(shape, whole, strict=True))):
        pieces = total // size if size else 1
        at.append(number % pieces * size)
        number //= pieces
    return tuple(reversed(at))


def _layout(chunk: Chunk) -> dict[str, Any]:
    """Return the distribution of parts over a stage's ranks as a dict of mindspore.parallel.Layout.to_dict.

    Never null: 1.8.0's load_metadata reads the layout without checking for null.
    """
    pieces = math.prod(chunk.pieces)
    return {
        "device_matrix": [len(chunk.ranks) // pieces, pieces],
        "tensor_map": [0 if count > 1 else -1 for count in chunk.pieces],
        "interleaved_parallel": False,
        "alias_name": ["dp", "tp"],
        "rank_list": list(chunk.ranks),
    }


def parts_of(path: Path) -> Iterator[Part]:
    """Return every part listed in a metadata.json; if several ranks wrote a part, that of the first rank.

    Raises:
        Damaged: it is not valid JSON, or a part has no file.
    """
    try:
        tree = json.loads(path.read_bytes())
        state, storage = tree["state_dict_metadata"], tree["storage_data"]
        places = {_place(key): entries for key, entries in storage.items()}
        for name, entry in state.items():
            yield from _parts(path, name, entry, places)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, SyntaxError) as error:
        raise Damaged(path, f"not the metadata of a checkpoint: {type(error).__name__} {error}") from None


def _parts(path: Path, name: str, entry: Mapping[str, Any], places: Mapping[Any, Any]) -> Iterator[Part]:
    whole = tuple(entry["global_shape"])
    if (entry.get("layout") or {}).get("interleaved_parallel"):
        raise Unsupported(path, "cut for interleaved parallelism (fine_grain_interleave)", tensor=name)
    for chunk in entry["chunk"]:
        shape, numbers = tuple(chunk["local_shape"]), tuple(chunk["global_offset"])
        stored = places.get((name, numbers))
        if not stored:
            raise Damaged(path, f"no file is named for its part {list(numbers)}", tensor=name)
        file = stored[0]["file_name"]
        if not isinstance(file, str) or Path(file).name != file:
            raise Damaged(path, "its file is not a file name", tensor=name, found=str(file))
        yield Part(name=name, whole=whole, at=_begin(numbers[0], shape, whole), shape=shape, file=file)


def _place(key: str) -> tuple[str, tuple[int, ...]]:
    name, at = ast.literal_eval(key)
    return str(name), tuple(at)
