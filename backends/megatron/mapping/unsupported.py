"""Fields that a version of Megatron-SWIFT has no row for: unsupported or irrelevant, with the reason."""

from collections.abc import Callable, Collection, Mapping
from itertools import chain

from backends.megatron.mapping import attention_variants
from backends.megatron.mapping.factories import FOUR
from backends.megatron.mapping.model import BRIDGED
from backends.megatron_lm import static_graph
from backends.megatron_lm.mapping import kernels
from backends.megatron_lm.mapping.attention_variants import gemma_gaps, llama4_gaps
from backends.megatron_lm.mapping.optimizer import MUON_FIELDS, NO_QK_CLIPPING
from backends.megatron_lm.mapping.unsupported import WITHOUT_MEGATRON_LOOP
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, field_paths
from launcher.job.fault_tolerance import OF_LAUNCHER
from launcher.mapping.rows import Gap, only_with, warning, without

_ASCEND = "a feature of MindSpeed-LLM and MindFormers"
_BY_CONFIG = "the model's config.json and mcore-bridge decide"
_NONE = "it has no option for it"
_NO_OPTION = "this version has no option for it"
_UNAFFECTED = f"{_NONE}; training is unaffected"
_SPEED = f"{_NONE}; training itself is unaffected"
_MEMORY = f"{_SPEED}, but more memory is needed"
_NO_LOG = "4.x logs it not; training is unaffected"
_NO_RLHF = "this version has pt and sft"
_OF_MEGATRON = "it has its own data sets, not Megatron's token files"
_TOKENS = "tokenizers are Hugging Face's"
_TOKENIZER = "it takes Hugging Face tokenizers, from their directory (tokenizer.path)"
_NEWEST = ("backend.version=4.6.0",)


def _gap(why: str, *neutral: Value, works: tuple[str, ...] = (), matters: Callable[[Job], bool] | None = None) -> Gap:
    return Gap(why=why, neutral=neutral, works=works, matters=matters)


def _later(version: str, *neutral: Value) -> Gap:
    return warning(f"it came with {version}; training is unaffected", *neutral, works=_NEWEST)


def _gaps(section: str, names: str, gap: Gap) -> dict[str, Gap]:
    """Return one gap for several fields of a section, named in one text."""
    return {f"{section}.{name}": gap for name in names.split()}


def _scales(job: Job) -> bool:
    """Return whether the loss is scaled: in fp16 only."""
    return job.precision.dtype == "fp16"


