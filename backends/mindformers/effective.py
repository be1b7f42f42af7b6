"""Settings that take effect in training: unread keys dropped, defaults and overridden values written out."""

from collections.abc import Mapping
from typing import Any

from backends.mindformers.class_defaults import LLAMA_WIDTH, legacy_defaults, missing_defaults
from backends.mindformers.mapping.batch_arithmetic import steps_of
from backends.mindformers.mapping.config_defaults import unsaid
from backends.mindformers.mapping.loader import HUB, MEGATRON, columns_of_file, strategy
from backends.mindformers.mapping.support import KIND, MODEL, frozen
from launcher.mapping.rows import NativeView

# Sections that a training run drops with the warning "Some configs in yaml are useless"
# (tools/register/template.py:599-700 @2.1.0: predict_configs; do_eval_configs unless do_eval).
_NEVER = ("processor.",)
# Read by generation only (models/configuration_utils.py:160-175 @2.1.0).
_GENERATION = frozenset(
    f"{MODEL}{name}"
    for name in ("max_decode_length", "repetition_penalty", "temperature", "top_k", "top_p", "do_sample")
)
# Overwritten with the job's seed and batch size (dataset/utils.py: check_dataset_config).
_OVERWRITTEN = frozenset({"train_dataset.seed", "train_dataset.batch_size"})
_ONLY_EVALUATING = (
    "eval_dataset.",
    "eval_dataset_task.",
    "eval_callbacks",
    "metric.",
    "eval_step_interval",
    "eval_epoch",
)
# Ignored by the mcore graph. qkv_concat: parallel_core reads mla_qkv_concat only; input_sliced_sig is among the
# keys that its converter drops (transformer_config_utils.py:192); vocab_emb_dp is set to false
# (transformer_config.py:421); router_aux_loss_coef is deleted (configuration_qwen3_moe.py:179). All @2.1.0.
_ONLY_LEGACY = (
    "moe_config.",
    f"{MODEL}qkv_concat",
    f"{MODEL}input_sliced_sig",
    f"{MODEL}router_aux_loss_coef",
    "parallel_config.vocab_emb_dp",
)
# Key to the switch without which it is not read.
_NEEDS = {
    "context.save_graphs_path": "context.save_graphs",  # core/context/build_context.py:143
    "context.save_dump_path": "context.enable_dump",  # core/context/build_context.py:151
    "profile_start_step": "profile",  # trainer/base_trainer.py:658, :1020: only if profile
    "profile_stop_step": "profile",
    "profile_memory": "profile",
    "profile_communication": "profile",
    "profile_level": "profile",
    "profiler_level": "profile",
    "profile_rank_ids": "profile",
    "profile_pipeline": "profile",
    "profile_output": "profile",
    "init_start_profile": "profile",
    "with_stack": "profile",
    "data_simplification": "profile",
    "mstx": "profile",
}
# Defaults of MindSpore and MindFormers that the catalogue does not have.
_NEUTRAL: Mapping[str, Any] = {
    "context.save_graphs": False,  # mindspore.set_context @2.7
    "context.enable_dump": False,
    "context.memory_optimize_level": "O0",
    "context.enable_graph_kernel": False,
    "parallel.strategy_ckpt_config.only_trainable_params": False,
    "parallel.parallel_optimizer_config.gradient_accumulation_shard": False,  # set_auto_parallel_context
    "parallel.parallel_optimizer_config.parallel_optimizer_threshold": 64,
    "train_dataset.data_loader.dataset_dir": "",
    "remote_save_url": "",
    f"{MODEL}checkpoint_name_or_path": "",
    "parallel.strategy_ckpt_config.save_file": "./ckpt_strategy.ckpt",  # tools/register/template.py @2.1.0
    "calculate_per_token_loss": False,  # wrapper/wrapper.py:874 @1.8.0
    "train_dataset.data_loader.config.eod_pad_length": 128,  # dataset/blended_datasets/gpt_dataset.py:44
    "train_dataset.data_loader.datasets_type": "GPTDataset",  # the only one that the loader builds
}
_MONITOR, _LOSS = "callbacks.CheckpointMonitor.", "callbacks.MFLossMonitor.type"
_FORMAT = f"{_MONITOR}checkpoint_format"
_COLUMNS, _ARGUMENTS = "train_dataset.input_columns", "train_dataset.construct_args_key"
# Default of lr_end by schedule; None: the schedule ignores the key (core/lr/lr_schedule.py @2.1.0).
_ENDS: Mapping[str, float | None] = {
    "ConstantWarmUpLR": None,
    "LinearWithWarmUpLR": None,
    "CosineWithWarmUpLR": 0.0,
    "PolynomialWithWarmUpLR": 1e-7,
    "WarmUpStableDecayLR": 1e-7,
}


