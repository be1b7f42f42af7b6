"""Checks of ms-swift's argument classes, from 3.5 to 4.6."""

from backends.megatron.families import ROWS
from backends.megatron.rules.terms import BACKENDS, FOUR, NAME, THREE
from launcher.mapping.unbuildable_models import Unbuildable
from launcher.rules.registry import Rule, RuleContext, lower
from launcher.rules.table import checked, declare, needs, never

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_BASE = "ms-swift 4.6.0 arguments/base_args"

lower("MOE-EP-DENSE", NAME, "ep is silently ignored for a dense model", since=FOUR)
lower("SEQ-POSITIONS", NAME, "it does not check this, but the model was not trained on longer sequences", since=FOUR)
lower("LR-WARMUP-TWICE", NAME, "lr_warmup_fraction silently takes precedence", since=FOUR)
lower("MOE-BIAS-SIGMOID", NAME, "the bias is silently ignored with softmax", since=FOUR)


def _no_model(context: RuleContext) -> bool:
    sources = ("model", "mcore_model", "load")
    if context["use_ray"]:  # Ray roles are configured in a separate file
        return False
    if not context.existing and context.job.model.hidden_size is not None:  # what its config.json lacks is an error
        return False
    return not any(context.given(name) for name in sources) and context["perform_initialization"] is not True


