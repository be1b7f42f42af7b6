"""Tiny Hugging Face models whose every byte follows from its name, so that digests identify upstream files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from launcher.convert.logical import logical_model
from launcher.convert.model import model_in
from tests.convert import helpers, zoo

_ROPE = {"rope_theta": 10000.0}
_DEEPSEEK = {
    **zoo.LATENT,
    **_ROPE,
    "model_type": "deepseek_v3",
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {**zoo.BASE, **_ROPE, "model_type": "qwen3", "head_dim": 32},
    "qwen3_tied": {**zoo.BASE, **_ROPE, "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True},
    "qwen3_moe": {
        **zoo.BASE,
        **_ROPE,
        **zoo.EXPERTS,
        "model_type": "qwen3_moe",
        "head_dim": 32,
        "norm_topk_prob": True,
    },
    "deepseek_v3": _DEEPSEEK,
    "llama": {**zoo.BASE, **_ROPE, "model_type": "llama"},
    "llama_tied": {**zoo.BASE, **_ROPE, "model_type": "llama", "tie_word_embeddings": True},
    "qwen2": {**zoo.BASE, **_ROPE, "model_type": "qwen2"},
    "qwen2_moe": {
        **zoo.BASE,
        **_ROPE,
        **zoo.EXPERTS,
        "model_type": "qwen2_moe",
        "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
    },
    "mixtral": {
        **zoo.BASE,
        **_ROPE,
        "model_type": "mixtral",
        # MindFormers' converter knows no other number.
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "deepseek_v2": {**zoo.LATENT, **_ROPE, "model_type": "deepseek_v2", "topk_method": "greedy", "n_group": 1},
    "deepseek_v3_two_shared": {**_DEEPSEEK, "n_shared_experts": 2, "num_nextn_predict_layers": 0},
    "deepseek_v3_full_query": {**_DEEPSEEK, "q_lora_rank": None},
}


def write(name: str, folder: Path) -> Path:
    """Write one of them."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    logical = logical_model(model_in(folder))
    arrays = {}
    for tensor, shape in logical.tensors.items():
        seed = int.from_bytes(hashlib.sha256(tensor.encode()).digest()[:8], "little")
        arrays[tensor] = np.random.Generator(np.random.PCG64(seed)).random(shape, dtype=np.float32)
    arrays.update({tensor: arrays[copy.of] for tensor, copy in logical.copies.items() if copy.written})
    return helpers.write(folder, arrays, CONFIGS[name])


def digests(files: list[Path]) -> dict[str, list[Any]]:
    """Parameter to its shape and the beginning of the SHA-256 of its bytes."""
    from launcher.convert.containers import safetensors
    from launcher.convert.containers.dtypes import nbytes

    found: dict[str, list[Any]] = {}
    for slot in (slot for file in files for slot in safetensors.read(file).slots):
        with slot.path.open("rb") as file:
            file.seek(slot.offset)
            data = file.read(nbytes(slot))
        found[slot.name] = [list(slot.shape), hashlib.sha256(data).hexdigest()[:16]]
    return found
