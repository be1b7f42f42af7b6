"""Values that Megatron-SWIFT changes silently, and findings from real runs: old value, new value, reason."""

from collections.abc import Mapping
from typing import Any

from backends.megatron.mapping.factories import mapping_of
from backends.megatron.mapping.model import source
from backends.megatron.rules.view import FOUR, SwiftRule, View, declare
from launcher.rules.sanity_checks import layout_chunks

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_BASE = "ms-swift 4.6.0 megatron/arguments/megatron_base_args.py"
_UTILS = "ms-swift 4.6.0 megatron/model/utils.py"
_BRIDGE = "mcore-bridge 1.6.5 config/parser.py"


def _has_chunks(v: View) -> bool:
    layout = v.pipeline_model_parallel_layout
    return v.vpp > 1 or (layout is not None and len(layout_chunks(str(layout))) > v.pipeline_model_parallel_size)


def _extra(v: View) -> Mapping[str, Any]:
    return mapping_of(v.megatron_extra_kwargs) or {}


def changed(id: str, flags: tuple[str, ...], when: Any, say: str, doc: str, source: str, **row: Any) -> SwiftRule:
    """Return a row of severity `change`."""
    return SwiftRule(id=id, flags=flags, when=when, say=say, doc=doc, source=source, severity="change", **row)


DATA = (
    changed(
        "SW-SET-PADDING-FREE",
        ("padding_free", "packing"),
        lambda v: v.packing and v.given("padding_free") and v.padding_free is False,
        "padding_free false → true: packed sequences are concatenated without padding",
        "Packing always concatenates without padding.",
        f"{_BASE}:36",
    ),
    changed(
        "SW-SET-SEQUENCE-SIZE",
        ("sequence_parallel_size", "context_parallel_size"),
        lambda v: v.given("sequence_parallel_size") and v.sequence_parallel_size != v.context_parallel_size,
        "sequence_parallel_size {sequence_parallel_size} → {context_parallel_size}: it is the context parallel size",
        "The option of swift's other trainers follows the context parallel size.",
        f"{_BASE}:35",
        since=FOUR,
        fields=("parallel.cp",),
    ),
    changed(
        "SW-SET-PACKING-LENGTH",
        ("packing_length", "max_length"),
        lambda v: v.packing and v.given("packing_length") and v.packing_length != v.max_length,
        "sequence length {max_length} → {packing_length}: packing_length wins over max_length",
        "Packed sequences are as long as packing_length says.",
        f"{_BASE}:39; base_args.py:227",
        since="3.7",
    ),
    changed(
        "SW-SET-WORKERS",
        ("dataloader_num_workers", "streaming"),
        lambda v: v.streaming and v.given("dataloader_num_workers") and v.dataloader_num_workers > 1,
        "dataloader_num_workers {dataloader_num_workers} → 1: a stream is read by one process",
        "A stream is read by one worker.",
        f"{_BASE}:44",
        since=FOUR,
    ),
    changed(
        "SW-SET-WORKERS-OLD",
        ("num_workers", "streaming"),
        lambda v: v.streaming and v.given("num_workers") and v.num_workers > 1,
        "num_workers {num_workers} → 1: a stream is read by one process",
        "A stream is read by one worker.",
        "ms-swift 3.5.3 train_args.py:47",
        until="3.99",
    ),
    changed(
        "SW-SET-SPLIT",
        ("split_dataset_ratio", "streaming", "val_dataset"),
        lambda v: (v.streaming or v.many("val_dataset")) and (v.written_number("split_dataset_ratio") or 0) > 0,
        "split_dataset_ratio {split_dataset_ratio} → 0: a stream, or one with its own validation data, is not split",
        "A stream is not split, nor is a data set that has validation data beside it.",
        "ms-swift 4.6.0 data_args.py:129",
        fields=("data.validation_ratio", "data.streaming", "data.validation_paths"),
    ),
    changed(
        "SW-SET-EPOCHS",
        ("num_train_epochs", "train_iters"),
        lambda v: v.given("num_train_epochs") and v.given("train_iters") and not v.streaming,
        "train_iters {train_iters} → what {num_train_epochs} epochs make: epochs win over steps",
        "For data that is not streamed, epochs win over a given number of steps.",
        f"{_ARGS}:1149",
        since=FOUR,
    ),
    changed(
        "SW-SET-SAVE-STEPS",
        ("save_strategy", "save_steps"),
        lambda v: v.save_strategy == "epoch" and v.given("save_steps"),
        "save_steps {save_steps} → one epoch: save_strategy epoch wins, for evaluation too",
        "Saving by epochs replaces the intervals of checkpoints and evaluations.",
        f"{_ARGS}:1142",
        since="3.9",
    ),
    changed(
        "SW-SET-LAZY",
        ("lazy_tokenize",),
        lambda v: v.lazy_tokenize is None and v.many("cached_dataset"),
        "lazy_tokenize unset → false: a cached data set is tokenized already",
        "A cached data set is tokenized already.",
        "ms-swift 4.6.0 base_args.py:155",
        since="3.10",
    ),
    changed(
        "SW-SET-FP8-PADDING",
        ("fp8_recipe", "fp8_format"),
        lambda v: v.fp8_recipe == "blockwise" and not v.fp8_format,
        "sequences are padded to multiples of 128: fp8_recipe blockwise does so even without fp8_format",
        "The blockwise recipe pads sequences to 128 tokens even where FP8 is off.",
        "ms-swift 4.6.0 megatron/utils/utils.py:238",
        since=FOUR,
    ),
)