_TASK = {
    "task.simpo_gamma": _gap("it has no SimPO"),
    **_gaps("task", "beta loss_type rpo_alpha reference_model", _gap(_NO_RLHF)),
    "task.label_smoothing": _gap(_NO_RLHF, 0.0),
    **_gaps("task", "desirable_weight undesirable_weight", _gap("this version has no KTO")),
    "task.reward_models": _gap("this version has no GRPO", works=("task.reward_models=[]",)),
    "lora.quantization": _gap("it has no quantised base weights under Megatron"),
    "lora.load": _gap("adapters are loaded since 3.10"),
}
_MODEL = {
    **_gaps("model", "norm_zero_centered post_norm_residual", _gap(_BY_CONFIG, False)),
    "model.init_per_replica": _gap("replicas start alike in 3.x", False),
    **_gaps(
        "model",
        "num_nextn_predict_layers mtp_loss_scaling_factor",
        _gap("no multi-token prediction before 3.10"),
    ),
}
_PARALLEL = {
    "parallel.ulysses_degree": _gap("no two-level context parallelism", 1),
    "parallel.cp_window": _gap(_ASCEND, 1),
    "parallel.cp_mask_type": _gap("attention is always causal", "causal"),
    "parallel.noop_layers": _gap(_ASCEND),
    **_gaps("parallel", "tp_2d_x tp_2d_y", _gap(_ASCEND, 1)),
    "parallel.optimizer_instances": warning(_UNAFFECTED, 1),
    "parallel.dp_outermost": warning(_UNAFFECTED, False),
    "parallel.gloo": warning(_UNAFFECTED, True),
    **_gaps(
        "parallel.communication",
        "pipeline_backend nccl_config ring_exchange_p2p",
        warning(_UNAFFECTED, "nccl", False),
    ),
    "parallel.fsdp.implementation": _gap("FSDP came with 4.5", works=_NEWEST),
    "parallel.fsdp.strict_load": _later("4.5", True),
    **_gaps(
        "parallel.fsdp",
        "communication_unit_size keep_fp8_transpose_cache init_model_with_meta_device",
        warning(_UNAFFECTED, False),
    ),
}
_MEMORY_GAPS = {
    "recompute.activation": warning(_MEMORY, False),
    "recompute.activation_num_layers": warning(_MEMORY, 0),
    "recompute.norm": warning(_MEMORY, False, works=("recompute.modules=[layernorm]",)),
    "recompute.norm_num_layers": warning(_MEMORY, 0),
    "recompute.per_pp_rank": warning("num_layers counts per chunk", False),
    "recompute.layers_per_chunk": _gap("num_layers holds for all chunks", works=("recompute.num_layers=…",)),
    "recompute.selective_layers_per_chunk": _gap(
        "selective recompute holds for all layers or none", works=("recompute.selective_layers_per_chunk=[]",)
    ),
    **_gaps("recompute", "in_bubble in_advance", warning(_SPEED, False)),
    "recompute.communication": warning(_SPEED, True),
    "recompute.distribute_saved_activations": warning(_MEMORY, False),
    "offload.attention": warning(_MEMORY, False),
    "offload.modules": warning(_MEMORY),
    "offload.optimizer_times": warning(_SPEED),
    "offload.activation_layers": warning(_MEMORY, 0),
    **_gaps("offload", "torch_optimizer overlap_cpu_optimizer_d2h_h2d", warning(_UNAFFECTED, False)),
    **_gaps("offload", "pin_cpu_grads pin_cpu_params", warning(_UNAFFECTED, True)),
}
_MOE = {
    **_gaps("moe", "dispatch_overlap batch_overlap router_fusion", warning(_SPEED, False)),
    "moe.tp_extend_ep": _gap(_ASCEND, False, works=("parallel.etp=1",)),
    "moe.bias_update_rate": _gap(_NO_OPTION, 0.001),
    "moe.input_jitter_eps": _gap(_NO_OPTION, 0.0),
    "moe.force_load_balancing": _gap("the router decides", False),
}
_SPEED_GAPS = {
    "kernels.rmsnorm_fusion": warning("Transformer Engine's RMSNorm is always fused", True),
    "kernels.deterministic": _gap("removed at 4.0", False),
    "kernels.persist_layer_norm": warning(_UNAFFECTED, True),
    "kernels.empty_cache_level": warning(_UNAFFECTED, 0),
    "kernels.te_rng_tracker": warning("it came with 4.0", False),
    "kernels.cuda_graph.impl": warning(_UNAFFECTED, "none"),
    "kernels.clone_scatter_output_in_embedding": warning(_UNAFFECTED, True),
    "overlap.param_gather_with_optimizer_step": warning("it came with 4.0", False),
    **_gaps(
        "overlap",
        "grad_bucket_size grad_buckets average_in_collective embedding_wgrad embedding_wgrad_limit p2p_warmup_flush",
        warning(_UNAFFECTED, False, 0),
    ),
    **_gaps("overlap", "gradient_reduce_div_fusion tp_allreduce", warning(_UNAFFECTED, True)),
    **_gaps("overlap", "align_grad_reduce align_param_gather", _later("4.0", True)),
    "overlap.pad_buckets": warning(_UNAFFECTED, False),
    **_gaps(
        "overlap.tp",
        "overlap_ag overlap_rs split_ag split_rs bulk_dgrad bulk_wgrad",
        warning("overlap.tp_comm is all or nothing", True),
    ),
    "overlap.tp.overlap_rs_dgrad": warning("overlap.tp_comm is all or nothing", False),
    **_gaps("overlap.tp", "config bootstrap_backend", warning("overlap.tp_comm is all or nothing")),
}
_TRAINING = {
    "batch.rampup_batch_size": _gap("the global batch is constant", works=("batch.rampup_batch_size=[]",)),
    "schedule.skip_iterations": _gap("no step is left out", works=("schedule.skip_iterations=[]",)),
    "schedule.exit_interval": _gap("training runs to its end", works=("schedule.exit_interval=null",)),
    "schedule.exit_minutes": _gap("training runs to its end", works=("schedule.exit_minutes=null",)),
    **_gaps(
        "optimizer",
        "weight_decay_style start_weight_decay end_weight_decay",
        _gap("the weight decay is constant in 3.x", "constant"),
    ),
    "optimizer.decay_qk_layernorm": _gap("it came with 3.12", False),
    **_gaps("optimizer", "decoupled_lr decoupled_min_lr", _gap("all layers share one learning rate")),
    **dict.fromkeys(MUON_FIELDS, _gap("Muon came with 4.1")),
    **_gaps("precision", "fp8_amax_history_len fp8_amax_compute_algo", _gap("FP8 came with 3.6")),
    "precision.fp8_margin": _gap(_NONE, 0),
    "precision.fp8_wgrad": _gap(_NONE, True),
    "precision.first_last_layers_bf16": _gap(_NONE, False),
    **_gaps("precision", "num_layers_at_start_in_bf16 num_layers_at_end_in_bf16", _gap(_NONE, 0, 1)),
    "precision.fp16_lm_cross_entropy": _gap("the loss is computed in fp32", False),
    "precision.residual_in_fp32": _gap("residual connections are in the model's precision", False),
    **_gaps(
        "precision",
        "initial_loss_scale loss_scale_window",
        _gap("4.x has no option for it", matters=_scales),
    ),
    "precision.loss_scale": _gap("4.x scales dynamically only", matters=_scales),
    "precision.min_loss_scale": warning(_NONE, 1.0),
    "precision.loss_scale_hysteresis": warning(_NONE, 2),
}
_DATA = {
    "data.seed": _gap("this version orders samples by the job's seed"),
    "data.cache_path": warning("caches are written to MODELSCOPE_CACHE: set backend.env.MODELSCOPE_CACHE"),
    "data.eod_mask_loss": _gap("the loss covers the end of every sample", False),
    "data.test_paths": warning("no test follows training"),
    "data.paths_file": _gap("data sets are named on the command line", works=("data.paths=[…]",)),
    "data.order": _gap("since 4.0 data.shuffle sets it", works=("data.shuffle=true",)),
    "data.mmap": warning(_OF_MEGATRON, True),
    "data.index_threads": warning(_OF_MEGATRON, 1),
    "data.object_storage_cache": _gap(_OF_MEGATRON),
    "data.enable_thinking": _gap("chats of this version are written with thinking", True),
    "data.sharding": _gap("this version always draws from a rank's own share", True, works=("data.sharding=true",)),
    "tokenizer.type": _gap(_TOKENS, "HuggingFaceTokenizer", "PretrainedFromHF"),
    "tokenizer.trust_remote_code": warning("swift always trusts it", True),
    "tokenizer.extra_ids": _gap(_TOKENS, 0),
    **_gaps("tokenizer", "tiktoken_pattern tiktoken_special_tokens tiktoken_num_special_tokens", _gap(_TOKENS)),
    **_gaps("tokenizer", "vocab_file merge_file", _gap(_TOKENIZER)),
}
_CHECKPOINT = {
    "checkpoint.save_safetensors": _gap("convert with `swift export` in this version", False),
    "checkpoint.save_total_limit": warning("this version keeps all checkpoints"),
    "checkpoint.optimizer_fully_reshardable": _gap(_NO_OPTION, False),
    "checkpoint.strictness": warning("it loads what it can and reports the rest"),
    "checkpoint.load_step": _gap("it loads the latest checkpoint of the folder"),
    "checkpoint.fallback": _gap("weights come from the model or from checkpoint.load"),
    "checkpoint.load_arguments": _gap("sizes come from the model's config.json", False),
    "checkpoint.load_schedule": _gap("the schedule is the job's", False),
    "checkpoint.detect_format": warning("the format is known", True),
    "checkpoint.parallel_save": warning("ranks always share the writing", True),
    **_gaps("checkpoint", "parallel_load constant_structure", warning(_UNAFFECTED, False)),
    "checkpoint.persistent_worker": _later("3.12", False),
    "checkpoint.save_pre_mcore_014": warning("this version's Megatron-core is older", True, False),
    "checkpoint.optimizer_reshardable_mem_efficient": _later("4.0", False),
    "checkpoint.non_persistent.type": warning(
        "all checkpoints are of one kind", works=("checkpoint.save_interval=100",)
    ),
    **_gaps(
        "checkpoint.convert",
        "format save",
        _gap(
            "training does not convert: launch convert, or swift export, does",
            works=("checkpoint.convert.format=null",),
        ),
    ),
    "checkpoint.convert.update_legacy_optimizer": warning("it reads the present layout", False),
    "checkpoint.load_parallel_arguments": warning("the layout is the job's", False),
    "checkpoint.load_tokenizer": _gap("the tokenizer is the model's or tokenizer.path's", False),
}
_LOGGING = {
    "logging.throughput": warning("4.x has no option for it; training is unaffected", False),
    **_gaps("logging", "params_norm timers memory perplexity", warning(_NO_LOG, False)),
    "logging.zero_gradients": warning(_NONE, False),
    "logging.timer_level": warning(_NONE, 0),
    **_gaps("logging", "swanlab_project swanlab_name", warning("this version has no option for SwanLab")),
    **_gaps("logging", "tensorboard_interval wandb_dir level", warning(_UNAFFECTED, 1)),
    **_gaps("logging", "progress world_size", warning(_UNAFFECTED, False)),
    **_gaps("logging", "loss_scale experts_by_layer timer_ranks", warning(_UNAFFECTED)),
    "profiler.enabled": warning("it starts no profiler; training is unaffected"),
    "profiler.memory_history": warning("it records no allocations", False),
    "fault_tolerance.check_for_nan": warning(_NONE, True),
    **_gaps(
        "fault_tolerance",
        "check_for_spiky_loss check_for_large_grads rerun weight_hash_interval exit_on_signal",
        warning(_UNAFFECTED, False, "disabled"),
    ),
}
# The bias is reported as SW-BUILD-OUTPUT-BIAS, which covers it.
_SHAPES: Mapping[str, Gap] = {
    "model.attention_output_bias": Gap(
        why="the output projection of attention has a bias if the MLP has",
        matters=lambda job: job.model.has_attention_output_bias != job.model.linear_bias,
    ),
    "model.full_attention_layers": Gap(
        why="a window in some layers came with 4.3",
        works=("backend.version=4.6.0",),
        matters=lambda job: job.model.sliding_window is not None,
    ),
}
_TOPICS = (
    _SHAPES,
    gemma_gaps(),
    llama4_gaps(),
    static_graph.GAPS,
    WITHOUT_MEGATRON_LOOP,
    NO_QK_CLIPPING,
    {"kernels.sparse_mode": kernels.UNSUPPORTED["kernels.sparse_mode"]},
    _TASK,
    _MODEL,
    _PARALLEL,
    _MEMORY_GAPS,
    _MOE,
    _SPEED_GAPS,
    _TRAINING,
    _DATA,
    _CHECKPOINT,
    _LOGGING,
)
_RETAIN = "checkpoint.save_retain_interval"


