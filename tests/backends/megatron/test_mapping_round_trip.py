"""What is written can be read: jobs survive translation and back, and argument lists survive import and translation."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backends.megatron import BACKEND
from backends.megatron.launch import argv, command
from launcher.api import compose
from launcher.catalogue.versions import in_range
from launcher.job import Job, fields, value_at
from tests.backends.megatron.jobs import (
    CASES,
    NEWEST,
    QWEN3_8B,
    QWEN3_30B_A3B,
    SEED,
    effective,
    imported,
    make,
    named_job,
    there_and_back,
    translated,
    typed,
    written,
)
from tests.sampling import examples

# Not in the arguments: what config.json says, what the launcher reads, and what other values are computed into.
_ELSEWHERE = (
    "backend.",
    "cluster.",
    "estimate.",
    "hardware.",
    "model.",
    "name",
    "rehearse.",
    "rules.",
    "tokenizer.make",
)
RECIPES = sorted(path.stem for path in Path(__file__).resolve().parents[3].glob("recipes/*.yaml"))
_FEW = examples(30, suppress_health_check=[HealthCheck.too_slow])


def mapped(job: Job, *, moe: bool) -> dict[str, Any]:
    """Return what the arguments of a pretrained model carry."""
    skipped = _ELSEWHERE if moe else (*_ELSEWHERE, "moe.")
    kept = {path: value_at(job, path) for path in fields() if not path.startswith(skipped)}
    changed = {name: getattr(job.model, name) for name in job.model.overridden if "." not in name}
    return kept | changed | {"overridden": set(job.model.overridden), "from": job.model.hub_id or job.model.path}


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


_SWITCH = maybe(st.booleans())
_RATE = st.sampled_from([1e-5, 3e-4, 0.1, 1.0])
_COUNT = st.integers(1, 1000)
_NAME = st.sampled_from(["out", "/data/out", "my run", "x-y_z.1"])

PARALLEL = {
    "tp": st.sampled_from([1, 2, 8]),
    "pp": st.sampled_from([1, 2, 4]),
    "vpp": maybe(st.integers(1, 4)),
    "cp": st.sampled_from([1, 2]),
    "ep": st.sampled_from([1, 8]),
    "etp": maybe(st.sampled_from([1, 2])),
    "sequence_parallel": _SWITCH,
    "first_stage_layers": maybe(st.integers(1, 9)),
    "last_stage_layers": maybe(st.integers(1, 9)),
    "account_for_embedding": maybe(st.just(True)),
    "microbatch_group_size": maybe(st.integers(1, 9)),
    "distributed_optimizer": _SWITCH,
}
SECTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "parallel": PARALLEL,
    "recompute": {
        "granularity": maybe(st.sampled_from(["full", "selective"])),
        "method": maybe(st.sampled_from(["uniform", "block"])),
        "num_layers": maybe(_COUNT),
        "modules": st.lists(st.sampled_from(["core_attn", "mlp", "moe", "layernorm"]), unique=True),
    },
    "offload": {"optimizer": maybe(st.just(True)), "optimizer_fraction": maybe(st.sampled_from([0.25, 1.0]))},
    "batch": {
        "micro_batch_size": st.integers(1, 8),
        "global_batch_size": maybe(_COUNT),
        "seq_length": maybe(_COUNT),
        "packing": _SWITCH,
        "padding_free": _SWITCH,
    },
    "schedule": {
        "train_iters": _COUNT,
        "epochs": maybe(st.integers(1, 5)),
        "lr_decay_style": st.sampled_from(["cosine", "linear", "constant"]),
        "lr_decay_iters": maybe(_COUNT),
        "lr_warmup_iters": maybe(st.integers(0, 50)),
        "lr_warmup_fraction": maybe(_RATE),
        "lr_warmup_init": maybe(_RATE),
    },
    "optimizer": {
        "type": st.sampled_from(["adam", "sgd"]),
        "lr": maybe(_RATE),
        "min_lr": st.sampled_from([0.0, 1e-6]),
        "weight_decay": _RATE,
        "clip_grad": _RATE,
        "sgd_momentum": maybe(_RATE),
        "precision_aware": maybe(st.just(True)),
        "main_grads_dtype": maybe(st.sampled_from(["fp32", "bf16"])),
        "exp_avg_dtype": maybe(st.sampled_from(["fp32", "fp8"])),
    },
    "precision": {
        "dtype": st.sampled_from(["bf16", "fp16", "fp32"]),
        "fp8_format": maybe(st.sampled_from(["e4m3", "hybrid"])),
        "attention_softmax_in_fp32": st.booleans(),
        "calculate_per_token_loss": st.booleans(),
    },
    "kernels": {
        "attention_backend": maybe(st.sampled_from(["flash", "fused", "unfused"])),
        "masked_softmax_fusion": _SWITCH,
        "rope_fusion": _SWITCH,
        "bias_activation_fusion": _SWITCH,
        "gradient_accumulation_fusion": _SWITCH,
        "cross_entropy_fusion": st.booleans(),
        "manual_gc_interval": maybe(st.integers(0, 100)),
    },
    "overlap": {"grad_reduce": _SWITCH, "param_gather": _SWITCH, "tp_comm": _SWITCH},
    "data": {
        "paths": st.just(["swift/self-cognition#500"]) | st.just(["a/b", "c/d#7"]),
        "format": st.just("hub"),
        "validation_ratio": maybe(st.sampled_from([0.01, 0.1])),
        "num_workers": maybe(st.integers(0, 8)),
        "num_preprocess": maybe(_COUNT),
        "shuffle": _SWITCH,
        "streaming": _SWITCH,
        "lazy_tokenize": _SWITCH,
        "system": maybe(st.just("You are a helpful assistant.")),
        "self_cognition_name": maybe(_NAME),
    },
    "checkpoint": {
        "save": maybe(_NAME),
        "save_interval": maybe(_COUNT),
        "load": maybe(_NAME),
        "no_save_optim": _SWITCH,
        "no_load_rng": _SWITCH,
    },
    "logging": {"interval": _COUNT, "tensorboard_dir": maybe(_NAME), "wandb_project": maybe(_NAME)},
    "evaluation": {"interval": maybe(_COUNT), "iters": maybe(st.integers(0, 9))},
    "fault_tolerance": {"timeout_minutes": maybe(_COUNT)},
}
MOE = {
    "token_dispatcher_type": st.sampled_from(["alltoall", "allgather"]),
    "grouped_gemm": _SWITCH,
    "permute_fusion": maybe(st.just(True)),
    "shared_expert_overlap": _SWITCH,
    "load_balancing_type": st.sampled_from(["aux_loss", "seq_aux_loss", "none"]),
    "aux_loss_coeff": st.sampled_from([0.0, 1e-3]),
    "z_loss_coeff": maybe(_RATE),
    "capacity_factor": maybe(_RATE),
    "token_drop_policy": maybe(st.sampled_from(["probs", "position"])),
}
SHAPES = {
    "num_hidden_layers": st.integers(1, 9),
    "rms_norm_eps": st.sampled_from([1e-5, 1e-6]),
    "tie_word_embeddings": st.booleans(),
    "rope_theta": st.sampled_from([1e4, 1e6]),
}


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a job that every version can express."""
    moe = draw(st.booleans())
    model = dict(QWEN3_30B_A3B if moe else QWEN3_8B)
    changed = draw(st.lists(st.sampled_from(sorted(SHAPES)), unique=True))
    model |= {name: draw(SHAPES[name]) for name in changed} | {"overridden": changed}
    tree: dict[str, Any] = {"model": model, "seed": draw(st.sampled_from([42, 1234]))}
    tree["task"] = {"type": draw(st.sampled_from(["pretrain", "sft"]))}
    for section, sizes in SECTIONS.items():
        tree[section] = {name: draw(values) for name, values in sizes.items()}
    if moe:
        tree["moe"] = {name: draw(values) for name, values in MOE.items()}
    return tree


