"""Models that a backend cannot build, or whose layers it names in its own way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.convert import zoo
from tests.convert.helpers import arrays_of, write


def deepseek_v3(folder: Path, dense: int) -> Path:
    """DeepSeek-V3 with a number of dense layers at the start."""
    import torch
    import transformers

    torch.manual_seed(0)
    _, values = zoo.MODELS["deepseek_v3"]
    config = transformers.DeepseekV3Config(**{**values, "first_k_dense_replace": dense})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def with_biases(folder: Path, out: Path) -> Path:
    """Llama whose projections all have biases."""
    import numpy as np

    arrays = dict(arrays_of(folder))
    for name in [name for name in arrays if name.endswith("_proj.weight")]:
        arrays[name.replace(".weight", ".bias")] = np.ones(arrays[name].shape[0], np.float32)
    config = json.loads((folder / "config.json").read_text())
    return write(out, arrays, {**config, "attention_bias": True, "mlp_bias": True})


def first_dense(folder: Path, out: Path) -> Path:
    """Qwen3-MoE whose first layer is dense."""
    import torch
    import transformers

    kind, values = zoo.MODELS["qwen3_moe"]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**values, mlp_only_layers=[0])
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(out)
    return out


def as_it_is(folder: Path, out: Path) -> Path:
    return Path(shutil.copytree(folder, out))


# Family of the zoo, what is made of it, and what is said of it.
UNBUILDABLE: dict[str, tuple[str, Callable[[Path, Path], Path], str]] = {
    "mixtral": ("mixtral", as_it_is, "no Megatron model of"),
    "llama with biases": ("llama", with_biases, "linear_bias"),
    "qwen3_moe with a dense layer": ("qwen3_moe", first_dense, "mlp_only_layers"),
}
