"""Upstream's own examples, and the same trainings as canonical jobs."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from launcher.job import Job
from tests.backends.megatron_lm.jobs import Tree, job_of
from tests.backends.models import DEEPSEEK_V3

_FILE = Path(__file__).with_name("upstream_examples.json")


@cache
def upstream() -> Mapping[str, Mapping[str, Any]]:
    """Return upstream's examples by name: path, entry, nodes, devices_per_node, env, argv."""
    examples = json.loads(_FILE.read_text(encoding="utf-8"))["examples"]
    return {example["name"]: example for example in examples}


_QWEN3: Tree = {
    "model": {
        "rope_theta": 1e6,
        "qk_layernorm": True,
        "vocab_size": 151936,
        "head_dim": 128,
        "pretrained": True,
        "path": "your_model_ckpt_path",
    },
    "tokenizer": {"path": "your_tokenizer_path", "make_vocab_size_divisible_by": 1, "padded_vocab_size": 151936},
    "data": {"paths": ["your_data_path"], "split": "100,0,0"},
    "schedule": {"train_iters": 2000, "lr_decay_style": "cosine"},
    "optimizer": {"weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "clip_grad": 1.0},
    "precision": {"initial_loss_scale": 4096.0},
    "batch": {"seq_length": 4096},
    "kernels": {"gradient_accumulation_fusion": False, "masked_softmax_fusion": False, "attention_backend": "flash"},
    "evaluation": {"iters": 0},
    "checkpoint": {"save": "your_model_save_ckpt_path"},
}
_QWEN3_8B: Tree = {
    "model": {
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
    },
    "parallel": {"distributed_optimizer": True},
}
_FUSED: Tree = {"kernels": {"rope_fusion": True, "bias_activation_fusion": True, "rmsnorm_fusion": True}}

JOBS: Mapping[str, Job] = {
    "qwen3_30b": job_of(
        _QWEN3,
        _FUSED,
        {
            "model": {
                "model_type": "qwen3_moe",
                "num_hidden_layers": 48,
                "hidden_size": 2048,
                "intermediate_size": 6144,
                "num_attention_heads": 32,
                "num_key_value_heads": 4,
                "max_position_embeddings": 4096,
                "num_experts": 128,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 768,
                "initializer_range": 0.01,
            },
            "moe": {
                "grouped_gemm": True,
                "dispatch_overlap": True,
                "token_dispatcher_type": "alltoall_seq",
                "aux_loss_coeff": 1e-3,
                "router_dtype": "model",
            },
            "batch": {"micro_batch_size": 1, "global_batch_size": 256},
            "schedule": {"lr_warmup_fraction": 0.01},
            "optimizer": {"lr": 1.25e-6, "min_lr": 1.25e-7},
            "parallel": {
                "tp": 1,
                "pp": 2,
                "ep": 8,
                "sequence_parallel": True,
                "distributed_optimizer": True,
                "cp_algorithm": "ulysses",
            },
            "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
            "kernels": {"manual_gc_interval": 15},
            "data": {"format": "text"},
            "evaluation": {"interval": 2000},
            "checkpoint": {"save_interval": 2000, "finetune": False},
            "cluster": {"nodes": 2},
        },
    ),
    "qwen3_8b_sft": job_of(
        _QWEN3,
        _QWEN3_8B,
        {
            "task": {"type": "sft"},
            "data": {"format": "messages", "template": "qwen3", "num_preprocess": 4},
            "parallel": {"tp": 1, "pp": 2, "sequence_parallel": True},
            "batch": {"global_batch_size": 16, "variable_seq_lengths": True},
            "schedule": {"lr_decay_style": "linear"},
            "optimizer": {"lr": 1.25e-6, "min_lr": 1.25e-7},
            "checkpoint": {"save_interval": 1000, "exit_on_missing": True},
            "evaluation": {"interval": 1000},
        },
    ),
    "qwen3_8b_lora": job_of(
        _QWEN3,
        _QWEN3_8B,
        _FUSED,
        {
            "task": {"type": "sft"},
            "model": {"max_position_embeddings": 4096, "initializer_range": 0.01},
            "lora": {"rank": 16, "alpha": 32, "target_modules": ["all-linear"]},
            "data": {"format": "messages", "template": "qwen3"},
            "parallel": {"tp": 1, "pp": 2},
            "batch": {"micro_batch_size": 4, "global_batch_size": 16, "variable_seq_lengths": True},
            "schedule": {"lr_warmup_fraction": 0.01},
            "optimizer": {"lr": 1.25e-5, "min_lr": 1.25e-7},
            "checkpoint": {"save_interval": 2000},
            "evaluation": {"interval": 2000},
        },
    ),
    "qwen3_8b_dpo": job_of(
        _QWEN3,
        _QWEN3_8B,
        _FUSED,
        {
            "task": {"type": "dpo", "loss_type": "sigmoid"},
            "model": {"num_hidden_layers": 1, "pretrained": False, "path": None},
            "tokenizer": {"path": "/data/ci/models/Qwen3-8B/hf/Qwen3-8B"},
            "data": {
                "paths": ["/data/ci/datasets/processed/qwen3-8b-dpo/orca_rlhf"],
                "format": "megatron",
                "shuffle": False,
            },
            "parallel": {"tp": 2, "sequence_parallel": True},
            "overlap": {"grad_reduce": True, "param_gather": True},
            "batch": {"global_batch_size": 8},
            "schedule": {"train_iters": 15, "lr_decay_style": "linear"},
            "optimizer": {"lr": 1.25e-6, "min_lr": 1.25e-7},
            "checkpoint": {
                "load": "/data/ci/models/Qwen3-8B/mg/qwen3-8b-layer1-tp2pp1",
                "save": None,
                "save_interval": 1000,
                "format": "torch",
                "finetune": True,
                "no_load_optim": True,
                "no_load_rng": True,
                "exit_on_missing": True,
            },
            "evaluation": {"interval": 1000},
            "logging": {"throughput": True},
        },
    ),
    "deepseek3": job_of(
        _FUSED,
        {
            "model": {
                **DEEPSEEK_V3,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 40.0,
                    "original_max_position_embeddings": 4096,
                    "beta_fast": 32,
                    "beta_slow": 1,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                },
                "pretrained": True,
                "path": "your_model_ckpt_path",
            },
            "tokenizer": {"path": "your_tokenizer_path", "make_vocab_size_divisible_by": 1},
            "data": {"paths": ["your_data_path"], "format": "text", "split": "100,0,0", "reset_attention_mask": True},
            "batch": {"seq_length": 4096, "global_batch_size": 3840},
            "schedule": {"train_iters": 2000, "lr_warmup_iters": 500},
            "optimizer": {"lr": 1e-5, "min_lr": 1e-7, "weight_decay": 0.01, "adam_beta2": 0.999},
            "precision": {"initial_loss_scale": 65536.0},
            "parallel": {
                "tp": 4,
                "pp": 8,
                "vpp": 2,
                "schedule": "dualpipev",
                "ep": 32,
                "etp": 1,
                "sequence_parallel": True,
                "cp_algorithm": "ulysses",
                "noop_layers": [61, 62, 63],
                "distributed_optimizer": True,
            },
            "moe": {
                "grouped_gemm": True,
                "dispatch_overlap": True,
                "permute_fusion": True,
                "batch_overlap": True,
                "load_balancing_type": "seq_aux_loss",
                "aux_loss_coeff": 1e-4,
            },
            "offload": {"optimizer": True, "optimizer_times": 4},
            "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
            "kernels": {"manual_gc_interval": 50, "gradient_accumulation_fusion": True},
            "checkpoint": {
                "save": "your_model_save_ckpt_path",
                "save_interval": 2000,
                "no_save_optim": True,
                "no_save_rng": True,
                "finetune": False,
            },
            "evaluation": {"interval": 2000, "iters": 0},
            "fault_tolerance": {"timeout_minutes": 120},
            "cluster": {"nodes": 64},
        },
    ),
}
