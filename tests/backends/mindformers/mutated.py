"""MindFormers' own files with one to three values changed, taken out, or made another type."""

import copy
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def changed_file(tree: Mapping[str, Any], draw: random.Random) -> tuple[dict[str, Any], str]:
    """Return a changed copy of a configuration, and what was changed."""
    made = dict(copy.deepcopy(tree))
    return made, "; ".join(_change(made, draw) for _ in range(draw.choice((1, 1, 2, 3))))


def _change(tree: dict[str, Any], draw: random.Random) -> str:
    leaves = list(_leaves(tree))
    parent, key, path = draw.choice(leaves)
    old = parent[key]
    if isinstance(old, bool):
        new: Any = draw.choice((not old, "yes", None))
    elif isinstance(old, int | float):
        new = draw.choice((old * 2, old + 1, old - 1, old // 2, 0, -1, str(old)))
    elif isinstance(old, str):
        new = draw.choice(("", old + "x", 1, None))
    else:
        new = draw.choice((True, 1, "x"))
    if draw.random() < 0.2:
        del parent[key]
        return f"no {path}"
    parent[key] = new
    return f"{path}={new!r}"


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    items: Iterable[tuple[Any, Any]] = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        below = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict | list) and value:
            yield from _leaves(value, below)
        else:
            yield tree, key, below


# Values that people write, by section of the file; "" is outside of the sections, callbacks are lists.
AXES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "": {
        "use_parallel": (True, False),
        "run_mode": ("train", "finetune", "nonsense"),
        "auto_trans_ckpt": (True, False, "yes"),
        "resume_training": (True, False, 1),
        "load_ckpt_format": ("ckpt", "safetensors"),
        "micro_batch_interleave_num": (1, 2),
        "seed": (0, 42, "one"),
        "do_eval": (True, False),
        "use_legacy": (True, False),
        "train_precision_sync": (True, False, "on"),
        "output_dir": ("./output", ""),
    },
    "context": {
        "mode": (0, 1, 2, "GRAPH_MODE", "EAGER"),
        "max_call_depth": (1000, 0, "deep"),
        "max_device_memory": ("58GB", "58", 58),
        "save_graphs": (True, False, "yes"),
        "enable_graph_kernel": (True, False),
        "device_target": ("Ascend",),
        "nonsense": (1,),
    },
    "parallel": {
        "parallel_mode": (0, 1, 2, 3, 4, 5, "SEMI_AUTO_PARALLEL", "nonsense"),
        "full_batch": (True, False),
        "gradients_mean": (True, False, "x"),
        "search_mode": ("sharding_propagation", "nonsense"),
        "enable_parallel_optimizer": (True, False, 1),
        "dataset_strategy": ([[1, 1]], [[2, 1]], [[4, 1], [4, 1]], "full_batch"),
        "strategy_ckpt_save_file": ("./s.ckpt", 1),
        "pipeline_config": ({"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}, {"pipeline_interleave": 1}),
        "parallel_optimizer_config": ({"gradient_accumulation_shard": False, "parallel_optimizer_threshold": 64}, {}),
        "nonsense": (1,),
    },
    "parallel_config": {
        "data_parallel": (1, 2, 4, 8, 3, 0, None),
        "model_parallel": (1, 2, 4, 8, 3),
        "pipeline_stage": (1, 2, 4, 8, 3),
        "context_parallel": (1, 2, 4),
        "expert_parallel": (1, 2, 4),
        "micro_batch_num": (1, 2, 8, 0),
        "use_seq_parallel": (True, False, "x"),
        "vocab_emb_dp": (True, False),
        "optimizer_shard": (True, False, None),
        "context_parallel_algo": ("colossalai_cp", "ulysses_cp", "hybrid_cp", "ring"),
        "ulysses_degree_in_cp": (1, 2, 3),
        "seq_split_num": (1, 2, "x"),
        "gradient_aggregation_group": (4, 0, -1),
        "mem_coeff": (0.1, -1, "x"),
        "nonsense": (1,),
    },
    "recompute_config": {
        "recompute": (True, False, [1, 1], [1] * 9, "full", 1, None),
        "select_recompute": (True, False, [1, 1], ["mlp"], {"feed_forward": True}),
        "parallel_optimizer_comm_recompute": (True, False, "x"),
        "mp_comm_recompute": (True, False, 1),
        "recompute_slice_activation": (True, False, "x"),
        "select_comm_recompute": (True, False, [1] * 9),
        "nonsense": (True,),
    },
    "swap_config": {
        "swap": (True, False, 1),
        "default_prefetch": (1, 0, "x"),
        "layer_swap": (None, [{"layers": [1], "backward_prefetch": 1}], [{"layers": [1], "backward_prefetch": 0}], 1),
        "op_swap": (None, {}, {"mlp": [{"layers": [1], "backward_prefetch": 2}]}, [1]),
        "nonsense": (1,),
    },
    "moe_config": {
        "expert_num": (1, 8, 16, 0),
        "num_experts_chosen": (1, 2, 9),
        "capacity_factor": (1.1, -1, 0),
        "aux_loss_factor": (0.05, 0, "x"),
        "routing_policy": ("TopkRouterV1", "TopkRouterV2", "nonsense"),
        "expert_group_size": (None, 8),
        "use_gmm": (True, False),
        "first_k_dense_replace": (0, 1, True),
        "nonsense": (1,),
    },
    "runner_config": {
        "epochs": (1, 2, 0),
        "batch_size": (1, 2, 0, "x"),
        "sink_mode": (True, False),
        "sink_size": (1, 2, -1, 0, -2),
        "gradient_accumulation_steps": (1, 2, 0, True, "x", None),
        "num_classes": (1,),
        "stop_step": (0, 10),
        "nonsense": (1,),
    },
    "runner_wrapper": {
        "type": ("MFTrainOneStepCell", "MFPipelineWithLossScaleCell", "nonsense", None),
        "scale_sense": (1.0, {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": 65536}, "x"),
        "use_clip_grad": (True, False),
    },
    "optimizer": {
        "type": ("AdamW", "FP32StateAdamWeightDecay", "PmaAdamW", "nonsense", None),
        "betas": ([0.9, 0.95], [0.9, 0.999]),
        "eps": (1.0e-8, 0),
        "weight_decay": (0.0, 0.1, -1),
        "learning_rate": (1.0e-5, None),
    },
    "lr_schedule": {
        "type": ("CosineWithWarmUpLR", "ConstantWarmUpLR", "LinearWithWarmUpLR", "WarmUpStableDecayLR", "nonsense"),
        "learning_rate": (1.0e-5, 0, -1, "x", 1),
        "lr_end": (0, 1.0e-6, -1),
        "warmup_ratio": (0, 0.1, 1.5, -0.1),
        "warmup_steps": (0, 10, -1, 1.5),
        "warmup_epochs": (0, 1, -1, 1.5),
        "warmup_lr_init": (0.0, -1),
        "total_steps": (-1, 100, 0),
        "nonsense": (1,),
    },
    "trainer": {
        "type": ("CausalLanguageModelingTrainer", "GeneralTaskTrainer", "nonsense", None),
        "model_name": ("x",),
    },
    "train_dataset": {
        "seed": (0, 1),
        "num_parallel_workers": (8, 0),
        "drop_remainder": (True, False),
        "batch_size": (1, 2),
        "input_columns": (["input_ids"], ["input_ids", "labels"]),
    },
    "train_dataset_task": {"type": ("CausalLanguageModelDataset", "KeyWordGenDataset", "nonsense", None)},
    "metric": {"type": ("PerplexityMetric", "nonsense")},
    "callbacks": {},
    "eval_callbacks": {},
    "eval_dataset": {"seed": (0, 1), "batch_size": (1, 2)},
    "eval_dataset_task": {"type": ("CausalLanguageModelDataset", "nonsense", None)},
    "model.model_config": {
        "num_layers": (2, 8, 0),
        "hidden_size": (4096, 4100, 0),
        "num_heads": (8, 32, 3),
        "n_kv_heads": (2, 4, 8, 3),
        "seq_length": (2048, 2047),
        "vocab_size": (32000, 0),
        "use_flash_attention": (True, False),
        "use_past": (True, False),
        "offset": (0, [0, 0], [1, -1]),
        "fine_grain_interleave": (1, 2),
        "compute_dtype": ("bfloat16", "float16", "float31"),
        "param_init_type": ("float32", "nonsense"),
        "nonsense": (1,),
    },
    "monitor_config": {"monitor_on": (True, False), "step_interval": (1, 0), "nonsense": (1,)},
}
_CALLBACKS = (
    {"type": "MFLossMonitor"},
    {"type": "CheckpointMonitor", "save_checkpoint_steps": 10},
    {"type": "Nonsense"},
)


def changed_settings(tree: Mapping[str, Any], draw: random.Random) -> tuple[dict[str, Any], str]:
    """Return a copy with one to three changes: a value of any section, also one that is not written yet, or a leaf."""
    made = dict(copy.deepcopy(tree))
    changes = (_setting if draw.random() < 0.6 else _change for _ in range(draw.choice((1, 1, 2, 3))))
    return made, "; ".join(change(made, draw) for change in changes)


def _setting(tree: dict[str, Any], draw: random.Random) -> str:
    section = draw.choice(list(AXES))
    if section.endswith("callbacks"):
        tree[section] = [*(tree.get(section) or []), draw.choice(_CALLBACKS)]
        return f"{section} + {tree[section][-1]['type']}"
    if section and draw.random() < 0.1:
        return f"no {section}" if tree.pop(section, None) is not None else "nothing"
    key = draw.choice(list(AXES[section]))
    value = draw.choice(AXES[section][key])
    place: Any = tree
    for name in section.split(".") if section else ():
        place = place.setdefault(name, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        return "nothing"
    place[key] = copy.deepcopy(value)
    return f"{section}.{key}={value!r}".lstrip(".")
