"""What the conversion tests share: running the command, and reading tensors without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main


def launch(*args: object) -> int:
    """Run `launch convert …`."""
    return main(["convert", *(str(arg) for arg in args)])


def convert_until_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, args: Sequence[object], whole: Path, out: Path, *, left: int = 8
) -> None:
    """Run a command to its end, and again with a disk that is full when `left` writes are left.

    Weights are written last, after all that lays the files out.
    """
    import errno
    import os

    done, most = [0], [10**9]

    def filling(really: Callable[[int, Any, int], int]) -> Callable[[int, Any, int], int]:
        def write(descriptor: int, data: Any, at: int) -> int:
            done[0] += 1
            if done[0] > most[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return really(descriptor, data, at)

        return write

    with monkeypatch.context() as patched:
        for name in ("pwrite", "pwritev"):
            patched.setattr(os, name, filling(getattr(os, name)))
        assert launch(*args, "--out", whole) == 0
        done[0], most[0] = 0, done[0] - left
        assert launch(*args, "--out", out) == 1
    assert not out.exists()


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

    names = {
        "float16": "F16",
        "float32": "F32",
        "float64": "F64",
        "uint16": "BF16",
        "uint8": "F8_E4M3",
        "int32": "I32",
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text, encoding="utf-8")
    specs = [TensorSpec(name=name, shape=a.shape, dtype=names[str(a.dtype)]) for name, a in arrays.items()]
    for slot in safetensors.create(folder, specs):
        descriptor = os.open(slot.path, os.O_RDWR)
        os.pwrite(descriptor, arrays[slot.name].tobytes(), slot.offset)
        os.close(descriptor)
    return folder


def arrays_of(folder: Path) -> dict[str, Any]:
    """Name to numpy array of every tensor of a Hugging Face folder; bf16 and fp8 as words."""
    import numpy as np

    kinds = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2", "F8_E4M3": "u1"}
    return {
        name: np.frombuffer(data, dtype=kinds[dtype]).reshape(shape)
        for name, (dtype, shape, data) in tensors(folder).items()
    }


def with_mtp(model: Callable[[str], Path], folder: Path, name: str = "deepseek_v3", **changed: Any) -> Path:
    """A model with one MTP layer, as DeepSeek and Zhipu publish them: with copies of embedding and head."""
    import json

    import numpy as np

    plain = arrays_of(model(name))
    config = json.loads((model(name) / "config.json").read_text())
    config["num_nextn_predict_layers"] = 1
    rng = np.random.default_rng(1)
    layer = {name.replace("layers.3.", "layers.4."): plain[name] + 1 for name in plain if "layers.3." in name}
    hidden = config["hidden_size"]
    new = {"enorm": (hidden,), "hnorm": (hidden,), "eh_proj": (hidden, 2 * hidden), "shared_head.norm": (hidden,)}
    for name, shape in new.items():
        layer[f"model.layers.4.{name}.weight"] = rng.standard_normal(shape).astype("float32")
    layer["model.layers.4.embed_tokens.weight"] = plain["model.embed_tokens.weight"]
    layer["model.layers.4.shared_head.head.weight"] = plain["lm_head.weight"]
    return write(folder, {**plain, **layer, **changed}, config)


def with_next_mtp(model: Callable[[str], Path], folder: Path, name: str = "qwen3_next") -> Path:
    """Qwen3-Next or Qwen3.5 with one MTP layer, as Qwen publishes it: with one tensor for each of its experts."""
    import json

    import numpy as np

    plain = arrays_of(model(name))
    config = json.loads((model(name) / "config.json").read_text())
    text = config.get("text_config")
    if text is not None:
        text["mtp_num_hidden_layers"] = 1
    rng, hidden = np.random.default_rng(1), (text or config)["hidden_size"]
    layer: dict[str, Any] = {}
    for key, array in plain.items():
        if "layers.3." not in key:
            continue
        inside, shifted = "mtp.layers.0." + key.partition("layers.3.")[2], array + np.float32(1)
        if inside.endswith("experts.gate_up_proj"):
            halves = zip(("gate_proj", "up_proj"), np.split(shifted, 2, axis=1), strict=True)
            layer |= {
                f"{inside.rpartition('.')[0]}.{expert}.{part}.weight": np.ascontiguousarray(half[expert])
                for part, half in halves
                for expert in range(len(half))
            }
        elif inside.endswith("experts.down_proj"):
            stem = inside.rpartition(".")[0]
            layer |= {f"{stem}.{expert}.down_proj.weight": each.copy() for expert, each in enumerate(shifted)}
        else:
            layer[inside] = shifted
    new = {
        "pre_fc_norm_embedding": (hidden,),
        "pre_fc_norm_hidden": (hidden,),
        "norm": (hidden,),
        "fc": (hidden, 2 * hidden),
    }
    for stem, shape in new.items():
        layer[f"mtp.{stem}.weight"] = rng.standard_normal(shape).astype("float32")
    return write(folder, {**plain, **layer}, config)
