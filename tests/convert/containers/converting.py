"""A small conversion in a process of its own, to be killed: `python -m tests.convert.containers.converting OUT …`."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ContainerError
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.containers.transfer import OpenFiles, write
from launcher.convert.staging import Staging
from launcher.outputs.contents import Contents, Known, contents_of
from tests.convert.containers.bytes_of import expected

TENSORS = [TensorSpec(name=f"tensor{number}", shape=(5000,), dtype="U8") for number in range(60)]


def old(folder: Path) -> Contents:
    """Know a folder with one file `old`, or one that this module wrote."""
    shards = ("*.safetensors", "*.json")
    return contents_of(folder, "an old result", Known(patterns=("old", *shards)))


def laid_out(place: Staging) -> list[Slot]:
    if place.layout is None:
        slots = safetensors.create(place.directory, TENSORS, shard_bytes=50_000)
        place.laid_out([[slot.path.name, slot.offset] for slot in slots])
    return [
        Slot(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, path=place.directory / name, offset=offset)
        for tensor, (name, offset) in zip(TENSORS, place.layout, strict=True)
    ]


def convert(target: Path, *, pause: float, overwrite: bool, space: bool) -> dict[str, int]:
    with Staging(target, digest="plan", overwrite=overwrite, judge=old) as place, OpenFiles() as files:
        if space:
            place.check_space(60 * 5000, 8)
        slots = laid_out(place)
        todo = [slot for slot in slots if slot.name not in place.finished]

        def move(slot: Slot) -> None:
            data = expected(slot)
            write(files, slot.path, slot.offset, [data[:2500]])
            time.sleep(pause)
            write(files, slot.path, slot.offset + 2500, [data[2500:]])
            place.finish([slot.name])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(move, todo))
        place.publish()
        return {"moved": len(todo)}


if __name__ == "__main__":
    options = sys.argv[2:]
    try:
        done = convert(
            Path(sys.argv[1]),
            pause=0.005 if "slow" in options else 0,
            overwrite="overwrite" in options,
            space="space" in options,
        )
    except ContainerError as error:
        sys.exit(f"refused: {error}")
    print(json.dumps(done))
