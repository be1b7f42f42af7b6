"""What ms-swift sets of tuning, numbers, the optimizer and what a run writes."""

from collections.abc import Sequence

from backends.megatron.mapping.kernels import FLASH_SWITCH
from backends.megatron.mapping.parallel import OTHER_LIBRARY
from backends.megatron.rules.changes.sources import ARGS, sets
from backends.megatron.rules.terms import FOUR, THREE
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import unread, unread_args

_OLD_ARGS = "ms-swift 3.12.6 megatron/argument/megatron_args.py"
_HALF, _SCALED = ("float16", "float32"), "apply_query_key_layer_scaling"


def _plain(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _per_token(context: RuleContext) -> Value:
    return context["task_type"] in (None, "causal_lm") and context["rlhf_type"] is None


def _callbacks(context: RuleContext) -> Value:
    own: Sequence[str] = ("print", "default_flow")
    return (*context.items("callbacks"), *own, *context.items("report_to"))


def _names_tied_head(context: RuleContext) -> bool:
    other = (
        context["task_type"] not in (None, "causal_lm", "generative_reranker")
        or context.job.task.type == "reward_model"
    )
    return bool(other and context.job.model.tie_word_embeddings)


DTYPE = (
    Rule(
        id="SW-SET-DTYPE",
        phase="parse",
        severity="change",
        flags=("torch_dtype",),
        when="torch_dtype=float32|torch.float32 & fp16=None & bf16=None",
        sets={"fp16": True, "bf16": False},
        reports_unwritten=True,
        message="torch_dtype float32 → fp16 mixed precision: set fp16 and bf16 to false to train in fp32",
        doc="A float32 model trains in fp16 unless both mixed precisions are switched off.",
        source="ms-swift 4.6.0 arguments/base_args/model_args.py:130",
        fields=("precision.dtype",),
    ),
)
TUNING = (
    sets(
        "SW-SET-TRAIN-TYPE",
        "train_type!=None",
        {"tuner_type": "{train_type}"},
        "The deprecated train_type sets tuner_type.",
        "ms-swift 4.0.0 arguments/base_args/base_args.py:153",
        until="4.0.99",
        reports_written=False,
    ),
    sets(
        "SW-SET-TARGETS",
        "target_regex!=None",
        {"target_modules": "{target_regex}"},
        "The pattern target_regex selects the modules that get an adapter.",
        f"{ARGS}:496",
        reports_written=False,
    ),
    sets(
        "SW-SET-NO-RECOMPUTE",
        "recompute_granularity=none",
        {"recompute_granularity": None},
        "The value none means no recomputation.",
        f"{ARGS}:848",
        reports_written=False,
    ),
    sets(
        "SW-SET-LR",
        "lr=None",
        {"lr": lambda context: 1e-5 if (context["tuner_type"] or context["train_type"]) == "full" else 1e-4},
        "The default learning rate is 1e-4 for adapters and 1e-5 for full training.",
        f"{ARGS}:777; ms-swift 3.12.6 megatron/argument/megatron_args.py:615",
        reads="tuner_type train_type",
        since="3.7",
    ),
    sets(
        "SW-SET-GKD-LOSS",
        "rlhf_type=gkd",
        {"calculate_per_token_loss": True},
        "Distillation averages the loss over tokens.",
        f"{ARGS}:784",
        since="4.6",
    ),
    sets(
        "SW-SET-PER-TOKEN",
        "calculate_per_token_loss=None",
        {"calculate_per_token_loss": _per_token},
        "Language models average the loss over tokens.",
        f"{ARGS}:786; {_OLD_ARGS}:657",
        reads="task_type rlhf_type",
        since="3.7",
    ),
)
RUN = (
    sets(
        "SW-SET-VISION",
        "vit_gradient_checkpointing=None",
        {"vit_gradient_checkpointing": lambda context: not context["freeze_vit"]},
        "A vision model that is trained recomputes its activations.",
        f"{ARGS}:857",
        reads="freeze_vit",
    ),
    Rule(
        id="SW-SET-UNTIE",
        severity="change",
        flags=("task_type",),
        check=_names_tied_head,
        reads="job.task.type job.model.tie_word_embeddings",
        message="tie_word_embeddings true → false: this task has a separate output head",
        doc="Tasks other than causal language modelling have a separate output head.",
        source=f"{ARGS}:898",
        since=FOUR,
        fields=("task.type", "model.tie_word_embeddings"),
    ),
    Rule(
        id="SW-SET-GRADIENT-FUSION",
        doc="Without apex the fusion of gradient accumulation is switched off with a warning in the log.",
        source=f"{ARGS}:902",
        when="gradient_accumulation_fusion? & gradient_accumulation_fusion",
        message="gradient_accumulation_fusion true → false where apex is not installed",
        severity="change",
        since="4.1",
    ),
    sets(
        "SW-SET-CALLBACKS",
        "",
        {"callbacks": _callbacks},
        "The callbacks print, default_flow and those of report_to are always added.",
        f"{ARGS}:908",
        reads="callbacks report_to",
        reports_written=False,
    ),
    sets(
        "SW-SET-METRIC",
        "metric_for_best_model=None",
        {"metric_for_best_model": lambda context: "reward" if context["rlhf_type"] == "grpo" else "loss"},
        "The best checkpoint has the lowest loss; in GRPO it has the highest reward.",
        f"{ARGS}:916",
        reads="rlhf_type",
    ),
    sets(
        "SW-SET-GREATER",
        "greater_is_better=None",
        {"greater_is_better": lambda context: "loss" not in context["metric_for_best_model"]},
        "A lower loss is better; of other metrics a higher value is.",
        f"{ARGS}:918",
        reads="metric_for_best_model",
    ),
    sets(
        "SW-SET-EVAL-STEPS",
        "eval_steps=None",
        {"eval_steps": "{save_steps}"},
        "The evaluation interval is the save interval by default.",
        f"{ARGS}:922",
    ),
    Rule(
        id="SW-SET-MERGE",
        severity="change",
        flags=("merge_lora",),
        when="@lora & merge_lora=None & save_safetensors",
        sets={"merge_lora": True},
        reports_unwritten=True,
        message="merge_lora unset → true: save_safetensors writes merged weights, too",
        doc="With save_safetensors, merged weights are written unless merge_lora is false.",
        source=f"{ARGS}:923",
        since="4.1",
        fields=("lora.merge", "checkpoint.save_safetensors"),
    ),
    sets(
        "SW-SET-MERGED",
        "merge_lora=None",
        {"merge_lora": "{save_safetensors}"},
        "Adapters are merged by default if weights are saved as safetensors.",
        f"{ARGS}:924",
    ),
    Rule(
        id="SW-SET-TUNER",
        severity="change",
        flags=("tuner_type", "adapters", "mcore_adapter"),
        when="tuner_type=None|full",
        then="!adapters & !mcore_adapter & !ref_adapters & !mcore_ref_adapter",
        sets={"tuner_type": "lora"},
        reports_unwritten=True,
        message="tuner_type full → lora: adapters are given, and only they are trained",
        doc="Adapters that are given are trained, not all weights.",
        source=f"{ARGS}:932",
        since=FOUR,
        fields=("lora.rank", "lora.load"),
    ),
)
PRECISION = (
    sets(
        "SW-SET-FP16",
        "fp16=None",
        {"fp16": lambda context: _plain(context["torch_dtype"]) in _HALF},
        "Models in float16 and float32 train in fp16.",
        "ms-swift 4.6.0 arguments/base_args/model_args.py:137; 3.12.6 llm/argument/base_args/model_args.py:137",
        reads="torch_dtype",
        since="",
    ),
    sets(
        "SW-SET-BF16",
        "bf16=None",
        {"bf16": lambda context: _plain(context["torch_dtype"]) not in _HALF},
        "A bfloat16 model (config.json's dtype unless torch_dtype is set) trains in bf16.",
        "ms-swift 4.6.0 arguments/base_args/model_args.py:139",
        reads="torch_dtype",
        since="",
    ),
    Rule(
        id="SW-SET-QK-SCALING",
        severity="change",
        when="job.precision.dtype=fp16 & apply_query_key_layer_scaling=None",
        sets={"apply_query_key_layer_scaling": True},
        reports_unwritten=True,
        message="apply_query_key_layer_scaling unset → true: it is the default of fp16 training",
        doc="fp16 training scales attention scores by the layer's number, and softmax is then in fp32.",
        source=f"{ARGS}:794",
    ),
    sets(
        "SW-SET-QK-PLAIN",
        f"{_SCALED}=None",
        {_SCALED: "{fp16}"},
        "Only fp16 training scales attention scores by the layer's number.",
        f"{ARGS}:794",
    ),
    sets(
        "SW-SET-MODEL-DTYPE",
        "torch_dtype=None",
        {"torch_dtype": lambda context: "float16" if context["fp16"] else "bfloat16"},
        "Without torch_dtype the dtype of config.json is used, usually bfloat16.",
        "ms-swift 3.12.6 llm/argument/base_args/model_args.py:120",
        reads="fp16",
        since="",
        until=THREE,
    ),
    sets(
        "SW-SET-MODEL-FP16",
        "fp16",
        {"torch_dtype": "float16"},
        "fp16 training loads the model in float16.",
        f"{ARGS}:1206",
    ),
    sets(
        "SW-SET-MODEL-BF16",
        "!fp16 & bf16",
        {"torch_dtype": "bfloat16"},
        "bf16 training loads the model in bfloat16.",
        f"{ARGS}:1208",
    ),
    Rule(
        id="SW-SET-GRADS",
        severity="change",
        flags=("accumulate_allreduce_grads_in_fp32", "main_grads_dtype"),
        when="!fp16 & bf16 & main_grads_dtype=None|fp32",
        sets={"accumulate_allreduce_grads_in_fp32": True},
        message="accumulate_allreduce_grads_in_fp32 false → true: bf16 with fp32 main gradients reduces in fp32",
        doc="bf16 training with fp32 main gradients always reduces in fp32.",
        source=f"{ARGS}:1211",
        since=FOUR,
    ),
    sets(
        "SW-SET-DECAY",
        "weight_decay_incr_style=constant & start_weight_decay=None & end_weight_decay=None",
        {"start_weight_decay": "{weight_decay}", "end_weight_decay": "{weight_decay}"},
        "Constant weight decay starts and ends with the same value.",
        f"{ARGS}:1217",
    ),
)
UNREAD = (
    unread(
        "SW-UNREAD-SAFETENSORS",
        "load_safetensors?",
        "load_safetensors",
        "The option is declared but not used: the weights of --model are always read.",
        f"{_OLD_ARGS}:328",
        phase="launch",
        since="3.12",
        until=THREE,
    ),
    unread_args("SW-UNREAD-FLASH", FLASH_SWITCH),
    unread_args("SW-UNREAD-LIBRARY", OTHER_LIBRARY),
)
