"""Values that Megatron-SWIFT changes silently, and findings from real runs: old value, new value, reason."""

from collections.abc import Mapping
from typing import Any

from backends.megatron.mapping.factories import mapping_of
from backends.megatron.mapping.model import source
from backends.megatron.rules.terms import BACKENDS, FOUR, chunks, trains_adapters
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.sanity_checks import layout_chunks
from launcher.rules.table import declare

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_BASE = "ms-swift 4.6.0 megatron/arguments/megatron_base_args.py"
_UTILS = "ms-swift 4.6.0 megatron/model/utils.py"
_BRIDGE = "mcore-bridge 1.6.5 config/parser.py"


def _has_chunks(facts: RuleContext) -> bool:
    layout = facts["pipeline_model_parallel_layout"]
    return chunks(facts) > 1 or (
        layout is not None and len(layout_chunks(str(layout))) > facts["pipeline_model_parallel_size"]
    )


def _extra(facts: RuleContext) -> Mapping[str, Any]:
    return mapping_of(facts["megatron_extra_kwargs"]) or {}


DATA = (
    Rule(
        id="SW-SET-PADDING-FREE",
        severity="change",
        flags=("padding_free", "packing"),
        when="packing & padding_free? & padding_free=False",
        sets={"padding_free": True},
        message="padding_free false → true: packed sequences are concatenated without padding",
        doc="Packing always concatenates without padding.",
        source=f"{_BASE}:36",
    ),
    Rule(
        id="SW-SET-SEQUENCE-SIZE",
        severity="change",
        flags=("sequence_parallel_size", "context_parallel_size"),
        when="sequence_parallel_size?",
        check=lambda facts: facts["sequence_parallel_size"] != facts["context_parallel_size"],
        sets={"sequence_parallel_size": "{context_parallel_size}"},
        message="sequence_parallel_size {sequence_parallel_size} → {context_parallel_size}: it is the context "
        "parallel size",
        doc="The option of swift's other trainers follows the context parallel size.",
        source=f"{_BASE}:35",
        since=FOUR,
        fields=("parallel.cp",),
    ),
    Rule(
        id="SW-SET-PACKING-LENGTH",
        severity="change",
        flags=("packing_length", "max_length"),
        when="packing & packing_length?",
        check=lambda facts: facts["packing_length"] != facts["max_length"],
        sets={"max_length": "{packing_length}"},
        message="sequence length {max_length} → {packing_length}: packing_length wins over max_length",
        doc="Packed sequences are as long as packing_length says.",
        source=f"{_BASE}:39; base_args.py:227",
        since="3.7",
    ),
    Rule(
        id="SW-SET-WORKERS",
        severity="change",
        flags=("dataloader_num_workers", "streaming"),
        when="streaming & dataloader_num_workers? & dataloader_num_workers>1",
        sets={"dataloader_num_workers": 1},
        message="dataloader_num_workers {dataloader_num_workers} → 1: a stream is read by one process",
        doc="A stream is read by one worker.",
        source=f"{_BASE}:44",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-WORKERS-OLD",
        severity="change",
        flags=("num_workers", "streaming"),
        when="streaming & num_workers? & num_workers>1",
        sets={"num_workers": 1},
        message="num_workers {num_workers} → 1: a stream is read by one process",
        doc="A stream is read by one worker.",
        source="ms-swift 3.5.3 train_args.py:47",
        until="3.99",
    ),
    Rule(
        id="SW-SET-SPLIT",
        severity="change",
        when="split_dataset_ratio? & split_dataset_ratio>0",
        then="!streaming & !val_dataset",
        sets={"split_dataset_ratio": 0.0},
        message="split_dataset_ratio {split_dataset_ratio} → 0: a stream, or one with its own validation data, "
        "is not split",
        doc="A stream is not split, nor is a data set that has validation data beside it.",
        source="ms-swift 4.6.0 data_args.py:129",
        fields=("data.validation_ratio", "data.streaming", "data.validation_paths"),
    ),
    Rule(
        id="SW-SET-EPOCHS",
        phase="launch",
        severity="change",
        flags=("num_train_epochs", "train_iters"),
        when="num_train_epochs? & train_iters? & !streaming",
        message="train_iters {train_iters} → what {num_train_epochs} epochs make: epochs win over steps",
        doc="For data that is not streamed, epochs win over a given number of steps.",
        source=f"{_ARGS}:1149",
        fields=("schedule.epochs", "schedule.train_iters", "schedule.train_samples"),
        since=FOUR,
    ),
    Rule(
        id="SW-SET-SAVE-STEPS",
        phase="launch",
        severity="change",
        when="save_strategy=epoch & save_steps?",
        message="save_steps {save_steps} → one epoch: save_strategy epoch wins, for evaluation too",
        doc="Saving by epochs replaces the intervals of checkpoints and evaluations.",
        source=f"{_ARGS}:1142",
        since="3.9",
    ),
    Rule(
        id="SW-SET-LAZY",
        severity="change",
        flags=("lazy_tokenize",),
        when="lazy_tokenize=None & cached_dataset",
        sets={"lazy_tokenize": False},
        tells_unwritten=True,
        message="lazy_tokenize unset → false: a cached data set is tokenized already",
        doc="A cached data set is tokenized already.",
        source="ms-swift 4.6.0 base_args.py:155",
        since="3.10",
    ),
    Rule(
        id="SW-SET-FP8-PADDING",
        severity="change",
        when="fp8_recipe=blockwise & !fp8_format",
        message="sequences are padded to multiples of 128: fp8_recipe blockwise does so even without fp8_format",
        doc="The blockwise recipe pads sequences to 128 tokens even where FP8 is off.",
        source="ms-swift 4.6.0 megatron/utils/utils.py:238",
        since=FOUR,
    ),
)

