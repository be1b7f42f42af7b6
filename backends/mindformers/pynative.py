"""Converts the `TrainConfig` of MindFormers' pynative trainer (2.x) to the equivalent static graph file."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from backends.mindformers.mapping.loader import columns_of_file, strategy
from backends.mindformers.pynative_keys import typed
from backends.mindformers.pynative_lora import CONCATENATED, SECTION, static_lora
from backends.mindformers.pynative_recompute import OFFSET, Recomputation, chunks_of, offset_of_chunks
from launcher.catalogue.catalogue import Catalogue, load
from launcher.mapping.backend import FileNote
from launcher.mapping.rows import NativeView

_DEVICES = 8  # World size assumed for data_parallel_shard -1, as a file does not set it: one node.
# Spelt otherwise by the static graph (parallel_core/transformer_config.py:2000 @2.1.0).
_DISPATCHERS = {"alltoall_deredundancy": "alltoall_deredundency"}
_SPLIT = "pipeline_parallel_layers_per_stage"
_CP = {"colossal": "colossalai_cp", "ulysses": "ulysses_cp", "hybrid": "hybrid_cp"}
# Section and name in TrainConfig to the path in the static graph's file.
_RENAMED: Mapping[str, Mapping[str, str]] = {
    "training": {
        "seed": "seed",
        "deterministic": "train_precision_sync",
        "local_batch_size": "runner_config.batch_size",
    },
    "parallelism": {
        "tensor_parallel": "parallel_config.model_parallel",
        "pipeline_parallel": "parallel_config.pipeline_stage",
        "context_parallel": "parallel_config.context_parallel",
        "expert_parallel": "parallel_config.expert_parallel",
        "sequence_parallel": "parallel_config.use_seq_parallel",
        "ulysses_degree_in_cp": "parallel_config.ulysses_degree_in_cp",
        "moe_token_dispatcher_type": "model.model_config.moe_token_dispatcher_type",
    },
    "train_dataset": {
        name: f"train_dataset.{name}"
        for name in ("drop_remainder", "num_parallel_workers", "prefetch_size", "numa_enable")
    },
    "context": {"max_device_memory": "context.max_device_memory", "device_target": "context.device_target"},
    "profiler": {
        "enable_profiling": "profile",
        "start_step": "profile_start_step",
        "end_step": "profile_stop_step",
        "profiler_rank": "profile_rank_ids",
        "profile_memory": "profile_memory",
    },
}
# MLATransformerConfig's defaults (parallel_core/transformer_config.py @2.1.0).
_SCALING = {
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
_SAVED = {
    "save_path": "directory",
    "save_interleaved_steps": "save_checkpoint_steps",
    "save_max": "keep_checkpoint_max",
    "prefix": "prefix",
    "async_save": "async_save",
    "remove_redundancy": "remove_redundancy",
}
_SKELETON: Mapping[str, Any] = {
    "run_mode": "train",
    "use_legacy": False,
    "use_parallel": True,
    "load_ckpt_format": "safetensors",
    "trainer.type": "CausalLanguageModelingTrainer",
    "train_dataset_task.type": "CausalLanguageModelDataset",
    "context.mode": 0,
    "context.jit_config.jit_level": "O0",
    "parallel.parallel_mode": 1,
    "parallel.full_batch": False,
    "runner_wrapper.type": "MFTrainOneStepCell",
    "runner_wrapper.scale_sense": 1.0,
}


def is_pynative(tree: Mapping[str, Any]) -> bool:
    """Return whether a parsed file is a `TrainConfig`."""
    return isinstance(tree.get("parallelism"), Mapping) and isinstance(tree.get("training"), Mapping)


def static_of(tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[FileNote]]:
    """Return the equivalent arguments of the static graph, and what LoRA and recomputation lose.

    Settings without a counterpart keep their path. For data parallelism derived from the world size (-1), one node of
    8 devices is assumed. Sharded weights (optim_grads_params) have no counterpart: optimizer states and gradients are
    sharded.
    """
    kept = typed(tree, _catalogue())
    sections = {section: dict(node) for section, node in kept.items() if isinstance(node, Mapping)}
    found: dict[str, Any] = {**_SKELETON, **({"run_mode": tree["run_mode"]} if "run_mode" in tree else {})}
    for section, names in _RENAMED.items():
        node = sections.get(section, {})
        found |= {path: node.pop(name) for name, path in names.items() if node.get(name) is not None}
    model = dict(sections.get("model", {}))
    _set_model(sections, found)
    notes = [*_set_lora(sections, found, model), *_set_recompute(sections, found, model)]
    _set_parallelism(sections, found)
    _set_batch(sections, found)
    _set_training(sections, found)
    _set_data(sections, found)
    notes += _set_checkpoint(sections, found)
    rest = {f"{section}.{name}": value for section, node in sections.items() for name, value in node.items()}
    kept_as_written = {
        path: value for path, value in rest.items() if value is not None and not _is_default(path, value)
    }
    return {**found, **kept_as_written}, notes


def _is_default(path: str, value: Any) -> bool:
    if path == "parallelism.data_parallel_shard_strategy":  # kept, because weights are not sharded in the static graph
        return False
    argument = _catalogue().get(path)
    return argument is not None and argument.has_default and bool(argument.default == value)


@cache
def _catalogue() -> Catalogue:
    return load(Path(__file__).parent / "catalogue" / "2.1.0-pynative.json")


def _set_model(sections: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    model = sections.pop("model", {})
    found["trainer.model_name"] = model.get("model_type", "llm")
    if model.get("position_embedding_type") == "yarn":
        factor = model.pop("scaling_factor", None) or model.pop("rotary_scaling_factor", 40)
        scaling = {"type": "yarn", "factor": factor}
        scaling |= {name: model.pop(name, default) for name, default in _SCALING.items()}
        model |= {"position_embedding_type": "rope", "rope_scaling": scaling}
    if model.get("n_routed_experts") or model.get("num_experts"):
        # Only the static graph has it, and trains no other experts (base_models/gpt/moe_module_specs.py:38 @1.8.0).
        model.setdefault("moe_grouped_gemm", True)
    found |= {f"model.model_config.{name}": value for name, value in model.items()}


def _set_parallelism(sections: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    node = sections.get("parallelism", {})
    dispatcher = "model.model_config.moe_token_dispatcher_type"
    if dispatcher in found:
        found[dispatcher] = _DISPATCHERS.get(found[dispatcher], found[dispatcher])
    if found.get("parallel_config.context_parallel", 1) > 1:
        found["parallel_config.context_parallel_algo"] = _CP.get(
            str(node.get("context_parallel_method", "")).lower(), "colossalai_cp"
        )
    node.pop("context_parallel_method", None)
    if found.get("parallel_config.model_parallel", 1) == 1:
        found["parallel_config.use_seq_parallel"] = False
    chunks = node.pop("pipeline_parallel_interleave_num", 1)
    schedule = str(node.pop("pipeline_parallel_schedule", "1f1b")).lower().removeprefix("interleaved_")
    if chunks > 1 or schedule != "1f1b":
        found["model.model_config.pp_interleave_num"] = chunks
        found["parallel.pipeline_config.pipeline_interleave"] = True
        found["parallel.pipeline_config.pipeline_scheduler"] = schedule
    if node.get(_SPLIT) == "auto":
        node.pop(_SPLIT)
        found["model.model_config.offset"] = 0
    strategy = node.pop("data_parallel_shard_strategy", "optim_grads_params")
    found["parallel.enable_parallel_optimizer"] = True
    found["parallel.parallel_optimizer_config.gradient_accumulation_shard"] = "grads" in strategy
    if "params" in strategy:
        node["data_parallel_shard_strategy"] = strategy


def _set_batch(sections: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    parallelism, training = sections.get("parallelism", {}), sections.get("training", {})
    staged = found.get("parallel_config.pipeline_stage", 1)
    tp, cp = found.get("parallel_config.model_parallel", 1), found.get("parallel_config.context_parallel", 1)
    ranks = _counted(staged) * _counted(tp) * _counted(cp)
    shards = parallelism.get("data_parallel_shard", -1)
    if isinstance(shards, int) and shards > 0:
        parallelism.pop("data_parallel_shard")
    else:
        shards = max(1, _DEVICES // ranks)
    replicas = parallelism.pop("data_parallel_replicate", 1)
    dp = shards * replicas if isinstance(replicas, int) else replicas
    local = found.setdefault("runner_config.batch_size", 1)
    size = training.pop("global_batch_size", 1)
    found["parallel_config.data_parallel"] = dp
    name = "parallel_config.micro_batch_num" if _counted(staged) > 1 else "runner_config.gradient_accumulation_steps"
    found[name] = max(1, _counted(size) // (_counted(local) * _counted(dp)))
    found["parallel.enable_alltoall"] = _counted(found.get("parallel_config.expert_parallel", 1)) > 1
    if found.get("model.model_config.moe_router_enable_expert_bias"):
        steps = 1 if _counted(staged) > 1 else found[name]
        found["callbacks.TopkBiasBalanceCallback.gradient_accumulation_steps"] = steps


def _counted(value: Any) -> int:
    """Return a size, or 1 if it is invalid, which rules report (ARG-VALUE, ARG-BOUND)."""
    return value if isinstance(value, int) and value > 0 else 1


def _set_training(sections: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    training = sections.get("training", {})
    found.setdefault("seed", 42)
    norm = training.pop("max_norm", 1.0)
    found["runner_wrapper.use_clip_grad"] = norm > 0
    if norm > 0:
        found["runner_wrapper.max_grad_norm"] = norm
    optimizer = {
        "type": "AdamW",
        "betas": (0.9, 0.95),
        "eps": 1e-8,
        "weight_decay": 0.01,
        **sections.pop("optimizer", {}),
    }
    if optimizer["type"] != "AdamW":
        optimizer = {name: value for name, value in optimizer.items() if name not in ("betas", "eps")}
    found |= {f"optimizer.{name}": value for name, value in optimizer.items() if value is not None}
    schedule = {"total_steps": -1, **sections.pop("lr_scheduler", {})}
    found |= {f"lr_schedule.{name}": value for name, value in schedule.items() if value is not None}


def _set_data(sections: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    loader = dict(sections.get("train_dataset", {}).pop("dataloader", None) or {})
    columns = loader.pop("column_names", None)
    if columns is not None:
        found["train_dataset.input_columns"] = columns
    if "python_multiprocessing" in loader:
        found["train_dataset.python_multiprocessing"] = loader.pop("python_multiprocessing")
    if "dataset_files" in loader:
        loader["dataset_dir"] = loader.pop("dataset_files")
    config = loader.pop("config", None) or {}
    if config:
        config = {"create_attention_mask": "attention_mask" in (columns or ()), **config}
    for name, value in config.items():
        found[f"train_dataset.data_loader.config.{name}"] = value
    found |= {f"train_dataset.data_loader.{name}": value for name, value in loader.items()}
    if columns or config:
        view = NativeView(found)
        names = tuple(columns or columns_of_file(view))
        found["parallel.dataset_strategy"] = strategy(names, found["parallel_config.data_parallel"])
    steps = sections.get("training", {}).pop("steps", 1000)
    if "train_dataset.data_loader.sizes" in found:
        found["train_dataset.data_loader.sizes"] = (steps * _global_batch(found), 0, 0)
        found["runner_config.epochs"] = 1
    else:
        found["callbacks.TrainCallBack.stop_step"] = steps
        found["runner_config.epochs"] = steps


def _global_batch(found: Mapping[str, Any]) -> int:
    count = found.get("parallel_config.micro_batch_num", 1) * found.get("runner_config.gradient_accumulation_steps", 1)
    size: int = found["runner_config.batch_size"] * found["parallel_config.data_parallel"] * count
    return size


def _set_checkpoint(sections: dict[str, dict[str, Any]], found: dict[str, Any]) -> Iterator[FileNote]:
    node = sections.get("checkpoint", {})
    saved = {there: node.pop(name) for name, there in _SAVED.items() if node.get(name) not in (None, "")}
    if node.pop("enable_save", True):
        saved.setdefault("save_checkpoint_steps", 1000)
        saved.setdefault("integrated_save", False)
        found |= {f"callbacks.CheckpointMonitor.{name}": value for name, value in saved.items()}
    if node.pop("save_trainable_only", False):
        found["callbacks.CheckpointMonitor.save_trainable_params"] = True
    load, fresh = node.pop("load_path", ""), node.pop("no_load_optim", False)
    base = node.pop("base_load_path", "").strip()
    if base and load:
        text = (
            "is loaded before adapters, and the static graph loads one checkpoint, that of load_path: it needs the "
            "base weights, too"
        )
        yield FileNote(key="checkpoint.base_load_path", text=text)
    elif base:  # only weights are read from it (pynative/trainer/trainer.py:935 @2.1.0)
        load, fresh = base, True
    if load:
        found |= {"load_checkpoint": load, "auto_trans_ckpt": True, "resume_training": not fresh}
    tensorboard = sections.get("monitor", {}).pop("tensorboard", None) or {}
    if tensorboard.get("output_dir"):
        found["tensorboard.tensorboard_dir"] = tensorboard["output_dir"]
    found["callbacks.MFLossMonitor.per_print_times"] = tensorboard.get("log_interval", 1)


def _set_lora(
    sections: dict[str, dict[str, Any]], found: dict[str, Any], model: Mapping[str, Any]
) -> Iterable[FileNote]:
    section = sections.pop(SECTION, None)
    arguments, notes = static_lora(section, model) if section is not None else ({}, [])
    found |= arguments
    return notes


def _set_recompute(
    sections: dict[str, dict[str, Any]], found: dict[str, Any], model: Mapping[str, Any]
) -> Iterable[FileNote]:
    parallelism, layers = sections.get("parallelism", {}), model.get("num_hidden_layers")
    section, communication = sections.pop("recompute", {}), sections.pop("recompute_comm", {})
    stages = _counted(found.get("parallel_config.pipeline_stage", 1))
    chunks = chunks_of({**parallelism, "pipeline_parallel": stages}, layers if isinstance(layers, int) else 0)
    if chunks and stages > 1 and isinstance(parallelism.get(_SPLIT), (list, tuple)):
        found[OFFSET] = offset_of_chunks(chunks, stages)
        parallelism.pop(_SPLIT)
    layout = {"mla_qkv_concat": found.get(CONCATENATED, True)}
    recomputation = Recomputation(chunks, stages, {**model, **layout})
    recomputation.read(section)
    recomputation.read_communication(communication)
    found |= recomputation.arguments
    return recomputation.notes
