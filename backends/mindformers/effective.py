"""Which keys of a MindFormers file have an effect in training; facts for comparing files and for leaving noise out."""

from collections.abc import Mapping
from typing import Any

# Sections that a training run drops with the warning "Some configs in yaml are useless"
# (tools/register/template.py:599-700 @2.1.0: predict_configs; do_eval_configs unless do_eval).
_NEVER = ("processor.",)
# Read by generation only (models/configuration_utils.py:160-175 @2.1.0).
_GENERATION = frozenset(
    f"model.model_config.{name}" for name in ("max_decode_length", "repetition_penalty", "top_k", "top_p", "do_sample")
)
_ONLY_EVALUATING = (
    "eval_dataset.",
    "eval_dataset_task.",
    "eval_callbacks",
    "metric.",
    "eval_step_interval",
    "eval_epoch",
)
_ONLY_LEGACY = ("moe_config.", "model.model_config.qkv_concat")  # parallel_core knows mla_qkv_concat only
# Key: the switch without which nothing reads it.
_NEEDS = {
    "context.save_graphs_path": "context.save_graphs",  # core/context/build_context.py:143
    "context.save_dump_path": "context.enable_dump",  # core/context/build_context.py:151
    "profile_start_step": "profile",  # trainer/base_trainer.py:658, :1020: only if profile
    "profile_stop_step": "profile",
    "profile_memory": "profile",
    "profile_communication": "profile",
    "profile_level": "profile",
    "profile_rank_ids": "profile",
    "profile_pipeline": "profile",
    "profile_output": "profile",
    "init_start_profile": "profile",
    "with_stack": "profile",
    "data_simplification": "profile",
    "mstx": "profile",
}
# Values that MindSpore takes by itself (mindspore.set_context, set_auto_parallel_context @2.7).
_NEUTRAL: Mapping[str, Any] = {
    "context.save_graphs": False,
    "context.enable_dump": False,
    "context.memory_optimize_level": "O0",
    "context.enable_graph_kernel": False,
    "parallel.strategy_ckpt_config.only_trainable_params": False,
    "train_dataset.seed": 1234,
    "train_dataset.data_loader.config.eod_pad_length": 128,  # dataset/blended_datasets/gpt_dataset.py:44
}


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a training run reads, without values that MindSpore takes anyway."""
    unread = list(_NEVER)
    unread += [] if values.get("do_eval") else _ONLY_EVALUATING
    unread += [] if values.get("use_legacy", True) else _ONLY_LEGACY
    return {
        key: value
        for key, value in values.items()
        if key not in _GENERATION
        and not key.startswith(tuple(unread))
        and not (key in _NEEDS and not values.get(_NEEDS[key]))
        and not (key in _NEUTRAL and values[key] == _NEUTRAL[key])
    }
