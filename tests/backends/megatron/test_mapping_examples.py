"""The launcher writes what experts typed: ms-swift's own scripts, argument by argument, each difference explained."""

import shlex
from dataclasses import dataclass

import pytest

from tests.backends.megatron.jobs import NEWEST, SEED, Tree, effective, imported, make, typed, written

_DEFAULTS = "the launcher writes what trains: the same value as the default"
_ALWAYS = {
    "lr_decay_style": _DEFAULTS,
    "optimizer": _DEFAULTS,
    "weight_decay": _DEFAULTS,
    "adam_beta1": _DEFAULTS,
    "adam_beta2": _DEFAULTS,
    "adam_eps": _DEFAULTS,
    "clip_grad": _DEFAULTS,
    "attention_softmax_in_fp32": _DEFAULTS,
    "seed": _DEFAULTS,
    "calculate_per_token_loss": _DEFAULTS,
    "torch_dtype": "the script leaves it to config.json, which says bfloat16; float32 there would mean fp16",
}
_EXPERTS = {
    "moe_token_dispatcher_type": _DEFAULTS,
    "moe_router_load_balancing_type": "the default of models that are not DeepSeek's",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One script, the canonical job that means the same, and why the two argument lists differ.

    Attributes:
        version: version that the job is written for.
        subcommand: what follows `megatron`.
        script: arguments as in the file named by `source`.
        job: the canonical job.
        added: arguments that the launcher writes besides, with the reason.
        source: where the script stands.
    """

    version: str
    subcommand: str
    script: str
    job: Tree
    added: dict[str, str]
    source: str


QUICK_START = Example(
    version=SEED,
    subcommand="sft",
    source="ms-swift 54e9c505, docs/source/Instruction/Megatron-SWIFT训练.md, quick start",
    script="""
    --load Qwen2.5-7B-Instruct-mcore
    --dataset 'AI-ModelScope/alpaca-gpt4-data-zh#500' 'AI-ModelScope/alpaca-gpt4-data-en#500' 'swift/self-cognition#500'
    --tensor_model_parallel_size 2 --micro_batch_size 4 --global_batch_size 16 --recompute_granularity selective
    --train_iters 100 --eval_iters 5 --finetune true --cross_entropy_loss_fusion true --lr 1e-5 --lr_warmup_iters 10
    --min_lr 1e-6 --save megatron_output/Qwen2.5-7B-Instruct --save_interval 100 --max_length 2048
    --system 'You are a helpful assistant.' --num_workers 4 --no_save_optim true --no_save_rng true
    --dataset_num_proc 4 --model_author swift --model_name swift-robot
    """,
    job={
        "task": {"type": "sft"},
        "model": {
            "hub_id": "Qwen/Qwen2.5-7B-Instruct",
            "model_type": "qwen2",
            "num_hidden_layers": 28,
            "hidden_size": 3584,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "attention_bias": True,
        },
        "data": {
            "paths": [
                "AI-ModelScope/alpaca-gpt4-data-zh#500",
                "AI-ModelScope/alpaca-gpt4-data-en#500",
                "swift/self-cognition#500",
            ],
            "format": "hub",
            "validation_ratio": 0.01,
            "system": "You are a helpful assistant.",
            "num_workers": 4,
            "num_preprocess": 4,
            "self_cognition_author": "swift",
            "self_cognition_name": "swift-robot",
        },
        "parallel": {"tp": 2},
        "batch": {"micro_batch_size": 4, "global_batch_size": 16, "seq_length": 2048},
        "recompute": {"granularity": "selective"},
        "schedule": {"train_iters": 100, "lr_warmup_iters": 10},
        "optimizer": {"lr": 1e-5, "min_lr": 1e-6},
        "precision": {"calculate_per_token_loss": True},
        "kernels": {"cross_entropy_fusion": True},
        "checkpoint": {
            "save": "megatron_output/Qwen2.5-7B-Instruct",
            "save_interval": 100,
            "no_save_optim": True,
            "no_save_rng": True,
        },
        "evaluation": {"iters": 5},
        "logging": {"interval": 5},
    },
    added={
        **_ALWAYS,
        "model": "the script leaves it to args.json of the converted checkpoint",
        "split_dataset_ratio": "written because its default changed from 0.01 to 0 at 3.6",
        "log_interval": "the canonical default is 1, swift's is 5: always written",
    },
)

_MOE_SEED = Example(
    version=SEED,
    subcommand="sft",
    source="ms-swift v3.5.3, examples/train/megatron/qwen3_moe.sh",
    script="""
    --load Qwen3-30B-A3B-Base-mcore --dataset liucong/Chinese-DeepSeek-R1-Distill-data-110k-SFT
    --tensor_model_parallel_size 2 --expert_model_parallel_size 8 --moe_grouped_gemm true
    --moe_shared_expert_overlap true --moe_aux_loss_coeff 0.01 --micro_batch_size 1 --global_batch_size 16
    --packing true --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
    --train_iters 2000 --eval_iters 50 --finetune true --cross_entropy_loss_fusion true --lr 1e-5
    --lr_warmup_iters 100 --min_lr 1e-6 --save megatron_output/Qwen3-30B-A3B-Base --eval_interval 200
    --save_interval 200 --max_length 8192 --num_workers 8 --dataset_num_proc 8 --no_save_optim true
    --no_save_rng true --sequence_parallel true --use_flash_attn true
    """,
    job={
        "task": {"type": "sft"},
        "model": {
            "hub_id": "Qwen/Qwen3-30B-A3B-Base",
            "model_type": "qwen3_moe",
            "num_hidden_layers": 48,
            "hidden_size": 2048,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        "data": {
            "paths": ["liucong/Chinese-DeepSeek-R1-Distill-data-110k-SFT"],
            "format": "hub",
            "validation_ratio": 0.01,
            "num_workers": 8,
            "num_preprocess": 8,
        },
        "parallel": {"tp": 2, "ep": 8, "sequence_parallel": True},
        "moe": {"grouped_gemm": True, "shared_expert_overlap": True, "aux_loss_coeff": 0.01},
        "batch": {"micro_batch_size": 1, "global_batch_size": 16, "seq_length": 8192, "packing": True},
        "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
        "schedule": {"train_iters": 2000, "lr_warmup_iters": 100},
        "optimizer": {"lr": 1e-5, "min_lr": 1e-6},
        "precision": {"calculate_per_token_loss": True},
        "kernels": {"cross_entropy_fusion": True},
        "checkpoint": {
            "save": "megatron_output/Qwen3-30B-A3B-Base",
            "save_interval": 200,
            "no_save_optim": True,
            "no_save_rng": True,
        },
        "evaluation": {"iters": 50, "interval": 200},
        "logging": {"interval": 5},
    },
    added={
        **_ALWAYS,
        **_EXPERTS,
        "model": "the script leaves it to args.json of the converted checkpoint",
        "split_dataset_ratio": "written because its default changed from 0.01 to 0 at 3.6",
        "log_interval": "the canonical default is 1, swift's is 5: always written",
        "extra_megatron_kwargs": "routing in fp32: the canonical default, which this version has no option for",
    },
)

LORA_MOE = Example(
    version=NEWEST,
    subcommand="sft",
    source="ms-swift main 3602360a, examples/megatron/lora/moe.sh",
    script="""
    --model Qwen/Qwen3-30B-A3B --save_safetensors true --merge_lora false
    --dataset 'swift/Qwen3-SFT-Mixin#2000' 'swift/self-cognition:empty_think#600' --loss_scale ignore_empty_think
    --tuner_type lora --lora_rank 8 --lora_alpha 32 --target_modules all-linear --split_dataset_ratio 0.01
    --expert_model_parallel_size 2 --moe_permute_fusion true --moe_grouped_gemm true --moe_shared_expert_overlap true
    --moe_aux_loss_coeff 1e-3 --micro_batch_size 8 --global_batch_size 16 --recompute_granularity full
    --recompute_method uniform --recompute_num_layers 1 --num_train_epochs 1 --finetune true
    --cross_entropy_loss_fusion true --lr 1e-4 --lr_warmup_fraction 0.05 --min_lr 1e-5
    --output_dir megatron_output/Qwen3-30B-A3B --eval_steps 200 --save_steps 200 --max_length 2048
    --dataloader_num_workers 8 --dataset_num_proc 8 --no_save_optim true --no_save_rng true --sequence_parallel true
    --attention_backend flash --model_author swift --model_name swift-robot
    """,
    job={
        "task": {"type": "sft"},
        "model": {
            "hub_id": "Qwen/Qwen3-30B-A3B",
            "model_type": "qwen3_moe",
            "num_hidden_layers": 48,
            "hidden_size": 2048,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        "lora": {"rank": 8, "alpha": 32.0, "dropout": 0.05, "target_modules": ["all-linear"], "merge": False},
        "data": {
            "paths": ["swift/Qwen3-SFT-Mixin#2000", "swift/self-cognition:empty_think#600"],
            "format": "hub",
            "validation_ratio": 0.01,
            "num_workers": 8,
            "num_preprocess": 8,
            "self_cognition_author": "swift",
            "self_cognition_name": "swift-robot",
        },
        "parallel": {"ep": 2, "sequence_parallel": True},
        "moe": {"grouped_gemm": True, "permute_fusion": True, "shared_expert_overlap": True, "aux_loss_coeff": 1e-3},
        "batch": {"micro_batch_size": 8, "global_batch_size": 16, "seq_length": 2048},
        "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
        "schedule": {"epochs": 1, "lr_warmup_fraction": 0.05},
        "optimizer": {"lr": 1e-4, "min_lr": 1e-5},
        "precision": {"calculate_per_token_loss": True},
        "kernels": {"cross_entropy_fusion": True, "attention_backend": "flash"},
        "checkpoint": {
            "save": "megatron_output/Qwen3-30B-A3B",
            "save_interval": 200,
            "save_safetensors": True,
            "no_save_optim": True,
            "no_save_rng": True,
        },
        "evaluation": {"interval": 200},
        "logging": {"interval": 5},
        "backend": {"args": {"loss_scale": "ignore_empty_think"}},
    },
    added={
        **_ALWAYS,
        **_EXPERTS,
        "moe_router_dtype": _DEFAULTS,
        "lora_dropout": _DEFAULTS,
        "logging_steps": "the canonical default is 1, swift's is 5: always written",
    },
)
EXAMPLES = {"quick start": QUICK_START, "Qwen3 MoE, 3.5": _MOE_SEED, "LoRA of Qwen3 MoE, 4.6": LORA_MOE}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_launcher_writes_what_the_expert_typed(name: str) -> None:
    """Each argument of the script has the same value; what is written besides is explained and in the table."""
    example = EXAMPLES[name]
    theirs = typed(shlex.split(example.script), example.version)
    ours = written(make(example.job), example.version)
    mine = effective(ours, example.version, example.subcommand)
    expert = effective(theirs, example.version, example.subcommand)
    assert {flag: mine[flag] for flag in theirs} == {flag: expert[flag] for flag in theirs}
    assert set(ours) - set(theirs) == set(example.added)


@pytest.mark.parametrize("name", EXAMPLES)
def test_additions_change_no_effective_value_except_the_named_ones(name: str) -> None:
    example = EXAMPLES[name]
    expert = effective(typed(shlex.split(example.script), example.version), example.version, example.subcommand)
    ours = effective(written(make(example.job), example.version), example.version, example.subcommand)
    reported = {"model", "torch_dtype", "moe_router_load_balancing_type", "extra_megatron_kwargs"}
    assert {flag for flag in expert if expert[flag] != ours[flag]} <= reported


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_imported_script_means_the_same(name: str) -> None:
    example = EXAMPLES[name]
    theirs = {**typed(shlex.split(example.script), example.version), "torch_dtype": "bfloat16"}
    job = imported(theirs, example.version, example.subcommand).job
    again = written(job, example.version)
    assert effective(again, example.version, example.subcommand) == effective(
        theirs, example.version, example.subcommand
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_imported_script_is_the_canonical_job(name: str) -> None:
    """Values of the script are in the fields where a recipe would have them."""
    example = EXAMPLES[name]
    read = imported(typed(shlex.split(example.script), example.version), example.version, example.subcommand)
    wanted = make(example.job)
    for section in (
        "task",
        "lora",
        "data",
        "parallel",
        "batch",
        "recompute",
        "schedule",
        "optimizer",
        "precision",
        "kernels",
    ):
        assert getattr(read.job, section) == getattr(wanted, section), section
    assert read.job.backend.args == wanted.backend.args
