"""The same model with the neurons of its MLPs in another order: one function, whose sums round differently."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Rows of the first two and columns of the third belong to one neuron (transformers' names; w1, w3, w2: Mixtral).
_MLPS = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))


def reordered_model(model: Path, out: Path) -> bool:
    """Write the model with the neurons of each MLP reversed; return False where it has no MLP under a known name."""
    from safetensors.torch import load_file, save_file

    changed = False
    out.mkdir(parents=True)
    for file in sorted(each for each in model.iterdir() if each.is_file()):
        if file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
            continue
        tensors = load_file(file)
        for name, axis in list(_neurons(tensors)):
            tensors[name] = tensors[name].flip(axis).contiguous()
            changed = True
        save_file(tensors, out / file.name, metadata={"format": "pt"})
    return changed


def neuron_axis(module: str) -> int | None:
    """Return the axis of a weight that counts the neurons of its MLP: 0 of gate and up, 1 of down; None: no MLP."""
    for gate, up, down in _MLPS:
        if module in (gate, up):
            return 0
        if module == down:
            return 1
    return None


def _neurons(tensors: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the tensors that hold neurons, and their axis."""
    for name, tensor in tensors.items():
        part = name.rsplit(".", 2)[-2] if name.count(".") > 1 else ""
        axis = neuron_axis(part)
        if axis is not None and tensor.dim() > axis:
            yield name, axis