PARALLEL = (
    Rule(
        id="SW-SET-VPP",
        severity="change",
        when="virtual_pipeline_model_parallel_size? & virtual_pipeline_model_parallel_size=1",
        sets={"virtual_pipeline_model_parallel_size": None},
        message="vpp 1 → unset: one chunk per stage is the plain schedule",
        doc="One chunk per stage is the plain schedule.",
        source=f"{_ARGS}:1110",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-LAYOUT-VPP",
        severity="change",
        flags=("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout"),
        when="pipeline_model_parallel_layout!=None & virtual_pipeline_model_parallel_size?",
        check=lambda facts: (
            chunks(facts) * facts["pipeline_model_parallel_size"]
            != len(layout_chunks(str(facts["pipeline_model_parallel_layout"])))
        ),
        reads="@chunks pipeline_model_parallel_size",
        message="vpp {virtual_pipeline_model_parallel_size} → the chunks of the layout: the layout wins",
        doc="The number of chunks follows from the layout.",
        source=f"{_ARGS}:1107",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-P2P",
        severity="change",
        flags=("overlap_p2p_comm", "virtual_pipeline_model_parallel_size"),
        when="overlap_p2p_comm? & overlap_p2p_comm",
        check=lambda facts: not _has_chunks(facts),
        reads="pipeline_model_parallel_layout @chunks pipeline_model_parallel_size",
        sets={"overlap_p2p_comm": False},
        message="overlap_p2p_comm true → false: only the schedule with chunks (vpp) overlaps pipeline communication",
        doc="Pipeline communication overlaps only in the schedule with chunks.",
        source=f"{_ARGS}:1112",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-ALIGN",
        severity="change",
        flags=("align_param_gather", "virtual_pipeline_model_parallel_size"),
        when="align_param_gather? & align_param_gather",
        check=lambda facts: not _has_chunks(facts),
        reads="pipeline_model_parallel_layout @chunks pipeline_model_parallel_size",
        sets={"align_param_gather": False},
        message="align_param_gather true → false: it aligns the chunks of stages, and there are none",
        doc="Weight gathering is aligned over chunks only.",
        source=f"{_ARGS}:1113",
        since=FOUR,
        fields=("parallel.vpp",),
    ),
    Rule(
        id="SW-SET-DENSE-ETP",
        phase="config",
        severity="change",
        when="job.model.hidden_size!=None & !job.model.is_moe & expert_tensor_parallel_size? & "
        "expert_tensor_parallel_size>1",
        sets={"expert_tensor_parallel_size": 1},
        message="expert_tensor_parallel_size {expert_tensor_parallel_size} → 1: a dense model has no experts",
        doc="Expert parallelism of a dense model is dropped.",
        source=f"{_UTILS}:67",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-FSDP",
        severity="change",
        when="use_megatron_fsdp & use_distributed_optimizer=False",
        sets={"use_distributed_optimizer": True},
        message="use_distributed_optimizer false → true: Megatron-FSDP shards the optimizer anyway",
        doc="Megatron-FSDP includes the distributed optimizer.",
        source=f"{_ARGS}:960",
        since="4.6",
    ),
    Rule(
        id="SW-SET-MUON",
        severity="change",
        flags=("optimizer", "use_distributed_optimizer"),
        check=lambda facts: "muon" in str(facts["optimizer"]) and facts["use_distributed_optimizer"],
        sets={"use_distributed_optimizer": False},
        tells_unwritten=True,
        message="use_distributed_optimizer true → false: {optimizer} needs whole matrices",
        doc="Muon works on whole matrices: optimizer states are not sharded.",
        source=f"{_ARGS}:1031",
        since="4.6",
    ),
)

