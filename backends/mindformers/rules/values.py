"""Names of classes and types of values that MindFormers and MindSpore check before they build anything."""

import re
from collections.abc import Mapping
from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.general import SIZES
from backends.mindformers.rules.terms import ACCUMULATION, BACKENDS, OLD, STATIC, whole
from launcher.rules.effective import EffectiveValues
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare

# Keywords of set_auto_parallel_context with a type check: mindspore 2.7.0 context.py:964-970 and the setters of
# parallel/_auto_parallel_context.py, which take null as false for four of them.
_KEYWORDS: Mapping[type, tuple[str, ...]] = {
    bool: (
        *("gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch", "enable_parallel_optimizer"),
        *("enable_alltoall", "pipeline_result_broadcast", "force_fp32_communication", "auto_pipeline"),
        *("loss_repeated_mean", "sharding_propagation", "optimizer_weight_shard_aggregated_save"),
        *("parallel_optimizer_config.gradient_accumulation_shard", "pipeline_config.pipeline_interleave"),
    ),
    str: (
        *("auto_parallel_search_mode", "search_mode", "strategy_ckpt_load_file", "strategy_ckpt_save_file"),
        "communi_parallel_mode",
    ),
    int: (
        *("global_rank", "pipeline_stages", "pipeline_segments", "optimizer_weight_shard_size"),
        "parallel_optimizer_config.parallel_optimizer_threshold",
    ),
    list: ("all_reduce_fusion_config",),
    dict: ("pipeline_config", "strategy_ckpt_config", "comm_fusion", "parallel_optimizer_config"),
}
_NULL_IS_FALSE = frozenset(
    f"parallel.{name}" for name in ("gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch")
)
_SEARCHES = ("recursive_programming", "dynamic_programming", "sharding_propagation")
_NAMES = {bool: "true or false", str: "text", int: "a whole number", list: "a list", dict: "a section"}
_TYPED = {f"parallel.{name}": kind for kind, names in _KEYWORDS.items() for name in names}
# Of the schedules with warm-up; a number written as 1e-5, without a point, is text in YAML.
_NUMBERS = tuple(f"lr_schedule.{name}" for name in ("learning_rate", "warmup_lr_init", "warmup_ratio", "lr_end"))
_COUNTS = tuple(f"lr_schedule.{name}" for name in ("warmup_steps", "warmup_epochs"))
_TOTAL = "lr_schedule.total_steps"
# Of the older networks' configuration: without and with a default for null.
_DTYPES = ("compute_dtype", "param_init_type", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype")
_OPEN_DTYPES = ("embedding_init_type", "residual_dtype")
_KNOWN_DTYPES = ("float16", "float32", "bfloat16", "int8")
_ABOVE_ZERO = tuple(
    f"moe_config.{name}"
    for name in ("expert_num", "num_experts_chosen", "expert_group_size", "comp_comm_parallel_degree", "update_step")
)
_RECOMPUTED = tuple(
    f"recompute_config.{name}"
    for name in ("parallel_optimizer_comm_recompute", "mp_comm_recompute", "recompute_slice_activation")
)
_THRESHOLD = "parallel.parallel_optimizer_config.parallel_optimizer_threshold"
_LOADER = "train_dataset.data_loader.type"
_OP_SWAP = "swap_config.op_swap"
_EPOCHS = "runner_config.epochs"
_SINK_SIZE = "runner_config.sink_size"
# Null replaces the default of the template, and what reads these takes no null.
_NOT_NULL = (
    *("runner_config.batch_size", _EPOCHS, "micro_batch_interleave_num", "parallel.parallel_mode"),
    *("parallel_config.context_parallel_algo", "parallel_config.ulysses_degree_in_cp"),
    *("context.mode", "context.device_target", "context.max_call_depth"),
)
# Text that is a number to its author: in quotes, or 1e-5 without a point. Other text breaks the catalogue's type.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_COPY = re.compile(r"#\d+")
# Rules of their own say what these must be, or nothing reads them, or not as a number.
_CHECKED = frozenset(
    {*_NUMBERS, *_COUNTS, *_TYPED, *_ABOVE_ZERO, *SIZES, ACCUMULATION, _EPOCHS, _SINK_SIZE, "context.max_call_depth"}
    | {"moe_config.aux_loss_factor", "train_dataset.seed", "train_dataset.batch_size", "runner_config.num_classes"}
    | {_TOTAL}
)


def _quoted(context: RuleContext) -> Any:
    wrong = {
        key: arg.value
        for key, arg in context.written.items()
        if isinstance(arg.value, str)
        and key not in _CHECKED
        and _NUMBER.fullmatch(arg.value)
        and _is_numeric(context, key)
    }
    unread = EffectiveValues(context=context, written=context.values, changes=()).unread() if wrong else ()
    read = [f"{key}: '{text}'" for key, text in wrong.items() if key not in unread]
    return read and f"{', '.join(read)} is text in YAML: write a number, without quotes and with a point (1.0e-5)"


def _is_numeric(context: RuleContext, key: str) -> bool:
    argument = context.catalogue.get(_COPY.sub("", key)) if context.catalogue is not None else None
    return argument is not None and set(argument.type.split("|")) <= {"int", "float"}


def _types(context: RuleContext) -> Any:
    given = {key: context[key] for key in _TYPED if key in context.written}
    given = {key: value for key, value in given.items() if value is not None or key not in _NULL_IS_FALSE}
    wrong = [
        f"{key}={value} must be {_NAMES[_TYPED[key]]}" for key, value in given.items() if not _is(value, _TYPED[key])
    ]
    if whole(context[_THRESHOLD]) and context[_THRESHOLD] < 0:
        wrong.append(f"{_THRESHOLD}={context[_THRESHOLD]} must be 0 or more")
    mode = context["parallel.search_mode"]
    if isinstance(mode, str) and mode not in _SEARCHES:
        wrong.append(f"parallel.search_mode={mode}: supported are {', '.join(_SEARCHES)}")
    return bool(context["use_parallel"]) and wrong and "; ".join(wrong)


def _is(value: Any, kind: type) -> bool:
    if kind is int:
        return whole(value)
    return isinstance(value, (list, tuple) if kind is list else kind)


def _sink(context: RuleContext) -> Any:
    size = context[_SINK_SIZE]
    sinks = context["runner_config.sink_mode"] is not False
    wrong = [
        f"{key} {context[key]}" for key in (_EPOCHS, *((_SINK_SIZE,) if sinks else ())) if isinstance(context[key], str)
    ]
    if wrong:
        return f"{', '.join(wrong)} must be a whole number"
    return sinks and isinstance(size, int) and size < 1 and size != -1 and f"{_SINK_SIZE} {size} must be above 0, or -1"


def _null(context: RuleContext) -> Any:
    keys = (*_NOT_NULL, *((_SINK_SIZE,) if context["runner_config.sink_mode"] is not False else ()))
    wrong = [key for key in keys if key in context.written and context.written[key].value is None]
    return wrong and f"{', '.join(wrong)} must not be null: remove the key to use its default"


def _tasks(context: RuleContext) -> Any:
    sections = {key.partition(".")[0] for key in context.written}
    unrelated = [
        name for name in ("train_dataset", "eval_dataset") if name in sections and f"{name}_task" not in sections
    ]
    return unrelated and "; ".join(f"{name} needs {name}_task" for name in unrelated)


def _schedule(context: RuleContext) -> Any:
    wrong = [f"{key}={context[key]} must be a number" for key in _NUMBERS if isinstance(context[key], str)]
    wrong += [
        f"{key}={context[key]} must be a whole number" for key in _COUNTS if isinstance(context[key], (str, float))
    ]
    if isinstance(context[_TOTAL], str) and not re.fullmatch(r"\s*[+-]?\d+\s*", context[_TOTAL]):
        wrong.append(f"{_TOTAL}={context[_TOTAL]} must be a whole number")  # other text is converted
    ratio, epochs = context["lr_schedule.warmup_ratio"], context["lr_schedule.warmup_epochs"]
    if isinstance(ratio, (int, float)) and not 0 <= ratio <= 1:
        wrong.append(f"lr_schedule.warmup_ratio={ratio} must be from 0 to 1")
    if isinstance(epochs, int) and epochs < 0:
        wrong.append(f"lr_schedule.warmup_epochs={epochs} must be 0 or more")
    return wrong and "; ".join(wrong)


def _whole_warm_up(context: RuleContext) -> Any:
    ratio, total = context["lr_schedule.warmup_ratio"], context[_TOTAL]
    is_number = isinstance(ratio, (int, float)) and isinstance(total, int)
    if context.as_written or not is_number or total <= 0:
        return None
    exact = ratio * total
    return not float(exact).is_integer() and (
        f"warm-up of {ratio:g} x {total} = {exact:g} steps is rounded down to {int(exact)}; Megatron keeps the fraction"
    )


def _dtypes(context: RuleContext) -> Any:
    keys = [MODEL + name for name in (*_DTYPES, *_OPEN_DTYPES)]
    given = {key: context[key] for key in keys if key in context.written}
    wrong = [
        f"{key}={value}"
        for key, value in given.items()
        if str(value).lower() not in _KNOWN_DTYPES and not (value is None and key.removeprefix(MODEL) in _OPEN_DTYPES)
    ]
    return wrong and f"{', '.join(wrong)}: supported are {', '.join(_KNOWN_DTYPES)}"


def _experts(context: RuleContext) -> Any:
    given = {key: context[key] for key in _ABOVE_ZERO if context.given(key)}
    wrong = [f"{key}={value}" for key, value in given.items() if not whole(value) or value < 1]
    chosen, experts = context["moe_config.num_experts_chosen"], context["moe_config.expert_num"]
    if whole(chosen) and (experts is None or whole(experts)) and chosen > (experts or 1):
        wrong.append(f"moe_config.num_experts_chosen={chosen} (expert_num {experts or 1})")
    loss = context["moe_config.aux_loss_factor"]
    if loss is not None and (not isinstance(loss, (int, float)) or not 0 < loss < 1):
        wrong.append(f"moe_config.aux_loss_factor={loss}")
    return wrong and (
        f"{', '.join(wrong)}: counts must be above 0, num_experts_chosen at most expert_num, aux_loss_factor between "
        "0 and 1"
    )


def _context(context: RuleContext) -> Any:
    depth, path = context["context.max_call_depth"], context["context.save_graphs_path"]
    wrong = []
    if depth is not None and (not whole(depth) or depth < 1):
        wrong.append(f"context.max_call_depth={depth} must be a whole number above 0")
    if "context.save_graphs_path" in context.written and (not isinstance(path, str) or not path):
        wrong.append(f"context.save_graphs_path={path} must be the name of a folder")
    if "context.save_graphs" in context.written and context["context.save_graphs"] is None:
        wrong.append("context.save_graphs must be true, false, or a level")
    if isinstance(context["context.save_graphs"], str):
        wrong.append(f"context.save_graphs={context['context.save_graphs']} must be true, false, or a level")
    return wrong and "; ".join(wrong)


def _swapped(context: RuleContext) -> Any:
    swaps = context[_OP_SWAP]
    below = {key.removeprefix(f"{_OP_SWAP}.") for key in context.written if key.startswith(f"{_OP_SWAP}.")}
    items = list(swaps) if isinstance(swaps, (list, tuple)) else [dict.fromkeys(below)] if below else []
    items += [swaps] if isinstance(swaps, Mapping) else []
    good = all(isinstance(item, Mapping) and "op_name" in item for item in items)
    return not good and f"{_OP_SWAP} needs op_name, backward_prefetch and layers for each operator"


def _recomputed(context: RuleContext) -> Any:
    wrong = [f"{key}={context[key]}" for key in _RECOMPUTED if key in context.written and not _is(context[key], bool)]
    return wrong and f"{', '.join(wrong)} must be true or false"


def _sections(context: RuleContext) -> Any:
    missing = [] if context[_LOADER] else [_LOADER]
    named = (f"{MODEL}type", f"{MODEL}model_type", f"{MODEL}architectures", "pretrained_model_dir")
    # A family that the version does not train is an error of the mapping.
    is_named = context.job.model.model_type is not None or any(context[key] for key in named)
    missing += [] if is_named else [f"{MODEL}type"]
    missing += [] if context["run_mode"] else ["run_mode"]
    return missing and f"{', '.join(missing)} must be set in the file"


VALUES = (
    Rule(
        id="MF-SECTIONS",
        doc="A file that trains sets run_mode, the type of its data loader and the class of its model.",
        source="mindformers 1.6.0 run_mindformer.py; trainer/base_trainer.py:902; tools/register/register.py:296",
        flags=("run_mode", _LOADER, f"{MODEL}type"),
        fields=("backend.args",),
        check=_sections,
        reads="* job.model.model_type",
        until=OLD,
    ),
    Rule(
        id="MF-RECOMPUTE-SWITCHES",
        doc="Recomputation of communication and slices is switched on or off, and null is neither.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:419-421",
        flags=_RECOMPUTED,
        fields=("backend.args",),
        check=_recomputed,
    ),
    Rule(
        id="MF-NULL",
        doc="A key that is null does not get its default, and the code that reads it fails on null.",
        source="mindformers 1.6.0 tools/register/template.py:115; trainer/base_trainer.py:209,221; "
        "trainer/utils.py:155; core/context/validators.py:45,55; modules/transformer/transformer.py:602,638",
        flags=(*_NOT_NULL, _SINK_SIZE),
        fields=("backend.args",),
        check=_null,
        reads="runner_config.sink_mode",
        until=OLD,
    ),
    Rule(
        id="MF-DATASET-TASK",
        doc="A data set is built by its task, also one that only evaluation reads.",
        source="mindformers 1.6.0 dataset/utils.py:35,47",
        flags=("train_dataset_task.type", "eval_dataset_task.type"),
        fields=("backend.args",),
        check=_tasks,
        reads="*",
    ),
    Rule(
        id="MF-LR-VALUES",
        doc="Learning rates are numbers, steps are whole numbers, and the share of warm-up lies between 0 and 1.",
        source="mindformers 1.6.0 core/lr/lr_schedule.py:44-48,153; trainer/base_trainer.py:583-589",
        flags=(*_NUMBERS, *_COUNTS, _TOTAL),
        fields=("schedule.warmup_steps", "schedule.warmup_fraction", "optimizer.lr"),
        check=_schedule,
    ),
    Rule(
        id="MF-WARMUP-WHOLE",
        doc="A fraction of warm-up is rounded down to whole steps; Megatron's backends keep it, so that their first "
        "learning rate is 0 even where the fraction is below one step.",
        source="mindformers 2.1.0 core/lr/lr_schedule.py:52; Megatron-LM core_v0.16.1 "
        "megatron/core/optimizer_param_scheduler.py (get_lr); measured with launch parity",
        severity="warning",
        flags=("lr_schedule.warmup_ratio", _TOTAL),
        fields=("schedule.lr_warmup_fraction",),
        check=_whole_warm_up,
    ),
    Rule(
        id="MF-DTYPES",
        doc="The older networks support four data types.",
        source="mindformers 1.6.0 models/utils.py:48-62",
        flags=tuple(MODEL + name for name in (*_DTYPES, *_OPEN_DTYPES)),
        fields=("precision.dtype",),
        when="@dialect=legacy",
        check=_dtypes,
    ),
    Rule(
        id="MF-MOE-VALUES",
        doc="Expert counts are above 0, num_experts_chosen is at most expert_num, aux_loss_factor is between 0 and 1.",
        source="mindformers 1.6.0 modules/transformer/moe.py:143-164",
        flags=(*_ABOVE_ZERO, "moe_config.aux_loss_factor"),
        fields=("model.num_experts", "model.num_experts_per_tok", "moe.aux_loss_coeff"),
        when="@dialect=legacy",
        check=_experts,
    ),
    Rule(
        id="MF-CONTEXT-VALUES",
        doc="MindSpore checks the values of its context.",
        source="mindspore 2.7.0 context.py (set_max_call_depth, set_save_graphs, set_save_graphs_path)",
        flags=("context.max_call_depth", "context.save_graphs", "context.save_graphs_path"),
        fields=("backend.args",),
        check=_context,
    ),
    Rule(
        id="MF-OP-SWAP-ITEMS",
        doc="Operators to be swapped are named, each with its layers.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:244-256",
        flags=(_OP_SWAP,),
        fields=("backend.args",),
        check=_swapped,
        reads="*",
        until=OLD,
    ),
    Rule(
        id="MF-INTERLEAVE-TYPE",
        doc="fine_grain_interleave is a count.",
        source="mindformers 1.6.0 tools/check_rules.py:276",
        flags=(MODEL + "fine_grain_interleave",),
        fields=("backend.args",),
        check=lambda context: isinstance(context[MODEL + "fine_grain_interleave"], str),
        message="fine_grain_interleave must be a whole number",
    ),
    Rule(
        id="MF-TEXT-NUMBER",
        doc="A number in quotes, or written as 1e-5 without a point, is text in YAML 1.1: no class converts it.",
        source="mindformers 1.6.0 tools/register/config.py:184 (yaml.safe_load); models/llama/llama.py:87",
        flags=(),
        fields=("backend.args",),
        check=_quoted,
        reads="*",
    ),
    Rule(
        id="MF-PARALLEL-TYPES",
        doc="MindSpore checks the types of its parallel settings, and has three search modes.",
        source="mindspore 2.7.0 context.py:964-970; parallel/_auto_parallel_context.py",
        flags=tuple(_TYPED),
        fields=("backend.args",),
        check=_types,
        reads="use_parallel",
    ),
    Rule(
        id="MF-PRECISION-SYNC",
        doc="Deterministic computation is switched on or off.",
        source="mindformers 1.6.0 core/context/validators.py:72-83",
        flags=("train_precision_sync",),
        fields=("backend.args",),
        when="train_precision_sync?",
        check=lambda context: not isinstance(context["train_precision_sync"], bool),
        message="train_precision_sync must be true or false",
    ),
    Rule(
        id="MF-RESUME-TYPE",
        doc="resume_training is a switch or the name of a checkpoint; auto_trans_ckpt is a switch.",
        source="mindformers 1.6.0 trainer/trainer.py:1321-1326",
        flags=("resume_training", "auto_trans_ckpt"),
        fields=("backend.args",),
        check=lambda context: (
            not isinstance(context["resume_training"], (bool, str, type(None)))
            or not isinstance(context["auto_trans_ckpt"], (bool, type(None)))
        ),
        message="resume_training must be true, false or a checkpoint name, and auto_trans_ckpt true or false",
    ),
    Rule(
        id="MF-SINK-SIZE",
        doc="Data is sunk in steps of at least one, or all at once (-1), in a whole number of epochs.",
        source="mindformers 1.6.0 trainer/utils.py:153-157",
        flags=(_SINK_SIZE, "runner_config.sink_mode", _EPOCHS),
        fields=("backend.args",),
        check=_sink,
    ),
)

declare(VALUES, backends=BACKENDS, when=STATIC)