PARALLEL = (
    changed(
        "SW-SET-VPP",
        ("virtual_pipeline_model_parallel_size",),
        lambda v: v.given("virtual_pipeline_model_parallel_size") and v.virtual_pipeline_model_parallel_size == 1,
        "vpp 1 → unset: one chunk per stage is the plain schedule",
        "One chunk per stage is the plain schedule.",
        f"{_ARGS}:1110",
        since=FOUR,
    ),
    changed(
        "SW-SET-LAYOUT-VPP",
        ("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout"),
        lambda v: (
            v.pipeline_model_parallel_layout is not None
            and v.given("virtual_pipeline_model_parallel_size")
            and v.vpp * v.pipeline_model_parallel_size != len(layout_chunks(str(v.pipeline_model_parallel_layout)))
        ),
        "vpp {virtual_pipeline_model_parallel_size} → the chunks of the layout: the layout wins",
        "The number of chunks follows from the layout.",
        f"{_ARGS}:1107",
        since=FOUR,
    ),
    changed(
        "SW-SET-P2P",
        ("overlap_p2p_comm", "virtual_pipeline_model_parallel_size"),
        lambda v: v.given("overlap_p2p_comm") and v.overlap_p2p_comm and not _has_chunks(v),
        "overlap_p2p_comm true → false: only the schedule with chunks (vpp) overlaps pipeline communication",
        "Pipeline communication overlaps only in the schedule with chunks.",
        f"{_ARGS}:1112",
        since=FOUR,
    ),
    changed(
        "SW-SET-ALIGN",
        ("align_param_gather", "virtual_pipeline_model_parallel_size"),
        lambda v: v.given("align_param_gather") and v.align_param_gather and not _has_chunks(v),
        "align_param_gather true → false: it aligns the chunks of stages, and there are none",
        "Weight gathering is aligned over chunks only.",
        f"{_ARGS}:1113",
        since=FOUR,
        fields=("parallel.vpp",),
    ),
    changed(
        "SW-SET-DENSE-ETP",
        ("expert_tensor_parallel_size",),
        lambda v: (
            v.job.model.hidden_size is not None
            and not v.job.model.is_moe
            and v.given("expert_tensor_parallel_size")
            and v.expert_tensor_parallel_size > 1
        ),
        "expert_tensor_parallel_size {expert_tensor_parallel_size} → 1: a dense model has no experts",
        "Expert parallelism of a dense model is dropped.",
        f"{_UTILS}:67",
        since=FOUR,
    ),
    changed(
        "SW-SET-FSDP",
        ("use_megatron_fsdp", "use_distributed_optimizer"),
        lambda v: v.use_megatron_fsdp and v.use_distributed_optimizer is False,
        "use_distributed_optimizer false → true: Megatron-FSDP shards the optimizer anyway",
        "Megatron-FSDP includes the distributed optimizer.",
        f"{_ARGS}:960",
        since="4.6",
    ),
    changed(
        "SW-SET-MUON",
        ("optimizer", "use_distributed_optimizer"),
        lambda v: "muon" in str(v.optimizer) and v.use_distributed_optimizer,
        "use_distributed_optimizer true → false: {optimizer} needs whole matrices",
        "Muon works on whole matrices: optimizer states are not sharded.",
        f"{_ARGS}:1031",
        since="4.6",
    ),
)