def _only_for(version: str, tree: dict[str, Any]) -> dict[str, Any]:
    """4.0 reads the architecture from config.json only."""
    if in_range(version, "4.0", "4.2.99"):
        tree = {**tree, "model": {**tree["model"], "overridden": []}}
    return tree


@pytest.mark.parametrize("version", BACKEND.versions)
@_FEW
@given(tree=trees())
def test_a_job_survives_translation_and_back(version: str, tree: dict[str, Any]) -> None:
    job = make(_only_for(version, tree))
    moe = job.model.is_moe
    assert mapped(there_and_back(job, version), moe=moe) == mapped(BACKEND.prepare(job, version), moe=moe)


@pytest.mark.parametrize("version", [SEED, NEWEST])
@_FEW
@given(tree=trees())
def test_a_command_line_survives_import_and_translation(version: str, tree: dict[str, Any]) -> None:
    """The words of a command line mean the same after they were read into a job and written again."""
    first = translated(make(tree), version).native
    kind = command(make(tree))
    native = typed(argv(first), version)
    again = written(imported(native, version, kind).job, version)
    assert effective(again, version, kind) == effective(native, version, kind)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_named_jobs_survive(name: str, version: str) -> None:
    job = named_job(name)
    if name == "random weights":
        pytest.skip("its directory is named, not described, in the arguments")
    back, job = there_and_back(job, version), BACKEND.prepare(job, version)
    assert back.moe == job.moe or not job.model.is_moe
    for section in ("task", "lora", "parallel", "batch", "schedule", "optimizer", "precision", "checkpoint", "data"):
        assert getattr(back, section) == getattr(job, section), section


