"""MindFormers' own examples, argument by argument: what our job writes instead, and why."""

import re
from collections.abc import Mapping

import pytest

from backends.mindformers import BACKEND
from launcher.job import Value
from launcher.mapping.engine import read_back, translate
from tests.backends.mindformers.jobs import DEEPSEEK, NEWEST, QWEN3, QWEN3_MOE, examples, tree, written

_FULL = {"granularity": "full", "method": "uniform", "num_layers": 1, "communication": True}
JOBS = {
    "pretrain_deepseek3_671b": tree(
        DEEPSEEK,
        model_changes={"initializer_range": 0.01},
        cluster={"nodes": 32},
        batch={"global_batch_size": 128},
        schedule={"train_iters": 1000, "lr_decay_style": "constant", "lr_warmup_iters": 200, "lr_warmup_init": 0.0},
        optimizer={"lr": 2e-5, "min_lr": 2e-5, "weight_decay": 0.01},
        offload={"optimizer": True},
        parallel={
            "tp": 8,
            "pp": 8,
            "vpp": 2,
            "ep": 32,
            "sequence_parallel": True,
            "distributed_optimizer": True,
            "layout": "Et*4|" + "t*4|" * 14 + "tmL",
        },
        recompute=_FULL,
        moe={
            "load_balancing_type": "seq_aux_loss",
            "aux_loss_coeff": 1e-4,
            "bias_update_rate": 1e-4,
            "grouped_gemm": True,
        },
        kernels={"rope_fusion": False, "bias_activation_fusion": False, "attention_backend": "flash"},
        data={"paths": ["/path/megatraon_dataset/wiki103-megatron_text_document"]},
        checkpoint={"save": "./output", "save_interval": 5000, "save_total_limit": 1, "async_save": False},
    ),
    "pretrain_qwen3_30b_a3b_4k": tree(
        QWEN3_MOE,
        seed=1234,
        model_changes={"norm_topk_prob": False, "routed_scaling_factor": 1.5},
        cluster={"nodes": 2},
        batch={"global_batch_size": 16},
        schedule={"train_iters": 500, "lr_decay_style": "constant"},
        optimizer={"lr": 1e-5, "weight_decay": 0.0},
        parallel={"tp": 4, "pp": 4, "ep": 4, "sequence_parallel": True, "distributed_optimizer": False},
        recompute=_FULL,
        moe={"load_balancing_type": "global_aux_loss", "aux_loss_coeff": 1e-3, "grouped_gemm": True},
        kernels={"attention_backend": "flash"},
        data={"paths": ["/path/to/wiki103-megatron_text_document"], "num_workers": 8},
    ),
    "llm_pretrain_moe_template": tree(
        QWEN3_MOE,
        seed=0,
        model_changes={"path": "path/to/model_dir", "norm_topk_prob": False, "routed_scaling_factor": 1.5},
        batch={"global_batch_size": 4},
        schedule={"train_iters": None, "train_samples": 1000, "epochs": 2},
        optimizer={"lr": 1e-6, "min_lr": 1e-6, "adam_beta2": 0.999, "adam_eps": 1e-6, "weight_decay": 0.01},
        parallel={"tp": 2, "pp": 2, "sequence_parallel": True, "distributed_optimizer": True},
        recompute={"communication": False},
        moe={"load_balancing_type": "seq_aux_loss", "aux_loss_coeff": 1e-3, "grouped_gemm": True},
        data={"paths": ["/path/megatron_data"], "num_workers": 8},
        checkpoint={"save": "./output", "save_interval": 5000, "save_total_limit": 1, "async_save": False},
    ),
    "finetune_qwen3": tree(
        QWEN3,
        task={"type": "sft"},
        model_changes={
            "path": "/path/to/Qwen3-32B",
            "num_hidden_layers": 64,
            "hidden_size": 5120,
            "intermediate_size": 25600,
            "num_attention_heads": 64,
        },
        cluster={"nodes": 2},
        batch={"global_batch_size": 4, "packing": True},
        schedule={"train_iters": None, "epochs": 1, "lr_decay_style": "constant"},
        optimizer={"lr": 1e-6, "weight_decay": 0.0},
        parallel={"tp": 4, "pp": 4, "sequence_parallel": True, "distributed_optimizer": False},
        recompute=_FULL,
        data={"format": "hub", "paths": ["llm-wizard/alpaca-gpt4-data-zh"], "num_workers": 8},
        tokenizer={"trust_remote_code": True},
        checkpoint={"save": "./output", "save_interval": 5000, "save_total_limit": 1, "async_save": False},
    ),
}

