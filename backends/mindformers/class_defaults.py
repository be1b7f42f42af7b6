"""Default values of MindFormers' model classes for keys that a file omits, under MindFormers' names.

Source: signature and registered parameters of models/*/configuration_*.py @2.1.0.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

_COMMON: Mapping[str, Any] = {
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "gated_linear_unit": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}
_EXPERTS: Mapping[str, Any] = {
    **_COMMON,
    "hidden_dropout": 0.0,
    "multi_latent_attention": True,
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "num_nextn_predict_layers": 1,
    "n_shared_experts": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
    "max_position_embeddings": 4096,
}
CLASSES: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {**_COMMON, "head_dim": 128, "max_position_embeddings": 32768},
    "qwen3_moe": {
        **_COMMON,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": False,
        "moe_router_score_function": "softmax",
        "moe_router_enable_expert_bias": False,
    },
    "deepseek_v3": {
        **_EXPERTS,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "routed_scaling_factor": 2.5,
        "moe_intermediate_size": 2048,
    },
    "telechat3": {**_COMMON, "head_dim": 128, "max_position_embeddings": 32768, "num_nextn_predict_layers": 0},
    "telechat3_moe": {
        **_EXPERTS,
        "n_routed_experts": 192,
        "routed_scaling_factor": 2.8,
        "moe_intermediate_size": 1536,
    },
}
_MODEL = "model.model_config."


@cache
def stores() -> Mapping[str, str]:
    """Return the setting that each key of the model section is converted to; aliases share one."""
    from pathlib import Path

    from launcher.catalogue.catalogue import load

    catalogue = load(Path(__file__).parent / "catalogue" / "2.1.0.json")
    found = {name: catalogue.get(name) for name in catalogue.names() if name.startswith(_MODEL)}
    return {name: argument.dest for name, argument in found.items() if argument is not None}


def missing_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class defaults of keys that a file of the mcore graph omits.

    Empty if a directory's config.json applies, or the class is unknown.
    """
    if values.get("pretrained_model_dir"):
        return {}
    defaults = CLASSES.get(str(values.get(f"{_MODEL}model_type")), {})
    given = {stores().get(name) for name in values if name.startswith(_MODEL)}
    return {
        f"{_MODEL}{name}": value for name, value in defaults.items() if stores().get(f"{_MODEL}{name}") not in given
    }


# -- legacy models (use_legacy: True)

_LLAMA: Mapping[str, Any] = {
    "batch_size": 1,
    "seq_length": 2048,
    "hidden_size": 4096,
    "num_layers": 32,
    "num_heads": 32,
    "vocab_size": 32000,
    "multiple_of": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "ignore_token_id": -100,
    "theta": 10000.0,
    "compute_dtype": "float16",
    "layernorm_compute_type": "float32",
    "softmax_compute_type": "float32",
    "rotary_dtype": "float32",
    "param_init_type": "float16",
    "qkv_has_bias": False,
    "qkv_concat": False,
    "use_past": False,
    "extend_method": "None",
    "scaling_factor": 1.0,
    "is_dynamic": False,
    "use_flash_attention": False,
    "use_attn_mask_compression": False,
    "parallel_optimizer": False,
    "fine_grain_interleave": 1,
    "pp_interleave_num": 1,
    "offset": 0,
    "init_method_std": 0.01,
    "checkpoint_name_or_path": "",
    "tie_word_embeddings": False,
    "input_sliced_sig": False,
}
# Class of the section model.model_config to the defaults of its signature. Source: models/llama/llama_config.py,
# models/glm2/glm2_config.py, research/deepseek3/deepseek3_config.py and research/telechat2/telechat_config.py @1.6.0.
LEGACY: Mapping[str, Mapping[str, Any]] = {
    "LlamaConfig": _LLAMA,
    "DeepseekV3Config": {
        **{
            name: value for name, value in _LLAMA.items() if name not in ("scaling_factor", "use_attn_mask_compression")
        },
        "max_position_embeddings": 32768,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "qk_nope_head_dim": 128,
        "vocab_size": 129280,
        "rms_norm_eps": 1e-6,
        "compute_dtype": "bfloat16",
        "param_init_type": "bfloat16",
        "init_method_std": 0.006,
        "extend_method": "YARN",
        "mtp_depth": 0,
        "mtp_loss_factor": 0.3,
        "return_extra_loss": True,
    },
    "TelechatConfig": {
        **{name: value for name, value in _LLAMA.items() if name not in ("init_method_std", "tie_word_embeddings")},
        "embed_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0,
        "attention_dropout_prob": 0.0,
        "res_dtype": "float32",
        "out_proj_has_bias": True,
        "sigma": 0.0048,
        "mean": 0.0,
    },
    "ChatGLM2Config": {
        "batch_size": 1,
        "num_layers": 28,
        "padded_vocab_size": 65024,
        "hidden_size": 4096,
        "ffn_hidden_size": 13696,
        "kv_channels": 128,
        "num_attention_heads": 32,
        "seq_length": 2048,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "layernorm_epsilon": 1e-5,
        "rope_ratio": 1,
        "rmsnorm": True,
        "apply_residual_connection_post_layernorm": False,
        "post_layer_norm": True,
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "bias_dropout_fusion": True,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "apply_query_key_layer_scaling": True,
        "attention_softmax_in_fp32": True,
        "fp32_residual_connection": False,
        "quantization_bit": 0,
        "prefix_projection": False,
        "param_init_type": "float16",
        "compute_dtype": "float16",
        "layernorm_compute_type": "float32",
        "use_past": False,
        "use_flash_attention": False,
        "is_dynamic": False,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "offset": 0,
        "pp_interleave_num": 1,
        "mlp_concat": True,
        "qkv_concat": True,
        "fine_grain_interleave": 1,
    },
}


# Keys from which Llama's class computes the MLP width if a file omits it; read nowhere else.
LLAMA_WIDTH = tuple(f"{_MODEL}{name}" for name in ("multiple_of", "ffn_dim_multiplier"))


def legacy_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class defaults for a file of a legacy model; empty for other classes."""
    kind = str(values.get(f"{_MODEL}type"))
    found = {f"{_MODEL}{name}": value for name, value in LEGACY.get(kind, {}).items()}
    if kind != "LlamaConfig" or values.get(f"{_MODEL}intermediate_size") is not None:
        return found
    hidden = values.get(f"{_MODEL}hidden_size", found[f"{_MODEL}hidden_size"])
    width = _llama_width(hidden, *(values.get(name) for name in LLAMA_WIDTH))
    return found if width is None else {**found, f"{_MODEL}intermediate_size": width}


def _llama_width(hidden: Any, multiple: Any, factor: Any) -> int | None:
    """Return the MLP width that Llama's class computes; None if a number is missing or invalid.

    Source: models/llama/llama.py:856-866 and models/llama/llama_layer.py:311-319 @1.6.0.
    """
    numbers = (hidden, multiple or 256, 1.0 if factor is None else factor)
    if not all(isinstance(number, (int, float)) and number > 0 for number in numbers):
        return None
    wide = 4 * hidden if factor is None else int((factor + 0.01) * 4 * hidden)
    step = int(multiple or 256)
    return -(-int(2 * wide / 3) // step) * step
