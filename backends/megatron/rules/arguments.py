"""Checks of ms-swift's argument classes, from 3.5 to 4.6."""

from typing import Any

from backends.megatron.families import ROWS
from backends.megatron.rules.view import FOUR, NAME, SwiftRule, View, declare
from launcher.mapping.unbuildable_models import Unbuildable
from launcher.rules.registry import lower

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_BASE = "ms-swift 4.6.0 arguments/base_args"

lower("MOE-EP-DENSE", NAME, "expert parallelism of a dense model is dropped without a word", since=FOUR)
lower("SEQ-POSITIONS", NAME, "it does not compare the two, and positions beyond were never learned", since=FOUR)
lower("LR-WARMUP-TWICE", NAME, "the share of lr_warmup_fraction wins without a word", since=FOUR)
lower("MOE-BIAS-SIGMOID", NAME, "the bias of softmax routing is left out without a word", since=FOUR)


def _no_model(v: View) -> bool:
    sources = ("model", "mcore_model", "load")
    if v.use_ray:  # Ray roles are configured in a separate file
        return False
    return not any(v.given(name) for name in sources) and v.perform_initialization is not True


DATA = (
    SwiftRule(
        id="SW-LAZY-PACKING",
        doc="Packing needs the length of every sample before training; lazy tokenization knows it only while training.",
        source=f"{_BASE}/base_args.py:165",
        flags=("lazy_tokenize", "packing"),
        when=lambda v: v.lazy_tokenize and v.packing,
        say="lazy_tokenize true with packing: packing needs the length of every sample beforehand",
        since="3.7",
    ),
    SwiftRule(
        id="SW-LAZY-STREAMING",
        doc="A stream is tokenized as it is read; lazy tokenization belongs to data that is read at the start.",
        source=f"{_BASE}/base_args.py:167; train_args.py:138 @3.6.4",
        flags=("lazy_tokenize", "streaming"),
        when=lambda v: v.lazy_tokenize and v.streaming,
        say="lazy_tokenize true with streaming: a stream is always tokenized as it is read",
    ),
    SwiftRule(
        id="SW-STREAM-ITERS",
        doc="A stream has no length, so that epochs cannot be turned into steps: the number of steps must be given.",
        source=f"{_ARGS}:1155, when training starts",
        flags=("streaming", "train_iters", "num_train_epochs"),
        when=lambda v: v.streaming and v.train_iters is None,
        say="streaming without train_iters: a stream has no length, so epochs do not say when training ends",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-STREAM-EVAL",
        doc="A streamed validation set has no length: the batches of an evaluation must be given.",
        source=f"{_ARGS}:1164, when training starts",
        flags=("eval_iters", "streaming", "val_dataset"),
        fields=("evaluation.iters", "data.streaming"),
        when=lambda v: v.streaming and v.many("val_dataset") and (v.eval_iters is None or v.eval_iters < 0),
        say="streaming with a validation set needs evaluation.iters: a stream has no length",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-EPOCH-STREAM",
        doc="Saving at the end of epochs needs a data set with a length.",
        source=f"{_ARGS}:1147, when training starts",
        flags=("save_strategy", "streaming"),
        when=lambda v: v.streaming and v.save_strategy == "epoch",
        say="save_strategy epoch with streaming: a stream has no epochs",
        since="3.9",
    ),
    SwiftRule(
        id="SW-GROUP-BY-LENGTH",
        doc="Grouping samples by length is pointless where samples are concatenated without padding, and is refused.",
        source=f"{_ARGS}:852",
        flags=("group_by_length", "padding_free"),
        when=lambda v: v.group_by_length and (v.padding_free or v.packing),
        say="group_by_length with padding_free (on by default): set batch.padding_free=false",
        since="4.6",
    ),
    SwiftRule(
        id="SW-UNEVEN-PP",
        doc="With one stage the size of the first or last one cannot be given, even where it is all layers.",
        source=f"{_ARGS}:885; megatron-core 0.12.1 transformer_config.py:824 divides by zero",
        flags=("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "pipeline_model_parallel_size"),
        when=lambda v: (
            # Other sizes are rejected on every backend (PAR-UNEVEN-PP).
            v.job.parallel.pp == 1
            and v.job.model.num_hidden_layers is not None
            and v.job.model.num_hidden_layers
            in (v.decoder_first_pipeline_num_layers, v.decoder_last_pipeline_num_layers)
        ),
        say="decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers need several stages",
    ),
    SwiftRule(
        id="SW-SOURCE",
        doc="Something must say what is trained: a model, or a checkpoint that remembers one.",
        source="ms-swift 4.6.0 model_args.py:220, megatron/arguments/sft_args.py:51",
        flags=("model", "mcore_model", "load"),
        fields=("model.path", "model.hub_id", "checkpoint.load"),
        when=_no_model,
        say="no model: set model.path or model.hub_id (or checkpoint.load, whose args.json names one)",
    ),
)

PARALLEL = (
    SwiftRule(
        id="SW-TP-OVERLAP-SP",
        doc="Tensor-parallel communication overlaps on sequence-parallel activations, and those need tp above 1.",
        source=f"{_ARGS}:949; Megatron-LM core_v0.12.1 arguments.py:763",
        flags=("tp_comm_overlap", "sequence_parallel", "tensor_model_parallel_size"),
        when=lambda v: v.tp_comm_overlap and not (v.sequence_parallel and v.tensor_model_parallel_size > 1),
        say="tp_comm_overlap needs sequence_parallel and tp above 1 (tp {tensor_model_parallel_size}, "
        "sequence_parallel {sequence_parallel})",
    ),
    SwiftRule(
        id="SW-FREEZE-RATIO-PP",
        doc="The share of frozen layers is counted from the first layer, which only the first stage holds.",
        source=f"{_ARGS}:493",
        flags=("freeze_parameters_ratio", "pipeline_model_parallel_size"),
        when=lambda v: 0 < (v.freeze_parameters_ratio or 0) < 1 and v.pipeline_model_parallel_size > 1,
        say="freeze_parameters_ratio {freeze_parameters_ratio} works only with pp 1, not "
        "{pipeline_model_parallel_size}",
        since="3.7",
    ),
    SwiftRule(
        id="SW-MLP-PADDING-FREE",
        doc="Layers that drop padding inside the MLP cannot be combined with a split sequence; checked up to 4.0 only.",
        source="ms-swift 3.12.6 megatron_args.py:611, 4.0.0 :566",
        flags=("mlp_padding_free", "sequence_parallel", "context_parallel_size"),
        when=lambda v: v.mlp_padding_free and (v.sequence_parallel or v.context_parallel_size > 1),
        say="mlp_padding_free with sequence or context parallelism: the MLP sees only a part of each sequence",
        since="3.9",
        until="4.0.99",
    ),
    SwiftRule(
        id="SW-MLP-PADDING-FREE-UNCHECKED",
        doc="Versions up to 4.0 refused mlp_padding_free with a split sequence; newer ones do not check it.",
        source="ms-swift 3.12.6 megatron_args.py:611; not checked since 4.1",
        flags=("mlp_padding_free", "sequence_parallel", "context_parallel_size"),
        when=lambda v: (
            v.mlp_padding_free
            and ((v.sequence_parallel and v.tensor_model_parallel_size > 1) or v.context_parallel_size > 1)
        ),
        say="mlp_padding_free with sequence or context parallelism: refused up to 4.0, not checked here",
        severity="warning",
        since="4.1",
    ),
)

CHECKPOINT = (
    SwiftRule(
        id="SW-ASYNC-LIMIT",
        doc="Old checkpoints are deleted when a new one is complete, which asynchronous saving does not tell.",
        source=f"{_ARGS}:911; 4.0.0 :636",
        flags=("async_save", "save_total_limit"),
        when=lambda v: v.async_save and v.save_total_limit is not None,
        say="async_save cannot be combined with save_total_limit {save_total_limit}",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-SAVE-LIMIT",
        doc="The best and the last checkpoint are always kept: a limit below 2 cannot be held.",
        source=f"{_ARGS}:913; 4.0.0 :638",
        flags=("save_total_limit",),
        when=lambda v: v.save_total_limit is not None and v.save_total_limit < 2,
        say="save_total_limit {save_total_limit} must be at least 2",
        since=FOUR,
    ),
)


def _some_limit(v: View) -> Any:
    return any(getattr(v, name) is not None for name in ("start_weight_decay", "end_weight_decay"))


def _missing_limit(v: View) -> Any:
    return any(getattr(v, name) is None for name in ("start_weight_decay", "end_weight_decay"))


OPTIMIZER = (
    SwiftRule(
        id="SW-WD-CONSTANT",
        doc="A constant weight decay has no start and end; swift stops with a bare AssertionError.",
        source=f"{_ARGS}:1217; Megatron-LM core_v0.12.1 arguments.py:718",
        flags=("weight_decay_incr_style", "start_weight_decay", "end_weight_decay"),
        when=lambda v: v.weight_decay_incr_style == "constant" and _some_limit(v),
        say="start_weight_decay and end_weight_decay need weight_decay_incr_style linear or cosine",
    ),
    SwiftRule(
        id="SW-WD-INCREASE",
        doc="An increasing weight decay needs its start and its end; swift stops with a bare AssertionError.",
        source=f"{_ARGS}:1221; Megatron-LM core_v0.12.1 arguments.py:723",
        flags=("weight_decay_incr_style", "start_weight_decay", "end_weight_decay"),
        when=lambda v: v.weight_decay_incr_style not in (None, "constant") and _missing_limit(v),
        say="weight_decay_incr_style {weight_decay_incr_style} needs start_weight_decay and end_weight_decay",
    ),
    SwiftRule(
        id="SW-MUON-OVERLAP",
        doc="Muon orthogonalises whole matrices of gradients and cannot start while they are still being reduced.",
        source=f"{_ARGS}:1026",
        flags=("optimizer", "overlap_grad_reduce", "overlap_param_gather"),
        when=lambda v: v.optimizer == "muon" and (v.overlap_grad_reduce or v.overlap_param_gather),
        say="optimizer muon with overlap_grad_reduce or overlap_param_gather: dist_muon would do it",
        since="4.6",
    ),
    SwiftRule(
        id="SW-MUON-LR",
        doc="A learning rate of Muon means nothing to another optimizer.",
        source=f"{_ARGS}:1046",
        flags=("muon_lr", "muon_min_lr", "optimizer"),
        when=lambda v: "muon" not in str(v.optimizer) and not (v.muon_lr is None and v.muon_min_lr is None),
        say="muon_lr and muon_min_lr need optimizer muon or dist_muon, not {optimizer}",
        since="4.6",
    ),
    SwiftRule(
        id="SW-FSDP-OPTIMIZER",
        doc="Megatron-FSDP shards the states of Adam and SGD only.",
        source=f"{_ARGS}:964",
        flags=("use_megatron_fsdp", "optimizer"),
        when=lambda v: v.use_megatron_fsdp and v.optimizer not in ("adam", "sgd"),
        say="Megatron-FSDP (zero_stage) works with adam and sgd, not {optimizer}",
        since="4.6",
    ),
    SwiftRule(
        id="SW-FSDP-CONNECTIONS",
        doc="Megatron-FSDP needs several hardware queues; swift itself sets CUDA_DEVICE_MAX_CONNECTIONS=1 by default.",
        source=f"{_ARGS}:967",
        flags=("use_megatron_fsdp",),
        fields=("backend.env",),
        when=lambda v: v.use_megatron_fsdp and v.job.backend.env.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1",
        say="Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS above 1: backend.env sets it to 1",
        since="4.6",
    ),
)

_BACKENDS = ("flash", "fused", "unfused", "local", "auto", "flash_2", "flash_3", "flash_4")

TUNING = (
    SwiftRule(
        id="SW-NUM-LABELS",
        doc="A classifier has a number of labels; a reward model's is 1 without being told.",
        source="ms-swift 4.6.0 model/model_meta.py:319",
        flags=("task_type", "num_labels"),
        when=lambda v: v.task_type == "seq_cls" and not v.given("num_labels") and v.job.task.type != "reward_model",
        say="task_type seq_cls needs num_labels",
        since="4.6",
    ),
    SwiftRule(
        id="SW-ADAPTERS-ONE",
        doc="Training continues from one adapter.",
        source=f"{_ARGS}:1119; 3.12.6 :818",
        flags=("adapters",),
        when=lambda v: len(v.many("adapters")) > 1,
        say=lambda v: f"{len(v.many('adapters'))} adapters: training continues from one",
        since="3.10",
    ),
    SwiftRule(
        id="SW-LORA-LLM-MERGE",
        doc="lora_llm trains adapters of the language model beside all weights of the rest: they are saved merged.",
        source=f"{_ARGS}:928",
        flags=("tuner_type", "merge_lora", "no_save_optim"),
        when=lambda v: (
            v.tuner_type == "lora_llm"
            and (not (v.save_safetensors if v.merge_lora is None else v.merge_lora) or not v.no_save_optim)
        ),
        say="tuner_type lora_llm needs merge_lora true and no_save_optim true",
        since="4.6",
    ),
    SwiftRule(
        id="SW-LORA-LLM-LANGUAGE",
        doc="lora_llm distinguishes the language model from the rest of a multimodal model.",
        source=f"{_ARGS}:801",
        flags=("tuner_type", "language_model_only"),
        when=lambda v: v.tuner_type == "lora_llm" and v.language_model_only,
        say="tuner_type lora_llm with language_model_only true: use lora",
        since="4.6",
    ),
    SwiftRule(
        id="SW-LORA-DEEPSEEK-V41",
        doc="Selective recompute frees what the adapters of DeepSeek-V4.1 still need in the backward pass.",
        source=f"{_ARGS}:824",
        flags=("model_type", "recompute_granularity"),
        when=lambda v: v.model_type == "deepseek_v41" and v.lora and v.recompute_granularity == "selective",
        say="LoRA of deepseek_v41 needs recompute.granularity full, or none (the default is selective)",
        since="4.6",
    ),
    SwiftRule(
        id="SW-BRIDGE-LORA",
        doc="NVIDIA's megatron-bridge does not load adapters yet.",
        source=f"{_ARGS}:811",
        flags=("bridge_backend", "tuner_type"),
        when=lambda v: v.bridge_backend == "megatron-bridge" and (v.tuner_type or "full") != "full",
        say="bridge_backend megatron-bridge trains all weights only: use mcore-bridge for {tuner_type}",
        since="4.6",
    ),
    SwiftRule(
        id="SW-BRIDGE-TASK",
        doc="NVIDIA's megatron-bridge knows causal language models only.",
        source=f"{_ARGS}:872",
        flags=("bridge_backend", "task_type", "rlhf_type"),
        when=lambda v: (
            v.bridge_backend == "megatron-bridge" and (v.task_type not in (None, "causal_lm") or v.rlhf_type == "rm")
        ),
        say="bridge_backend megatron-bridge trains causal language models only",
        since="4.6",
    ),
    SwiftRule(
        id="SW-ATTENTION",
        doc="An unknown attention backend ends in a bare KeyError.",
        source=f"{_ARGS}:973-993",
        flags=("attention_backend",),
        when=lambda v: v.attention_backend is not None and v.attention_backend not in _BACKENDS,
        say=f"attention_backend {{attention_backend}} is not one of {', '.join(_BACKENDS)}",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-FLASH-SINK",
        doc="Flash attention has no learnable softmax offset (gpt-oss).",
        source="ms-swift 4.6.0 megatron/model/utils.py:14",
        flags=("attention_backend", "megatron_extra_kwargs"),
        when=lambda v: (
            str(v.attention_backend).startswith("flash")
            and isinstance(v.megatron_extra_kwargs, dict)
            and v.megatron_extra_kwargs.get("softmax_type") == "learnable"
        ),
        say="attention_backend {attention_backend} has no learnable softmax: use fused or unfused",
        since="4.6",
    ),
)


def _built(row: Unbuildable) -> SwiftRule:
    return SwiftRule(
        id=row.id,
        doc=row.doc,
        source=row.source,
        flags=(),
        fields=row.fields,
        when=lambda v: row.when(v.job.model),
        say=lambda v: f"Megatron-SWIFT cannot build this model: {row.say(v.job.model)}",
        since=row.since,
        until=row.until,
    )


declare(*DATA, *PARALLEL, *CHECKPOINT, *OPTIMIZER, *TUNING)
declare(*(_built(row) for row in ROWS if row.id))
