"""Settings of MindSpore and of MindFormers' own: each is a field, written as MindFormers reads it, and read again."""

from typing import Any

import pytest

from backends.mindformers import BACKEND
from backends.mindformers.launch import launch
from launcher.job import Value, value_at
from launcher.mapping.engine import read_back
from tests.backends.mindformers.jobs import NEWEST, OLD, QWEN3_MOE, make, refusals, translated, tree, written

_SAVES = {"save": "./output", "save_interval": 100}
# name: changes of a job, arguments that say it.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Value]]] = {
    "memory": (
        {"graph": {"memory_gib": 56.5, "memory_block_gib": 28.0, "memory_optimize_level": "O1"}},
        {
            "context.max_device_memory": "56.5GB",
            "context.mempool_block_size": "28GB",
            "context.memory_optimize_level": "O1",
        },
    ),
    "compiler": (
        {"graph": {"level": "O1", "max_call_depth": 10000, "precision_mode": "must_keep_origin_dtype", "save": True}},
        {
            "context.jit_config.jit_level": "O1",
            "context.max_call_depth": 10000,
            "context.ascend_config.precision_mode": "must_keep_origin_dtype",
            "context.save_graphs": True,
        },
    ),
    "steps between two visits of the host": (
        {"graph": {"sink_size": 4}},
        {"runner_config.sink_mode": True, "runner_config.sink_size": 4},
    ),
    "no step without the host": ({"graph": {"sink_size": 0}}, {"runner_config.sink_mode": False}),
    "layout of the weights": (
        {"graph": {"strategy_file": "./a.ckpt", "strategy_only": True, "gradient_groups": 8}},
        {
            "parallel.strategy_ckpt_config.save_file": "./a.ckpt",
            "only_save_strategy": True,
            "parallel_config.gradient_aggregation_group": 8,
        },
    ),
    "whole batches on every device": (
        {"graph": {"full_batch": True}},
        {"parallel.full_batch": True, "parallel.dataset_strategy": None},
    ),
    "another schedule of stages": (
        {"parallel": {"pp": 2, "vpp": 2, "schedule": "seqpipe"}},
        {"parallel.pipeline_config.pipeline_scheduler": "seqpipe", "model.model_config.pp_interleave_num": 2},
    ),
    "a batch in turns": (
        {"batch": {"interleave": 2}},
        {"micro_batch_interleave_num": 2, "runner_config.gradient_accumulation_steps": 8},
    ),
    "order of samples": ({"data": {"seed": 7}}, {"train_dataset.data_loader.config.seed": 7, "train_dataset.seed": 42}),
    "workers": (
        {"data": {"worker_processes": True, "prefetch": 2, "numa": True, "repeat": 2}},
        {
            "train_dataset.python_multiprocessing": True,
            "train_dataset.prefetch_size": 2,
            "train_dataset.numa_enable": True,
            "train_dataset.repeat": 2,
        },
    ),
    "a mask by the loader": (
        {"kernels": {"attention_mask": "full"}},
        {
            "train_dataset.data_loader.config.create_attention_mask": True,
            "model.model_config.use_attn_mask_compression": None,
        },
    ),
    "a mask from the tokens": (
        {"kernels": {"attention_mask": "tokens"}},
        {
            "train_dataset.data_loader.config.create_attention_mask": False,
            "model.model_config.use_attn_mask_compression": None,
        },
    ),
    "checkpoints": (
        {"checkpoint": {**_SAVES, "prefix": "llm", "merge_shards": True, "remove_redundancy": True}},
        {
            "callbacks.CheckpointMonitor.prefix": "llm",
            "callbacks.CheckpointMonitor.integrated_save": True,
            "callbacks.CheckpointMonitor.remove_redundancy": True,
        },
    ),
    "a checkpoint in the folder of everything": (
        {"checkpoint": _SAVES, "logging": {"dir": "./output"}},
        {"output_dir": "./output", "callbacks.CheckpointMonitor.directory": None},
    ),
    "loaded as it was saved": (
        {"checkpoint": {"load": "/from", "reshard": False, "load_strategy": "/strategy"}},
        {"load_checkpoint": "/from", "auto_trans_ckpt": False, "src_strategy_path_or_dir": "/strategy"},
    ),
    "profile": (
        {"profiler": {"enabled": True, "start_step": 3, "end_step": 5, "memory": False, "from_start": True}},
        {"profile": True, "profile_start_step": 3, "profile_memory": False, "init_start_profile": True},
    ),
    "precision": (
        {"precision": {"residual_in_fp32": True, "norm_in_fp32": False}, "optimizer": {"main_params_dtype": "fp16"}},
        {
            "model.model_config.fp32_residual_connection": True,
            "model.model_config.layernorm_compute_dtype": "bfloat16",
            "model.model_config.params_dtype": "float16",
        },
    ),
    "a dynamic loss scale": (
        {"precision": {"initial_loss_scale": 4096.0, "loss_scale_factor": 4, "loss_scale_window": 100000}},
        {
            "runner_wrapper.scale_sense.loss_scale_value": 4096,
            "runner_wrapper.scale_sense.scale_factor": 4,
            "runner_wrapper.scale_sense.scale_window": 100000,
        },
    ),
    "labels": (
        {"model_changes": {"label": "mine"}, "logging": {"loss": False}, "checkpoint": _SAVES},
        {"trainer.model_name": "mine", "callbacks.MFLossMonitor.per_print_times": None},
    ),
    "experts": (
        {"model": QWEN3_MOE, "moe": {"router_fusion": True}, "recompute": {"optimizer_communication": True}},
        {
            "model.model_config.use_fused_ops_topkrouter": True,
            "recompute_config.parallel_optimizer_comm_recompute": True,
        },
    ),
}


