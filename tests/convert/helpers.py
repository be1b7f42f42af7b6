"""What the conversion tests share: running the command, and reading tensors without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launcher.cli import main


def launch(*words: object) -> int:
    """Run `launch convert …`."""
    return main(["convert", *(str(word) for word in words)])


def tensors(folder: Path) -> dict[str, Any]:
    """Name to (dtype, shape, bytes) of every tensor of a Hugging Face folder."""
    from launcher.convert.containers import safetensors
    from launcher.convert.containers.dtypes import nbytes

    found = {}
    for slot in safetensors.read(folder).slots:
        with slot.path.open("rb") as file:
            file.seek(slot.offset)
            found[slot.name] = (slot.dtype, slot.shape, file.read(nbytes(slot)))
    return found


def write(folder: Path, arrays: dict[str, Any], config: dict[str, Any] | str) -> Path:
    """Write numpy arrays (or pairs of safetensors dtype and words) as a Hugging Face folder."""
    import json
    import os

    from launcher.convert.containers import safetensors
    from launcher.convert.containers.records import TensorSpec

    names = {"float32": "F32", "uint16": "BF16", "uint8": "F8_E4M3", "int32": "I32"}
    folder.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text, encoding="utf-8")
    specs = [TensorSpec(name=name, shape=a.shape, dtype=names[str(a.dtype)]) for name, a in arrays.items()]
    for slot in safetensors.create(folder, specs):
        descriptor = os.open(slot.path, os.O_RDWR)
        os.pwrite(descriptor, arrays[slot.name].tobytes(), slot.offset)
        os.close(descriptor)
    return folder