_PLACES = "places and labels of files"
_DEFAULT = "MindFormers' own default, which is not repeated"
_MACHINE = "a setting of the machine or the compiler, without a canonical field: backend.args"
_OFF = "belongs to something that is switched off in the example"
_ALIAS = "another name for the same setting, that every model class knows"
_NO_EFFECT = "read by nothing in the mcore training graph, or by no converter of this model"
_CLASS = "the config class's or config.json's value, written out: files mean the same without them"
_EXACT = "MindFormers' own value, written out because its defaults and resets are silent"

# Regular expression of a flag -> why the example has it and the job's file does not.
MISSING = {
    r"load_checkpoint|auto_trans_ckpt|src_strategy_path_or_dir|only_save_strategy": "empty: nothing is loaded",
    r"train_precision_sync|print_separate_loss|layer_scale|layer_decay|lr_scale_factor": _DEFAULT,
    r"profile_\w+|init_start_profile": _OFF,
    r"train_dataset\.data_loader\.config\.(eod|pad|eod_pad_length)": _OFF,
    r"train_dataset\.data_loader\.config\.num_dataset_builder_threads": _DEFAULT,
    r"train_dataset\.data_loader\.(create_compressed_eod_mask|compressed_eod_mask_length|use_broadcast_data)": _DEFAULT,
    r"train_dataset\.(num_parallel_workers|python_multiprocessing|numa_enable|prefetch_size)": _DEFAULT,
    r"context\..*": _MACHINE,
    r"parallel_config\.gradient_aggregation_group": _MACHINE,
    r"parallel\.search_mode|parallel\.strategy_ckpt_config\..*": _DEFAULT,
    r"parallel\.parallel_optimizer_config\.optimizer_weight_shard_size": _MACHINE,
    r"parallel\.parallel_optimizer_config\..*": _OFF,
    r"parallel\.enable_alltoall": "without expert parallelism nothing is exchanged",
    r"recompute_config\.(parallel_optimizer_comm_recompute|recompute_slice_activation)": _MACHINE,
    r"lr_schedule\.warmup_ratio": "0: written as warmup_steps 0",
    r".*\.router_dense_type": _ALIAS,
    r".*\.(moe_token_drop_policy|router_aux_loss_coef|moe_router_pre_softmax|use_fused_ops_topkrouter)": _NO_EFFECT,
    r".*\.use_pad_tokens": _MACHINE,
    r".*\.(qkv_concat|use_contiguous_weight_layout_attention|untie_embeddings_and_output_weights)": _DEFAULT,
    r".*\.fp32_residual_connection": _MACHINE,
    r"callbacks\.\w+\.type": "the callback is written with its arguments",
}
# Regular expression of a flag -> why the job's file has another value.
OTHER = {
    r"output_dir|trainer\.model_name|callbacks\.CheckpointMonitor\.prefix": _PLACES,
    r"lr_schedule\.total_steps": "-1 means the steps of the data; the same figure, said",
    r".*\.seed|train_dataset\.seed": "one seed for a job",
    r"parallel\.pipeline_config\.pipeline_scheduler": "1f1b is the schedule of the job; seqpipe comes by backend.args",
    r".*\.architectures": "a list of one",
    r".*create_attention_mask|train_dataset\.(input_columns|construct_args_key)|parallel\.dataset_strategy": (
        "a causal mask in the kernel where it is plain, one by the loader where samples are packed"
    ),
    r"train_dataset\.data_loader\.handler": "the example takes 2000 samples only",
}
# Regular expression of a flag -> why the job's file has it and the example does not.
ADDED = {
    r"train_dataset\.(seed|input_columns|construct_args_key)|parallel\.(dataset_strategy|full_batch)": _EXACT,
    r"train_dataset\.data_loader\.shuffle|runner_config\.\w+|parallel_config\.\w+|parallel\.gradients_mean": _EXACT,
    r"runner_wrapper\.max_grad_norm|lr_schedule\.warmup_steps|calculate_per_token_loss": _EXACT,
    r"callbacks\.\w+\.(per_print_times|directory|checkpoint_format|gradient_accumulation_steps)": _EXACT,
    r".*\.use_attn_mask_compression": "without it the mask is made from the tokens and hides every padding token",
    r".*\.rotary_scaling_factor": "without it MLA scales its softmax by yarn's temperature",
    r"model\.model_config\..*": _CLASS,
}


