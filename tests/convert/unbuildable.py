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


def with_attention_biases(folder: Path, out: Path) -> Path:
    """Qwen3 with biases of query, key, value and output projection."""
    import torch
    import transformers

    kind, values = zoo.MODELS["qwen3"]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**values, attention_bias=True)
    made = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, value in made.named_parameters():
            if name.endswith("bias"):
                value.normal_()
    made.save_pretrained(out)
    return out


def with_dense_layers(*layers: int) -> Callable[[Path, Path], Path]:
    """Return the maker of a Qwen3-MoE with these dense layers."""

    def make(folder: Path, out: Path) -> Path:
        import torch
        import transformers

        kind, values = zoo.MODELS["qwen3_moe"]
        torch.manual_seed(0)
        config = getattr(transformers, kind)(**values, mlp_only_layers=list(layers))
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(out)
        return out

    return make


def as_scout(folder: Path, out: Path) -> Path:
    """Llama 4 whose heads are normalised, in layers with rotary positions only."""
    import torch
    import transformers

    kind, values = zoo.MODELS["llama4_text"]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**values, "use_qk_norm": True})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(out)
    return out


def as_it_is(folder: Path, out: Path) -> Path:
    return Path(shutil.copytree(folder, out))


# Family of the zoo, what is made of it, what is said of it, and another backend that can build it.
UNBUILDABLE: dict[str, tuple[str, Callable[[Path, Path], Path], str, str]] = {
    "mixtral": ("mixtral", as_it_is, "no Megatron model of", "mindspeed"),
    "llama4_text": ("llama4_text", as_it_is, "no Megatron model of", "megatron_lm"),
    "llama with biases": ("llama", with_biases, "linear_bias", "mindspeed"),
    "qwen3 with biases of attention": ("qwen3", with_attention_biases, "attention_output_bias", ""),
    "qwen3_moe with a dense layer": ("qwen3_moe", with_dense_layers(0), "mlp_only_layers", "mindspeed"),
    "qwen3_moe with dense layers in between": ("qwen3_moe", with_dense_layers(1, 3), "mlp_only_layers", "megatron_lm"),
}