# Argument lists with what has no canonical field, or with defaults that differ from the canonical ones.
@cache
def _recipe(name: str) -> Job:
    return compose(recipe=name, overrides=["backend=megatron"])


@pytest.mark.sample(keep=100)
@pytest.mark.parametrize("version", BACKEND.versions)
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_survive_as_command_lines(name: str, version: str) -> None:
    """Including models without weights, whose directory the plan prepares."""
    job = _recipe(name)
    first = translated(job, version)
    if any(finding.severity == "error" for finding in first.findings):
        pytest.skip("this version cannot express the recipe")
    kind = command(job)
    native = typed(argv(first.native), version)
    again = written(imported(native, version, kind).job, version)
    assert effective(again, version, kind) == effective(native, version, kind)


_M = {"model": "a/b"}
LISTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "arguments of swift's own": (NEWEST, "sft", {**_M, "loss_scale": "ignore_empty_think", "freeze_vit": True}),
    "no perform_initialization": (NEWEST, "sft", {**_M, "tensor_model_parallel_size": 2}),
    "another order of samples": (NEWEST, "sft", {**_M, "seed": 7}),
    "its own order of samples": (NEWEST, "sft", {**_M, "seed": 7, "data_seed": 9}),
    "long texts dropped": (NEWEST, "pt", {**_M, "dataset": ["a.jsonl"]}),
    "long texts cut": (NEWEST, "pt", {**_M, "dataset": ["a.jsonl"], "truncation_strategy": "split"}),
    "a new start from a checkpoint": (NEWEST, "sft", {**_M, "mcore_model": "out/1"}),
    "a resumed checkpoint": (NEWEST, "sft", {**_M, "mcore_model": "out/1", "finetune": False}),
    "unknown ModelConfig keys": (
        NEWEST,
        "sft",
        {**_M, "megatron_extra_kwargs": {"num_layers": 4, "softmax_scale": 1.0}},
    ),
    "ModelConfig keys": (NEWEST, "sft", {**_M, "megatron_extra_kwargs": {"num_layers": 4, "window_size": "127,0"}}),
    "several balancing losses": (
        NEWEST,
        "sft",
        {**_M, "moe_router_load_balancing_type": ["aux_loss", "seq_aux_loss"], "moe_aux_loss_coeff": [1e-3, 1e-4]},
    ),
    "no recomputation": (NEWEST, "sft", {**_M, "recompute_granularity": "none"}),
    "W&B alone": (NEWEST, "sft", {**_M, "report_to": ["wandb"], "wandb_project": "p"}),
    "seconds that are no minutes": (NEWEST, "sft", {**_M, "ddp_timeout": 90}),
    "two authors": (NEWEST, "sft", {**_M, "model_author": ["甲", "a"], "model_name": ["乙", "b"]}),
    "an adapter": (NEWEST, "sft", {**_M, "adapters": ["out/1"], "tuner_type": "lora", "lora_rank": 4}),
    "preference training by default DPO": (NEWEST, "rlhf", {**_M, "beta": 0.1}),
    "a distributed Muon": (NEWEST, "sft", {**_M, "optimizer": "dist_muon"}),
    "routing in bf16": ("3.5.3", "sft", {"load": "a-mcore", "moe_token_dispatcher_type": "alltoall"}),
    "routing in fp32": ("3.5.3", "sft", {"load": "a-mcore", "moe_router_dtype": "fp32"}),
    "validation data by default": (SEED, "sft", {"load": "a-mcore", "dataset": ["a/b"]}),
    "SFT loss by default": ("3.6.4", "rlhf", {"load": "a-mcore", "rlhf_type": "dpo"}),
    "shape options": (SEED, "sft", {"load": "a-mcore", "num_layers": 4, "hidden_size": 64, "num_attention_heads": 4}),
    "Megatron-LM's own": (SEED, "sft", {"load": "a-mcore", "extra_megatron_kwargs": {"qk_l2_norm": True}}),
    "weights read by the option's name": ("3.12.6", "sft", {**_M, "load_safetensors": True}),
}


