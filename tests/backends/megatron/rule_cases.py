"""The smallest job that breaks each rule of Megatron-SWIFT, and the nearest one that passes, as changes of one job."""

from collections.abc import Mapping

from tests.backends.megatron.rule_pair import DPO, GRPO, LATENT, MOE, RC, SPARSE, Changes, Pair, args

_MTP: Changes = {**LATENT, "num_nextn_predict_layers": 1}
_SP_TP = {"tp": 2, "sequence_parallel": True}
_LAYOUT = {"pp": 2}
_VLLM = {"use_vllm": True, "num_generations": 2}
_EIGHT = {"global_batch_size": 16}
_GKD: Changes = {"type": "gkd"}
_MODEL = {"path": None, "hub_id": "Qwen/Qwen3-8B"}

ARGUMENTS: Mapping[str, Pair] = {
    "SW-LAZY-PACKING": Pair(
        {"data": {"lazy_tokenize": True}, "batch": {"packing": True}}, {"data": {"lazy_tokenize": True}}
    ),
    "SW-LAZY-STREAMING": Pair(
        {"data": {"lazy_tokenize": True, "streaming": True}}, {"data": {"lazy_tokenize": False, "streaming": True}}
    ),
    "SW-STREAM-ITERS": Pair(
        {"data": {"streaming": True}, "schedule": {"train_iters": None, "epochs": 1}}, {"data": {"streaming": True}}
    ),
    "SW-STREAM-EVAL": Pair(
        {"data": {"streaming": True, "validation_paths": ["v.jsonl"]}},
        {"data": {"streaming": True, "validation_paths": ["v.jsonl"]}, "evaluation": {"iters": 5}},
    ),
    "SW-EPOCH-STREAM": Pair({"data": {"streaming": True}, **args(save_strategy="epoch")}, args(save_strategy="epoch")),
    "SW-GROUP-BY-LENGTH": Pair(
        args(group_by_length=True), {"batch": {"padding_free": False}, **args(group_by_length=True)}
    ),
    "SW-TEMPLATE-PACKING": Pair(
        {"data": {"template": "gpt_oss"}}, {"data": {"template": "gpt_oss"}, "batch": {"padding_free": False}}
    ),
    "SW-UNEVEN-PP": Pair(
        {"model": {"num_hidden_layers": 4}, "parallel": {"first_stage_layers": 4}},
        {"model": {"num_hidden_layers": 4}, "parallel": {"first_stage_layers": 2, "pp": 2}},
    ),
    "SW-SOURCE": Pair({"model": dict.fromkeys(("path", "hidden_size"))}, {"model": {"hidden_size": None}}),
    "SW-TP-OVERLAP-SP": Pair(
        {"overlap": {"tp_comm": True}, "parallel": {"tp": 2}}, {"overlap": {"tp_comm": True}, "parallel": _SP_TP}
    ),
    "SW-FREEZE-RATIO-PP": Pair(
        {"parallel": {"pp": 2}, **args(freeze_parameters_ratio=0.5)}, args(freeze_parameters_ratio=0.5)
    ),
    "SW-MLP-PADDING-FREE": Pair(
        {"parallel": {"cp": 2}, **args(mlp_padding_free=True)}, args(mlp_padding_free=True), "3.12.6"
    ),
    "SW-MLP-PADDING-FREE-UNCHECKED": Pair(
        {"parallel": {"cp": 2}, **args(mlp_padding_free=True)}, args(mlp_padding_free=True)
    ),
    "SW-ASYNC-LIMIT": Pair(
        {"checkpoint": {"async_save": True, "save_total_limit": 2}}, {"checkpoint": {"save_total_limit": 2}}
    ),
    "SW-SAVE-LIMIT": Pair({"checkpoint": {"save_total_limit": 1}}, {"checkpoint": {"save_total_limit": 2}}),
    "SW-WD-CONSTANT": Pair(
        args(start_weight_decay=0.0),
        args(start_weight_decay=0.0, end_weight_decay=0.1, weight_decay_incr_style="linear"),
    ),
    "SW-WD-INCREASE": Pair(
        args(weight_decay_incr_style="linear", start_weight_decay=0.0),
        args(start_weight_decay=0.0, end_weight_decay=0.1, weight_decay_incr_style="linear"),
    ),
    "SW-MUON-OVERLAP": Pair(
        {"optimizer": {"type": "muon"}, "overlap": {"grad_reduce": True}}, {"optimizer": {"type": "muon"}}
    ),
    "SW-MUON-LR": Pair(args(muon_lr=1e-3), {"optimizer": {"type": "muon"}, **args(muon_lr=1e-3)}),
    "SW-FSDP-OPTIMIZER": Pair(
        {"parallel": {"zero_stage": 3}, "optimizer": {"type": "muon"}}, {"parallel": {"zero_stage": 3}}
    ),
    "SW-FSDP-CONNECTIONS": Pair(
        {"parallel": {"zero_stage": 3}, "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}},
        {"parallel": {"zero_stage": 3}, "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}},
    ),
    "SW-ADAPTERS-ONE": Pair(args(adapters=["a", "b"]), args(adapters=["a"])),
    "SW-LORA-LLM-MERGE": Pair(
        args(tuner_type="lora_llm"), {"checkpoint": {"no_save_optim": True}, **args(tuner_type="lora_llm")}
    ),
    "SW-LORA-OFF": Pair(args(lora_rank=16), {"lora": {"rank": 16}}),
    "SW-LORA-OFF-OLD": Pair(args(lora_rank=16), {"lora": {"rank": 16}}, "3.12.6"),
    "SW-LORA-LLM-LANGUAGE": Pair(
        args(tuner_type="lora_llm", language_model_only=True), args(tuner_type="lora", language_model_only=True)
    ),
    "SW-LORA-LLM-TEXT": Pair(args(tuner_type="lora_llm"), args(tuner_type="lora")),
    "SW-QK-LAYERNORM-DECAY": Pair(args(apply_wd_to_qk_layernorm=True), args(apply_wd_to_qk_layernorm=False)),
    "SW-SINK-FLASH": Pair(
        {"model": {"softmax_type": "learnable"}, "kernels": {"attention_backend": "flash"}},
        {"model": {"softmax_type": "learnable"}},
    ),
    "SW-TORCH-DTYPE": Pair(args(torch_dtype="fp16"), args(torch_dtype="bfloat16")),
    "SW-SKIP-INIT": Pair(args(skip_megatron_init=True), args(skip_megatron_init=False)),
    "SW-LORA-DEEPSEEK-V41": Pair(
        {"lora": {"rank": 8}, **args(model_type="deepseek_v41")}, args(model_type="deepseek_v41")
    ),
    "SW-BRIDGE-LORA": Pair(
        {"lora": {"rank": 8}, **args(bridge_backend="megatron-bridge")}, args(bridge_backend="megatron-bridge")
    ),
    "SW-BRIDGE-TASK": Pair(
        args(bridge_backend="megatron-bridge", task_type="seq_cls"), args(bridge_backend="megatron-bridge")
    ),
    "SW-ATTENTION": Pair(args(attention_backend="flsh"), args(attention_backend="flash_3")),
    "SW-FLASH-SINK": Pair(
        args(megatron_extra_kwargs={"softmax_type": "learnable"}),
        {"kernels": {"attention_backend": "fused"}, **args(megatron_extra_kwargs={"softmax_type": "learnable"})},
    ),
}

CORE: Mapping[str, Pair] = {
    "SW-LAYOUT": Pair(
        {"parallel": {**_LAYOUT, "layout": "t*4E|t*4L"}}, {"parallel": {**_LAYOUT, "layout": "Et*4|t*4L"}}
    ),
    "SW-LAYOUT-ALONE": Pair(
        {"parallel": {**_LAYOUT, "layout": "Et*4|t*4L", "first_stage_layers": 4}},
        {"parallel": {**_LAYOUT, "layout": "Et*4|t*4L"}},
    ),
    "SW-UNEVEN-ACCOUNT": Pair(
        {"parallel": {**_LAYOUT, "first_stage_layers": 3, "account_for_loss": True}},
        {"parallel": {**_LAYOUT, "first_stage_layers": 3}},
    ),
    "SW-STAGE-EMPTY": Pair(
        {"parallel": {**_LAYOUT, "first_stage_layers": 0}}, {"parallel": {**_LAYOUT, "first_stage_layers": 1}}
    ),
    "SW-RC-DEFAULT": Pair(
        {"recompute": {"num_layers": 1}},
        {"recompute": {"num_layers": 1, "method": "block", "granularity": "full"}},
    ),
    "SW-RC-MODULES": Pair(
        {"recompute": RC, **args(recompute_modules=["norm"])}, {"recompute": {**RC, "modules": ["layernorm"]}}
    ),
    "SW-GROUP-SCORES": Pair(
        {"model": {**LATENT, "n_group": 4, "topk_group": 2}}, {"model": {**LATENT, "n_group": 4, "topk_group": 1}}
    ),
    "SW-RC-SHARED-OLD": Pair(
        {"recompute": {**RC, "modules": ["shared_experts"]}, "model": MOE},
        {"recompute": {**RC, "modules": ["moe"]}, "model": MOE},
        "3.6.4",
    ),
    "SW-RC-MOE-ACT": Pair(
        {"recompute": {**RC, "modules": ["moe_act"]}, "model": MOE, "moe": {"grouped_gemm": False}},
        {"recompute": {**RC, "modules": ["moe_act"]}, "model": MOE, "moe": {"grouped_gemm": True}},
    ),
    "SW-DSA-ROPE-FUSION": Pair(
        {"model": SPARSE, "kernels": {"rope_fusion": True}}, {"model": SPARSE, "kernels": {"rope_fusion": False}}
    ),
    "SW-DSA-CP": Pair({"model": SPARSE, "parallel": {"cp": 2}}, {"model": SPARSE, "parallel": {"cp": 1}}),
    "SW-RC-MLA": Pair(
        {"recompute": {**RC, "modules": ["mla_up_proj"]}},
        {"recompute": {**RC, "modules": ["mla_up_proj"]}, "model": LATENT},
    ),
    "SW-RC-SHARED-OVERLAP": Pair(
        {
            "recompute": {**RC, "modules": ["shared_experts"]},
            "model": {**MOE, "shared_expert_intermediate_size": 64},
            "moe": {"shared_expert_overlap": True},
        },
        {
            "recompute": {**RC, "modules": ["shared_experts"]},
            "model": {**MOE, "shared_expert_intermediate_size": 64},
        },
    ),
    "SW-RC-FP8-DELAYED": Pair(
        {"recompute": {**RC, "modules": ["layernorm"]}, "precision": {"fp8_format": "e4m3"}},
        {
            "recompute": {**RC, "modules": ["layernorm"]},
            "precision": {"fp8_format": "e4m3", "fp8_recipe": "blockwise"},
        },
    ),
    "SW-RC-LAYER": Pair(
        {"recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}, **args(moe_layer_recompute=True)},
        {"recompute": RC, **args(moe_layer_recompute=True)},
        "3.12.6",
    ),
    "SW-NUM-LABELS": Pair(args(task_type="seq_cls"), args(task_type="seq_cls", num_labels=2)),
    "SW-OFFLOAD-LAYERS": Pair(
        {"offload": {"activation_layers": 8}, "args": {"recompute_granularity": "none"}},
        {"offload": {"activation_layers": 7}, "args": {"recompute_granularity": "none"}},
    ),
    "SW-FP16-BF16": Pair(args(fp16=True, bf16=True), args(fp16=True, bf16=False)),
    "SW-FP16-DTYPE": Pair(args(fp16=True), args(fp16=True, bf16=False)),
    "SW-FP8-PARAM": Pair(
        {"precision": {"fp8_param_gather": True}}, {"precision": {"fp8_param_gather": True, "fp8_format": "e4m3"}}
    ),
    "SW-FP4-FP8": Pair({"precision": {"fp8_format": "e4m3"}, **args(fp4_format="e2m1")}, args(fp4_format="e2m1")),
    "SW-FP4-PARAM": Pair(args(fp4_param_gather=True), args(fp4_param_gather=True, fp4_format="e2m1")),
    "SW-DEEPEP-FLEX": Pair(
        {"moe": {"deepep": True}, "model": MOE},
        {"moe": {"deepep": True, "token_dispatcher_type": "flex"}, "model": MOE},
    ),
    "SW-SHARED-OVERLAP": Pair(
        {
            "moe": {"shared_expert_overlap": True, "token_dispatcher_type": "flex"},
            "model": {**MOE, "shared_expert_intermediate_size": 64},
        },
        {"moe": {"shared_expert_overlap": True}, "model": {**MOE, "shared_expert_intermediate_size": 64}},
    ),
    "SW-CAPACITY-BALANCE": Pair(
        {"moe": {"capacity_factor": 1.0, "load_balancing_type": "sinkhorn"}, "model": MOE},
        {"moe": {"capacity_factor": 1.0, "load_balancing_type": "global_aux_loss"}, "model": MOE},
    ),
    "SW-CAPACITY-BALANCE-OLD": Pair(
        {"moe": {"capacity_factor": 1.0, "load_balancing_type": "sinkhorn"}, "model": MOE},
        {"moe": {"capacity_factor": 1.0}, "model": MOE},
        "3.6.4",
    ),
    "SW-PAD-CAPACITY": Pair(
        {"moe": {"pad_to_capacity": True}, "model": MOE},
        {"moe": {"pad_to_capacity": True, "capacity_factor": 1.0}, "model": MOE},
    ),
    "SW-PAD-FLEX": Pair(
        {
            "moe": {
                "pad_to_capacity": True,
                "capacity_factor": 1.0,
                "token_dispatcher_type": "flex",
                "deepep": True,
            },
            "model": MOE,
        },
        {"moe": {"pad_to_capacity": True, "capacity_factor": 1.0}, "model": MOE},
    ),
    "SW-BALANCE-LIST": Pair(
        {"model": MOE, **args(moe_router_load_balancing_type=["aux_loss", "seq_aux_loss"], moe_aux_loss_coeff=[0.1])},
        {
            "model": MOE,
            **args(moe_router_load_balancing_type=["aux_loss", "seq_aux_loss"], moe_aux_loss_coeff=[0.1, 0.1]),
        },
    ),
    "SW-ALLGATHER": Pair({"moe": {"token_dispatcher_type": "allgather"}, "model": MOE}, {"model": MOE}),
    "SW-ALLTOALL-SEQ": Pair(
        {"moe": {"token_dispatcher_type": "alltoall_seq", "permute_fusion": True}, "model": MOE},
        {"moe": {"token_dispatcher_type": "alltoall_seq"}, "model": MOE},
        "3.6.4",
    ),
    "SW-TOPK-ONE": Pair(
        {"model": {**MOE, "num_experts_per_tok": 1}},
        {"model": {**MOE, "num_experts_per_tok": 1, "norm_topk_prob": False}},
    ),
    "SW-MTP-RC-LAYERS": Pair(
        {"model": _MTP, "recompute": {"granularity": "full", "method": "uniform", "num_layers": 2}},
        {"model": _MTP, "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}},
    ),
    "SW-BIAS-ETP": Pair(
        {"model": {**MOE, "linear_bias": True}, "parallel": {**_SP_TP, "etp": 2}},
        {"model": {**MOE, "linear_bias": True}, "parallel": {**_SP_TP, "etp": 1}},
    ),
    "SW-ETP-REPLICAS": Pair(
        {"model": MOE, "parallel": {**_SP_TP, "etp": 1}}, {"model": MOE, "parallel": {**_SP_TP, "etp": 2}}
    ),
    "SW-SEQUENCE-BALANCE": Pair(
        {
            "model": MOE,
            "moe": {"load_balancing_type": "seq_aux_loss", "aux_loss_coeff": 0.1},
            "batch": {"micro_batch_size": 2},
        },
        {
            "model": MOE,
            "moe": {"load_balancing_type": "seq_aux_loss", "aux_loss_coeff": 0.1},
            "batch": {"micro_batch_size": 1},
        },
    ),
    "SW-BALANCE-SHARE": Pair(
        {
            "model": MOE,
            "moe": {"aux_loss_coeff": 0.1},
            "parallel": {"cp": 2},
            "precision": {"calculate_per_token_loss": True},
        },
        {"model": MOE, "moe": {"aux_loss_coeff": 0.1}, "precision": {"calculate_per_token_loss": True}},
    ),
    "SW-BALANCE-PER-TOKEN": Pair(
        {
            "task": {"type": "sft"},
            "data": {"format": "messages"},
            "model": MOE,
            "moe": {"aux_loss_coeff": 0.1},
            "precision": {"calculate_per_token_loss": True},
        },
        {
            "task": {"type": "sft"},
            "data": {"format": "messages"},
            "model": MOE,
            "moe": {"aux_loss_coeff": 0.1},
            "precision": {"calculate_per_token_loss": False},
        },
    ),
    "SW-DROP-POSITION": Pair(
        {"model": MOE, "moe": {"capacity_factor": 0.5, "token_drop_policy": "position"}},
        {"model": MOE, "moe": {"capacity_factor": 0.5, "token_drop_policy": "probs"}},
    ),
    "SW-CONFIG-NAMES": Pair(
        {"model": {"newer_names": ["rope_parameters"]}}, {"model": {"newer_names": ["dtype"]}}, "3.12.6"
    ),
    "SW-FP16-OVERFLOW": Pair({"precision": {"dtype": "fp16"}}, {"precision": {"dtype": "bf16"}}),
    "SW-CP-MEAN": Pair(
        {"task": {"type": "sft"}, "data": {"format": "messages"}, "parallel": {"cp": 2}},
        {
            "task": {"type": "sft"},
            "data": {"format": "messages"},
            "parallel": {"cp": 2},
            "precision": {"calculate_per_token_loss": True},
        },
    ),
    "SW-BUILD-BIAS": Pair(
        {"model": {"linear_bias": True, "attention_bias": True}}, {"model": {"attention_bias": True}}
    ),
    "SW-BUILD-DENSE-LAYERS": Pair(
        {"model": {**MOE, "first_k_dense_replace": 1}},
        {"model": {**MOE, "first_k_dense_replace": 1, "overridden": ["first_k_dense_replace"]}},
    ),
    "SW-BUILD-OUTPUT-BIAS": Pair(
        {"model": {"attention_bias": True, "attention_output_bias": True}}, {"model": {"attention_bias": True}}
    ),
    "SW-BUILD-DENSE-COUNT": Pair(
        {"model": {**LATENT, "num_hidden_layers": 4, "first_k_dense_replace": 5}},
        {"model": {**LATENT, "num_hidden_layers": 4, "first_k_dense_replace": 4}},
    ),
    "SW-BUILD-LINEAR-LAYERS": Pair(
        {"model": {"experimental_attention_variant": "gated_delta_net", "full_attention_interval": 2}},
        {"model": {"experimental_attention_variant": "gated_delta_net", "full_attention_interval": 4}},
        version="4.2.3",
    ),
    "SW-PRECISION-AWARE": Pair(
        {"optimizer": {"precision_aware": True, "type": "sgd"}}, {"optimizer": {"precision_aware": True}}
    ),
    "SW-STATE-DTYPE": Pair(
        {"optimizer": {"exp_avg_dtype": "bf16"}}, {"optimizer": {"exp_avg_dtype": "bf16", "precision_aware": True}}
    ),
    "SW-GATHER-DISTRIBUTED": Pair(
        {"overlap": {"param_gather": True, "grad_reduce": True}, "parallel": {"distributed_optimizer": False}},
        {"overlap": {"param_gather": True, "grad_reduce": True}},
        "3.12.6",
    ),
    "SW-GATHER-REDUCE": Pair(
        {"overlap": {"param_gather": True}}, {"overlap": {"param_gather": True, "grad_reduce": True}}, "3.6.4"
    ),
    "SW-GATHER-REDUCE-UNCHECKED": Pair(
        {"overlap": {"param_gather": True}}, {"overlap": {"param_gather": True, "grad_reduce": True}}
    ),
    "SW-OFFLOAD-AWARE": Pair(
        {"offload": {"optimizer": True}},
        {"offload": {"optimizer": True}, "optimizer": {"precision_aware": True}},
        "3.6.4",
    ),
    "SW-OFFLOAD-AWARE-UNCHECKED": Pair(
        {"offload": {"optimizer": True}}, {"offload": {"optimizer": True}, "optimizer": {"precision_aware": True}}
    ),
}

RLHF: Mapping[str, Pair] = {
    "SW-GRPO-ASYNC": Pair({"task": GRPO, **args(**_VLLM, async_generate=True)}, {"task": GRPO, **args(**_VLLM)}),
    "SW-GRPO-SYNC-REF": Pair({"task": GRPO, **args(**_VLLM, sync_ref_model=True)}, {"task": GRPO, **args(**_VLLM)}),
    "SW-GRPO-ITERATIONS": Pair(
        {"task": GRPO, **args(**_VLLM, num_iterations=2)}, {"task": GRPO, **args(**_VLLM, num_iterations=1)}
    ),
    "SW-DPO-LOSS": Pair({"task": {**DPO, "loss_type": "hinge"}}, {"task": {**DPO, "loss_type": "sigmoid"}}),
    "SW-GRPO-SIZES": Pair(
        {"task": GRPO, **args(**_VLLM, generation_batch_size=24)},
        {"task": GRPO, **args(**_VLLM, generation_batch_size=32)},
    ),
    "SW-GRPO-SIZES-TWICE": Pair(
        {"task": GRPO, **args(**_VLLM, generation_batch_size=32, steps_per_generation=2)},
        {"task": GRPO, **args(**_VLLM, generation_batch_size=32)},
        "3.12.6",
    ),
    "SW-GRPO-PROMPTS": Pair(
        {"task": GRPO, **args(use_vllm=True, num_generations=4)},
        {"task": GRPO, **args(use_vllm=True, num_generations=2)},
    ),
    "SW-GRPO-VLLM": Pair({"task": GRPO, **args(use_vllm=False, num_generations=2)}, {"task": GRPO, **args(**_VLLM)}),
    "SW-GRPO-TRUNCATION": Pair(
        {"task": GRPO, **args(**_VLLM, truncation_strategy="right")},
        {"task": GRPO, **args(**_VLLM, truncation_strategy="delete")},
    ),
    "SW-GRPO-OVERLONG": Pair(
        {"task": GRPO, **args(**_VLLM, reward_funcs=["soft_overlong"])},
        {"task": GRPO, **args(**_VLLM, reward_funcs=["soft_overlong"], soft_cache_length=10)},
    ),
    "SW-GRPO-REAL": Pair(
        {"task": {**GRPO, "loss_type": "real"}, **args(**_VLLM)},
        {"task": {**GRPO, "loss_type": "real"}, "batch": {"micro_batch_size": 2}, **args(**_VLLM)},
    ),
    "SW-GRPO-SHUFFLE": Pair(
        {"task": GRPO, "data": {"shuffle": False}, **args(**_VLLM)}, {"task": GRPO, **args(**_VLLM)}, "3.12.6"
    ),
    "SW-GKD-SEQUENCE": Pair({"task": _GKD, **args(seq_kd=True)}, {"task": _GKD}),
    "SW-GKD-TOPK": Pair(
        {"task": _GKD, **args(teacher_model_server="http://a")},
        {"task": _GKD, **args(teacher_model_server="http://a", gkd_logits_topk=8)},
    ),
    "SW-GKD-TEACHER": Pair({"task": _GKD}, {"task": _GKD, **args(teacher_model="a")}, "4.0.0"),
    "SW-GKD-TEACHERS": Pair(
        {"task": _GKD, **args(teacher_model="a", teacher_model_server="http://b", gkd_logits_topk=8)},
        {"task": _GKD, **args(teacher_model_server="http://b", gkd_logits_topk=8)},
    ),
}

SEED: Mapping[str, Pair] = {
    "SW-CHUNKS-TWICE": Pair(
        {"parallel": {"pp": 2, "vpp": 2}, **args(num_layers_per_virtual_pipeline_stage=2)},
        {"parallel": {"pp": 2, "vpp": 2}},
        "3.12.6",
    ),
    "SW-CHUNK-LAYERS": Pair(
        {"parallel": {"pp": 2}, **args(num_layers_per_virtual_pipeline_stage=3)},
        {"parallel": {"pp": 2}, **args(num_layers_per_virtual_pipeline_stage=2)},
        "3.5.3",
    ),
    "SW-FP8-DISTRIBUTED": Pair(
        {
            "precision": {"fp8_param_gather": True, "fp8_format": "e4m3"},
            "parallel": {"distributed_optimizer": False},
        },
        {"precision": {"fp8_param_gather": True, "fp8_format": "e4m3"}},
        "3.6.4",
    ),
    "SW-GROUPED-BF16": Pair(
        {"moe": {"grouped_gemm": True}, "model": MOE, "precision": {"dtype": "fp16"}},
        {"moe": {"grouped_gemm": True}, "model": MOE},
        "3.6.4",
    ),
    "SW-EP-FP16": Pair(
        {"parallel": {"ep": 2}, "model": MOE, "precision": {"dtype": "fp16"}},
        {"parallel": {"ep": 2}, "model": MOE},
        "3.6.4",
    ),
    "SW-DETERMINISTIC": Pair(
        {"kernels": {"deterministic": True, "cross_entropy_fusion": True}},
        {"kernels": {"deterministic": True}},
        "3.6.4",
    ),
    "SW-DETERMINISTIC-FLASH": Pair(
        {"kernels": {"deterministic": True}, **args(use_flash_attn=True)}, {"kernels": {"deterministic": True}}, "3.6.4"
    ),
    "SW-DETERMINISTIC-NCCL": Pair(
        {"kernels": {"deterministic": True}},
        {"kernels": {"deterministic": True}, "env": {"NCCL_ALGO": "Ring"}},
        "3.6.4",
    ),
    "SW-DISTRIBUTE-TP": Pair(
        {
            "recompute": {
                "granularity": "full",
                "method": "uniform",
                "num_layers": 1,
                "distribute_saved_activations": True,
            }
        },
        {
            "recompute": {
                "granularity": "full",
                "method": "uniform",
                "num_layers": 1,
                "distribute_saved_activations": True,
            },
            "parallel": {"tp": 2},
        },
        "3.6.4",
    ),
    "SW-DISTRIBUTE-SP": Pair(
        {"recompute": {"distribute_saved_activations": True}, "parallel": _SP_TP},
        {"recompute": {"distribute_saved_activations": True}, "parallel": {"tp": 2}},
    ),
    "SW-HEADS-HIDDEN": Pair({"model": {"hidden_size": 260}}, {"model": {"hidden_size": 264}}),
}