PRECISION = (
    changed(
        "SW-SET-DTYPE",
        ("torch_dtype",),
        lambda v: str(v.torch_dtype) in ("float32", "torch.float32") and v.fp16 is None and v.bf16 is None,
        "torch_dtype float32 → fp16 mixed precision, unless fp16 and bf16 are both false",
        "A float32 model trains in fp16 unless both mixed precisions are switched off.",
        "ms-swift 4.6.0 model_args.py:130",
        fields=("precision.dtype",),
    ),
    changed(
        "SW-SET-QK-SCALING",
        ("apply_query_key_layer_scaling",),
        lambda v: v.job.precision.dtype == "fp16" and v.apply_query_key_layer_scaling is None,
        "apply_query_key_layer_scaling unset → true: fp16 training scales Q·K by the layer",
        "fp16 training scales attention scores by the layer's number, and softmax is then in fp32.",
        f"{_ARGS}:794",
    ),
    changed(
        "SW-SET-GRADS",
        ("accumulate_allreduce_grads_in_fp32", "main_grads_dtype"),
        lambda v: (
            v.job.precision.dtype == "bf16"
            and v.main_grads_dtype in (None, "fp32")
            and v.given("accumulate_allreduce_grads_in_fp32")
            and v.accumulate_allreduce_grads_in_fp32 is False
        ),
        "accumulate_allreduce_grads_in_fp32 false → true: bf16 with fp32 main gradients reduces in fp32",
        "bf16 training with fp32 main gradients always reduces in fp32.",
        f"{_ARGS}:1211",
        since=FOUR,
    ),
    changed(
        "SW-SET-SOFTMAX",
        ("apply_query_key_layer_scaling", "attention_softmax_in_fp32"),
        lambda v: v.apply_query_key_layer_scaling and v.attention_softmax_in_fp32 is False,
        "attention_softmax_in_fp32 false → true: scaling Q·K by the layer needs it",
        "Scaling attention scores by the layer needs a softmax in fp32.",
        "megatron-core 0.16.1 transformer_config.py:1038; 0.12.1:617",
    ),
    changed(
        "SW-SET-UNFUSED",
        ("padding_free", "attention_backend"),
        lambda v: v.attention_backend == "unfused" and v.padding_free and not v.packing,
        "padding_free true → false: attention_backend unfused needs padded sequences",
        "Unfused attention knows padded sequences only.",
        f"{_UTILS}:21",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-PACKING-UNFUSED",
        doc="Unfused attention switches padding-free training off, without which packed samples see one another.",
        source=f"{_UTILS}:21",
        flags=("packing", "attention_backend"),
        when=lambda v: v.packing and v.attention_backend == "unfused",
        say="packing with attention_backend unfused: padding_free is switched off, and samples of a sequence see each "
        "other",
        severity="warning",
        since=FOUR,
    ),
    changed(
        "SW-SET-ROPE-FUSION",
        ("apply_rope_fusion",),
        lambda v: v.apply_rope_fusion and v.job.model.position_embedding != "rope",
        "apply_rope_fusion true → false: the model has no plain rotary positions",
        "The fused kernel rotates plain RoPE only.",
        f"{_UTILS}:61",
        since=FOUR,
    ),
    changed(
        "SW-SET-BIAS-DROPOUT",
        ("bias_dropout_fusion", "moe_grouped_gemm"),
        lambda v: (
            v.job.model.linear_bias
            and v.job.model.is_moe
            and v.moe_grouped_gemm
            and v.given("bias_dropout_fusion")
            and v.bias_dropout_fusion
        ),
        "bias_dropout_fusion true → false: grouped experts with bias do not have it",
        "Grouped experts with bias do not fuse bias and dropout.",
        f"{_UTILS}:65",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-SET-GRADIENT-FUSION",
        doc="Without apex the fusion of gradient accumulation is switched off with a warning in the log.",
        source=f"{_ARGS}:902",
        flags=("gradient_accumulation_fusion",),
        when=lambda v: v.given("gradient_accumulation_fusion") and v.gradient_accumulation_fusion,
        say="gradient_accumulation_fusion true → false where apex is not installed",
        severity="change",
        since="4.6",
    ),
)


