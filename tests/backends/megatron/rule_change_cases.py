"""The smallest job in which Megatron-SWIFT changes a value or runs into what was seen, and one in which it does not."""

from collections.abc import Mapping

from tests.backends.megatron.rule_pair import GRPO, LATENT, MOE, Pair, args

_GKD = {"type": "gkd"}
_BIASED = {**LATENT, "router_expert_bias": True}
_YARN = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
_COMPRESSED = {"experimental_attention_variant": "dsv4_hybrid", "rope_scaling": _YARN}

CHANGES: Mapping[str, Pair] = {
    "SW-SET-PADDING-FREE": Pair(
        {"batch": {"packing": True, "padding_free": False}}, {"batch": {"packing": True, "padding_free": True}}
    ),
    "SW-SET-SEQUENCE-SIZE": Pair(args(sequence_parallel_size=2), args(sequence_parallel_size=1)),
    "SW-SET-PACKING-LENGTH": Pair(
        {"batch": {"packing": True}, **args(packing_length=256)}, {"batch": {"packing": True}}
    ),
    "SW-SET-WORKERS": Pair(
        {"data": {"streaming": True, "num_workers": 4}}, {"data": {"streaming": True, "num_workers": 1}}
    ),
    "SW-SET-WORKERS-OLD": Pair(
        {"data": {"streaming": True, "num_workers": 4}}, {"data": {"streaming": True, "num_workers": 1}}, "3.6.4"
    ),
    "SW-SET-SPLIT": Pair(
        {"data": {"validation_ratio": 0.1, "validation_paths": ["v.jsonl"]}}, {"data": {"validation_ratio": 0.1}}
    ),
    "SW-SET-EPOCHS": Pair(args(num_train_epochs=2), {}),
    "SW-SET-SAVE-STEPS": Pair(
        {"checkpoint": {"save": "out", "save_interval": 5}, **args(save_strategy="epoch")}, args(save_strategy="epoch")
    ),
    "SW-SET-LAZY": Pair(args(cached_dataset=["a"]), {}),
    "SW-SET-FP8-PADDING": Pair(
        {"precision": {"fp8_recipe": "blockwise"}}, {"precision": {"fp8_recipe": "blockwise", "fp8_format": "e4m3"}}
    ),
    "SW-SET-VPP": Pair({"parallel": {"pp": 2, "vpp": 1}}, {"parallel": {"pp": 2, "vpp": 2}}),
    "SW-SET-LAYOUT-VPP": Pair(
        {"parallel": {"pp": 2, "vpp": 2, "layout": "Et*4|t*4L"}},
        {"parallel": {"pp": 2, "vpp": 2, "layout": "Et*2|tt|tt|t*2L"}},
    ),
    "SW-SET-P2P": Pair({"overlap": {"p2p": True}}, {"overlap": {"p2p": True}, "parallel": {"pp": 2, "vpp": 2}}),
    "SW-SET-ALIGN": Pair(
        args(align_param_gather=True), {"parallel": {"pp": 2, "vpp": 2}, **args(align_param_gather=True)}
    ),
    "SW-SET-DENSE-ETP": Pair(
        {"parallel": {"tp": 2, "etp": 2}}, {"parallel": {"tp": 2, "etp": 2, "sequence_parallel": True}, "model": MOE}
    ),
    "SW-SET-FSDP": Pair(
        {"parallel": {"zero_stage": 3, "distributed_optimizer": False}}, {"parallel": {"zero_stage": 3}}
    ),
    "SW-SET-MUON": Pair(
        {"optimizer": {"type": "muon"}},
        {"optimizer": {"type": "muon"}, "parallel": {"distributed_optimizer": False}},
    ),
    "SW-SET-DTYPE": Pair(args(torch_dtype="float32"), {"precision": {"dtype": "fp32"}}),
    "SW-SET-QK-SCALING": Pair(
        {"precision": {"dtype": "fp16"}}, {"precision": {"dtype": "fp16", "apply_query_key_layer_scaling": False}}
    ),
    "SW-SET-GRADS": Pair(args(accumulate_allreduce_grads_in_fp32=False), args(accumulate_allreduce_grads_in_fp32=True)),
    "SW-SET-SOFTMAX": Pair(
        {"precision": {"apply_query_key_layer_scaling": True, "attention_softmax_in_fp32": False}},
        {"precision": {"apply_query_key_layer_scaling": True}},
    ),
    "SW-SET-UNFUSED": Pair(
        {"kernels": {"attention_backend": "unfused"}},
        {"kernels": {"attention_backend": "unfused"}, "batch": {"padding_free": False}},
    ),
    "SW-PACKING-UNFUSED": Pair(
        {"kernels": {"attention_backend": "unfused"}, "batch": {"packing": True}}, {"batch": {"packing": True}}
    ),
    "SW-SET-ROPE-FUSION": Pair(
        {"kernels": {"rope_fusion": True}, "model": {"position_embedding": "none"}}, {"kernels": {"rope_fusion": True}}
    ),
    "SW-SET-BIAS-DROPOUT": Pair(
        {
            "kernels": {"bias_dropout_fusion": True},
            "model": {**MOE, "linear_bias": True},
            "moe": {"grouped_gemm": True},
        },
        {"kernels": {"bias_dropout_fusion": True}, "model": MOE, "moe": {"grouped_gemm": True}},
    ),
    "SW-SET-GRADIENT-FUSION": Pair(
        {"kernels": {"gradient_accumulation_fusion": True}}, {"kernels": {"gradient_accumulation_fusion": False}}
    ),
    "SW-SET-MERGE": Pair({"lora": {"rank": 8}}, {"lora": {"rank": 8, "merge": False}}),
    "SW-SET-TUNER": Pair({"lora": {"load": "a"}}, {"lora": {"load": "a", "rank": 8}}),
    "SW-SET-UNTIE": Pair(
        {"model": {"tie_word_embeddings": True}, **args(task_type="seq_cls")},
        {"model": {"tie_word_embeddings": True}},
    ),
    "SW-SET-REWARD": Pair({"task": {"type": "reward_model"}, **args(num_labels=2)}, {"task": {"type": "reward_model"}}),
    "SW-SET-LABELS": Pair(args(task_type="generative_reranker", num_labels=2), args(task_type="seq_cls", num_labels=2)),
    "SW-SET-TEACHER": Pair(
        {"task": _GKD, "lora": {"rank": 8}, **args(teacher_model="/models/qwen3")},
        {"task": _GKD, "lora": {"rank": 8}, **args(teacher_model="/models/qwen3-32b")},
    ),
    "SW-SET-SHUFFLE": Pair(
        {"task": GRPO, **args(dataset_shuffle=False, train_dataloader_shuffle=True)},
        {"task": GRPO, **args(dataset_shuffle=True, train_dataloader_shuffle=True)},
    ),
    "SW-SET-GKD-GENERATIONS": Pair({"task": _GKD, **args(num_generations=4)}, {"task": _GKD}),
    "SW-SET-GKD-LOSS": Pair({"task": _GKD}, {"task": _GKD, "precision": {"calculate_per_token_loss": True}}),
    "SW-SET-COLUMNS": Pair({"task": GRPO, **args(remove_unused_columns=True)}, args(remove_unused_columns=True)),
    "SW-SET-REAL": Pair(
        {"task": GRPO, **args(loss_type="real", scale_rewards="group", num_generations=1)},
        {"task": GRPO, **args(scale_rewards="group", num_generations=1)},
    ),
    "SW-SET-MODEL-FP16": Pair(args(torch_dtype="bfloat16", fp16=True), args(torch_dtype="float16", fp16=True)),
    "SW-SET-MODEL-BF16": Pair(
        args(torch_dtype="float32", bf16=True, fp16=False), args(torch_dtype="bfloat16", bf16=True, fp16=False)
    ),
    "SW-SET-SP": Pair({"parallel": {"sequence_parallel": True}}, {"parallel": {"sequence_parallel": True, "tp": 2}}),
    "SW-SET-EXTRA": Pair(
        args(apply_rope_fusion=True, megatron_extra_kwargs={"apply_rope_fusion": False}),
        args(apply_rope_fusion=True, megatron_extra_kwargs={"apply_rope_fusion": True}),
    ),
    "SW-SET-P2P-BATCHES": Pair(
        {"parallel": {"pp": 2, "vpp": 2}, **args(batch_p2p_comm=True)},
        {"parallel": {"pp": 2, "vpp": 2}, **args(batch_p2p_comm=False)},
    ),
    "SW-SET-MTP": Pair(
        args(mtp_num_layers=2, mtp_shared_weights=True), args(mtp_num_layers=1, mtp_shared_weights=True)
    ),
    "SW-SET-MOE-RECOMPUTE": Pair(
        {"model": MOE, **args(moe_layer_recompute=True, recompute_modules=["mlp"])},
        {"model": MOE, **args(recompute_modules=["mlp"])},
    ),
    "SW-SET-INITIALIZATION": Pair({"parallel": {"tp": 2}}, {"parallel": {"tp": 2}, "lora": {"rank": 8}}),
    "SW-SCORE-HEAD": Pair(
        {"task": {"type": "reward_model"}},
        {"task": {"type": "reward_model"}, "model": {"perform_initialization": True}},
    ),
    "SW-INITIALIZATION-TP": Pair(
        {"parallel": {"tp": 2}, **args(perform_initialization=False)}, {"parallel": {"tp": 2}}
    ),
    "SW-LORA-TP-NORM": Pair(
        {"parallel": {"tp": 2}, "lora": {"rank": 8}},
        {"parallel": {"tp": 2}, "lora": {"rank": 8}, "optimizer": {"clip_grad": 0.0}},
    ),
    "SW-FP32-RESUME": Pair(
        {"precision": {"dtype": "fp32"}, "checkpoint": {"load": "out/checkpoint-5"}},
        {"precision": {"dtype": "fp32"}, "checkpoint": {"load": "out/checkpoint-5", "no_load_optim": True}},
    ),
    "SW-CHECK-MODEL": Pair(
        {"env": {"HF_HUB_OFFLINE": "1"}}, {"env": {"HF_HUB_OFFLINE": "1"}, **args(check_model=False)}
    ),
    "SW-BIAS-RATE": Pair({"model": _BIASED}, {"model": _BIASED, "moe": {"bias_update_rate": 0.002}}),
    "SW-LORA-BIAS": Pair(
        {"model": _BIASED, "lora": {"rank": 8}},
        {"model": _BIASED, "lora": {"rank": 8}, "moe": {"bias_update_rate": 0.0}},
    ),
    "SW-INDEXER-ROTATION": Pair(
        {"model": {**LATENT, "model_type": "glm_moe_dsa", "path": "/models/GLM-5"}},
        {
            "model": {**LATENT, "model_type": "glm_moe_dsa", "path": "/models/GLM-5"},
            **args(megatron_extra_kwargs={"dsa_indexer_rotary_interleaved": True}),
        },
    ),
    "SW-SCORING": Pair({"model": LATENT}, {"model": {**LATENT, "scoring_func": "softmax"}}),
    "SW-COMPRESSED-CORE": Pair({"model": {"experimental_attention_variant": "dsv4_hybrid"}}, {}),
    "SW-YARN-MSCALE": Pair(
        {"model": {**LATENT, "rope_scaling": _YARN}},
        {"model": {**LATENT, "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}},
    ),
    "SW-COMPRESSED-ROPE": Pair(
        {"model": _COMPRESSED}, {"model": {**_COMPRESSED, "rope_scaling": {**_YARN, "factor": 40.0}}}
    ),
    "SW-COMPRESSED-TP": Pair(
        {"model": _COMPRESSED, "parallel": {"tp": 2, "sequence_parallel": True}}, {"model": _COMPRESSED}
    ),
    "SW-COMPRESSED-CP": Pair(
        {"model": _COMPRESSED, "parallel": {"cp": 2}},
        {"model": _COMPRESSED, "parallel": {"cp": 2}, **args(cp_partition_mode="contiguous")},
    ),
    "SW-NPU-EXPERTS": Pair(
        {"model": {**MOE, "num_experts": 256}, "hardware": {"device": "npu"}},
        {"model": {**MOE, "num_experts": 256}, "hardware": {"device": "npu"}, "parallel": {"ep": 2}},
    ),
}
