"""What a job becomes in MindFormers' YAML: values, and silent behaviours neutralised."""

from typing import Any

import pytest

from backends.mindformers import BACKEND
from launcher.mapping.rows import active_rows
from tests.backends.mindformers.jobs import DEEPSEEK, NEWEST, OLD, QWEN3, QWEN3_MOE, make, tree, written

M = "model.model_config."
VERSIONS = BACKEND.versions

# name: (job, arguments it must have; None: it must not have it)
WRITTEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "semi-automatic mode always, or every size is 1 (S1)": (
        tree(),
        {"parallel.parallel_mode": 1, "use_parallel": True, "use_legacy": False, "parallel.full_batch": False},
    ),
    "accumulation without stages, micro_batch_num 1 (S2)": (
        tree(parallel={"tp": 2}),
        {"parallel_config.micro_batch_num": 1, "runner_config.gradient_accumulation_steps": 32},
    ),
    "micro batches with stages, accumulation 1 (S3)": (
        tree(parallel={"tp": 2, "pp": 2}),
        {"parallel_config.micro_batch_num": 64, "runner_config.gradient_accumulation_steps": 1},
    ),
    "chunks need pipeline_interleave and a scheduler (S4)": (
        tree(parallel={"pp": 2, "vpp": 3}),
        {
            f"{M}pp_interleave_num": 3,
            "parallel.pipeline_config.pipeline_interleave": True,
            "parallel.pipeline_config.pipeline_scheduler": "1f1b",
            f"{M}offset": 0,
        },
    ),
    "uneven stages are one row without chunks": (
        tree(parallel={"pp": 4, "first_stage_layers": 8, "last_stage_layers": 8}),
        {f"{M}offset": (-1, 1, 1, -1)},
    ),
    "uneven stages are a row per chunk with chunks, never one (S9)": (
        tree(parallel={"pp": 3, "vpp": 2, "first_stage_layers": 10, "last_stage_layers": 10}, cluster={"nodes": 3}),
        {f"{M}offset": ((-1, 2, -1), (-1, 2, -1))},
    ),
    "block recomputation is a count per chunk": (
        tree(parallel={"pp": 2, "vpp": 3}, recompute={"granularity": "full", "method": "block", "num_layers": 2}),
        {"recompute_config.recompute": ((2, 2), (2, 2), (2, 2))},
    ),
    "with swapping it is layer numbers (S7)": (
        tree(
            parallel={"pp": 2},
            recompute={"granularity": "full", "method": "block", "num_layers": 2},
            offload={"activation_layers": 4},
        ),
        {
            "recompute_config.recompute": (0, 1, 18, 19),
            "swap_config.swap": True,
            f"{M}cpu_offloading": True,
            f"{M}cpu_offloading_num_layers": ({"backward_prefetch": 1, "layers": (0, 1, 2, 3)},),
        },
    ),
    "no recomputation is said": (tree(), {"recompute_config.recompute": False}),
    "chosen modules": (
        tree(recompute={"granularity": "selective", "modules": ["core_attn", "layernorm"]}),
        {
            "recompute_config.select_recompute": (
                r"self_attention\.core_attention",
                "input_layernorm",
                "pre_mlp_layernorm",
            )
        },
    ),
    "modules of some layers of each stage, after those recomputed in full": (
        tree(
            recompute={
                "granularity": "full",
                "method": "block",
                "num_layers": 2,
                "layers_per_chunk": [2, 1, 0, 0],
                "modules": ["core_attn"],
                "selective_layers_per_chunk": [1, 2, 3, 0],
            },
            parallel={"pp": 4},
        ),
        {
            "recompute_config.recompute": (2, 1, 0, 0),
            "recompute_config.select_recompute": {r"self_attention\.core_attention": (3, 3, 3, 0)},
        },
    ),
    "the activation alone is MindFormers' default set": (
        tree(recompute={"activation": True}),
        {"recompute_config.select_recompute": True},
    ),
    "sequence parallelism without tensor parallelism means nothing": (
        tree(parallel={"sequence_parallel": True}),
        {"parallel_config.use_seq_parallel": False},
    ),
    "defaults of optimizer and schedule are never left to MindFormers": (
        tree(),
        {
            "optimizer.betas": (0.9, 0.95),
            "optimizer.weight_decay": 0.1,
            "optimizer.eps": 1e-8,
            "lr_schedule.type": "CosineWithWarmUpLR",
            "lr_schedule.warmup_steps": 0,
            "lr_schedule.total_steps": 100,
            "lr_schedule.lr_end": 0.0,
            "runner_wrapper.use_clip_grad": True,
            "runner_wrapper.max_grad_norm": 1.0,
            "runner_wrapper.scale_sense": 1.0,
        },
    ),
    "no clipping": (
        tree(optimizer={"clip_grad": 0.0}),
        {"runner_wrapper.use_clip_grad": False, "runner_wrapper.max_grad_norm": None},
    ),
    "linear decay to zero": (
        tree(schedule={"lr_decay_style": "linear", "lr_warmup_iters": 10}),
        {"lr_schedule.type": "LinearWithWarmUpLR", "lr_schedule.lr_end": None, "lr_schedule.warmup_steps": 10},
    ),
    "linear decay to a minimum": (
        tree(schedule={"lr_decay_style": "linear"}, optimizer={"min_lr": 1e-5}),
        {"lr_schedule.type": "PolynomialWithWarmUpLR", "lr_schedule.power": 1.0, "lr_schedule.lr_end": 1e-5},
    ),
    "warm-up, stable, decay": (
        tree(
            schedule={"lr_decay_style": "WSD", "lr_wsd_decay_iters": 20, "lr_warmup_iters": 5},
            optimizer={"min_lr": 1e-5},
        ),
        {"lr_schedule.type": "WarmUpStableDecayLR", "lr_schedule.decay_start_steps": 80},
    ),
    "warm-up as a share": (tree(schedule={"lr_warmup_fraction": 0.1}), {"lr_schedule.warmup_ratio": 0.1}),
    "a share that int() would round down by a step": (
        tree(schedule={"lr_warmup_fraction": 0.29}),
        {"lr_schedule.warmup_steps": 29, "lr_schedule.warmup_ratio": None},
    ),
    "decay longer than training": (tree(schedule={"lr_decay_iters": 500}), {"lr_schedule.total_steps": 500}),
    "fp16 scales dynamically": (
        tree(precision={"dtype": "fp16"}),
        {
            f"{M}compute_dtype": "float16",
            "runner_wrapper.scale_sense.type": "DynamicLossScaleUpdateCell",
            "runner_wrapper.scale_sense.loss_scale_value": 65536,
        },
    ),
    "steps are samples, in one pass": (
        tree(),
        {
            "train_dataset.data_loader.sizes": (12800, 0, 0),
            "runner_config.epochs": 1,
            "runner_config.sink_size": 1,
            "runner_config.stop_step": None,
        },
    ),
    "one file gets a weight, or whole passes of it would be read": (
        tree(),
        {"train_dataset.data_loader.config.data_path": ("1", "/data/text")},
    ),
    "the causal mask is compressed, or padding would be hidden": (
        tree(),
        {
            f"{M}use_attn_mask_compression": True,
            "train_dataset.data_loader.config.create_attention_mask": False,
            "train_dataset.input_columns": ("input_ids", "labels", "loss_mask", "position_ids"),
            "parallel.dataset_strategy": ((8, 1),) * 4,
        },
    ),
    "a short sequence has its mask from the loader": (
        tree(batch={"seq_length": 1024}),
        {
            f"{M}use_attn_mask_compression": None,
            "train_dataset.data_loader.config.create_attention_mask": True,
            "parallel.dataset_strategy": (*((8, 1),) * 4, (8, 1, 1, 1)),
        },
    ),
    "no flash attention": (
        tree(kernels={"attention_backend": "unfused"}),
        {f"{M}use_flash_attention": False, "train_dataset.data_loader.config.create_attention_mask": True},
    ),
    "ulysses has its degree, or it would gather": (
        tree(parallel={"cp": 4, "cp_algorithm": "ulysses"}),
        {"parallel_config.context_parallel_algo": "ulysses_cp", "parallel_config.ulysses_degree_in_cp": 4},
    ),
    "hybrid": (
        tree(parallel={"cp": 4, "cp_algorithm": "hybrid", "ulysses_degree": 2}),
        {"parallel_config.context_parallel_algo": "hybrid_cp", "parallel_config.ulysses_degree_in_cp": 2},
    ),
    "a ring is a switch of attention": (
        tree(parallel={"cp": 2, "cp_algorithm": "megatron"}),
        {"parallel_config.context_parallel_algo": "colossalai_cp", f"{M}use_ring_attention": True},
    ),
    "sharded optimizer": (
        tree(parallel={"distributed_optimizer": True}),
        {"parallel.enable_parallel_optimizer": True},
    ),
    "sharded gradients too": (
        tree(parallel={"zero_stage": 2}),
        {"parallel.parallel_optimizer_config.gradient_accumulation_shard": True},
    ),
    "experts under the name of the class": (
        tree(QWEN3_MOE),
        {f"{M}num_experts": 128, f"{M}n_routed_experts": None, f"{M}n_shared_experts": None},
    ),
    "gate weights are not scaled, and no null is multiplied": (
        tree(QWEN3_MOE),
        {f"{M}routed_scaling_factor": 1.0, f"{M}norm_topk_prob": True, f"{M}moe_router_score_function": "softmax"},
    ),
    "global balance": (
        tree(QWEN3_MOE, moe={"load_balancing_type": "global_aux_loss", "aux_loss_coeff": 1e-3}),
        {f"{M}moe_router_load_balancing_type": "gbs_aux_loss", f"{M}moe_aux_loss_coeff": 1e-3},
    ),
    "no balance": (
        tree(QWEN3_MOE, moe={"load_balancing_type": "none", "aux_loss_coeff": 1e-3}),
        {f"{M}moe_aux_loss_coeff": 0.0},
    ),
    "DeepSeek's class defaults are said, present or not": (
        tree(
            DEEPSEEK,
            model_changes={
                "num_nextn_predict_layers": 0,
                "q_lora_rank": None,
                "shared_expert_intermediate_size": None,
                "first_k_dense_replace": 0,
                "n_group": None,
                "topk_group": None,
                "router_expert_bias": False,
                "routed_scaling_factor": None,
            },
        ),
        {
            f"{M}num_nextn_predict_layers": 0,
            f"{M}q_lora_rank": None,
            f"{M}n_shared_experts": 0,
            f"{M}first_k_dense_replace": 0,
            f"{M}n_group": 1,
            f"{M}topk_group": 1,
            f"{M}moe_router_enable_expert_bias": False,
            f"{M}routed_scaling_factor": 1.0,
            "callbacks.TopkBiasBalanceCallback.gradient_accumulation_steps": None,
        },
    ),
    "MLA without yarn does not scale its softmax": (
        tree(DEEPSEEK),
        {f"{M}rotary_scaling_factor": 1.0, f"{M}rope_scaling": None},
    ),
    "the expert bias needs its callback": (
        tree(DEEPSEEK),
        {
            f"{M}moe_router_bias_update_rate": 0.001,
            "callbacks.TopkBiasBalanceCallback.gradient_accumulation_steps": 16,
        },
    ),
    "LoRA on all linear layers": (
        tree(lora={"rank": 8, "alpha": 32, "target_modules": ["all-linear"]}),
        {
            f"{M}pet_config": {
                "pet_type": "lora",
                "lora_rank": 8,
                "lora_alpha": 32,
                "lora_dropout": 0.0,
                "lora_a_init": "normal",
                "lora_b_init": "zeros",
                "target_modules": ".*linear_qkv|.*linear_proj|.*linear_fc1|.*linear_fc2",
                "freeze_include": ("*",),
                "freeze_exclude": ("*lora*",),
            }
        },
    ),
    "weights from a directory, with the architecture said": (
        tree(model_changes={"path": "/models/qwen3"}),
        {"pretrained_model_dir": "/models/qwen3", "load_checkpoint": "", f"{M}hidden_size": 4096},
    ),
    "a random start must not name the directory": (
        tree(model_changes={"path": "/models/qwen3", "pretrained": False}),
        {"pretrained_model_dir": None},
    ),
    "resuming": (
        tree(checkpoint={"load": "/ck"}),
        {"load_checkpoint": "/ck", "resume_training": True, "auto_trans_ckpt": True},
    ),
    "starting from a checkpoint's weights": (
        tree(checkpoint={"load": "/ck", "finetune": True}),
        {"load_checkpoint": "/ck", "resume_training": False},
    ),
    "saved once when no interval is given": (
        tree(checkpoint={"save": "/ck"}),
        {
            "callbacks.CheckpointMonitor.directory": "/ck",
            "callbacks.CheckpointMonitor.save_checkpoint_steps": 100,
            "callbacks.CheckpointMonitor.checkpoint_format": "safetensors",
        },
    ),
    "nothing saved": (tree(), {"callbacks.CheckpointMonitor.directory": None}),
    "instruction data stop at the step": (
        tree(task={"type": "sft"}, data={"format": "hub", "paths": ["tatsu-lab/alpaca"]}, batch={"packing": True}),
        {
            "run_mode": "finetune",
            "train_dataset.data_loader.type": "HFDataLoader",
            "train_dataset.data_loader.path": "tatsu-lab/alpaca",
            "callbacks.TrainCallBack.stop_step": 100,
            "train_dataset.data_loader.create_attention_mask": True,
        },
    ),
    "instruction data that are not packed have the columns of their loader": (
        tree(task={"type": "sft"}, data={"format": "hub", "paths": ["tatsu-lab/alpaca"]}, batch={"seq_length": 1024}),
        {
            "train_dataset.input_columns": ("input_ids", "labels"),
            "train_dataset.data_loader.create_attention_mask": False,
        },
    ),
    "a padded vocabulary is written as such": (
        tree(tokenizer={"padded_vocab_size": 152064}),
        {f"{M}vocab_size": 152064},
    ),
    "the fused activation": (
        tree(kernels={"bias_activation_fusion": True}),
        {f"{M}hidden_act": "swiglu", f"{M}bias_swiglu_fusion": True},
    ),
    "tensorboard is a key of the top level": (
        tree(logging={"tensorboard_dir": "/tb", "interval": 5}),
        {"tensorboard.tensorboard_dir": "/tb", "callbacks.MFLossMonitor.per_print_times": 5},
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_job_is_written(name: str) -> None:
    job, expected = WRITTEN[name]
    args = written(job)
    assert {flag: args.get(flag) for flag in expected} == expected


def test_document_masks_with_the_token_of_an_end() -> None:
    eod = "train_dataset.data_loader.config.eod"
    args = written(tree(data={"reset_attention_mask": True}, backend={"args": {eod: 151643}}))
    assert args["train_dataset.input_columns"][4] == "actual_seq_len"
    assert args[f"{M}use_eod_attn_mask_compression"] is True
    assert args[eod] == 151643


def test_version_1_6_counts_mtp_layers_and_names_its_own_keys() -> None:
    model = {"n_group": None, "topk_group": None, "num_hidden_layers": 62}
    job = tree(
        DEEPSEEK,
        model_changes=model,
        parallel={"pp": 2},
        recompute={"granularity": "selective", "communication": False},
        moe={"aux_loss_coeff": 1e-3},
    )
    args = written(job, OLD)
    # 63 layers over two stages: the last one has MTP beside its 31.
    assert args[f"{M}offset"] == (0, 1)
    assert args[f"{M}aux_loss_types"] == ("expert",)
    assert args[f"{M}aux_loss_factors"] == (1e-3,)
    assert args[f"{M}scoring_func"] == "sigmoid"
    assert args[f"{M}select_recompute"] == args["recompute_config.select_recompute"]
    assert args[f"{M}mp_comm_recompute"] is False
    assert f"{M}moe_aux_loss_coeff" not in args


@pytest.mark.parametrize("version", VERSIONS)
def test_every_key_exists_in_its_version_with_its_type(version: str) -> None:
    """What is written passes the catalogue, but for mappings whose keys are data."""
    catalogue = BACKEND.catalogue(version)
    jobs = [job for job, _ in WRITTEN.values()] if version == NEWEST else []
    jobs.append(tree(DEEPSEEK, model_changes={"n_group": None, "topk_group": None}))
    for job in jobs:
        for flag, value in written(job, version).items():
            if flag == f"{M}q_lora_rank" and value is None:
                continue  # An int in its annotation, null where the query is not compressed (its code asks `is None`).
            assert catalogue.check(flag, value) is None, (flag, value)


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_write_only_the_keys_they_name(version: str) -> None:
    table = BACKEND.table(version)
    for job_tree, _ in WRITTEN.values():
        job = make(job_tree)
        for row in active_rows(table, version):
            if row.when is not None and not row.when(job):
                continue
            try:
                flags = {flag for flag, _ in row.emit(job)}
            except Exception as error:
                if type(error).__name__ != "Unsupported":
                    raise
                continue
            assert flags <= set(row.flags), row.flags


def test_no_experts_no_expert_keys() -> None:
    assert not [flag for flag in written(tree(QWEN3)) if "moe" in flag or "expert" in flag]