def _names_tied_head(v: View) -> bool:
    other = v.task_type not in (None, "causal_lm", "generative_reranker") or v.job.task.type == "reward_model"
    return bool(other and v.job.model.tie_word_embeddings)


TUNING = (
    changed(
        "SW-SET-MERGE",
        ("merge_lora",),
        lambda v: v.lora and v.merge_lora is None and v.save_safetensors,
        "merge_lora unset → true: merged weights are written beside the adapters (save_safetensors)",
        "With save_safetensors, merged weights are written unless told otherwise.",
        f"{_ARGS}:923",
        since="4.6",
        fields=("lora.merge", "checkpoint.save_safetensors"),
    ),
    changed(
        "SW-SET-TUNER",
        ("tuner_type", "adapters", "mcore_adapter"),
        lambda v: (
            (v.tuner_type or "full") == "full"
            and (v.many("adapters") or v.mcore_adapter or v.many("ref_adapters") or v.mcore_ref_adapter)
        ),
        "tuner_type full → lora: adapters are given",
        "Adapters that are given are trained, not all weights.",
        f"{_ARGS}:932",
        since=FOUR,
        fields=("lora.rank", "lora.load"),
    ),
    changed(
        "SW-SET-UNTIE",
        ("task_type",),
        _names_tied_head,
        "tie_word_embeddings true → false: this task has a head of its own",
        "Tasks other than causal language models have a head of their own.",
        f"{_ARGS}:898",
        since=FOUR,
        fields=("task.type", "model.tie_word_embeddings"),
    ),
    changed(
        "SW-SET-REWARD",
        ("task_type", "num_labels"),
        lambda v: (
            v.job.task.type == "reward_model"
            and ((v.given("task_type") and v.task_type != "seq_cls") or v.written_number("num_labels") not in (None, 1))
        ),
        "task_type → seq_cls and num_labels → 1: a reward model gives one number",
        "A reward model classifies with one label.",
        "ms-swift 4.6.0 rlhf_args.py:17",
        since="3.7",
        fields=("task.type",),
    ),
)


def _initialises(v: View) -> bool:
    return bool(v.tensor_model_parallel_size > 1 and not v.lora)


def _offline(v: View) -> bool:
    env = v.job.backend.env
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_OFFLINE")
    return any(str(env.get(name, "0")).lower() in ("1", "true", "on", "yes") for name in names)


def _balances_by_bias(v: View) -> bool:
    model = v.job.model
    written = {"moe_router_bias_update_rate"} & set(_extra(v)) or v.given("moe_router_bias_update_rate")
    return bool(model.router_expert_bias and source(v.job) and model.pretrained is not False and not written)


def _scores(v: View) -> bool:
    model = v.job.model
    named = source(v.job) is not None and "moe_router_score_function" not in _extra(v)
    return bool(named and model.model_type == "deepseek_v3" and model.scoring_func == "sigmoid") and (
        not model.router_expert_bias
    )


