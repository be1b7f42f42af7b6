"""Tiny random models of every family, written by transformers with every feature of the family switched on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launcher.families.registry import FAMILIES
from tests.convert.deepseek_v4 import published as published_v4
from tests.convert.twins import ALIASED, TWINS, respelled, twin_of

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 270,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
ROUTED: dict[str, Any] = {
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
LATENT: dict[str, Any] = {
    **BASE,
    **ROUTED,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
INDEXER: dict[str, Any] = {"index_n_heads": 4, "index_head_dim": 16, "index_topk": 8}
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": BASE["hidden_size"],
    "num_position_embeddings": 16,
}


def _multimodal(text: dict[str, Any], **vision: Any) -> dict[str, Any]:
    """Arguments of a model that has a vision tower beside its language model."""
    tied = text["tie_word_embeddings"]
    return {"tie_word_embeddings": tied, "text_config": text, "vision_config": {**VISION, **vision}}


def _positions(*sections: int, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [*sections], **more}}


# Name to (transformers' configuration class, its arguments).
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", BASE),
    "llama_tied": ("LlamaConfig", {**BASE, "tie_word_embeddings": True, "num_key_value_heads": 4}),
    "mistral": ("MistralConfig", {**BASE, "head_dim": 32, "sliding_window": 8}),
    "phi3": (
        "Phi3Config",
        {**BASE, "sliding_window": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "pad_token_id": 0},
    ),
    "gemma2": (
        "Gemma2Config",
        {**BASE, "head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 8, "tie_word_embeddings": True},
    ),
    "ernie4_5": ("Ernie4_5Config", {**BASE, "head_dim": 32, "tie_word_embeddings": True}),
    "ernie4_5_mixed": ("Ernie4_5Config", {**BASE, "head_dim": 32, "use_bias": True}),
    "seed_oss": ("SeedOssConfig", {**BASE, "head_dim": 32}),
    "internlm2": ("LlamaConfig", BASE),
    "internlm3": ("Qwen2Config", BASE),
    "qwen2": ("Qwen2Config", BASE),
    "qwen2_mixed": (
        "Qwen2Config",
        {**BASE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
    ),
    "qwen3": ("Qwen3Config", {**BASE, "head_dim": 32, "tie_word_embeddings": True}),
    "qwen2_moe": ("Qwen2MoeConfig", {**BASE, **EXPERTS, "shared_expert_intermediate_size": 48}),
    "qwen3_moe": ("Qwen3MoeConfig", {**BASE, **EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
    "qwen2_moe_mixed": (
        "Qwen2MoeConfig",
        {
            **BASE,
            **EXPERTS,
            "shared_expert_intermediate_size": 48,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 3,
            "mlp_only_layers": [2],
        },
    ),
    "qwen3_moe_mixed": (
        "Qwen3MoeConfig",
        {**BASE, **EXPERTS, "head_dim": 32, "norm_topk_prob": True, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ),
    "olmoe": ("OlmoeConfig", {**BASE, "num_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5}),
    "minimax_m2": (
        "MiniMaxM2Config",
        {
            **BASE,
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rotary_dim": 16,
            # mcore-bridge reads what transformers' class takes for granted.
            "scoring_func": "sigmoid",
            "use_qk_norm": True,
        },
    ),
    "mixtral": ("MixtralConfig", {**BASE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek_v2": ("DeepseekV2Config", LATENT),
    "deepseek_v2_lite": ("DeepseekV2Config", {**LATENT, "q_lora_rank": None}),
    "gpt_oss": (
        "GptOssConfig",
        {
            **BASE,
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        },
    ),
    # As Maverick: experts in every second layer, no norms (megatron-core would normalise the heads of all layers).
    "llama4_text": (
        "Llama4TextConfig",
        {
            **BASE,
            "intermediate_size": 48,
            "intermediate_size_mlp": 96,
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "use_qk_norm": False,
            "no_rope_layer_interval": 2,
            "attention_chunk_size": 32,
            "floor_scale": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "pad_token_id": 0,
        },
    ),
    "glm4_moe": (
        "Glm4MoeConfig",
        {**BASE, **ROUTED, "head_dim": 32, "attention_bias": True, "use_qk_norm": True, "num_nextn_predict_layers": 0},
    ),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", {**LATENT, "num_nextn_predict_layers": 0}),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            **BASE,
            **EXPERTS,
            "head_dim": 32,
            "shared_expert_intermediate_size": 48,
            **LINEAR,
        },
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLConfig",
        _multimodal({**BASE, **_positions(2, 3, 3)}, fullatt_block_indexes=[1], window_size=16),
    ),
    "qwen3_vl": (
        "Qwen3VLConfig",
        _multimodal({**BASE, "head_dim": 32, **_positions(6, 5, 5)}, deepstack_visual_indexes=[0, 1]),
    ),
    "qwen3_vl_tied": (
        "Qwen3VLConfig",
        _multimodal(
            {**BASE, "head_dim": 32, "tie_word_embeddings": True, **_positions(6, 5, 5)},
            deepstack_visual_indexes=[1],
        ),
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoeConfig",
        _multimodal(
            # No matrix of an expert is square: transformers tells by shapes whether they are swapped.
            {**BASE, **EXPERTS, "moe_intermediate_size": 24, "head_dim": 32, **_positions(6, 5, 5)},
            deepstack_visual_indexes=[1],
        ),
    ),
    "qwen3_5": (
        "Qwen3_5Config",
        _multimodal({**BASE, **LINEAR, "head_dim": 64, **_positions(3, 3, 2, partial_rotary_factor=0.25)}),
    ),
    "qwen3_5_tied": (
        "Qwen3_5Config",
        _multimodal(
            {
                **BASE,
                **LINEAR,
                "head_dim": 64,
                "tie_word_embeddings": True,
                **_positions(3, 3, 2, partial_rotary_factor=0.25),
            }
        ),
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeConfig",
        _multimodal(
            {
                **{key: value for key, value in BASE.items() if key != "intermediate_size"},
                **EXPERTS,
                **LINEAR,
                "head_dim": 64,
                "shared_expert_intermediate_size": 48,
                **_positions(3, 3, 2, partial_rotary_factor=0.25),
            }
        ),
    ),
    "deepseek_v32": ("DeepseekV32Config", {**LATENT, **INDEXER, "num_nextn_predict_layers": 0}),
    # mcore-bridge reads what transformers' class takes for granted.
    "glm_moe_dsa": (
        "GlmMoeDsaConfig",
        {**LATENT, **INDEXER, "indexer_rope_interleave": True, "num_nextn_predict_layers": 0},
    ),
    "glm_moe_dsa_shared": (
        "GlmMoeDsaConfig",
        {**LATENT, **INDEXER, "indexer_types": ["full", "shared", "full", "shared"], "num_nextn_predict_layers": 0},
    ),
    # All kinds of layers: windows alone, both ratios, chosen by the token or by scores; `published` adds an MTP layer.
    "deepseek_v4": (
        "DeepseekV4Config",
        {
            **{key: value for key, value in BASE.items() if key != "intermediate_size"},
            "num_key_value_heads": 1,
            "max_position_embeddings": 512,
            "moe_intermediate_size": 32,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "head_dim": 32,
            "qk_rope_head_dim": 8,
            "q_lora_rank": 256,
            "compress_ratios": [0, 4, 128, 4],
            "num_hash_layers": 2,
            "o_groups": 2,
            "o_lora_rank": 16,
            **INDEXER,
            "sliding_window": 8,
            "num_nextn_predict_layers": 0,
        },
    ),
    # Kimi-K2: one group of experts, other numbers of heads and experts.
    "deepseek_v3_kimi": (
        "DeepseekV3Config",
        {**LATENT, "n_routed_experts": 6, "n_shared_experts": 1, "num_nextn_predict_layers": 0},
    ),
    "deepseek_v3": ("DeepseekV3Config", {**LATENT, "n_group": 2, "topk_group": 1, "num_nextn_predict_layers": 0}),
}


# Families that plain megatron-core cannot build; mcore-bridge does (tests/backends/megatron/test_bridge_checkpoint.py).
BRIDGED = ("olmoe", "minimax_m2")
# Language models inside a multimodal model: only mcore-bridge builds them.
ENCLOSED = tuple(name for name, (_, values) in MODELS.items() if "vision_config" in values)
# Families that are published with one tensor for all experts, and whether its last dimensions are swapped.
FUSED = {"qwen3_5_moe": False, "qwen3_vl_moe": True}
# Families that no stack loads in the older format of Megatron-LM.
NO_LEGACY = (*BRIDGED, *ENCLOSED, "qwen3_next", "deepseek_v32", "glm_moe_dsa", "glm_moe_dsa_shared", "deepseek_v4")


def family_of(name: str) -> str:
    """Return the family of a model: its name begins with it, as `qwen2_moe_mixed` does with `qwen2_moe`."""
    return max((family for family in FAMILIES if f"{name}_".startswith(f"{family}_")), key=len, default=name)


def make(name: str, folder: Path, *, dtype: str = "float32") -> Path:
    """Write one model of the zoo and return its folder."""
    import torch
    import transformers

    kind, values = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, kind)(**values)
    model = _class(name).from_config(config, dtype=getattr(torch, dtype))
    with torch.no_grad():
        for key, value in (*model.named_parameters(), *model.named_buffers()):
            if key.endswith("tid2eid"):
                value.copy_(torch.rand(value.shape[0], config.n_routed_experts).argsort(-1)[:, : value.shape[1]])
            if value.is_floating_point() and "inv_freq" not in key:
                # Nothing stays at its neutral value: norms of ones and biases of zeros would hide a permutation.
                noise = torch.randn(value.shape, dtype=torch.float32) * (0.1 if value.dim() == 1 else 0.05)
                value.add_(noise.to(value.dtype))
        for parameter in model.parameters():
            # transformers 5.24 makes routers in float32 whatever dtype is asked for; published models have one dtype.
            parameter.data = parameter.data.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    if name in FUSED:
        _fuse(folder / "model.safetensors", transposed=FUSED[name])
    if name == "deepseek_v4":
        published_v4(folder)
    if name in (*TWINS, *ALIASED):
        respelled(name, folder)
    return folder


def _fuse(file: Path, *, transposed: bool) -> None:
    """Store the experts of a layer in one tensor, as the family is published; transformers writes what it likes."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    plain = load_file(file)
    if not any(".experts.0." in name for name in plain):
        swapped = {name: np.ascontiguousarray(plain[name].swapaxes(1, 2)) for name in plain if ".experts." in name}
        save_file({**plain, **(swapped if transposed else {})}, file, {"format": "pt"})
        return
    found = {name: array for name, array in plain.items() if ".experts." not in name}
    for prefix in {name.split(".experts.")[0] for name in plain if ".experts.0." in name}:
        count = sum(name.startswith(f"{prefix}.experts.") for name in plain) // 3
        for fused, parts in {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.items():
            names = [[f"{prefix}.experts.{expert}.{part}.weight" for part in parts] for expert in range(count)]
            stacked = np.stack([np.concatenate([plain[name] for name in each]) for each in names])
            found[f"{prefix}.experts.{fused}"] = np.ascontiguousarray(stacked.swapaxes(1, 2) if transposed else stacked)
    save_file(found, file, {"format": "pt"})


def _class(name: str) -> Any:
    import transformers

    return transformers.AutoModelForImageTextToText if name in ENCLOSED else transformers.AutoModelForCausalLM


def loaded(folder: Path) -> Any:
    """The model that transformers reads from a folder."""
    import torch
    import transformers

    seeing = "vision_config" in json.loads((folder / "config.json").read_text())
    auto = transformers.AutoModelForImageTextToText if seeing else transformers.AutoModelForCausalLM
    return auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits(folder: Path, tokens: Any) -> Any:
    """The logits that transformers computes."""
    import torch

    model = loaded(twin_of(folder))
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()
