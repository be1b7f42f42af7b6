"""The tables of all versions: total, true to the catalogue, and right in what each version calls a thing."""

import json
from pathlib import Path
from typing import Any

import pytest

from backends.megatron import BACKEND
from backends.megatron.mapping.architecture import MODEL_FIELDS, has_option
from backends.megatron.mapping.extra_args import KEYS, extra_arguments
from backends.megatron.mapping.task import rlhf_types
from backends.megatron.versions import catalogue
from backends.megatron_lm import BACKEND as MEGATRON_LM
from launcher import api
from launcher.catalogue.versions import in_range
from launcher.job import Job
from launcher.mapping.rows import active_rows, unmapped_fields
from tests.backends.megatron.jobs import (
    CASES,
    DEEPSEEK_V3,
    NEWEST,
    QWEN3_8B,
    QWEN3_30B_A3B,
    SEED,
    make,
    named_job,
    translated,
    written,
)


@pytest.mark.parametrize("version", BACKEND.versions)
def test_every_canonical_field_is_mapped_refused_or_irrelevant(version: str) -> None:
    assert unmapped_fields(BACKEND.table(version), version) == []


@pytest.mark.parametrize("version", BACKEND.versions)
def test_every_argument_of_the_table_exists_in_the_version(version: str) -> None:
    flags = {flag for row in active_rows(BACKEND.table(version), version) for flag in row.flags}
    assert sorted(flag for flag in flags if flag not in catalogue(version)) == []


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_written_value_is_accepted_by_the_version(name: str, version: str) -> None:
    accepts = catalogue(version).check
    problems = [accepts(flag, value) for flag, value in written(named_job(name), version).items()]
    assert [problem for problem in problems if problem] == []


@pytest.mark.parametrize(
    ("version", "tasks"),
    [
        ("3.5.3", set()),
        ("3.6.4", {"dpo"}),
        ("3.12.6", {"dpo", "kto", "reward_model", "grpo", "gkd"}),
        ("4.6.0", {"dpo", "kto", "reward_model", "grpo", "gkd"}),
    ],
)
def test_the_tasks_of_megatron_rlhf_are_those_of_the_catalogue(version: str, tasks: set[str]) -> None:
    assert set(rlhf_types(version)) == tasks


@pytest.mark.parametrize("version", [version for version in BACKEND.versions if in_range(version, None, "3.99")])
def test_extra_arguments_of_3x_are_arguments_of_megatron_lm(version: str) -> None:
    core = MEGATRON_LM.catalogue("0.12.1")
    keys = {extra.key for extra in extra_arguments(version)}
    keys |= {model_field.option for model_field in MODEL_FIELDS if not has_option(model_field.option, version)} - {
        "use_shared_expert_gate"
    }
    unknown = {key for key in keys if core.by_dest(key) is None and core.get(key.replace("_", "-")) is None}
    # core 0.12 applies a partial rotary factor as --rotary-percent
    assert unknown <= {"partial_rotary_factor"}