SEEN = (
    changed(
        "SW-SET-INITIALIZATION",
        ("perform_initialization", "tensor_model_parallel_size"),
        lambda v: (
            _initialises(v)
            and v.perform_initialization is True
            and v.written["perform_initialization"].origin == "derived"
        ),
        "perform_initialization false → true: else the gradient norm would count one vocabulary shard only",
        "With tensor parallelism the vocabulary's weights are marked as split only where they are initialised.",
        "megatron-core 0.16.1 tensor_parallel/layers.py:244; seen in runs: norm 7.188 instead of 7.873",
        since=FOUR,
        fields=("parallel.tp",),
    ),
    SwiftRule(
        id="SW-INITIALIZATION-TP",
        doc="With tensor parallelism and no initialisation, the gradient norm counts one shard of the vocabulary only: "
        "clipping changes and the loss drifts.",
        source="megatron-core 0.16.1 tensor_parallel/layers.py:244,265; seen in runs: norm 7.188 instead of 7.873",
        flags=("perform_initialization", "tensor_model_parallel_size"),
        fields=("parallel.tp",),
        when=lambda v: _initialises(v) and not v.perform_initialization and not v.use_megatron_fsdp,
        say="perform_initialization false with tp {tensor_model_parallel_size}: the gradient norm counts one "
        "vocabulary shard only; set it to true, weights are loaded afterwards anyway",
        severity="warning",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-FP32-RESUME",
        doc="Resuming the distributed optimizer in fp32 writes into views of leaf tensors, which PyTorch refuses.",
        source="megatron-core 0.16.1 optimizer/distrib_optimizer.py; seen in runs of ms-swift 4.6.0",
        flags=("mcore_model", "torch_dtype", "no_load_optim"),
        fields=("checkpoint.load", "precision.dtype", "checkpoint.no_load_optim"),
        when=lambda v: (
            v.job.precision.dtype == "fp32"
            and v.given("mcore_model")
            and v.finetune is False
            and v.use_distributed_optimizer
            and not v.no_load_optim
        ),
        say="resuming in fp32 fails while the optimizer is loaded (a view of a leaf variable is written in place): "
        "train in bf16, or set checkpoint.no_load_optim",
        severity="warning",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-CHECK-MODEL",
        doc="swift asks a hub for the model's newest revision, which takes long where there is no network.",
        source="ms-swift 4.6.0 model_args.py check_model; seen in runs: 20 s",
        flags=("check_model",),
        fields=("backend.env",),
        when=lambda v: _offline(v) and v.check_model is not False,
        say="the environment is offline, but check_model asks a hub for the newest revision: pass check_model false",
        severity="warning",
        since="3.7",
    ),
    SwiftRule(
        id="SW-BIAS-RATE",
        doc="mcore-bridge takes config.json's aux_loss_alpha as the step of the expert bias, without a word.",
        source=f"{_BRIDGE}: moe_router_bias_update_rate from aux_loss_alpha",
        flags=("megatron_extra_kwargs",),
        fields=("moe.bias_update_rate", "model.router_expert_bias"),
        when=_balances_by_bias,
        say="config.json's aux_loss_alpha, if there is one, becomes the step of the expert bias: "
        "set moe.bias_update_rate (0.001 is usual)",
        severity="warning",
        since="4.3",
    ),
    SwiftRule(
        id="SW-SCORING",
        doc="mcore-bridge routes with softmax where config.json does not say scoring_func.",
        source=f"{_BRIDGE}: moe_router_score_function from scoring_func",
        flags=("megatron_extra_kwargs",),
        fields=("model.scoring_func",),
        when=_scores,
        say="the model routes with sigmoid; if config.json does not say scoring_func, softmax would be used: "
        "pass megatron_extra_kwargs {{moe_router_score_function: sigmoid}}",
        severity="warning",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-NPU-EXPERTS",
        doc="On Ascend devices the grouped kernel takes at most 128 experts of one rank.",
        source="mcore-bridge 1.6.5 config/model_config.py:478",
        flags=("expert_model_parallel_size",),
        when=lambda v: (
            v.job.hardware.device == "npu"
            and v.job.model.num_experts is not None
            and v.job.model.num_experts // max(1, v.expert_model_parallel_size) > 128
        ),
        say="more than 128 experts on one device: raise parallel.ep on Ascend devices",
        severity="warning",
        since="4.6",
    ),
)

declare(*DATA, *PARALLEL, *PRECISION, *TUNING, *SEEN)