# fmt: off
DATA = (
    Rule(
        id="SW-CONFIG-NAMES",
        doc="Versions that need transformers 4 take the RoPE base and the number of experts of the model's class where "
        "config.json has only the names of transformers 5.",
        source="ms-swift 3.12.6 swift/megatron/utils/config.py:16, 31; measured with transformers 4.57.1: rope_theta "
        "10000 and 128 experts, whatever config.json says",
        phase="model",
        when="job.model.newer_names~rope_parameters|num_local_experts",
        message="config.json has rope_parameters or num_local_experts, which came with transformers 5, without "
        "rope_theta or num_experts: transformers 4, which this version needs, takes its own defaults. Rename them "
        "there (rope_theta and rope_scaling, num_experts), or use backend.version=4.6.0 with transformers 5",
        fields=("model.path",),
        until="3.99",
        stricter=True,
        reason="another model is trained without an error",
    ),
    never("SW-LAZY-PACKING", "lazy_tokenize & packing",
          "Packing needs the length of every sample before training; lazy tokenization has it only during training.",
          f"{_BASE}/base_args.py:165", since="3.7",
          message="lazy_tokenize cannot be combined with packing, which needs the length of every sample before "
          "training"),
    never("SW-LAZY-STREAMING", "lazy_tokenize & streaming",
          "A stream is tokenized as it is read; lazy tokenization needs data that is read at the start.",
          f"{_BASE}/base_args.py:167; 3.6.4 llm/argument/train_args.py:138",
          message="lazy_tokenize cannot be combined with streaming: a stream is always tokenized as it is read"),
    never("SW-STREAM-ITERS", "streaming & train_iters=None",
          "A stream has no length, so that epochs cannot be turned into steps: the number of steps must be given.",
          f"{_ARGS}:1155, when training starts", since=FOUR, phase="launch",
          flags=("streaming", "train_iters", "num_train_epochs"),
          message="streaming needs train_iters: a stream has no length, so that epochs cannot be converted to steps"),
    checked("SW-STREAM-EVAL", lambda context: context["eval_iters"] is None or context["eval_iters"] < 0,
            "A streamed validation set has no length: the batches of an evaluation must be given.",
            f"{_ARGS}:1164, when training starts", when="streaming & val_dataset", since=FOUR, phase="launch",
            flags=("eval_iters", "streaming", "val_dataset"), fields=("evaluation.iters", "data.streaming"),
            message="streaming with a validation set needs evaluation.iters: a stream has no length"),
    never("SW-EPOCH-STREAM", "streaming & save_strategy=epoch",
          "Saving at the end of epochs needs a data set with a length.", f"{_ARGS}:1147, when training starts",
          since="3.9", phase="launch", flags=("save_strategy", "streaming"),
          message="save_strategy epoch cannot be combined with streaming: a stream has no epochs"),
    needs("SW-GROUP-BY-LENGTH", "group_by_length", "!padding_free & !packing",
          "Grouping samples by length has no effect where samples are concatenated without padding, and is refused.",
          f"{_ARGS}:852", since="4.1", flags=("group_by_length", "padding_free"),
          message="group_by_length with padding_free (on by default): set batch.padding_free=false"),
    needs("SW-TEMPLATE-PACKING", "template=gpt_oss", "!packing & !padding_free",
          "The template of gpt-oss joins no samples: packing and padding-free batches are refused.",
          "ms-swift 4.6.0 template/templates/llm.py:444, pipelines/train/sft.py:77", since=FOUR,
          flags=("template", "packing", "padding_free"),
          message="template gpt_oss supports neither packing nor padding_free (on by default): set "
          "batch.packing=false batch.padding_free=false"),
    Rule(
        id="SW-UNEVEN-PP",
        doc="With one stage the size of the first or last one cannot be given, even where it is all layers.",
        source=f"{_ARGS}:885; megatron-core 0.12.1 transformer_config.py:824 divides by zero",
        flags=("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "pipeline_model_parallel_size"),
        when="job.parallel.pp=1 & job.model.num_hidden_layers!=None",
        check=lambda context: (
            context.job.model.num_hidden_layers
            in (context["decoder_first_pipeline_num_layers"], context["decoder_last_pipeline_num_layers"])
        ),
        message="decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers need several stages",
    ),
    checked("SW-SOURCE", _no_model,
            "Training needs a model, or a checkpoint whose args.json names one.",
            "ms-swift 4.6.0 model_args.py:220, megatron/arguments/sft_args.py:51",
            flags=("model", "mcore_model", "load"), fields=("model.path", "model.hub_id", "checkpoint.load"),
            reads="use_ray perform_initialization job.model.hidden_size job.imported.backend",
            message="no model: set model.path or model.hub_id (or checkpoint.load, whose args.json names one)"),
)

PARALLEL = (
    needs("SW-TP-OVERLAP-SP", "tp_comm_overlap", "sequence_parallel & tensor_model_parallel_size>1",
          "Tensor-parallel communication overlaps on sequence-parallel activations, and those need tp above 1.",
          f"{_ARGS}:949; Megatron-LM core_v0.12.1 arguments.py:763",
          message="tp_comm_overlap needs sequence_parallel and tp above 1 (tp {tensor_model_parallel_size}, "
          "sequence_parallel {sequence_parallel})"),
    Rule(
        id="SW-FREEZE-RATIO-PP",
        doc="The share of frozen layers is counted from the first layer, which is on the first stage only.",
        source=f"{_ARGS}:493",
        flags=("freeze_parameters_ratio", "pipeline_model_parallel_size"),
        check=lambda context: (
            0 < (context["freeze_parameters_ratio"] or 0) < 1 and context["pipeline_model_parallel_size"] > 1
        ),
        message="freeze_parameters_ratio {freeze_parameters_ratio} works only with pp 1, not "
        "{pipeline_model_parallel_size}",
        since="3.7",
    ),
    checked("SW-MLP-PADDING-FREE", lambda context: context["sequence_parallel"] or context["context_parallel_size"] > 1,
            "Layers that drop padding inside the MLP cannot be combined with a split sequence; checked up to 4.0 only.",
            "ms-swift 3.12.6 megatron_args.py:611, 4.0.0 :566", when="mlp_padding_free", since="3.9", until="4.1.99",
            flags=("mlp_padding_free", "sequence_parallel", "context_parallel_size"),
            message="mlp_padding_free cannot be combined with sequence or context parallelism"),
    Rule(
        id="SW-MLP-PADDING-FREE-UNCHECKED",
        doc="Versions up to 4.1 refused mlp_padding_free with a split sequence; newer ones do not check it.",
        source="ms-swift 3.12.6 megatron_args.py:611; not checked since 4.2",
        flags=("mlp_padding_free", "sequence_parallel", "context_parallel_size"),
        when="mlp_padding_free",
        check=lambda context: (
            context["context_parallel_size"] > 1
            or (context["sequence_parallel"] and context["tensor_model_parallel_size"] > 1)
        ),
        reads="tensor_model_parallel_size",
        message="mlp_padding_free with sequence or context parallelism: refused up to 4.1, not checked since 4.2",
        severity="warning",
        since="4.2",
    ),
)

CHECKPOINT = (
    never("SW-ASYNC-LIMIT", "async_save & save_total_limit!=None",
          "Old checkpoints are deleted when a new one is complete, which asynchronous saving does not report.",
          f"{_ARGS}:911; 4.0.0 :636", since=FOUR,
          message="async_save cannot be combined with save_total_limit {save_total_limit}"),
    never("SW-SAVE-LIMIT", "save_total_limit!=None & save_total_limit<2",
          "The best and the last checkpoint are always kept, so the limit is at least 2.", f"{_ARGS}:913; 4.0.0 :638",
          since=FOUR,
          message="save_total_limit {save_total_limit} must be at least 2"),
)


OPTIMIZER = (
    needs("SW-WD-CONSTANT", "weight_decay_incr_style=constant", "start_weight_decay=None & end_weight_decay=None",
          "A constant weight decay has no start and end; swift stops with a bare AssertionError.",
          f"{_ARGS}:1217; Megatron-LM core_v0.12.1 arguments.py:718",
          message="start_weight_decay and end_weight_decay need weight_decay_incr_style linear or cosine"),
    needs("SW-WD-INCREASE", "weight_decay_incr_style!=None|constant",
          "start_weight_decay!=None & end_weight_decay!=None",
          "An increasing weight decay needs its start and its end; swift stops with a bare AssertionError.",
          f"{_ARGS}:1221; Megatron-LM core_v0.12.1 arguments.py:723",
          message="weight_decay_incr_style {weight_decay_incr_style} needs start_weight_decay and end_weight_decay"),
    needs("SW-MUON-OVERLAP", "optimizer=muon", "!overlap_grad_reduce & !overlap_param_gather",
          "Muon orthogonalises whole matrices of gradients and cannot start while they are still being reduced.",
          f"{_ARGS}:1026", since="4.1",
          message="optimizer muon does not support overlap_grad_reduce and overlap_param_gather: use dist_muon"),
    Rule(
        id="SW-MUON-LR",
        doc="The rates muon_lr and muon_min_lr have no effect with another optimizer.",
        source=f"{_ARGS}:1046",
        flags=("muon_lr", "muon_min_lr", "optimizer"),
        check=lambda context: (
            "muon" not in str(context["optimizer"])
            and any(context[name] is not None for name in ("muon_lr", "muon_min_lr"))
        ),
        message="muon_lr and muon_min_lr need optimizer muon or dist_muon, not {optimizer}",
        since="4.5.3",
    ),
    never("SW-FSDP-OPTIMIZER", "use_megatron_fsdp & optimizer!=adam|sgd",
          "Megatron-FSDP shards the states of Adam and SGD only.", f"{_ARGS}:964", since="4.5",
          message="Megatron-FSDP (zero_stage) supports the optimizers adam and sgd, not {optimizer}"),
    checked("SW-FSDP-CONNECTIONS", lambda context: context.job.backend.env.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1",
            "Megatron-FSDP needs several hardware queues; swift itself sets CUDA_DEVICE_MAX_CONNECTIONS=1 by default.",
            f"{_ARGS}:967", when="use_megatron_fsdp", since="4.5", flags=("use_megatron_fsdp",),
            fields=("backend.env",), reads="job.backend.env", works=("backend.env.CUDA_DEVICE_MAX_CONNECTIONS=8",),
            message="Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS above 1, but backend.env sets it to 1"),
)
# fmt: on


# fmt: off
TUNING = (
    never("SW-NUM-LABELS", "task_type=seq_cls & !num_labels? & job.task.type!=reward_model",
          "A classifier has a number of labels; a reward model's is 1 by default.",
          "ms-swift 4.6.0 model/model_meta.py:319", since="4.1",
          message="task_type seq_cls needs num_labels"),
    Rule(
        id="SW-ADAPTERS-ONE",
        doc="Training continues from one adapter.",
        source=f"{_ARGS}:1119; 3.12.6 :818",
        flags=("adapters",),
        check=lambda context: (
            len(context.items("adapters")) > 1
            and f"adapters names {len(context.items('adapters'))} adapters: training continues from one only"
        ),
        since="3.10",
    ),
    Rule(
        id="SW-LORA-LLM-MERGE",
        doc="lora_llm trains adapters of the language model and all other weights: checkpoints are saved merged.",
        source=f"{_ARGS}:928",
        flags=("tuner_type", "merge_lora", "no_save_optim"),
        when="tuner_type=lora_llm",
        check=lambda context: (
            not (context["save_safetensors"] if context["merge_lora"] is None else context["merge_lora"])
            or not context["no_save_optim"]
        ),
        reads="save_safetensors",
        message="tuner_type lora_llm needs merge_lora true and no_save_optim true",
        since="4.1",
    ),
    never("SW-LORA-OFF", "lora_rank? & tuner_type=None|full",
          "The rank of LoRA is read only where the tuner is LoRA; the default trains all parameters.",
          f"{_ARGS}:469", since=FOUR, severity="warning", flags=("lora_rank", "tuner_type"),
          message="lora_rank {lora_rank} has no effect with tuner_type full (the default): all parameters are trained"),
    never("SW-LORA-OFF-OLD", "lora_rank? & train_type=None|full",
          "The rank of LoRA is read only where the training is LoRA; the default trains all parameters.",
          "ms-swift 3.12.6 megatron/argument/megatron_args.py:285", until=THREE, severity="warning",
          flags=("lora_rank", "train_type"),
          message="lora_rank {lora_rank} has no effect with train_type full (the default): all parameters are trained"),
    never("SW-LORA-LLM-LANGUAGE", "tuner_type=lora_llm & language_model_only",
          "lora_llm distinguishes the language model from the rest of a multimodal model.", f"{_ARGS}:801", since="4.3",
          message="tuner_type lora_llm cannot be combined with language_model_only: use lora"),
    never("SW-LORA-LLM-TEXT", "tuner_type=lora_llm & job.model.model_type?",
          "lora_llm treats the language model of a multimodal model differently; a text model has no other part.",
          f"{_ARGS}:927", since="4.1",
          message="tuner_type lora_llm needs a multimodal model, not {job.model.model_type}: use lora"),
    needs("SW-QK-LAYERNORM-DECAY", "apply_wd_to_qk_layernorm & job.model.model_type?",
          "job.model.model_type=qwen3_next|qwen3_5|qwen3_5_moe|qwen4_exp",
          "Weight decay of the query and key norms supports models with zero-centred norms only.",
          f"{_ARGS}:881; 4.0.0 megatron/arguments/megatron_args.py:615", since="4.0", fields=("model.model_type",),
          message="apply_wd_to_qk_layernorm does not support {job.model.model_type}"),
    never("SW-SINK-FLASH", "job.model.softmax_type=learnable & attention_backend=flash|flash_2|flash_3|flash_4",
          "Flash attention, ms-swift's default backend, does not support learnable sinks.",
          "ms-swift 4.6.0 megatron/model/utils.py:17", since="4.1", flags=("attention_backend",),
          fields=("kernels.attention_backend", "model.softmax_type"),
          message="attention_backend {attention_backend} does not support softmax_type learnable: use fused or "
          "unfused"),
    needs("SW-TORCH-DTYPE", "torch_dtype?",
          "torch_dtype=float16|bfloat16|float32|torch.float16|torch.bfloat16|torch.float32",
          "The dtype is named as in torch; any other name ends with an AttributeError.",
          "ms-swift 4.6.0 utils/hf_config.py:186", since="3.10", phase="parse",
          message="torch_dtype {torch_dtype} must be float16, bfloat16 or float32"),
    never("SW-SKIP-INIT", "skip_megatron_init",
          "Only the driver of a Ray pipeline skips the initialisation; without it, training has no process group.",
          "ms-swift 4.6.0 megatron/arguments/megatron_base_args.py:19", since="4.3",
          message="skip_megatron_init is for the driver of a Ray pipeline only: remove it"),
    never("SW-LORA-DEEPSEEK-V41", "model_type=deepseek_v41 & @lora & recompute_granularity=selective",
          "Selective recompute frees what the adapters of DeepSeek-V4.1 still need in the backward pass.",
          f"{_ARGS}:824", since="4.6",
          message="LoRA of deepseek_v41 needs recompute.granularity full or none (the default is selective)"),
    never("SW-BRIDGE-LORA", "bridge_backend=megatron-bridge & tuner_type!=None|full",
          "NVIDIA's megatron-bridge does not load adapters yet.", f"{_ARGS}:811", since="4.5",
          message="bridge_backend megatron-bridge does not support tuner_type {tuner_type}: use mcore-bridge"),
    needs("SW-BRIDGE-TASK", "bridge_backend=megatron-bridge", "task_type=None|causal_lm & rlhf_type!=rm",
          "NVIDIA's megatron-bridge supports causal language models only.", f"{_ARGS}:872", since="4.5",
          message="bridge_backend megatron-bridge supports causal language models only"),
    Rule(
        id="SW-FLASH-SINK",
        phase="config",
        doc="Flash attention has no learnable softmax offset (gpt-oss).",
        source="ms-swift 4.6.0 megatron/model/utils.py:14",
        flags=("attention_backend", "megatron_extra_kwargs"),
        check=lambda context: (
            str(context["attention_backend"]).startswith("flash")
            and isinstance(context["megatron_extra_kwargs"], dict)
            and (context["megatron_extra_kwargs"].get("softmax_type") == "learnable")
        ),
        message="attention_backend {attention_backend} does not support softmax_type learnable: use fused or unfused",
        since="4.1",
    ),
)
# fmt: on


# What conditions of models that cannot be built read besides the fields that they report.
_READ = ("model.model_type", "model.num_experts", "model.overridden", "model.num_hidden_layers", "model.moe_layer_freq")


def _built(row: Unbuildable) -> Rule:
    return Rule(
        id=row.id,
        doc=row.doc,
        source=row.source,
        fields=row.fields,
        check=lambda context: (
            row.when(context.job.model) and f"Megatron-SWIFT cannot build this model: {row.describe(context.job.model)}"
        ),
        reads=" ".join(f"job.{path}" for path in (*_READ, *row.fields)),
        works=row.works,
        covers=row.covers,
        since=row.since,
        until=row.until,
    )


declare((*DATA, *PARALLEL, *CHECKPOINT, *OPTIMIZER, *TUNING), backends=BACKENDS)
declare((_built(row) for row in ROWS if row.id), backends=BACKENDS, phase="model")