RENAMED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "learning rate and steps": (
        {"checkpoint": {"save": "d", "save_interval": 7}, "logging": {"interval": 3}, "evaluation": {"interval": 9}},
        {"save": "d", "save_interval": 7, "log_interval": 3, "eval_interval": 9},
        {"output_dir": "d", "save_steps": 7, "logging_steps": 3, "eval_steps": 9},
    ),
    "epochs": (
        {"schedule": {"epochs": 2, "train_iters": 10}},
        {"max_epochs": 2, "train_iters": 10},
        {"num_train_epochs": 2, "train_iters": 10},
    ),
    "fusions turn round": (
        {"kernels": {"masked_softmax_fusion": False, "rope_fusion": True, "gradient_accumulation_fusion": False}},
        {"no_masked_softmax_fusion": True, "no_rope_fusion": False, "no_gradient_accumulation_fusion": True},
        {"masked_softmax_fusion": False, "apply_rope_fusion": True, "gradient_accumulation_fusion": False},
    ),
    "garbage collection": (
        {"kernels": {"manual_gc_interval": 50}},
        {"manual_gc": True, "manual_gc_interval": 50},
        {"manual_gc": True, "manual_gc_steps": 50},
    ),
    "time-out in seconds": ({"fault_tolerance": {"timeout_minutes": 20}}, {"ddp_timeout": 1200}, {"ddp_timeout": 1200}),
    "a checkpoint that is resumed": (
        {"checkpoint": {"load": "d/iter"}},
        {"load": "d/iter", "finetune": False},
        {"mcore_model": "d/iter", "finetune": False, "model": "Qwen/Qwen3-8B"},
    ),
    "weights of a model": (
        {},
        {"model": "Qwen/Qwen3-8B", "load": "Qwen3-8B-mcore", "finetune": True},
        {"model": "Qwen/Qwen3-8B", "finetune": True},
    ),
    "data workers": (
        {"data": {"num_workers": 4, "num_preprocess": 8, "shuffle": False}},
        {"num_workers": 4, "dataset_num_proc": 8, "dataset_shuffle": False},
        {
            "dataloader_num_workers": 4,
            "dataset_num_proc": 8,
            "dataset_shuffle": False,
            "train_dataloader_shuffle": False,
        },
    ),
    "virtual stages": (
        {"parallel": {"pp": 2, "vpp": 3}},
        {"extra_megatron_kwargs": {"num_virtual_stages_per_pipeline_rank": 3}},
        {"virtual_pipeline_model_parallel_size": 3},
    ),
    "warm-up as a share": (
        {"schedule": {"lr_warmup_fraction": 0.05, "train_iters": 10}},
        {"extra_megatron_kwargs": {"lr_warmup_fraction": 0.05}},
        {"lr_warmup_fraction": 0.05},
    ),
    "no validation data": ({}, {"split_dataset_ratio": 0.0}, {"split_dataset_ratio": None}),
    "shares of Megatron's split": (
        {"data": {"split": "99,1,0"}},
        {"split_dataset_ratio": 0.01},
        {"split_dataset_ratio": 0.01},
    ),
    "samples become steps": (
        {"schedule": {"train_samples": 160}, "batch": {"global_batch_size": 16}},
        {"train_iters": 10},
        {"train_iters": 10},
    ),
    "a seed of one's own": ({"seed": 7}, {"seed": 7, "data_seed": None}, {"seed": 7, "data_seed": 7}),
    "padding of the vocabulary": (
        {"tokenizer": {"make_vocab_size_divisible_by": 128}, "parallel": {"tp": 8}},
        {"padded_vocab_size": 152576},
        {"megatron_extra_kwargs": {"padded_vocab_size": 152576}},
    ),
    "a layer less than config.json": (
        {
            "model": {
                **QWEN3_8B,
                "num_hidden_layers": 35,
                "tie_word_embeddings": True,
                "overridden": ["num_hidden_layers"],
            }
        },
        {"num_layers": 35, "untie_embeddings_and_output_weights": None},
        {"megatron_extra_kwargs": {"num_layers": 35}},
    ),
    "an inverted field of config.json": (
        {
            "model": {
                **QWEN3_8B,
                "linear_bias": True,
                "tie_word_embeddings": True,
                "overridden": ["linear_bias", "tie_word_embeddings"],
            }
        },
        {"disable_bias_linear": False, "untie_embeddings_and_output_weights": False},
        {"megatron_extra_kwargs": {"add_bias_linear": True, "untie_embeddings_and_output_weights": False}},
    ),
    "another rope": (
        {
            "model": {
                **QWEN3_8B,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
                "overridden": ["rope_scaling.type", "rope_scaling.factor"],
            }
        },
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    ),
    "fp32 is not fp16": (
        {"precision": {"dtype": "fp32"}},
        {"torch_dtype": "float32", "fp16": False, "bf16": False},
        {"torch_dtype": "float32", "fp16": False, "bf16": False},
    ),
}


@pytest.mark.parametrize("name", RENAMED)
def test_each_version_gets_its_own_names(name: str) -> None:
    tree, old, new = RENAMED[name]
    job = make({"model": QWEN3_8B, **tree})
    for version, expected in ((SEED, old), (NEWEST, new)):
        args = written(job, version)
        assert {flag: args.get(flag) for flag in expected} == expected, version


def test_a_described_model_has_no_shape_arguments() -> None:
    """Values of the prepared config.json are not repeated."""
    for version in BACKEND.versions:
        args = written(named_job("random weights"), version)
        assert args["model"] == "./launch_output/job/model"
        assert args["model_type"] == "qwen3"
        assert args.get("check_model", False) is False
        assert not {"num_layers", "hidden_size", "num_hidden_layers"} & set(args)
        assert "num_layers" not in args.get("megatron_extra_kwargs", {})


