"""What is written can be read: jobs survive translation and back, and files survive import and translation."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backends.mindformers import BACKEND
from backends.mindformers.launch import launch
from backends.mindformers.mapping.stages import expand_layout
from backends.mindformers.yaml_file import parse
from launcher.job import Job, Value, fields, value_at
from launcher.mapping.engine import read_back, translate
from tests.backends.mindformers.jobs import DEEPSEEK, NEWEST, OLD, QWEN3, QWEN3_MOE, make, refusals, translated, tree
from tests.sampling import examples

_FEW = examples(60, suppress_health_check=[HealthCheck.too_slow])
# Not in the file: what the launcher reads, and what becomes a part of other values.
_ELSEWHERE = (
    "backend.",
    "estimate.",
    "hardware.",
    "name",
    "output_dir",
    "rehearse.",
    "rules.",
    "tokenizer.",
    "parallel.dp",
)


# What the file says where a job says nothing.
_LEFT_OPEN: dict[str, Value] = {
    "logging.dir": "launch_output/job/mindformers",
    "graph.mode": "graph",
    "graph.distributed": True,
    "graph.device_target": "Ascend",
    "graph.level": "O0",
    "graph.sink_size": 1,
    "graph.parallel_mode": "semi_auto",
    "graph.gradients_mean": False,
    "graph.full_batch": False,
    "batch.interleave": 1,
    "data.drop_last": True,
    "optimizer.main_params_dtype": "fp32",
    "precision.norm_in_fp32": True,
    "precision.rope_in_fp32": True,
}


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


_SWITCH = maybe(st.booleans())
_RATE = st.sampled_from([1e-5, 3e-4, 0.1, 1.0])

SECTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "batch": {
        "micro_batch_size": st.sampled_from([1, 2]),
        "global_batch_size": st.sampled_from([512, 1024]),
        "seq_length": st.sampled_from([1024, 4096, 8192]),
    },
    "schedule": {
        "train_iters": st.sampled_from([10, 1000]),
        "lr_decay_style": st.sampled_from(["constant", "cosine", "linear"]),
        "lr_decay_iters": maybe(st.sampled_from([500, 2000])),
        "lr_warmup_iters": maybe(st.integers(1, 50)),
        "lr_warmup_init": maybe(_RATE),
    },
    "optimizer": {
        "lr": st.just(2.0),
        "min_lr": st.sampled_from([0.0, 1e-6]),
        "weight_decay": _RATE,
        "adam_beta2": st.sampled_from([0.95, 0.999]),
        "adam_eps": _RATE,
        "clip_grad": st.sampled_from([0.0, 0.5, 1.0]),
    },
    "precision": {
        "dtype": st.sampled_from(["bf16", "fp32"]),
        "attention_softmax_in_fp32": st.booleans(),
        "calculate_per_token_loss": st.booleans(),
    },
    "kernels": {
        "attention_backend": maybe(st.sampled_from(["flash", "unfused"])),
        "rope_fusion": _SWITCH,
        "rmsnorm_fusion": _SWITCH,
        "bias_dropout_fusion": _SWITCH,
        "bias_activation_fusion": _SWITCH,
        "deterministic": _SWITCH,
    },
    "parallel": {
        "tp": st.sampled_from([1, 2, 4]),
        "pp": st.sampled_from([1, 2]),
        "vpp": st.none(),
        "distributed_optimizer": _SWITCH,
        "sequence_parallel": st.booleans(),
    },
    "recompute": {
        "granularity": maybe(st.sampled_from(["full", "selective"])),
        "activation": maybe(st.just(True)),
        "norm_num_layers": st.none(),
        "communication": _SWITCH,
    },
    "offload": {"attention": _SWITCH},
    "data": {
        "paths": st.sampled_from([["/a"], ["0.3", "/a", "0.7", "/b"]]),
        "cache_path": maybe(st.just("/cache")),
        "split": maybe(st.just("949,50,1")),
        "num_workers": maybe(st.integers(1, 8)),
    },
    "checkpoint": {
        "load": maybe(st.just("/from")),
        "save": st.just("/to"),
        "save_interval": st.integers(1, 1000),
        "save_total_limit": maybe(st.integers(1, 9)),
        "async_save": _SWITCH,
    },
    "logging": {"interval": st.integers(1, 100), "tensorboard_dir": maybe(st.just("/tb"))},
}
SHAPES: dict[str, st.SearchStrategy[Any]] = {
    "rms_norm_eps": st.sampled_from([1e-5, 1e-6]),
    "rope_theta": st.sampled_from([1e4, 1e6]),
    "initializer_range": st.sampled_from([0.006, 0.02]),
    "hidden_dropout": st.sampled_from([0.0, 0.1]),
    "attention_dropout": st.sampled_from([0.0, 0.1]),
    "attention_bias": st.booleans(),
}
MOE: dict[str, st.SearchStrategy[Any]] = {
    "grouped_gemm": st.just(True),
    "permute_fusion": _SWITCH,
    "shared_expert_overlap": _SWITCH,
    "router_dtype": st.sampled_from(["fp32", "model"]),
}


@st.composite
def trees(draw: st.DrawFn, models: tuple[Any, ...] = (QWEN3, QWEN3_MOE, DEEPSEEK)) -> dict[str, Any]:
    """Draw a job that MindFormers can express."""
    model = draw(st.sampled_from(models))
    changes: dict[str, Any] = {
        section: {name: draw(values) for name, values in fields.items()} for section, fields in SECTIONS.items()
    }
    shape = {name: draw(values) for name, values in SHAPES.items()}
    parallel, recompute = changes["parallel"], changes["recompute"]
    parallel["sequence_parallel"] &= parallel["tp"] > 1
    if model is DEEPSEEK:
        shape |= {"num_hidden_layers": 60}
    if parallel["pp"] == 2:
        parallel |= draw(st.sampled_from([{}, {"vpp": 2}, {"vpp": 3}, {"first_stage_layers": 8}]))
    if recompute["granularity"] == "full":
        recompute["method"] = draw(st.sampled_from(["uniform", "block"]))
        swapped = changes["offload"]["attention"]
        recompute["num_layers"] = 1 if recompute["method"] == "uniform" else draw(st.integers(1, 3))
        if swapped and recompute["method"] == "block":
            changes["offload"]["attention"] = None
    if recompute["granularity"] == "selective":
        recompute["modules"] = draw(st.sampled_from([["core_attn"], ["core_attn", "layernorm"]]))
    if draw(st.booleans()):
        changes["schedule"] |= {"lr_warmup_fraction": 0.5, "lr_warmup_iters": None}
    if draw(st.booleans()):
        parallel |= {"cp": 2, "cp_algorithm": draw(st.sampled_from(["megatron", "allgather"]))}
        changes["kernels"]["attention_backend"] = "flash"
    if model is not QWEN3:
        changes["moe"] = {name: draw(values) for name, values in MOE.items()}
        parallel["ep"] = draw(st.sampled_from([1, 2]))
    changes["cluster"] = {"nodes": 2}
    return tree(model, model_changes=shape, seed=draw(st.sampled_from([1, 1234])), **changes)


def mapped(job: Job) -> dict[str, Value]:
    """Return what the file carries, in one spelling where several mean the same."""
    flat = {path: value_at(job, path) for path in fields() if not path.startswith(_ELSEWHERE)}
    flat |= {path: value for path, value in _LEFT_OPEN.items() if flat[path] is None}
    if job.parallel.ep > 1:
        flat["parallel.etp"] = 1
    if job.checkpoint.save is not None and flat["checkpoint.merge_shards"] is None:
        flat["checkpoint.merge_shards"] = False
    if flat["parallel.layout"] is not None:
        flat["parallel.layout"] = expand_layout(flat["parallel.layout"])
    if job.model.is_moe and flat["moe.load_balancing_type"] == "aux_loss" and job.batch.micro_batch_size == 1:
        flat["moe.load_balancing_type"] = "seq_aux_loss"
    if flat["schedule.lr_decay_iters"] == job.schedule.train_iters:
        flat["schedule.lr_decay_iters"] = None
    if job.precision.dtype == "fp32":
        flat |= {"precision.attention_softmax_in_fp32": True, "moe.router_dtype": "fp32"}
    if job.model.is_moe and job.model.routed_scaling_factor is None:
        flat["model.routed_scaling_factor"] = 1.0
    if job.model.router_expert_bias and flat["moe.bias_update_rate"] is None:
        flat["moe.bias_update_rate"] = 0.001
    if (flat["model.n_group"], flat["model.topk_group"]) == (1, 1):
        flat["model.n_group"] = flat["model.topk_group"] = None
    # An end that is equal to the rest is no end; with two stages either end says the split.
    if job.parallel.pp == 2 and flat["parallel.first_stage_layers"] is not None and job.model.num_hidden_layers:
        flat["parallel.last_stage_layers"] = job.model.num_hidden_layers - flat["parallel.first_stage_layers"]
    return flat


@_FEW
@given(whole=trees())
def test_a_job_survives_translation_and_back(whole: dict[str, Any]) -> None:
    job = make(whole)
    native = {arg.flag: arg.value for arg in translated(job).native}
    back = read_back(native, BACKEND, NEWEST)
    assert not back.job.backend.args
    assert mapped(back.job) == mapped(job)


@_FEW
@given(whole=trees())
def test_a_file_survives_import_and_translation(whole: dict[str, Any]) -> None:
    job = make(whole)
    native = translated(job).native
    flat = parse(launch(job, native).files[0].content)
    assert flat == {arg.flag: arg.value for arg in native}
    again = translate(read_back(flat, BACKEND, NEWEST).job, BACKEND, NEWEST)
    assert {arg.flag: arg.value for arg in again.native} == flat


@_FEW
@given(whole=trees((DEEPSEEK,)))
def test_version_1_6_survives_too(whole: dict[str, Any]) -> None:
    whole["model"] |= {"n_group": None, "topk_group": None}
    whole["offload"] = {}
    whole["kernels"]["rope_fusion"] = None
    whole["graph"] = {"options_file": "/options.json"}
    whole["data"] |= {"numa": False, "prefetch": 2}
    job = make(whole)
    native = {arg.flag: arg.value for arg in translated(job, OLD).native}
    back = read_back(native, BACKEND, OLD)
    # What 1.6 always does has no key there, so it cannot be read: the kind of balance.
    unread = ("moe.load_balancing_type",)
    first, second = mapped(job), mapped(back.job)
    assert {path: value for path, value in second.items() if path not in unread} == {
        path: value for path, value in first.items() if path not in unread
    }
    again = translate(back.job, BACKEND, OLD)
    assert {arg.flag: arg.value for arg in again.native} == native


FILES = {
    "chunks that MindFormers would ignore": (
        {"model.model_config.pp_interleave_num": 2, "parallel_config.pipeline_stage": 2},
        {"parallel.vpp": None},
    ),
    "ulysses without a degree gathers": (
        {
            "parallel_config.context_parallel": 4,
            "parallel_config.context_parallel_algo": "ulysses_cp",
        },
        {"parallel.cp_algorithm": "allgather"},
    ),
    "aliases": (
        {
            "model.model_config.model_type": "deepseek_v3",
            "model.model_config.num_layers": 10,
            "model.model_config.expert_num": 16,
            "model.model_config.moe_router_topk": 4,
            "model.model_config.init_method_std": 0.01,
            "model.model_config.use_gating_sigmoid": False,
        },
        {
            "model.num_hidden_layers": 10,
            "model.num_experts": 16,
            "model.num_experts_per_tok": 4,
            "model.initializer_range": 0.01,
            "model.scoring_func": "softmax",
        },
    ),
    "dropout of a class that has none of its own": (
        {"model.model_config.model_type": "qwen3"},
        {"model.hidden_dropout": 0.1, "model.head_dim": 128, "model.qk_layernorm": True},
    ),
    "passes over a number of samples": (
        {"train_dataset.data_loader.sizes": (1000, 0, 0), "runner_config.epochs": 3},
        {"schedule.train_samples": 1000, "schedule.epochs": 3.0, "schedule.train_iters": None},
    ),
    "a wrapper without a norm clips at one": (
        {"runner_wrapper.use_clip_grad": True},
        {"optimizer.clip_grad": 1.0},
    ),
    "a polynomial that is no line stays native": (
        {"lr_schedule.type": "PolynomialWithWarmUpLR", "lr_schedule.power": 2.0},
        {"schedule.lr_decay_style": "cosine"},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_mindformers_reads_it(name: str) -> None:
    native, expected = FILES[name]
    back = read_back(native, BACKEND, NEWEST).job
    flat = {path: value_at(back, path) for path in fields()}
    assert {path: flat[path] for path in expected} == expected


def test_what_has_no_field_is_kept() -> None:
    native = {"monitor_config.monitor_on": True, "context.max_device_memory": "most", "lr_schedule.power": 2.0}
    assert read_back(native, BACKEND, NEWEST).job.backend.args == native


def test_a_refused_job_is_not_half_written() -> None:
    found = refusals(tree(parallel={"pp": 3}))
    assert found.keys() == {"parallel.dp"}
