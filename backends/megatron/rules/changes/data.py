"""What ms-swift sets of the task, the text of samples and the data."""

from backends.megatron.rules.changes.sources import ARGS, BASE, sets
from backends.megatron.rules.terms import FOUR
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext

_SWIFT = "ms-swift 4.6.0 arguments/base_args/"
_DATA, _MODEL, _TEMPLATE = f"{_SWIFT}data_args.py", f"{_SWIFT}model_args.py", f"{_SWIFT}template_args.py"
_PLUGINS, _NUMBERS = ("external_plugins", "custom_register_path"), "bnb_4bit_compute_dtype"


def _plugins(context: RuleContext) -> Value:
    return tuple(item for name in _PLUGINS for item in context.items(name))


def _task(context: RuleContext) -> Value:
    return "causal_lm" if context["num_labels"] is None else "seq_cls"


def _numbers(context: RuleContext) -> Value:
    return "float32" if context["torch_dtype"] in ("float16", "float32") else "bfloat16"


def _with_lines(context: RuleContext) -> Value:
    return str(context["response_prefix"]).replace("\\n", "\n")


TASK = (
    Rule(
        id="SW-SET-REWARD",
        severity="change",
        flags=("task_type", "num_labels"),
        when="rlhf_type=rm",
        sets={"task_type": "seq_cls", "num_labels": 1},
        message="task_type → seq_cls and num_labels → 1: a reward model has one scalar output",
        doc="A reward model classifies with one label.",
        source="ms-swift 4.6.0 megatron/arguments/rlhf_args.py:17",
        since="3.7",
        fields=("task.type",),
    ),
    sets(
        "SW-SET-TRUNCATION",
        "truncation_strategy=None",
        {"truncation_strategy": lambda context: "left" if context["rlhf_type"] == "grpo" else "delete"},
        "By default samples that are too long are dropped; prompts of GRPO are truncated on the left.",
        f"ms-swift 4.6.0 megatron/arguments/rlhf_args.py:26; {_TEMPLATE}:162",
        reads="rlhf_type",
    ),
    Rule(
        id="SW-SET-SEQUENCE-SIZE",
        severity="change",
        flags=("sequence_parallel_size", "context_parallel_size"),
        sets={"sequence_parallel_size": "{context_parallel_size}"},
        message="sequence_parallel_size {sequence_parallel_size} → {context_parallel_size}: ms-swift sets "
        "it to context_parallel_size",
        doc="The option of swift's other trainers follows the context parallel size.",
        source=f"{BASE}:35",
        since=FOUR,
        fields=("parallel.cp",),
    ),
    Rule(
        id="SW-SET-PADDING-FREE",
        severity="change",
        flags=("padding_free", "packing"),
        when="packing",
        sets={"padding_free": True},
        message="padding_free false → true: packed sequences are concatenated without padding",
        doc="Packing always concatenates without padding.",
        source=f"{BASE}:36",
    ),
    sets(
        "SW-SET-PLUGINS",
        "custom_register_path",
        {"external_plugins": _plugins},
        "The files of the deprecated custom_register_path are imported as plug-ins.",
        f"{_SWIFT}base_args.py:179",
        reads=" ".join(_PLUGINS),
        reports_written=False,
    ),
    sets(
        "SW-SET-TASK",
        "task_type=None",
        {"task_type": _task},
        "The default task is seq_cls if num_labels is set, otherwise causal_lm.",
        "ms-swift 4.6.0 model/model_meta.py:303; " + f"{ARGS}:780",
        reads="num_labels",
    ),
    sets(
        "SW-SET-LABELS",
        "task_type=generative_reranker & num_labels!=None",
        {"num_labels": None},
        "A generative reranker has no labels.",
        "ms-swift 4.6.0 model/model_meta.py:316",
        since="4.1",
    ),
    sets(
        "SW-SET-QUANT-DTYPE",
        f"{_NUMBERS}=None",
        {_NUMBERS: _numbers},
        "Matrix products of 4-bit weights are in bfloat16 if the model is, otherwise in float32.",
        f"{_SWIFT}quant_args.py:118",
        reads="torch_dtype",
    ),
)
SAMPLES = (
    sets(
        "SW-SET-CHAT",
        "use_chat_template=None",
        {"use_chat_template": True},
        "By default samples are formatted with the chat template of the model.",
        f"{_TEMPLATE}:151",
    ),
    sets(
        "SW-SET-PREFIX",
        "response_prefix!=None",
        {"response_prefix": _with_lines},
        "The two characters \\n become a line break.",
        f"{_TEMPLATE}:160",
        reads="response_prefix",
        reports_written=False,
    ),
    Rule(
        id="SW-SET-SPLIT",
        severity="change",
        when="split_dataset_ratio>0",
        then="!streaming & !val_dataset",
        sets={"split_dataset_ratio": 0.0},
        message="split_dataset_ratio {split_dataset_ratio} → 0: a streamed data set, or one with separate "
        "validation data, is not split",
        doc="A stream is not split, nor is a data set with separate validation data.",
        source=f"{_DATA}:129",
        fields=("data.validation_ratio", "data.streaming", "data.validation_paths"),
    ),
    sets(
        "SW-SET-STREAM",
        "stream=None",
        {"stream": False},
        "Output is not streamed token by token by default.",
        f"{_SWIFT}generation_args.py:56",
    ),
    sets(
        "SW-SET-LENGTH",
        "max_length=None",
        {"max_length": "{job.model.max_position_embeddings}"},
        "The maximum sample length is max_position_embeddings by default.",
        f"{_SWIFT}base_args.py:227",
    ),
    Rule(
        id="SW-SET-PACKING-LENGTH",
        severity="change",
        flags=("packing_length", "max_length"),
        when="packing & packing_length!=None",
        check=lambda context: context["packing_length"] != context["max_length"],
        message="sequence length {max_length} → {packing_length}: packing_length takes precedence over max_length",
        doc="Packed sequences have the length packing_length.",
        source=f"{BASE}:39; {_SWIFT}base_args.py:228",
        since="3.7",
    ),
    sets(
        "SW-SET-PACKED-LENGTH",
        "packing & packing_length=None",
        {"packing_length": "{max_length}"},
        "The length of packed sequences is max_length by default.",
        f"{_SWIFT}base_args.py:229",
    ),
    Rule(
        id="SW-SET-LAZY",
        severity="change",
        flags=("lazy_tokenize",),
        when="lazy_tokenize=None & cached_dataset",
        sets={"lazy_tokenize": False},
        reports_unwritten=True,
        message="lazy_tokenize unset → false: a cached data set is already tokenized",
        doc="A cached data set is tokenized already.",
        source=f"{_SWIFT}base_args.py:155",
        since="3.10",
    ),
    sets(
        "SW-SET-LAZY-PICTURES",
        "lazy_tokenize=None & @multimodal & !streaming & !packing & !group_by_length",
        {"lazy_tokenize": True},
        "By default multimodal samples are tokenized during training.",
        f"{_SWIFT}base_args.py:158",
    ),
    sets(
        "SW-SET-TOKENIZED",
        "lazy_tokenize=None",
        {"lazy_tokenize": False},
        "By default samples are tokenized before training.",
        f"{_SWIFT}base_args.py:160",
    ),
)
LOADING = (
    Rule(
        id="SW-SET-WORKERS",
        severity="change",
        flags=("dataloader_num_workers", "streaming"),
        when="streaming & dataloader_num_workers>1",
        sets={"dataloader_num_workers": 1},
        message="dataloader_num_workers {dataloader_num_workers} → 1: a stream is read by one process",
        doc="A stream is read by one worker.",
        source=f"{BASE}:44",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-WORKERS-OLD",
        severity="change",
        flags=("num_workers", "streaming"),
        when="streaming & num_workers>1",
        sets={"num_workers": 1},
        message="num_workers {num_workers} → 1: a stream is read by one process",
        doc="A stream is read by one worker.",
        source="ms-swift 3.5.3 train_args.py:47",
        until="3.99",
    ),
    Rule(
        id="SW-SET-EPOCHS",
        phase="launch",
        severity="change",
        flags=("num_train_epochs", "train_iters"),
        when="num_train_epochs? & train_iters? & !streaming",
        message="train_iters {train_iters} → the steps of {num_train_epochs} epochs: num_train_epochs takes precedence",
        doc="For data that is not streamed, the number of epochs takes precedence over a number of steps.",
        source=f"{ARGS}:1149",
        fields=("schedule.epochs", "schedule.train_iters", "schedule.train_samples"),
        since=FOUR,
    ),
    Rule(
        id="SW-SET-SAVE-STEPS",
        phase="launch",
        severity="change",
        when="save_strategy=epoch & save_steps?",
        message="save_steps {save_steps} → the steps of one epoch: save_strategy epoch replaces save_steps and "
        "eval_steps",
        doc="Saving by epochs replaces the intervals of checkpoints and evaluations.",
        source=f"{ARGS}:1142",
        since="3.9",
    ),
    Rule(
        id="SW-SET-FP8-PADDING",
        severity="change",
        when="fp8_recipe=blockwise & !fp8_format",
        message="sequences are padded to multiples of 128: fp8_recipe blockwise pads them even without fp8_format",
        doc="The blockwise recipe pads sequences to 128 tokens even where FP8 is off.",
        source="ms-swift 4.6.0 megatron/utils/utils.py:238",
        since=FOUR,
    ),
)