def test_random_weights_are_drawn_by_megatron_lm_up_to_3_9_and_prepared_later() -> None:
    job = named_job("random weights")
    assert written(job, SEED)["no_initialization"] is False
    assert written(job, SEED)["extra_megatron_kwargs"]["init_method_std"] == 0.006
    assert "megatron_extra_kwargs" not in written(job, NEWEST)


def test_expert_layers_follow_the_number_of_layers() -> None:
    """swift computes the pattern from config.json's own number of layers, so a changed one needs a new pattern."""
    job = make({"model": {**DEEPSEEK_V3, "num_hidden_layers": 8, "overridden": ["num_hidden_layers"]}})
    extra = written(job, NEWEST)["megatron_extra_kwargs"]
    assert extra == {"num_layers": 8, "moe_layer_freq": "([0]*3+[1]*5)"}


def test_multi_token_prediction_is_asked_for() -> None:
    args = written(named_job("mla and mtp"), NEWEST)
    assert (args["mtp_num_layers"], args["mtp_loss_scaling_factor"]) == (1, 0.3)


def test_vocabulary_gradients_are_counted_whole() -> None:
    """Without perform_initialization the gradient norm of TP 2 counts one rank's vocabulary shard only."""
    two = translated(make({"model": QWEN3_8B, "parallel": {"tp": 2}}), NEWEST).native
    assert [arg.origin for arg in two if arg.flag == "perform_initialization"] == ["derived"]
    assert two.get("perform_initialization") is True
    assert not translated(make({"model": QWEN3_8B}), NEWEST).native.has("perform_initialization")


def test_dense_models_get_no_expert_arguments() -> None:
    for version in BACKEND.versions:
        assert not [flag for flag in written(make({"model": QWEN3_8B}), version) if "moe" in flag]


def test_expert_defaults_are_written_out() -> None:
    expected = {
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 0.0,
    }
    for version in BACKEND.versions:
        args = written(make({"model": QWEN3_30B_A3B}), version)
        router = args.get("moe_router_dtype") or args["extra_megatron_kwargs"]["moe_router_dtype"]
        assert ({flag: args[flag] for flag in expected}, router) == (expected, "fp32"), version


