"""Writes a model's weights as MindFormers loads them in data parallel mode: one whole file in a folder of each rank.

In that mode there is no strategy file to slice complete weights with, and before 2.x the mcore models for training do
not read Hugging Face's (parallel_core/utils/model_mixin.py:137, 1.8.0).

python -m backends.mindformers.rehearse.weights SOURCE FOLDER RANKS [OVERRIDE ...]
"""

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = "weights"
_CONVERTED, _JOINED, _NAME = "converted", "joined.safetensors", "weights.safetensors"


def has_rank_folders(source: Path) -> bool:
    """Return whether a folder was written by MindFormers' ranks, each of which loads its own part."""
    return (source / "rank_0").is_dir()


def main(words: Sequence[str]) -> int:
    """Convert SOURCE, unless it has MindFormers' names already, and link it into RANKS folders below FOLDER."""
    source, folder, ranks, overrides = Path(words[0]), Path(words[1]), int(words[2]), words[3:]
    if (source / "config.json").is_file():
        target = folder / _CONVERTED
        command = [sys.executable, "-m", "launcher", "convert", "hf-to-mcore", "--model", str(source)]
        code = subprocess.call([*command, "--out", str(target), "--overwrite", *overrides])
        if code:
            return code
        source = target
    files = sorted(source.rglob("*.safetensors"))
    if not files:
        print(f"{source} has no safetensors file")
        return 1
    if len(files) > 1:
        folder.mkdir(parents=True, exist_ok=True)
        files = [_joined(files, folder / _JOINED)]
    for rank in range(ranks):
        place = folder / f"rank_{rank}" / _NAME
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(files[0].resolve())
    return 0


def _joined(files: Sequence[Path], out: Path) -> Path:
    """Write the tensors of several files, as weights and LoRA factors, to one: each rank loads one in that mode."""
    header: dict[str, Any] = {}
    starts, at = [], 0
    for file in files:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            own = json.loads(stream.read(length))
        metadata = {**header.get("__metadata__", {}), **own.pop("__metadata__", {})}
        for tensor in own.values():
            tensor["data_offsets"] = [at + offset for offset in tensor["data_offsets"]]
        header |= {**own, "__metadata__": metadata}
        starts.append(8 + length)
        at += file.stat().st_size - 8 - length
    text = json.dumps(header).encode()
    with out.open("wb") as target:
        target.write(struct.pack("<Q", len(text)) + text)
        for file, start in zip(files, starts, strict=True):
            with file.open("rb") as stream:
                stream.seek(start)
                shutil.copyfileobj(stream, target)
    return out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