def unsupported(version: str, mapped: Collection[str]) -> dict[str, Gap]:
    """Return the fields that this version does not support: those of the reasons here that no row maps."""
    newer = in_range(version, FOUR, None)
    limit = warning("4.x keeps the newest checkpoints", works=("checkpoint.save_total_limit=2",))
    found = dict(chain.from_iterable(topic.items() for topic in _TOPICS))
    found |= {**attention_variants.gaps(version), _RETAIN: limit if newer else _later("3.12")}
    return {path: gap for path, gap in found.items() if path not in mapped}


_LAUNCHER = "read by the launcher itself"
_SECTIONS = ("hardware", "cluster", "backend", "imported", "rehearse", "rules", "estimate", "search")
_IRRELEVANT: Mapping[str, str] = {
    **dict.fromkeys(("name", "output_dir", "runtime", *OF_LAUNCHER), _LAUNCHER),
    "parallel.dp": "swift derives it from the number of processes",
    **dict.fromkeys(
        (f"profiler.{name}" for name in ("start_step", "end_step", "ranks", "path", "level")),
        without("profiler.enabled"),
    ),
    "profiler.memory_snapshot_path": without("profiler.memory_history"),
    **dict.fromkeys(
        ("kernels.cuda_graph.scope", "kernels.cuda_graph.warmup_steps"),
        without("kernels.cuda_graph.impl"),
    ),
    **only_with("checkpoint.non_persistent.type", "checkpoint.non_persistent."),
    "kernels.attention_mask": "causal masks are made inside the kernel",
    **attention_variants.IRRELEVANT,
}
_WITHOUT_LORA = ("lora.alpha", "lora.dropout", "lora.target_modules", "lora.rslora", "lora.merge")


def irrelevant(version: str, mapped: Collection[str]) -> dict[str, str]:
    """Return the fields that are irrelevant to this version and that no row maps, with the reason."""
    found = {**static_graph.irrelevant(), **_IRRELEVANT}
    found |= {path: _LAUNCHER for path in field_paths() if path.split(".")[0] in _SECTIONS}
    found |= dict.fromkeys(_WITHOUT_LORA, "only with lora.rank, which this version cannot express")
    if in_range(version, FOUR, "4.2.99"):
        found["model.overridden"] = "values of config.json cannot be changed in this version"
    if in_range(version, BRIDGED, None):
        found["model.initializer_range"] = "the random weights that the plan prepares are drawn with it, not by swift"
    return {path: why for path, why in found.items() if path not in mapped}