def effective(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that take effect in training, without default values."""
    mcore = not values.get("use_legacy", True)
    unread = list(_NEVER)
    unread += [] if values.get("do_eval") else _ONLY_EVALUATING
    unread += _ONLY_LEGACY if mcore else []
    found = {
        key: value
        for key, value in _renamed(values).items()
        if key not in _GENERATION | _OVERWRITTEN
        and not key.startswith(tuple(unread))
        and not (key in _NEEDS and not values.get(_NEEDS[key]))
    }
    if len(values) > 1:  # A single argument is not a file.
        found |= {key: value for key, value in _filled_in(values, mcore).items() if key not in found}
        stages = values.get("parallel_config.pipeline_stage", 1)
        staged = isinstance(stages, int) and stages > 1
        # The factor that does not apply is reset to 1 (base_trainer.py:202, :301 @1.8.0).
        found.pop("runner_config.gradient_accumulation_steps" if staged else "parallel_config.micro_batch_num", None)
        _resolve_schedule(values, found)
        _resolve_data(values, found)
        if mcore:
            _resolve_model(found)
        else:
            _resolve_legacy(found)
    return {key: value for key, value in found.items() if not (key in _NEUTRAL and value == _NEUTRAL[key])}


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with old key names replaced."""
    older = {"parallel.strategy_ckpt_save_file": "parallel.strategy_ckpt_config.save_file"}
    return {
        older.get(key, key): value
        for key, value in values.items()
        if older.get(key, key) not in values or key not in older
    }


def _filled_in(values: Mapping[str, Any], mcore: bool) -> dict[str, Any]:
    """Return what the trainer adds: types of callbacks, default sections, class defaults."""
    found: dict[str, Any] = {}
    for key in values:
        section, _, rest = key.partition(".")
        if section == "callbacks":
            kind = rest.partition(".")[0]
            found[f"callbacks.{kind}.type"] = kind.partition("#")[0]
    if not found:
        found[_LOSS] = "MFLossMonitor"  # the section's default (tools/register/template.py:523 @2.1.0)
    found |= unsaid(values)
    return found | (missing_defaults(values) if mcore else legacy_defaults(values))


def _resolve_schedule(values: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Write out warm-up, end and length of the learning rate schedule."""
    kind = str(found.get("lr_schedule.type"))
    if kind not in _ENDS:
        return
    steps = steps_of(NativeView(values))
    if found.get("lr_schedule.total_steps") in (None, -1) and steps is not None:
        found["lr_schedule.total_steps"] = steps
    if found.get("lr_schedule.warmup_ratio") is not None:  # It overrides the steps (lr_schedule.py: _get_lr_steps).
        found.pop("lr_schedule.warmup_steps", None)
    for name in ("warmup_steps", "warmup_ratio", "warmup_lr_init"):
        if not found.get(f"lr_schedule.{name}"):
            found.pop(f"lr_schedule.{name}", None)
    end = _ENDS[kind]
    if end is None or found.get("lr_schedule.lr_end") == end:
        found.pop("lr_schedule.lr_end", None)
    if kind == "LinearWithWarmUpLR" or found.get("lr_schedule.power") == 1.0:
        found.pop("lr_schedule.power", None)


def _resolve_data(values: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Write out columns and their split, which the trainer derives for its loaders (base_trainer.py:892 @1.8.0)."""
    kind = values.get("train_dataset.data_loader.type")
    if kind in (None, MEGATRON) and not values.get("train_dataset.data_loader.shuffle"):
        found.pop("train_dataset.data_loader.shuffle", None)  # false is its default
    if kind == HUB and "train_dataset.data_loader.create_attention_mask" not in values:
        found["train_dataset.data_loader.create_attention_mask"] = "attention_mask" in columns_of_file(
            NativeView(values)
        )
    if kind in (MEGATRON, HUB):
        written = frozen(values.get(_COLUMNS))
        columns = written if written and isinstance(written, tuple) else columns_of_file(NativeView(values))
        found.setdefault(_COLUMNS, columns)
        found.setdefault(_ARGUMENTS, found[_COLUMNS])
        dp = values.get("parallel_config.data_parallel", 1)
        if len(columns) > 3 and values.get("parallel.dataset_strategy") is None:
            found["parallel.dataset_strategy"] = strategy(columns, dp)
    if found.get("parallel.dataset_strategy") is not None and kind in (MEGATRON, HUB):
        found["parallel.full_batch"] = False
    if found.get("parallel.full_batch", True):
        found.pop("parallel.dataset_strategy", None)  # Replaced by full_batch (base_trainer.py:205 @1.8.0).


def _resolve_legacy(found: dict[str, Any]) -> None:
    """Drop keys without effect in legacy models: sequence parallelism with tp 1, inputs of a given MLP width."""
    if found.get("parallel_config.model_parallel", 1) == 1:
        found.pop("parallel_config.use_seq_parallel", None)  # nothing to split; mcore rejects it
    if found.get(f"{MODEL}type") == "LlamaConfig" and found.get(f"{MODEL}intermediate_size") is not None:
        for name in LLAMA_WIDTH:
            found.pop(name, None)


def _resolve_model(found: dict[str, Any]) -> None:
    """Write out the formats and activations that mcore uses."""
    if any(key.startswith(_MONITOR) for key in found):
        found[_FORMAT] = "safetensors"  # base_trainer.py:1375 @1.8.0
    if f"{MODEL}softmax_compute_dtype" in found:  # the same setting as dtype and as switch
        wide = found.pop(f"{MODEL}softmax_compute_dtype") in ("float32", "fp32", True)
        found[f"{MODEL}attention_softmax_in_fp32"] = wide
    act, gated = f"{MODEL}hidden_act", f"{MODEL}gated_linear_unit"
    if found.get(act) == "swiglu" and found.get(f"{MODEL}bias_swiglu_fusion"):
        found[act] = "fusedswiglu"  # transformer_config.py:2621 @2.1.0
    if found.get(act) == "fusedswiglu":
        found.pop(f"{MODEL}bias_swiglu_fusion", None)
    if found.get(act) in ("swiglu", "fusedswiglu"):
        found[gated] = True  # :2639
    for name in ("n_group", "topk_group"):
        if found.get(f"{MODEL}{name}") == 0:
            found[f"{MODEL}{name}"] = 1  # both mean no limit (router.py: group_limited_topk)
    width, one = f"{MODEL}moe_shared_expert_intermediate_size", found.get(f"{MODEL}moe_intermediate_size")
    if isinstance(one, int) and found.get(width) == one * (found.get(f"{MODEL}n_shared_experts") or 0):
        found.pop(width)  # equals the default
    # An omitted number of heads, and class names, follow from other keys.
    if found.get(KIND) in ("deepseek_v3", "telechat3_moe"):
        for name in ("head_dim", "kv_channels"):
            found.pop(f"{MODEL}{name}", None)  # latent attention has its own sizes
