"""Prints what the file of an offline run of Weights & Biases holds, as JSON; needs wandb's own message types.

The file is a log of blocks as LevelDB's (wandb 0.31.0, core/internal/transactionlog): after a head of 7 bytes, each
part has a checksum, its length and whether it is the whole record, its first, a middle or its last part.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEAD, _BLOCK = 7, 32768
_PART = struct.Struct("<IHB")
_WHOLE, _LAST = 1, 4


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file."""
    at, record = _HEAD, b""
    while at + _PART.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _PART.size:
            at += left
            continue
        _, length, kind = _PART.unpack_from(data, at)
        at += _PART.size
        record += data[at : at + length]
        at += length
        if kind in (_WHOLE, _LAST):
            yield record
            record = b""


def read(path: Path) -> dict[str, Any]:
    """Return project, name and entity of the run, its configuration, and what was logged at each step."""
    from wandb.proto import wandb_internal_pb2

    run: dict[str, Any] = {"config": {}, "history": []}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            run |= {"project": record.run.project, "name": record.run.display_name, "entity": record.run.entity}
            run["config"] |= _items(record.run.config.update)
        elif record.HasField("config"):
            run["config"] |= _items(record.config.update)
        elif record.HasField("history"):
            run["history"].append(_items(record.history.item))
    return run


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]))))