def _job(changes: dict[str, Any]) -> dict[str, Any]:
    own = dict(changes)
    return tree(own.pop("model"), **own) if "model" in own else tree(**own)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_written_and_read(name: str) -> None:
    changes, expected = SETTINGS[name]
    args = written(_job(changes))
    assert {flag: args.get(flag) for flag in expected} == expected
    job, back = make(_job(changes)), read_back(args, BACKEND, NEWEST)
    assert not back.job.backend.args
    for section, values in changes.items():
        where = "model" if section == "model_changes" else section
        for field in values if section != "model" else ():
            path = f"{where}.{field}"
            assert value_at(back.job, path) == value_at(job, path), path


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no callback at all": ({"logging": {"loss": False}}, "logging.loss"),
    "the other trainer": ({"graph": {"mode": "eager"}}, "graph.mode"),
    "sizes that a mode would reset": (
        {"graph": {"parallel_mode": "data"}, "parallel": {"tp": 2}},
        "graph.parallel_mode",
    ),
    "a vocabulary that is not split": ({"parallel": {"split_vocabulary": False}}, "parallel.split_vocabulary"),
    "checkpoints that mcore does not write": ({"checkpoint": {**_SAVES, "format": "ckpt"}}, "checkpoint.format"),
    "slices that mcore refuses": (
        {"recompute": {"distribute_saved_activations": True}},
        "recompute.distribute_saved_activations",
    ),
    "a mask in a kernel that is off": (
        {"kernels": {"attention_backend": "unfused", "attention_mask": "compressed"}},
        "kernels.attention_mask",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_mcore_graph_would_reset_is_refused(name: str) -> None:
    changes, field = REFUSED[name]
    assert field in refusals(tree(**changes))


def test_version_1_6_gets_what_it_does_not_fill_in() -> None:
    """It hands null to MindSpore where a file has no prefetch_size, and wants the level of broadcasts in a file."""
    job = make(tree(model={"model_type": "deepseek_v3", "kv_lora_rank": 512, "num_hidden_layers": 2}))
    native = translated(job, OLD).native
    assert (native.get("train_dataset.prefetch_size"), native.get("train_dataset.numa_enable")) == (1, False)
    place = native.get("context.ascend_config.parallel_speed_up_json_path")
    files = {file.path: file.content for file in launch(job, native).files}
    assert files[place] == '{"dataset_broadcast_opt_level": 3}\n'
    assert native.get("train_dataset.repeat") is None


def test_a_newer_version_sets_the_level_itself() -> None:
    job = make(tree())
    native = translated(job).native
    assert not native.has("context.ascend_config.parallel_speed_up_json_path")
    assert len(launch(job, native).files) == 1
