"""A rank of megatron-core's development branch: DeepSeek-V4, filled from a checkpoint or by mcore-bridge.

Usage: CORE HOW FOLDER OUT TP EP [TOKENS.npy LOGITS.npy]. CORE is a checkout of Megatron-LM's branch `dev`; HOW is
`core` (its own modules, FOLDER is a torch_dist checkpoint) or `bridge` (mcore-bridge's, FOLDER is either). Writes the
model's torch_dist checkpoint into OUT. Runs from a folder `swift/cli/_megatron`, where the CPU stand-ins are installed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from launcher.rehearse.cpu import triton_standin


def _importers(root: Path) -> list[str]:
    """Return the modules that import triton without a guard; none of their kernels runs here."""
    files = (root / "megatron" / "core").rglob("*.py")
    found = (file for file in files if re.search(r"^(import|from) triton", file.read_text(), re.MULTILINE))
    return [".".join(file.relative_to(root).with_suffix("").parts) for file in found]


def _of_core(checkpoint: Path, sizes: dict[str, int]) -> Any:
    from megatron.core.models.gpt.experimental_attention_variant_module_specs import (
        get_transformer_block_with_experimental_attention_variant_spec,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    from launcher.convert.model import model_in

    model = model_in(checkpoint / "huggingface")
    config = _config(model, sizes)
    spec = get_transformer_block_with_experimental_attention_variant_spec(config)
    built = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=True),
        vocab_size=model.vocab_size,
        max_sequence_length=model.max_position_embeddings,
        position_embedding_type="rope",
        parallel_output=False,
    )
    _load(built, checkpoint)
    return built


def _load(built: Any, checkpoint: Path) -> None:
    from megatron.core import dist_checkpointing

    state = built.sharded_state_dict()
    loaded = dist_checkpointing.load(state, str(checkpoint / "iter_0000001"))
    built.load_state_dict({name: loaded[name] for name in state})


def _without_rotation() -> None:
    """Skip the Hadamard rotation of the indexer's queries and keys: bf16 on GPUs only.

    It multiplies both with one orthogonal matrix, so that the scores, their products, stay what they are.
    """
    from megatron.core.transformer.experimental_attention_variant import csa, dsa

    for module in (dsa, csa):
        module.rotate_activation = lambda values: values


def _config(model: Any, sizes: dict[str, int]) -> Any:
    import torch
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    scaling = model.rope_scaling
    same = ("hidden_size", "num_attention_heads", "q_lora_rank", "v_head_dim", "o_groups", "o_lora_rank")
    return MLATransformerConfig(
        **{name: getattr(model, name) for name in same},
        **sizes,
        num_layers=model.num_hidden_layers,
        ffn_hidden_size=model.moe_intermediate_size,
        qk_pos_emb_head_dim=model.qk_rope_head_dim,
        experimental_attention_variant="dsv4_hybrid",
        csa_compress_ratios=[*model.compress_ratios, *[0] * model.num_nextn_predict_layers],
        csa_window_size=model.csa_window_size,
        csa_compress_rotary_base=model.compress_rope_theta,
        rotary_base=model.rope_theta,
        rotary_scaling_factor=scaling.factor if scaling else 1.0,
        original_max_position_embeddings=scaling.original_max_position_embeddings if scaling else 4096,
        dsa_indexer_n_heads=model.index_n_heads,
        dsa_indexer_head_dim=model.index_head_dim,
        dsa_indexer_topk=model.index_topk,
        enable_hyper_connections=True,
        num_residual_streams=model.hc_mult,
        mhc_sinkhorn_iterations=model.hc_sinkhorn_iters,
        num_moe_experts=model.num_experts,
        moe_ffn_hidden_size=model.moe_intermediate_size,
        moe_shared_expert_intermediate_size=model.shared_expert_intermediate_size,
        moe_router_topk=model.num_experts_per_tok,
        moe_router_score_function="sqrtsoftplus",
        moe_router_enable_expert_bias=True,
        moe_router_topk_scaling_factor=model.routed_scaling_factor,
        moe_router_load_balancing_type="none",
        moe_router_dtype="fp32",
        moe_n_hash_layers=model.num_hash_layers,
        actual_vocab_size=model.vocab_size,
        moe_grouped_gemm=True,
        moe_token_dispatcher_type="alltoall",
        activation_func=torch.nn.functional.silu,
        gated_linear_unit=True,
        activation_func_clamp_value=model.swiglu_limit,
        add_bias_linear=False,
        qk_layernorm=True,
        normalization="RMSNorm",
        layernorm_epsilon=model.rms_norm_eps,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        mtp_num_layers=model.num_nextn_predict_layers,
        params_dtype=torch.float32,
        bias_activation_fusion=False,
        perform_initialization=False,
    )


def _of_bridge(folder: Path, sizes: dict[str, int]) -> Any:
    import torch
    from mcore_bridge.config import ModelConfig, hf_to_mcore_config
    from mcore_bridge.model.register import get_mcore_model
    from transformers import AutoConfig

    checkpoint = (folder / "iter_0000001").is_dir()
    found = AutoConfig.from_pretrained(folder / "huggingface" if checkpoint else folder)
    values = hf_to_mcore_config(found)
    values.update(mcore_model_type="deepseek_v4", hf_config=found, params_dtype=torch.float32, bf16=False)
    values.update(mtp_num_layers=1, moe_grouped_gemm=True, moe_token_dispatcher_type="alltoall")
    config = ModelConfig(**values, **sizes, apply_rope_fusion=False)
    models = get_mcore_model(config)
    if checkpoint:
        _load(models[0], folder)
    else:
        config.bridge.load_weights(models, str(folder))
    return models[0]


def main() -> None:
    """Run as a rank."""
    core, how, folder, out, tp, ep, *files = sys.argv[1:]
    # Some modules compare versions when they are imported.
    triton_standin._Anything.__version__ = "3.4.0"  # type: ignore[attr-defined]
    triton_standin.install(_importers(Path(core)))
    import numpy
    import torch
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    torch.distributed.init_process_group("gloo")
    sizes = {
        "tensor_model_parallel_size": int(tp),
        "expert_model_parallel_size": int(ep),
        "expert_tensor_parallel_size": 1,
    }
    parallel_state.initialize_model_parallel(**sizes)
    model_parallel_cuda_manual_seed(0)
    _without_rotation()
    model = (_of_core if how == "core" else _of_bridge)(Path(folder), sizes)
    Path(out).mkdir(exist_ok=True)
    dist_checkpointing.save(model.sharded_state_dict(), out)
    if files:
        tokens = torch.from_numpy(numpy.load(files[0]))
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        with torch.no_grad():
            logits = model.eval()(input_ids=tokens, position_ids=positions, attention_mask=None)
        if torch.distributed.get_rank() == 0:
            numpy.save(files[1], logits.float().numpy())


# Saving starts processes that import this file again.
if __name__ == "__main__":
    main()
