"""The arguments that Megatron's loaders read from a checkpoint."""

from __future__ import annotations

from typing import Any

from launcher.convert.containers.records import Dtype, Inert, namespace
from launcher.convert.formats.format import Target, vocabulary_of
from launcher.job.model import Model

# Arguments that Megatron-LM compares with those of the run (training/checkpointing.py check_checkpoint_args) or loads
# from a checkpoint (load_args_from_checkpoint), and those that Megatron-SWIFT reads (megatron_lm_utils.py).


def megatron_arguments(target: Target, iteration: int) -> Inert:
    """Return the `args` of a checkpoint: the architecture, the target layout, no optimizer state."""
    layout, model = target.layout, target.logical.model
    dtype = target.matrix_dtype or "F32"
    return namespace(
        **_architecture(model, layout.stack),
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vpp,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=layout.etp or layout.tp,
        context_parallel_size=1,
        sequence_parallel=False,
        use_distributed_optimizer=False,
        data_parallel_random_init=False,
        make_vocab_size_divisible_by=layout.vocabulary_multiple,
        padded_vocab_size=vocabulary_of(target.logical, layout),
        params_dtype=Dtype(name=dtype),
        bf16=dtype == "BF16",
        fp16=dtype == "F16",
        no_save_optim=True,
        no_save_rng=True,
        finetune=True,
        iteration=iteration,
        consumed_train_samples=0,
        consumed_valid_samples=0,
        skipped_train_samples=0,
        ckpt_format="torch_dist",
    )


def _architecture(model: Model, stack: bool | None) -> dict[str, Any]:
    return {
        "num_layers": model.num_hidden_layers,
        "encoder_num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size,
        "num_attention_heads": model.num_attention_heads,
        "num_query_groups": model.num_key_value_heads or model.num_attention_heads,
        "group_query_attention": not model.is_mla and model.num_key_value_heads != model.num_attention_heads,
        "kv_channels": model.head_size,
        "max_position_embeddings": model.max_position_embeddings,
        "seq_length": model.max_position_embeddings,
        "position_embedding_type": "rope",
        "add_position_embedding": False,
        "rotary_base": model.rope_theta,
        "rotary_percent": model.partial_rotary_factor,
        "normalization": model.normalization,
        "norm_epsilon": model.rms_norm_eps,
        "swiglu": model.hidden_act == "silu",
        "add_bias_linear": model.linear_bias,
        "add_qkv_bias": model.attention_bias,
        "qk_layernorm": model.qk_layernorm,
        "untie_embeddings_and_output_weights": not model.tie_word_embeddings,
        "vocab_size": model.vocab_size,
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": None,
        "vocab_file": None,
        **_experts(model, stack),
        **_latent(model),
    }


def _experts(model: Model, stack: bool | None) -> dict[str, Any]:
    if not model.is_moe:
        return {"num_experts": None}
    return {
        "num_experts": model.num_experts,
        "moe_ffn_hidden_size": model.moe_intermediate_size,
        "moe_router_topk": model.num_experts_per_tok,
        "moe_shared_expert_intermediate_size": model.shared_expert_intermediate_size,
        "moe_router_score_function": model.scoring_func,
        "moe_router_enable_expert_bias": model.router_expert_bias,
        "moe_layer_freq": _frequency(model, stack),
    }


def _frequency(model: Model, stack: bool | None) -> int | list[int]:
    if not model.first_k_dense_replace and not model.mlp_only_layers and stack is not False:
        return model.moe_layer_freq
    return [int(model.has_experts_at(layer)) for layer in range(model.num_hidden_layers or 0)]


def _latent(model: Model) -> dict[str, Any]:
    if not model.is_mla:
        return {"multi_latent_attention": False, "mtp_num_layers": model.num_nextn_predict_layers or None}
    return {
        "multi_latent_attention": True,
        "q_lora_rank": model.q_lora_rank,
        "kv_lora_rank": model.kv_lora_rank,
        "qk_head_dim": model.qk_nope_head_dim,
        "qk_pos_emb_head_dim": model.qk_rope_head_dim,
        "v_head_dim": model.v_head_dim,
        "mtp_num_layers": model.num_nextn_predict_layers or None,
    }