@pytest.mark.parametrize("name", LISTS)
def test_imported_arguments_mean_the_same_when_written_again(name: str) -> None:
    version, kind, native = LISTS[name]
    given_dtype = {"torch_dtype": "bfloat16", **native}
    job = imported(given_dtype, version, kind).job
    again = {arg.flag: arg.value for arg in translated(job, version).native}
    assert command(job) == kind
    assert effective(again, version, kind) == effective(given_dtype, version, kind)


def test_a_missing_dtype_is_read_as_bf16() -> None:
    """swift would take it from config.json, which an argument list does not hold."""
    assert imported({"model": "a/b"}, NEWEST, "sft").job.precision.dtype == "bf16"
    assert imported({"model": "a/b", "bf16": True}, NEWEST, "sft").job.precision.dtype == "bf16"


def test_paths_and_hub_names_are_distinguished() -> None:
    for named, path, hub_id in (("/m/x", "/m/x", None), ("./m", "m", None), ("Qwen/Qwen3-8B", None, "Qwen/Qwen3-8B")):
        model = imported({"model": named}, NEWEST, "sft").job.model
        assert (model.path, model.hub_id) == (path, hub_id)


def test_overridden_shapes_are_recorded_as_such() -> None:
    back = there_and_back(make({"model": {**QWEN3_8B, "overridden": ["head_dim"]}}), NEWEST)
    assert back.model.overridden == ("head_dim",)
    assert dataclasses.replace(back.model, overridden=()).head_dim == 128


def test_a_pattern_of_expert_layers_among_extra_keys_is_read() -> None:
    keys = {"num_layers": 4, "num_moe_experts": 8, "moe_layer_freq": "[0, 1, 1, 1]"}
    given = {"model": "a/b", "megatron_extra_kwargs": json.dumps(keys)}
    back = imported(given, NEWEST, "sft")
    assert (back.job.model.first_k_dense_replace, back.job.model.moe_layer_freq) == (1, 1)
    assert "moe_layer_freq" not in json.dumps(back.job.backend.args)


def test_without_the_number_of_layers_a_pattern_is_passed_on() -> None:
    keys = {"num_moe_experts": 8, "moe_layer_freq": "[0, 1, 1, 1]"}
    back = imported({"model": "a/b", "megatron_extra_kwargs": json.dumps(keys)}, NEWEST, "sft")
    assert "moe_layer_freq" in json.dumps(dict(back.job.backend.args))