def test_npu_switches_the_cuda_fusions_off_unless_set_otherwise() -> None:
    npu = make({"model": QWEN3_8B, "hardware": {"device": "npu"}, "kernels": {"masked_softmax_fusion": True}})
    args = written(npu, NEWEST)
    assert (args["gradient_accumulation_fusion"], args["masked_softmax_fusion"]) == (False, True)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a family that is not there": ({"model": {**QWEN3_8B, "model_type": "mixtral"}}, NEWEST, "model.model_type"),
    "DeepSeek before 3.6": ({"model": {**QWEN3_8B, "model_type": "deepseek_v3"}}, SEED, "model.model_type"),
    "preference training before 3.6": ({"model": QWEN3_8B, "task": {"type": "dpo"}}, SEED, "task.type"),
    "SimPO": ({"model": QWEN3_8B, "task": {"type": "simpo"}}, NEWEST, "task.type"),
    "LoRA before 3.7": ({"model": QWEN3_8B, "lora": {"rank": 8}}, SEED, "lora.rank"),
    "sigmoid scores as they are": (
        {"model": {**DEEPSEEK_V3, "norm_topk_prob": False, "overridden": ["norm_topk_prob"]}},
        NEWEST,
        "model.norm_topk_prob",
    ),
    "QLoRA": ({"model": QWEN3_8B, "lora": {"rank": 8, "quantization": "nf4"}}, NEWEST, "lora.quantization"),
    "token files": ({"model": QWEN3_8B, "data": {"format": "megatron", "paths": ["a"]}}, NEWEST, "data.format"),
    "half an epoch": ({"model": QWEN3_8B, "schedule": {"epochs": 0.5}}, NEWEST, "schedule.epochs"),
    "epochs alone before 3.5": ({"model": QWEN3_8B, "schedule": {"epochs": 1}}, SEED, "schedule.epochs"),
    "a test share": ({"model": QWEN3_8B, "data": {"split": "949,50,1"}}, NEWEST, "data.split"),
    "an odd number of samples": (
        {"model": QWEN3_8B, "schedule": {"train_samples": 17}, "batch": {"global_batch_size": 16}},
        NEWEST,
        "schedule.train_samples",
    ),
    "another tokenizer": ({"model": QWEN3_8B, "tokenizer": {"path": "/other"}}, NEWEST, "tokenizer.path"),
    "bf16 gradients summed in bf16": (
        {"model": QWEN3_8B, "precision": {"grad_reduce_in_fp32": False}},
        NEWEST,
        "precision.grad_reduce_in_fp32",
    ),
    "a changed shape in 4.0": (
        {"model": {**QWEN3_8B, "num_hidden_layers": 4, "overridden": ["num_hidden_layers"]}},
        "4.0.0",
        "model.num_hidden_layers",
    ),
    "two-level context parallelism": (
        {"model": QWEN3_8B, "parallel": {"cp": 4, "cp_algorithm": "hybrid", "ulysses_degree": 2}},
        NEWEST,
        "parallel.cp_algorithm",
    ),
    "weights from nowhere": (
        {"model": {**QWEN3_8B, "hub_id": None, "pretrained": True}},
        SEED,
        "model.pretrained",
    ),
    "local layers in 4.x": (
        {"model": QWEN3_8B, "kernels": {"transformer_impl": "local"}},
        NEWEST,
        "kernels.transformer_impl",
    ),
    "a window that 4.0 ignores": ({"model": {**QWEN3_8B, "sliding_window": 512}}, "4.0.0", "model.sliding_window"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(name: str) -> None:
    tree, version, field = REFUSED[name]
    errors = [finding for finding in translated(make(tree), version).findings if finding.severity == "error"]
    assert field in [finding.fields[0] for finding in errors]
    assert all(finding.message for finding in errors)


def test_samples_that_are_no_whole_batches_are_rounded_to_the_nearest_number_not_to_one_batch() -> None:
    job = make({"model": QWEN3_8B, "schedule": {"train_samples": 999}, "batch": {"global_batch_size": 16}})
    found = next(each for each in translated(job, NEWEST).findings if each.fields == ("schedule.train_samples",))
    assert [fix.overrides for fix in found.fixes] == [("schedule.train_samples=992",)]


def test_memory_features_of_other_backends_are_warnings() -> None:
    job = make({"model": QWEN3_8B, "offload": {"attention": True}, "recompute": {"activation": True}})
    findings = translated(job, NEWEST).findings
    assert {(finding.fields[0], finding.severity) for finding in findings} == {
        ("offload.attention", "warning"),
        ("recompute.activation", "warning"),
    }


def _extra(job: Job) -> Any:
    return written(job, NEWEST)["megatron_extra_kwargs"]


def test_users_extra_arguments_are_joined_with_the_launchers() -> None:
    tree = {
        "model": {**QWEN3_8B, "hidden_dropout": 0.1},
        "backend": {"args": {"megatron_extra_kwargs": {"softmax_scale": 1.0}}},
    }
    job = make(tree)
    assert _extra(job) == {"hidden_dropout": 0.1, "softmax_scale": 1.0}
    assert translated(job, NEWEST).findings == ()


def test_a_contradicting_extra_argument_is_reported() -> None:
    tree = {
        "model": {**QWEN3_8B, "hidden_dropout": 0.1},
        "backend": {"args": {"megatron_extra_kwargs": {"hidden_dropout": 0.2}}},
    }
    assert [finding.rule for finding in translated(make(tree), NEWEST).findings] == ["ARG-REPLACED"]


def test_keys_of_model_config_are_distinct() -> None:
    keys = [model_field.key for model_field in MODEL_FIELDS] + [extra.key for extra in KEYS]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("interval,given", [(4, None), (2, "2")])
def test_a_pattern_of_linear_attention_that_swift_does_not_read_is_given(
    interval: int, given: str | None, tmp_path: Path
) -> None:
    """mcore-bridge reads full_attention_interval, which transformers 5 does not keep, and takes 4."""
    published = Path(__file__).parents[2] / "families" / "published" / "qwen3_next_80b_a3b.json"
    config = {**json.loads(published.read_text()), "full_attention_interval": interval}
    (tmp_path / "config.json").write_text(json.dumps(config))
    native = api.translate(api.compose([f"model.path={tmp_path}", "backend=megatron"]))
    extra = {arg.flag: arg.value for arg in native}.get("megatron_extra_kwargs") or {}
    assert extra.get("linear_attention_freq") == given
