"""A model of a few kilobytes, written without transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.convert.helpers import write

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "float32",
}
_LAYER = {
    "input_layernorm.weight": (16,),
    "post_attention_layernorm.weight": (16,),
    **{f"self_attn.{name}_proj.weight": (16, 16) for name in "qkvo"},
    "mlp.gate_proj.weight": (32, 16),
    "mlp.up_proj.weight": (32, 16),
    "mlp.down_proj.weight": (16, 32),
}


def tiny_llama(folder: Path, seed: int = 0) -> Path:
    """Write a Llama model with random weights, and a licence and a model card as published models have them."""
    random = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (32, 16), "lm_head.weight": (32, 16), "model.norm.weight": (16,)}
    shapes |= {f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in _LAYER.items()}
    write(folder, {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}, _CONFIG)
    (folder / "README.md").write_text("A model card.\n")
    return folder