PRECISION = (
    Rule(
        id="SW-SET-DTYPE",
        phase="parse",
        severity="change",
        flags=("torch_dtype",),
        check=lambda facts: (
            str(facts["torch_dtype"]) in ("float32", "torch.float32")
            and facts["fp16"] is None
            and facts["bf16"] is None
        ),
        reads="fp16 bf16",
        message="torch_dtype float32 → fp16 mixed precision, unless fp16 and bf16 are both false",
        doc="A float32 model trains in fp16 unless both mixed precisions are switched off.",
        source="ms-swift 4.6.0 model_args.py:130",
        fields=("precision.dtype",),
    ),
    Rule(
        id="SW-SET-QK-SCALING",
        severity="change",
        when="job.precision.dtype=fp16 & apply_query_key_layer_scaling=None",
        sets={"apply_query_key_layer_scaling": True},
        tells_unwritten=True,
        message="apply_query_key_layer_scaling unset → true: fp16 training scales Q·K by the layer",
        doc="fp16 training scales attention scores by the layer's number, and softmax is then in fp32.",
        source=f"{_ARGS}:794",
    ),
    Rule(
        id="SW-SET-GRADS",
        severity="change",
        flags=("accumulate_allreduce_grads_in_fp32", "main_grads_dtype"),
        when="job.precision.dtype=bf16 & main_grads_dtype=None|fp32 & accumulate_allreduce_grads_in_fp32? & "
        "accumulate_allreduce_grads_in_fp32=False",
        sets={"accumulate_allreduce_grads_in_fp32": True},
        message="accumulate_allreduce_grads_in_fp32 false → true: bf16 with fp32 main gradients reduces in fp32",
        doc="bf16 training with fp32 main gradients always reduces in fp32.",
        source=f"{_ARGS}:1211",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-SOFTMAX",
        phase="config",
        severity="change",
        when="apply_query_key_layer_scaling & attention_softmax_in_fp32=False",
        sets={"attention_softmax_in_fp32": True},
        message="attention_softmax_in_fp32 false → true: scaling Q·K by the layer needs it",
        doc="Scaling attention scores by the layer needs a softmax in fp32.",
        source="megatron-core 0.16.1 transformer_config.py:1038; 0.12.1:617",
    ),
    Rule(
        id="SW-SET-UNFUSED",
        phase="config",
        severity="change",
        flags=("padding_free", "attention_backend"),
        when="attention_backend=unfused & padding_free & !packing",
        sets={"padding_free": False},
        tells_unwritten=True,
        message="padding_free true → false: attention_backend unfused needs padded sequences",
        doc="Unfused attention knows padded sequences only.",
        source=f"{_UTILS}:21",
        since=FOUR,
    ),
    Rule(
        id="SW-PACKING-UNFUSED",
        phase="config",
        doc="Unfused attention switches padding-free training off, without which packed samples see one another.",
        source=f"{_UTILS}:21",
        when="packing & attention_backend=unfused",
        message="packing with attention_backend unfused: padding_free is switched off, and samples of a sequence "
        "see each other",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-ROPE-FUSION",
        phase="config",
        severity="change",
        when="apply_rope_fusion & job.model.position_embedding!=rope",
        sets={"apply_rope_fusion": False},
        message="apply_rope_fusion true → false: the model has no plain rotary positions",
        doc="The fused kernel rotates plain RoPE only.",
        source=f"{_UTILS}:61",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-BIAS-DROPOUT",
        phase="config",
        severity="change",
        flags=("bias_dropout_fusion", "moe_grouped_gemm"),
        when="job.model.linear_bias & job.model.is_moe & moe_grouped_gemm & bias_dropout_fusion? & bias_dropout_fusion",
        sets={"bias_dropout_fusion": False},
        message="bias_dropout_fusion true → false: grouped experts with bias do not have it",
        doc="Grouped experts with bias do not fuse bias and dropout.",
        source=f"{_UTILS}:65",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-GRADIENT-FUSION",
        doc="Without apex the fusion of gradient accumulation is switched off with a warning in the log.",
        source=f"{_ARGS}:902",
        when="gradient_accumulation_fusion? & gradient_accumulation_fusion",
        message="gradient_accumulation_fusion true → false where apex is not installed",
        severity="change",
        since="4.6",
    ),
)


