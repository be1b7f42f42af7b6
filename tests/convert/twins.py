"""Families whose classes are in the models' own repositories, written by a class that computes the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

# Family to transformers' family with the same layers: biases of query, key and value only are Qwen2's.
TWINS = {"internlm2": "llama", "internlm3": "qwen2"}
_SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "max_position_embeddings", "tie_word_embeddings", "rms_norm_eps", "dtype"),
)
_OWN: dict[str, dict[str, Any]] = {
    "internlm2": {"architectures": ["InternLM2ForCausalLM"], "bias": False},
    "internlm3": {
        "architectures": ["InternLM3ForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_internlm3.InternLM3Config",
            "AutoModelForCausalLM": "modeling_internlm3.InternLM3ForCausalLM",
        },
        "bias": False,
        "qkv_bias": True,
    },
}
# The files of InternLM3's repositories that name its classes: here they are those of its twin.
_CODE = {
    "configuration_internlm3.py": """from transformers import Qwen2Config


class InternLM3Config(Qwen2Config):
    model_type = "internlm3"
""",
    "modeling_internlm3.py": """from transformers import Qwen2ForCausalLM

from .configuration_internlm3 import InternLM3Config


class InternLM3ForCausalLM(Qwen2ForCausalLM):
    config_class = InternLM3Config
""",
}
# InternLM2's names of Llama's tensors.
_NAMES = {
    "model.embed_tokens": "model.tok_embeddings",
    "lm_head": "output",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def twin_of(folder: Path) -> Path:
    """Return the folder of the same model as transformers reads it."""
    twin = folder.with_name(f"{folder.name}_twin")
    return twin if twin.is_dir() else folder


# Model of the zoo to the model_type that its published file has: an alias of the family.
ALIASED = {"deepseek_v3_kimi": "kimi_k2"}


def respelled(name: str, folder: Path) -> None:
    """Keep the model beside itself as transformers wrote it, and name it as the family's own class does."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(folder, folder.with_name(f"{folder.name}_twin"), dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    if name in ALIASED:
        (folder / "config.json").write_text(json.dumps({**config, "model_type": ALIASED[name]}))
        return
    own = {key: config[key] for key in _SIZES} | {"model_type": name, "hidden_act": "silu", "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps({**own, **_OWN[name]}))
    if name == "internlm3":
        for code, text in _CODE.items():
            (folder / code).write_text(text)
    if name == "internlm2":
        file = folder / "model.safetensors"
        save_file(_internlm2(load_file(file), config), file, {"format": "pt"})


def _internlm2(llama: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """As modeling_internlm2.py reads wqkv: of each group the queries, the key, the value."""
    import numpy as np

    groups, hidden = config["num_key_value_heads"], config["hidden_size"]
    head = hidden // config["num_attention_heads"]
    found: dict[str, Any] = {}
    for name, value in llama.items():
        stem, _, kind = name.rpartition("_proj.")
        if stem.endswith("self_attn.q"):
            parts = [llama[f"{stem[:-1]}{each}_proj.{kind}"].reshape(groups, -1, head, hidden) for each in "qkv"]
            packed = np.concatenate(parts, axis=1).reshape(-1, hidden)
            found[name.replace("self_attn.q_proj", "attention.wqkv")] = np.ascontiguousarray(packed)
        elif not stem.endswith(("self_attn.k", "self_attn.v")):
            for old, new in _NAMES.items():
                name = name.replace(f"{old}.", f"{new}.")
            found[name] = value
    return found
