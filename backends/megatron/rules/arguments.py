"""Checks of ms-swift's argument classes, from 3.5 to 4.6."""

from backends.megatron.families import ROWS
from backends.megatron.rules.terms import BACKENDS, FOUR, NAME
from launcher.mapping.unbuildable_models import Unbuildable
from launcher.rules.registry import Rule, RuleContext, lower
from launcher.rules.table import declare

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_BASE = "ms-swift 4.6.0 arguments/base_args"

lower("MOE-EP-DENSE", NAME, "expert parallelism of a dense model is dropped without a word", since=FOUR)
lower("SEQ-POSITIONS", NAME, "it does not compare the two, and positions beyond were never learned", since=FOUR)
lower("LR-WARMUP-TWICE", NAME, "the share of lr_warmup_fraction wins without a word", since=FOUR)
lower("MOE-BIAS-SIGMOID", NAME, "the bias of softmax routing is left out without a word", since=FOUR)


def _no_model(facts: RuleContext) -> bool:
    sources = ("model", "mcore_model", "load")
    if facts["use_ray"]:  # Ray roles are configured in a separate file
        return False
    return not any(facts.given(name) for name in sources) and facts["perform_initialization"] is not True


DATA = (
    Rule(
        id="SW-LAZY-PACKING",
        doc="Packing needs the length of every sample before training; lazy tokenization knows it only while training.",
        source=f"{_BASE}/base_args.py:165",
        when="lazy_tokenize & packing",
        message="lazy_tokenize true with packing: packing needs the length of every sample beforehand",
        since="3.7",
    ),
    Rule(
        id="SW-LAZY-STREAMING",
        doc="A stream is tokenized as it is read; lazy tokenization belongs to data that is read at the start.",
        source=f"{_BASE}/base_args.py:167; 3.6.4 llm/argument/train_args.py:138",
        when="lazy_tokenize & streaming",
        message="lazy_tokenize true with streaming: a stream is always tokenized as it is read",
    ),
    Rule(
        id="SW-STREAM-ITERS",
        phase="launch",
        doc="A stream has no length, so that epochs cannot be turned into steps: the number of steps must be given.",
        source=f"{_ARGS}:1155, when training starts",
        flags=("streaming", "train_iters", "num_train_epochs"),
        when="streaming & train_iters=None",
        message="streaming without train_iters: a stream has no length, so epochs do not say when training ends",
        since=FOUR,
    ),
    Rule(
        id="SW-STREAM-EVAL",
        phase="launch",
        doc="A streamed validation set has no length: the batches of an evaluation must be given.",
        source=f"{_ARGS}:1164, when training starts",
        flags=("eval_iters", "streaming", "val_dataset"),
        fields=("evaluation.iters", "data.streaming"),
        when="streaming & val_dataset",
        check=lambda facts: facts["eval_iters"] is None or facts["eval_iters"] < 0,
        message="streaming with a validation set needs evaluation.iters: a stream has no length",
        since=FOUR,
    ),
    Rule(
        id="SW-EPOCH-STREAM",
        phase="launch",
        doc="Saving at the end of epochs needs a data set with a length.",
        source=f"{_ARGS}:1147, when training starts",
        flags=("save_strategy", "streaming"),
        when="streaming & save_strategy=epoch",
        message="save_strategy epoch with streaming: a stream has no epochs",
        since="3.9",
    ),
    Rule(
        id="SW-GROUP-BY-LENGTH",
        doc="Grouping samples by length is pointless where samples are concatenated without padding, and is refused.",
        source=f"{_ARGS}:852",
        flags=("group_by_length", "padding_free"),
        when="group_by_length",
        then="!padding_free & !packing",
        message="group_by_length with padding_free (on by default): set batch.padding_free=false",
        since="4.6",
    ),
    Rule(
        id="SW-UNEVEN-PP",
        doc="With one stage the size of the first or last one cannot be given, even where it is all layers.",
        source=f"{_ARGS}:885; megatron-core 0.12.1 transformer_config.py:824 divides by zero",
        flags=("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "pipeline_model_parallel_size"),
        when="job.parallel.pp=1 & job.model.num_hidden_layers!=None",
        check=lambda facts: (
            facts.job.model.num_hidden_layers
            in (facts["decoder_first_pipeline_num_layers"], facts["decoder_last_pipeline_num_layers"])
        ),
        message="decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers need several stages",
    ),
    Rule(
        id="SW-SOURCE",
        doc="Something must say what is trained: a model, or a checkpoint that remembers one.",
        source="ms-swift 4.6.0 model_args.py:220, megatron/arguments/sft_args.py:51",
        flags=("model", "mcore_model", "load"),
        fields=("model.path", "model.hub_id", "checkpoint.load"),
        check=_no_model,
        reads="use_ray perform_initialization",
        message="no model: set model.path or model.hub_id (or checkpoint.load, whose args.json names one)",
    ),
)

PARALLEL = (
    Rule(
        id="SW-TP-OVERLAP-SP",
        doc="Tensor-parallel communication overlaps on sequence-parallel activations, and those need tp above 1.",
        source=f"{_ARGS}:949; Megatron-LM core_v0.12.1 arguments.py:763",
        when="tp_comm_overlap",
        then="sequence_parallel & tensor_model_parallel_size>1",
        message="tp_comm_overlap needs sequence_parallel and tp above 1 (tp {tensor_model_parallel_size}, "
        "sequence_parallel {sequence_parallel})",
    ),
    Rule(
        id="SW-FREEZE-RATIO-PP",
        doc="The share of frozen layers is counted from the first layer, which only the first stage holds.",
        source=f"{_ARGS}:493",
        flags=("freeze_parameters_ratio", "pipeline_model_parallel_size"),
        check=lambda facts: (
            0 < (facts["freeze_parameters_ratio"] or 0) < 1 and facts["pipeline_model_parallel_size"] > 1
        ),
        message="freeze_parameters_ratio {freeze_parameters_ratio} works only with pp 1, not "
        "{pipeline_model_parallel_size}",
        since="3.7",
    ),
    Rule(
        id="SW-MLP-PADDING-FREE",
        doc="Layers that drop padding inside the MLP cannot be combined with a split sequence; checked up to 4.0 only.",
        source="ms-swift 3.12.6 megatron_args.py:611, 4.0.0 :566",
        flags=("mlp_padding_free", "sequence_parallel", "context_parallel_size"),
        when="mlp_padding_free",
        check=lambda facts: facts["sequence_parallel"] or facts["context_parallel_size"] > 1,
        message="mlp_padding_free with sequence or context parallelism: the MLP sees only a part of each sequence",
        since="3.9",
        until="4.0.99",
    ),
    Rule(
        id="SW-MLP-PADDING-FREE-UNCHECKED",
        doc="Versions up to 4.0 refused mlp_padding_free with a split sequence; newer ones do not check it.",
        source="ms-swift 3.12.6 megatron_args.py:611; not checked since 4.1",
        flags=("mlp_padding_free", "sequence_parallel", "context_parallel_size"),
        when="mlp_padding_free",
        check=lambda facts: (
            facts["context_parallel_size"] > 1
            or (facts["sequence_parallel"] and facts["tensor_model_parallel_size"] > 1)
        ),
        reads="tensor_model_parallel_size",
        message="mlp_padding_free with sequence or context parallelism: refused up to 4.0, not checked here",
        severity="warning",
        since="4.1",
    ),
)

CHECKPOINT = (
    Rule(
        id="SW-ASYNC-LIMIT",
        doc="Old checkpoints are deleted when a new one is complete, which asynchronous saving does not tell.",
        source=f"{_ARGS}:911; 4.0.0 :636",
        when="async_save & save_total_limit!=None",
        message="async_save cannot be combined with save_total_limit {save_total_limit}",
        since=FOUR,
    ),
    Rule(
        id="SW-SAVE-LIMIT",
        doc="The best and the last checkpoint are always kept: a limit below 2 cannot be held.",
        source=f"{_ARGS}:913; 4.0.0 :638",
        when="save_total_limit!=None & save_total_limit<2",
        message="save_total_limit {save_total_limit} must be at least 2",
        since=FOUR,
    ),
)


OPTIMIZER = (
    Rule(
        id="SW-WD-CONSTANT",
        doc="A constant weight decay has no start and end; swift stops with a bare AssertionError.",
        source=f"{_ARGS}:1217; Megatron-LM core_v0.12.1 arguments.py:718",
        when="weight_decay_incr_style=constant",
        then="start_weight_decay=None & end_weight_decay=None",
        message="start_weight_decay and end_weight_decay need weight_decay_incr_style linear or cosine",
    ),
    Rule(
        id="SW-WD-INCREASE",
        doc="An increasing weight decay needs its start and its end; swift stops with a bare AssertionError.",
        source=f"{_ARGS}:1221; Megatron-LM core_v0.12.1 arguments.py:723",
        when="weight_decay_incr_style!=None|constant",
        then="start_weight_decay!=None & end_weight_decay!=None",
        message="weight_decay_incr_style {weight_decay_incr_style} needs start_weight_decay and end_weight_decay",
    ),
    Rule(
        id="SW-MUON-OVERLAP",
        doc="Muon orthogonalises whole matrices of gradients and cannot start while they are still being reduced.",
        source=f"{_ARGS}:1026",
        when="optimizer=muon",
        then="!overlap_grad_reduce & !overlap_param_gather",
        message="optimizer muon with overlap_grad_reduce or overlap_param_gather: dist_muon would do it",
        since="4.6",
    ),
    Rule(
        id="SW-MUON-LR",
        doc="A learning rate of Muon means nothing to another optimizer.",
        source=f"{_ARGS}:1046",
        flags=("muon_lr", "muon_min_lr", "optimizer"),
        check=lambda facts: (
            "muon" not in str(facts["optimizer"]) and (not (facts["muon_lr"] is None and facts["muon_min_lr"] is None))
        ),
        message="muon_lr and muon_min_lr need optimizer muon or dist_muon, not {optimizer}",
        since="4.6",
    ),
    Rule(
        id="SW-FSDP-OPTIMIZER",
        doc="Megatron-FSDP shards the states of Adam and SGD only.",
        source=f"{_ARGS}:964",
        when="use_megatron_fsdp & optimizer!=adam|sgd",
        message="Megatron-FSDP (zero_stage) works with adam and sgd, not {optimizer}",
        since="4.6",
    ),
    Rule(
        id="SW-FSDP-CONNECTIONS",
        doc="Megatron-FSDP needs several hardware queues; swift itself sets CUDA_DEVICE_MAX_CONNECTIONS=1 by default.",
        source=f"{_ARGS}:967",
        flags=("use_megatron_fsdp",),
        fields=("backend.env",),
        when="use_megatron_fsdp",
        check=lambda facts: facts.job.backend.env.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1",
        reads="job.backend.env",
        message="Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS above 1: backend.env sets it to 1",
        since="4.6",
    ),
)

_BACKENDS = ("flash", "fused", "unfused", "local", "auto", "flash_2", "flash_3", "flash_4")

TUNING = (
    Rule(
        id="SW-NUM-LABELS",
        doc="A classifier has a number of labels; a reward model's is 1 by default.",
        source="ms-swift 4.6.0 model/model_meta.py:319",
        when="task_type=seq_cls & !num_labels? & job.task.type!=reward_model",
        message="task_type seq_cls needs num_labels",
        since="4.6",
    ),
    Rule(
        id="SW-ADAPTERS-ONE",
        doc="Training continues from one adapter.",
        source=f"{_ARGS}:1119; 3.12.6 :818",
        flags=("adapters",),
        check=lambda facts: (
            len(facts.items("adapters")) > 1 and f"{len(facts.items('adapters'))} adapters: training continues from one"
        ),
        since="3.10",
    ),
    Rule(
        id="SW-LORA-LLM-MERGE",
        doc="lora_llm trains adapters of the language model beside all weights of the rest: they are saved merged.",
        source=f"{_ARGS}:928",
        flags=("tuner_type", "merge_lora", "no_save_optim"),
        when="tuner_type=lora_llm",
        check=lambda facts: (
            not (facts["save_safetensors"] if facts["merge_lora"] is None else facts["merge_lora"])
            or not facts["no_save_optim"]
        ),
        reads="save_safetensors",
        message="tuner_type lora_llm needs merge_lora true and no_save_optim true",
        since="4.6",
    ),
    Rule(
        id="SW-LORA-LLM-LANGUAGE",
        doc="lora_llm distinguishes the language model from the rest of a multimodal model.",
        source=f"{_ARGS}:801",
        when="tuner_type=lora_llm & language_model_only",
        message="tuner_type lora_llm with language_model_only true: use lora",
        since="4.6",
    ),
    Rule(
        id="SW-LORA-LLM-TEXT",
        doc="lora_llm distinguishes the language model from the rest of a multimodal model; a text model has no rest.",
        source=f"{_ARGS}:927",
        when="tuner_type=lora_llm & job.model.model_type?",
        message="tuner_type lora_llm with the text model {job.model.model_type}: use lora",
        since="4.6",
    ),
    Rule(
        id="SW-QK-LAYERNORM-DECAY",
        doc="Weight decay of the query and key norms is written for models whose norms are centred on zero.",
        source=f"{_ARGS}:881; 4.0.0 megatron/arguments/megatron_args.py:615",
        fields=("model.model_type",),
        when="apply_wd_to_qk_layernorm & job.model.model_type?",
        then="job.model.model_type=qwen3_next|qwen3_5|qwen3_5_moe|qwen4_exp",
        message="apply_wd_to_qk_layernorm is not for {job.model.model_type}",
        since="4.0",
    ),
    Rule(
        id="SW-SINK-FLASH",
        doc="Flash attention has no learnable sink; it is swift's default backend.",
        source="ms-swift 4.6.0 megatron/model/utils.py:17",
        flags=("attention_backend",),
        fields=("kernels.attention_backend", "model.softmax_type"),
        when="job.model.softmax_type=learnable & attention_backend=flash|flash_2|flash_3|flash_4",
        message="attention_backend {attention_backend} has no learnable softmax_type: unfused or fused",
        since="4.6",
    ),
    Rule(
        id="SW-TORCH-DTYPE",
        doc="The dtype is named as in torch; any other name ends with an AttributeError.",
        source="ms-swift 4.6.0 utils/hf_config.py:186",
        phase="parse",
        when="torch_dtype?",
        then="torch_dtype=float16|bfloat16|float32|torch.float16|torch.bfloat16|torch.float32",
        message="torch_dtype {torch_dtype}: float16, bfloat16 or float32",
        since="3.10",
    ),
    Rule(
        id="SW-SKIP-INIT",
        doc="The driver of a Ray pipeline alone skips the initialisation; a training then has no process group.",
        source="ms-swift 4.6.0 megatron/arguments/megatron_base_args.py:19",
        when="skip_megatron_init",
        message="skip_megatron_init is for the driver of a Ray pipeline: leave it out",
        since="4.6",
    ),
    Rule(
        id="SW-LORA-DEEPSEEK-V41",
        doc="Selective recompute frees what the adapters of DeepSeek-V4.1 still need in the backward pass.",
        source=f"{_ARGS}:824",
        when="model_type=deepseek_v41 & @lora & recompute_granularity=selective",
        message="LoRA of deepseek_v41 needs recompute.granularity full, or none (the default is selective)",
        since="4.6",
    ),
    Rule(
        id="SW-BRIDGE-LORA",
        doc="NVIDIA's megatron-bridge does not load adapters yet.",
        source=f"{_ARGS}:811",
        when="bridge_backend=megatron-bridge & tuner_type!=None|full",
        message="bridge_backend megatron-bridge trains all weights only: use mcore-bridge for {tuner_type}",
        since="4.6",
    ),
    Rule(
        id="SW-BRIDGE-TASK",
        doc="NVIDIA's megatron-bridge knows causal language models only.",
        source=f"{_ARGS}:872",
        when="bridge_backend=megatron-bridge",
        then="task_type=None|causal_lm & rlhf_type!=rm",
        message="bridge_backend megatron-bridge trains causal language models only",
        since="4.6",
    ),
    Rule(
        id="SW-ATTENTION",
        doc="An unknown attention backend ends in a bare KeyError.",
        source=f"{_ARGS}:973-993",
        flags=("attention_backend",),
        when="attention_backend!=None",
        check=lambda facts: facts["attention_backend"] not in _BACKENDS,
        message=f"attention_backend {{attention_backend}} is not one of {', '.join(_BACKENDS)}",
        since=FOUR,
    ),
    Rule(
        id="SW-FLASH-SINK",
        phase="config",
        doc="Flash attention has no learnable softmax offset (gpt-oss).",
        source="ms-swift 4.6.0 megatron/model/utils.py:14",
        flags=("attention_backend", "megatron_extra_kwargs"),
        check=lambda facts: (
            str(facts["attention_backend"]).startswith("flash")
            and isinstance(facts["megatron_extra_kwargs"], dict)
            and (facts["megatron_extra_kwargs"].get("softmax_type") == "learnable")
        ),
        message="attention_backend {attention_backend} has no learnable softmax: use fused or unfused",
        since="4.6",
    ),
)


def _built(row: Unbuildable) -> Rule:
    return Rule(
        id=row.id,
        doc=row.doc,
        source=row.source,
        fields=row.fields,
        check=lambda facts: (
            row.when(facts.job.model) and f"Megatron-SWIFT cannot build this model: {row.say(facts.job.model)}"
        ),
        reads=" ".join(
            f"job.{path}" for path in ("model.model_type", "model.num_experts", "model.overridden", *row.fields)
        ),
        since=row.since,
        until=row.until,
    )


declare((*DATA, *PARALLEL, *CHECKPOINT, *OPTIMIZER, *TUNING), backends=BACKENDS)
declare((_built(row) for row in ROWS if row.id), backends=BACKENDS, phase="model")