def _names_tied_head(facts: RuleContext) -> bool:
    other = (
        facts["task_type"] not in (None, "causal_lm", "generative_reranker") or facts.job.task.type == "reward_model"
    )
    return bool(other and facts.job.model.tie_word_embeddings)


TUNING = (
    Rule(
        id="SW-SET-MERGE",
        severity="change",
        flags=("merge_lora",),
        when="@lora & merge_lora=None & save_safetensors",
        sets={"merge_lora": True},
        tells_unwritten=True,
        message="merge_lora unset → true: merged weights are written beside the adapters (save_safetensors)",
        doc="With save_safetensors, merged weights are written unless merge_lora is false.",
        source=f"{_ARGS}:923",
        since="4.6",
        fields=("lora.merge", "checkpoint.save_safetensors"),
    ),
    Rule(
        id="SW-SET-TUNER",
        severity="change",
        flags=("tuner_type", "adapters", "mcore_adapter"),
        when="tuner_type=None|full",
        then="!adapters & !mcore_adapter & !ref_adapters & !mcore_ref_adapter",
        sets={"tuner_type": "lora"},
        tells_unwritten=True,
        message="tuner_type full → lora: adapters are given",
        doc="Adapters that are given are trained, not all weights.",
        source=f"{_ARGS}:932",
        since=FOUR,
        fields=("lora.rank", "lora.load"),
    ),
    Rule(
        id="SW-SET-UNTIE",
        severity="change",
        flags=("task_type",),
        check=_names_tied_head,
        reads="job.task.type job.model.tie_word_embeddings",
        message="tie_word_embeddings true → false: this task has a head of its own",
        doc="Tasks other than causal language models have a head of their own.",
        source=f"{_ARGS}:898",
        since=FOUR,
        fields=("task.type", "model.tie_word_embeddings"),
    ),
    Rule(
        id="SW-SET-REWARD",
        severity="change",
        flags=("task_type", "num_labels"),
        when="job.task.type=reward_model",
        check=lambda facts: (
            (facts.given("task_type") and facts["task_type"] != "seq_cls")
            or (facts.given("num_labels") and facts["num_labels"] != 1)
        ),
        sets={"task_type": "seq_cls", "num_labels": 1},
        message="task_type → seq_cls and num_labels → 1: a reward model gives one number",
        doc="A reward model classifies with one label.",
        source="ms-swift 4.6.0 rlhf_args.py:17",
        since="3.7",
        fields=("task.type",),
    ),
)


def _initialises(facts: RuleContext) -> bool:
    return bool(facts["tensor_model_parallel_size"] > 1 and not trains_adapters(facts))


def _offline(facts: RuleContext) -> bool:
    env = facts.job.backend.env
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_OFFLINE")
    return any(str(env.get(name, "0")).lower() in ("1", "true", "on", "yes") for name in names)


def _balances_by_bias(facts: RuleContext) -> bool:
    model = facts.job.model
    written = {"moe_router_bias_update_rate"} & set(_extra(facts)) or facts.given("moe_router_bias_update_rate")
    return bool(model.router_expert_bias and source(facts.job) and model.pretrained is not False and not written)


def _scores(facts: RuleContext) -> bool:
    model = facts.job.model
    named = source(facts.job) is not None and "moe_router_score_function" not in _extra(facts)
    return bool(named and model.model_type == "deepseek_v3" and model.scoring_func == "sigmoid") and (
        not model.router_expert_bias
    )