def _unexplained(flags: set[str], reasons: Mapping[str, str]) -> set[str]:
    return {flag for flag in flags if not any(re.fullmatch(pattern, flag) for pattern in reasons)}


@pytest.mark.parametrize("name", JOBS)
def test_every_difference_from_an_example_has_its_reason(name: str) -> None:
    example, ours = examples()[name], written(JOBS[name])
    assert not _unexplained(set(example) - set(ours), MISSING)
    assert not _unexplained({flag for flag in set(example) & set(ours) if example[flag] != ours[flag]}, OTHER)
    assert not _unexplained(set(ours) - set(example), ADDED)


def test_no_reason_is_left_over() -> None:
    """A reason without a difference is a claim that nobody checks."""
    pairs = [(examples()[name], written(job)) for name, job in JOBS.items()]
    missing = {flag for example, ours in pairs for flag in set(example) - set(ours)}
    other = {flag for example, ours in pairs for flag in set(example) & set(ours) if example[flag] != ours[flag]}
    added = {flag for example, ours in pairs for flag in set(ours) - set(example)}
    for reasons, flags in ((MISSING, missing), (OTHER, other), (ADDED, added)):
        assert [pattern for pattern in reasons if not any(re.fullmatch(pattern, flag) for flag in flags)] == []


def test_the_hard_parts_of_the_deepseek_example_are_equal() -> None:
    example, ours = examples()["pretrain_deepseek3_671b"], written(JOBS["pretrain_deepseek3_671b"])
    model = "model.model_config."
    for flag in (
        f"{model}offset",
        f"{model}pp_interleave_num",
        f"{model}mtp_loss_factor",
        f"{model}n_group",
        "train_dataset.data_loader.sizes",
        "optimizer.swap",
        "optimizer.betas",
        "parallel_config.micro_batch_num",
        "parallel_config.expert_parallel",
        "recompute_config.recompute",
        "lr_schedule.type",
    ):
        assert ours[flag] == example[flag], flag


# What an imported file may say in other words: flag -> value written instead where it is not the example's own.
SAME = {
    "load_checkpoint": "",
    "src_strategy_path_or_dir": "",
    "auto_trans_ckpt": False,
    "train_dataset.data_loader.config.pad": -1,
    "parallel.enable_alltoall": False,
    "model.model_config.input_sliced_sig": True,
    "lr_schedule.warmup_ratio": 0,
    "model.model_config.router_dense_type": "float32",
    "model.model_config.offset": 0,
    "model.model_config.position_embedding_type": "rope",
    "callbacks.MFLossMonitor.type": "MFLossMonitor",
    "callbacks.TopkBiasBalanceCallback.type": "TopkBiasBalanceCallback",
    "lr_schedule.total_steps": -1,
    "model.model_config.hidden_act": "swiglu",
    "model.model_config.architectures": "Qwen3MoeForCausalLM",
    "model.model_config.num_experts": 128,
}


@pytest.mark.parametrize("name", examples())
def test_an_imported_example_means_what_it_meant(name: str) -> None:
    example = examples()[name]
    again = translate(read_back(example, BACKEND, NEWEST).job, BACKEND, NEWEST)
    assert not [finding.message for finding in again.findings if finding.severity == "error"]
    ours: dict[str, Value] = {arg.flag: arg.value for arg in again.native}
    changed = {flag: value for flag, value in example.items() if ours.get(flag) != value}
    assert changed.items() <= SAME.items()


def test_an_import_keeps_silent_behaviour_as_it_was() -> None:
    """DeepSeek's example scales its softmax by yarn's default temperature, and Qwen3's hides padding: both stay."""
    deepseek = read_back(examples()["pretrain_deepseek3_671b"], BACKEND, NEWEST).job
    qwen = read_back(examples()["pretrain_qwen3_30b_a3b_4k"], BACKEND, NEWEST).job
    assert deepseek.backend.args["model.model_config.rotary_scaling_factor"] == 40.0
    assert qwen.kernels.attention_mask == "tokens"


def test_an_import_knows_the_defaults_of_the_model_class() -> None:
    job = read_back(examples()["pretrain_deepseek3_671b"], BACKEND, NEWEST).job
    assert (job.model.num_experts, job.model.q_lora_rank, job.model.scoring_func) == (256, 1536, "sigmoid")
    assert (job.schedule.train_iters, job.batch.global_batch_size, job.cluster.world_size) == (1000, 128, 256)
    assert job.parallel.layout is not None
    assert job.offload.optimizer is True
