"""Small jobs of every kind, by name: the inputs of the tests of backends with Megatron's arguments."""

from collections.abc import Mapping
from typing import Any

from launcher.job import Job, build

Tree = Mapping[str, Any]

DENSE: Tree = {
    "model": {
        "model_type": "qwen3",
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 512,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "qk_layernorm": True,
    },
    "batch": {"micro_batch_size": 1, "global_batch_size": 8, "seq_length": 128},
    "schedule": {"train_iters": 20, "lr_warmup_iters": 2},
    "optimizer": {"lr": 1e-3, "min_lr": 1e-4},
    "data": {"paths": ["corpus_text_document"], "format": "megatron"},
    "kernels": {"transformer_impl": "transformer_engine"},
    "cluster": {"devices_per_node": 8},
}
_QWEN2: Tree = {"model": {"model_type": "qwen2", "qk_layernorm": False, "attention_bias": True, "head_dim": None}}
_LLAMA3: Tree = {
    "model": {
        "model_type": "llama",
        "qk_layernorm": False,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }
}
EXPERTS: Tree = {
    "model": {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "moe": {"grouped_gemm": True, "aux_loss_coeff": 1e-3},
}
LATENT: Tree = {
    "model": {
        "qk_layernorm": True,
        "head_dim": None,
        "num_key_value_heads": 4,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }
}
_DEEPSEEK_V3: Tree = {
    "model": {
        "model_type": "deepseek_v3",
        "q_lora_rank": 24,
        "num_experts": 8,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "scoring_func": "sigmoid",
        "router_expert_bias": True,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 1,
        "mtp_loss_scaling_factor": 0.3,
    },
    "moe": {"load_balancing_type": "seq_aux_loss", "aux_loss_coeff": 1e-4, "bias_update_rate": 1e-3},
}
_DEEPSEEK_V2: Tree = {
    "model": {
        "model_type": "deepseek_v2",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
        "first_k_dense_replace": 1,
        "norm_topk_prob": False,
    }
}
_QWEN15_MOE: Tree = {
    "model": {
        "model_type": "qwen2_moe",
        "qk_layernorm": False,
        "attention_bias": True,
        "num_experts": 8,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
        "shared_expert_gate": True,
        "norm_topk_prob": False,
    }
}


def merged(*trees: Tree) -> dict[str, Any]:
    """Return nested mappings laid over each other, the last one on top."""
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


def job_of(*trees: Tree) -> Job:
    """Return the job of trees laid over each other."""
    job, problems = build(merged(*trees))
    assert not problems, problems
    return job


def parallel(**values: Any) -> Tree:
    """Return a tree of parallel settings."""
    return {"parallel": values}


# Accepted by both versions of Megatron-LM.
JOBS: Mapping[str, Job] = {
    "dense": job_of(DENSE),
    "qwen2 biases, tied": job_of(DENSE, _QWEN2, {"model": {"tie_word_embeddings": True}}),
    "llama3 scaling": job_of(DENSE, _LLAMA3),
    "linear scaling": job_of(DENSE, {"model": {"rope_scaling": {"type": "linear", "factor": 4.0}}}),
    "gelu, LayerNorm, all biases, learned positions": job_of(
        DENSE,
        {
            "model": {
                "hidden_act": "gelu",
                "normalization": "LayerNorm",
                "linear_bias": True,
                "attention_bias": True,
                "qk_layernorm": False,
                "position_embedding": "learned_absolute",
                "hidden_dropout": 0.1,
                "attention_dropout": 0.1,
            }
        },
    ),
    "tp with sequence parallel": job_of(DENSE, parallel(tp=2, sequence_parallel=True, distributed_optimizer=True)),
    "pp": job_of(DENSE, parallel(pp=2)),
    "pp with vpp": job_of(DENSE, parallel(pp=2, vpp=2), {"overlap": {"p2p": True}}),
    "uneven stages": job_of(
        DENSE, {"model": {"num_hidden_layers": 6}}, parallel(pp=4, first_stage_layers=1, last_stage_layers=1)
    ),
    "embedding and loss count": job_of(
        DENSE, {"model": {"num_hidden_layers": 6}}, parallel(pp=4, account_for_embedding=True, account_for_loss=True)
    ),
    "cp ring": job_of(DENSE, parallel(cp=2, cp_algorithm="megatron")),
    "cp ulysses": job_of(DENSE, parallel(cp=2, cp_algorithm="ulysses")),
    "cp hybrid": job_of(DENSE, parallel(cp=4, cp_algorithm="hybrid", ulysses_degree=2)),
    "cp allgather": job_of(DENSE, parallel(cp=2, cp_algorithm="allgather")),
    "tp pp cp dp": job_of(DENSE, parallel(tp=2, pp=2, cp=2, sequence_parallel=True)),
    "moe": job_of(DENSE, EXPERTS),
    "moe ep": job_of(DENSE, EXPERTS, parallel(ep=4)),
    "moe tp sp ep etp": job_of(DENSE, EXPERTS, parallel(tp=2, sequence_parallel=True, ep=4, etp=1)),
    "moe pp vpp ep": job_of(DENSE, EXPERTS, parallel(pp=2, vpp=2, ep=2)),
    "moe every second layer": job_of(DENSE, EXPERTS, {"model": {"moe_layer_freq": 2}}),
    "moe dense layers, then every second": job_of(
        DENSE, EXPERTS, {"model": {"num_hidden_layers": 8, "first_k_dense_replace": 3, "moe_layer_freq": 2}}
    ),
    "moe capacity": job_of(
        DENSE,
        EXPERTS,
        {
            "moe": {
                "capacity_factor": 1.5,
                "pad_to_capacity": True,
                "token_drop_policy": "position",
                "z_loss_coeff": 1e-3,
                "router_dtype": "model",
                "permute_fusion": True,
                "token_dispatcher_type": "allgather",
                "input_jitter_eps": 0.01,
            }
        },
    ),
    "mixtral": job_of(
        DENSE, EXPERTS, {"model": {"model_type": "mixtral", "qk_layernorm": False}, "moe": {"aux_loss_coeff": 0.02}}
    ),
    "deepseek v2 lite": job_of(DENSE, LATENT, _DEEPSEEK_V2),
    "deepseek v3": job_of(DENSE, LATENT, _DEEPSEEK_V3),
    "deepseek v3 tp sp pp ep": job_of(
        DENSE, LATENT, _DEEPSEEK_V3, parallel(tp=2, sequence_parallel=True, pp=2, ep=2, etp=1)
    ),
    "mla without scaling": job_of(DENSE, LATENT, {"model": {"rope_scaling": {"type": None}}}),
    "mtp": job_of(DENSE, {"model": {"num_nextn_predict_layers": 1}}),
    "recompute full": job_of(DENSE, {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}),
    "recompute selective": job_of(DENSE, {"recompute": {"granularity": "selective", "modules": ["core_attn", "mlp"]}}),
    "fp16": job_of(DENSE, {"precision": {"dtype": "fp16", "initial_loss_scale": 65536.0}}),
    "fp32": job_of(DENSE, {"precision": {"dtype": "fp32", "grad_reduce_in_fp32": True}}),
    "bf16 gradients": job_of(DENSE, {"precision": {"grad_reduce_in_fp32": False, "attention_softmax_in_fp32": False}}),
    "fp8": job_of(DENSE, {"precision": {"fp8_format": "hybrid", "fp8_recipe": "delayed"}}),
    "samples": job_of(
        DENSE,
        {"schedule": {"train_iters": None, "train_samples": 1600, "lr_warmup_iters": 10, "lr_decay_iters": 200}},
    ),
    "wsd": job_of(
        DENSE,
        {"schedule": {"lr_decay_style": "WSD", "lr_wsd_decay_style": "cosine", "lr_wsd_decay_iters": 5}},
    ),
    "sgd": job_of(DENSE, {"optimizer": {"type": "sgd", "sgd_momentum": 0.95, "clip_grad": 0.5}}),
    "precision-aware optimizer on the host": job_of(
        DENSE,
        parallel(distributed_optimizer=True),
        {
            "optimizer": {"precision_aware": True, "exp_avg_dtype": "fp16", "exp_avg_sq_dtype": "fp16"},
            "offload": {"optimizer": True, "optimizer_fraction": 0.5},
        },
    ),
    "overlap": job_of(
        DENSE,
        parallel(tp=2, sequence_parallel=True, zero_stage=1),
        {"overlap": {"grad_reduce": True, "param_gather": True, "tp_comm": True}},
    ),
    "local kernels": job_of(
        DENSE,
        {
            "kernels": {
                "transformer_impl": "local",
                "attention_backend": "unfused",
                "masked_softmax_fusion": False,
                "bias_activation_fusion": False,
                "bias_dropout_fusion": False,
                "rope_fusion": False,
                "gradient_accumulation_fusion": False,
                "cross_entropy_fusion": True,
                "cross_entropy_fusion_impl": "native",
                "manual_gc_interval": 10,
            }
        },
    ),
    "checkpoints, logs, evaluation": job_of(
        DENSE,
        {
            "checkpoint": {
                "save": "ckpt",
                "save_interval": 10,
                "load": "ckpt",
                "finetune": True,
                "format": "torch_dist",
                "no_load_optim": True,
                "no_load_rng": True,
                "async_save": True,
            },
            "logging": {"interval": 5, "tensorboard_dir": "tb", "throughput": True},
            "evaluation": {"interval": 10, "iters": 2},
            "data": {"split": "98,2,0", "num_workers": 4, "cache_path": "cache", "eod_mask_loss": True},
            "profiler": {"enabled": True, "start_step": 3, "end_step": 5, "ranks": [0]},
            "fault_tolerance": {"timeout_minutes": 30},
        },
    ),
    "weights sharded by Megatron": job_of(
        DENSE,
        parallel(zero_stage=3, fsdp={"communication_unit_size": 1000, "init_model_with_meta_device": True}),
        {"kernels": {"gradient_accumulation_fusion": False}},
    ),
    "weights sharded by torch": job_of(
        DENSE,
        parallel(zero_stage=3, fsdp={"implementation": "torch"}),
        {"model": {"tie_word_embeddings": False}, "kernels": {"gradient_accumulation_fusion": False}},
    ),
    "captured kernels": job_of(
        DENSE, {"kernels": {"cuda_graph": {"impl": "local", "warmup_steps": 2}, "te_rng_tracker": True}}
    ),
    "communication in detail": job_of(
        DENSE,
        parallel(tp=2, sequence_parallel=True, distributed_optimizer=True, communication={"backend": "gloo"}),
        {
            "overlap": {
                "tp_comm": True,
                "tp": {"bulk_dgrad": False, "split_ag": False, "bootstrap_backend": "gloo"},
                "grad_reduce": True,
                "pad_buckets": True,
                "align_grad_reduce": False,
                "align_param_gather": False,
            }
        },
    ),
    "checkpoints between checkpoints": job_of(
        DENSE,
        {
            "checkpoint": {
                "save": "ckpt",
                "save_interval": 10,
                "non_persistent": {"type": "global", "save_interval": 2, "global_dir": "/fast"},
            },
            "profiler": {"memory_history": True},
        },
    ),
    "mixed data, own validation": job_of(
        DENSE, {"data": {"paths": ["0.3", "a", "0.7", "b"], "validation_paths": ["v"]}, "evaluation": {"iters": 1}}
    ),
    "mock data, given tokenizer": job_of(
        DENSE,
        {
            "data": {"paths": [], "format": "mock"},
            "tokenizer": {"path": "hf", "make_vocab_size_divisible_by": 64},
            "parallel": {"tp": 2},
        },
    ),
}

# Accepted by core 0.16 only.
NEWER: Mapping[str, Job] = {
    "qwen1.5 moe, gated shared expert": job_of(DENSE, _QWEN15_MOE),
    "sliding window": job_of(DENSE, {"model": {"sliding_window": 64}}),
    "pipeline layout": job_of(DENSE, parallel(pp=2, layout="Et|t|t|tL", vpp=2)),
    "fine-grained offloading": job_of(DENSE, {"offload": {"attention": True}}),
    "global balance": job_of(DENSE, EXPERTS, {"moe": {"load_balancing_type": "global_aux_loss"}}),
    "batch overlap, deepep": job_of(
        DENSE, EXPERTS, parallel(ep=2), {"moe": {"batch_overlap": True, "token_dispatcher_type": "alltoall"}}
    ),
    "muon": job_of(DENSE, {"optimizer": {"type": "muon"}}),
    "sft": job_of(
        DENSE,
        {
            "task": {"type": "sft"},
            "tokenizer": {"path": "hf"},
            "data": {"paths": ["chats.jsonl"], "format": "messages", "template": "nemotron-nano-v2"},
        },
    ),
}