SEEN = (
    Rule(
        id="SW-SET-INITIALIZATION",
        phase="model",
        severity="change",
        flags=("perform_initialization", "tensor_model_parallel_size"),
        check=lambda facts: (
            _initialises(facts)
            and facts["perform_initialization"] is True
            and facts.written["perform_initialization"].origin == "derived"
        ),
        reads="@lora",
        message="perform_initialization false → true: else the gradient norm would count one vocabulary shard only",
        doc="With tensor parallelism the vocabulary's weights are marked as split only where they are initialised.",
        source="megatron-core 0.16.1 tensor_parallel/layers.py:244; seen in runs: norm 7.188 instead of 7.873",
        since=FOUR,
        fields=("parallel.tp",),
    ),
    Rule(
        id="SW-INITIALIZATION-TP",
        phase="model",
        doc="With tensor parallelism and no initialisation, the gradient norm counts one shard of the vocabulary "
        "only: clipping changes and the loss drifts.",
        source="megatron-core 0.16.1 tensor_parallel/layers.py:244,265; seen in runs: norm 7.188 instead of 7.873",
        flags=("perform_initialization", "tensor_model_parallel_size"),
        fields=("parallel.tp",),
        check=lambda facts: (
            _initialises(facts) and not facts["perform_initialization"] and not facts["use_megatron_fsdp"]
        ),
        reads="@lora use_megatron_fsdp",
        message="perform_initialization false with tp {tensor_model_parallel_size}: the gradient norm counts one "
        "vocabulary shard only; set it to true, weights are loaded afterwards anyway",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-FP32-RESUME",
        phase="launch",
        doc="Resuming the distributed optimizer in fp32 writes into views of leaf tensors, which PyTorch refuses.",
        source="megatron-core 0.16.1 optimizer/distrib_optimizer.py; seen in runs of ms-swift 4.6.0",
        flags=("mcore_model", "torch_dtype", "no_load_optim"),
        fields=("checkpoint.load", "precision.dtype", "checkpoint.no_load_optim"),
        when="job.precision.dtype=fp32 & mcore_model? & finetune=False & use_distributed_optimizer & !no_load_optim",
        message="resuming in fp32 fails while the optimizer is loaded (a view of a leaf variable is written in "
        "place): train in bf16, or set checkpoint.no_load_optim",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-CHECK-MODEL",
        phase="parse",
        doc="swift asks a hub for the model's newest revision, which takes long where there is no network.",
        source="ms-swift 4.6.0 model_args.py check_model; seen in runs: 20 s",
        flags=("check_model",),
        fields=("backend.env",),
        check=lambda facts: _offline(facts) and facts["check_model"] is not False,
        reads="job.backend.env",
        message="the environment is offline, but check_model asks a hub for the newest revision: pass "
        "check_model false",
        severity="warning",
        since="3.7",
    ),
    Rule(
        id="SW-BIAS-RATE",
        phase="model",
        doc="mcore-bridge takes config.json's aux_loss_alpha as the step of the expert bias, without a word.",
        source=f"{_BRIDGE}: moe_router_bias_update_rate from aux_loss_alpha",
        flags=("megatron_extra_kwargs",),
        fields=("moe.bias_update_rate", "model.router_expert_bias"),
        check=_balances_by_bias,
        reads="moe_router_bias_update_rate job.model.router_expert_bias job.model.path job.model.hub_id "
        "job.model.pretrained",
        message="config.json's aux_loss_alpha, if there is one, becomes the step of the expert bias: set "
        "moe.bias_update_rate (0.001 is usual)",
        severity="warning",
        since="4.3",
    ),
    Rule(
        id="SW-SCORING",
        phase="model",
        doc="mcore-bridge routes with softmax where config.json does not say scoring_func.",
        source=f"{_BRIDGE}: moe_router_score_function from scoring_func",
        flags=("megatron_extra_kwargs",),
        fields=("model.scoring_func",),
        check=_scores,
        reads="job.model.path job.model.hub_id job.model.model_type job.model.scoring_func "
        "job.model.router_expert_bias",
        message="the model routes with sigmoid; if config.json does not say scoring_func, softmax would be used: "
        "pass megatron_extra_kwargs {{moe_router_score_function: sigmoid}}",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-NPU-EXPERTS",
        phase="model",
        doc="On Ascend devices the grouped kernel takes at most 128 experts of one rank.",
        source="mcore-bridge 1.6.5 config/model_config.py:478",
        flags=("expert_model_parallel_size",),
        when="job.hardware.device=npu & job.model.num_experts!=None",
        check=lambda facts: facts.job.model.num_experts // max(1, facts["expert_model_parallel_size"]) > 128,
        message="more than 128 experts on one device: raise parallel.ep on Ascend devices",
        severity="warning",
        since="4.6",
    ),
)

declare((*DATA, *PARALLEL, *PRECISION, *TUNING, *SEEN), backends=BACKENDS)
