"""Rows and gaps for advanced settings shared with Megatron-LM: schedule, Muon, FP8, logging."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, THREE, one_of, only
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, value_at
from launcher.job.optimizer import MUON_MOMENTUM
from launcher.job.precision import FP8_AMAX_COMPUTE_ALGO, FP8_AMAX_HISTORY_LEN
from launcher.mapping.rows import Gap, NativeView, Row, computed, mapped, same
from launcher.mapping.schedule_units import in_steps


def counted(name: str, **row: str) -> Row:
    """Return the row of a schedule length, which swift counts in steps."""
    flag, steps = f"{name}_iters", f"schedule.{name}_iters"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        length = in_steps(job, name)
        if length is not None:
            yield flag, length

    def read(view: NativeView) -> Mapping[str, Value]:
        return {steps: view.take(flag)} if view.has(flag) else {}

    paths = (steps, f"schedule.{name}_samples", "batch.global_batch_size")
    return Row(fields=paths, flags=(flag,), emit=emit, read=read, since=row.get("since"), until=row.get("until"))


def optimizer_rows() -> tuple[Row, ...]:
    """Return the rows of the weight decay schedule and of Muon."""
    prefix, since = "optimizer.muon_", "4.6"
    return (
        same("optimizer.weight_decay_style", "weight_decay_incr_style", since=FOUR),
        same("optimizer.start_weight_decay", "start_weight_decay", since=FOUR),
        same("optimizer.end_weight_decay", "end_weight_decay", since=FOUR),
        same("optimizer.decay_qk_layernorm", "apply_wd_to_qk_layernorm", since="3.12"),
        _muon_momentum(since),
        same(f"{prefix}nesterov", "muon_use_nesterov", since=since),
        same(f"{prefix}ns_steps", "muon_num_ns_steps", since=since),
        same(f"{prefix}scale_mode", "muon_scale_mode", since=since),
        same(f"{prefix}extra_scale_factor", "muon_extra_scale_factor", since=since),
        same(f"{prefix}split_qkv", "muon_split_qkv", since=since),
        same(f"{prefix}tp_mode", "muon_tp_mode", since=since),
        same(f"{prefix}matmul_precision", "muon_fp32_matmul_prec", since=since),
    )


def _muon_momentum(since: str) -> Row:
    path, flag = "optimizer.muon_momentum", "muon_momentum"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = job.optimizer.muon_momentum
        if given is not None or job.optimizer.type == "muon":
            yield flag, MUON_MOMENTUM if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        muon = "muon" in str(view.peek("optimizer"))
        return {path: view.take(flag, 0.9)} if muon or view.has(flag) else {}

    note = f"written with Muon: {MUON_MOMENTUM} unless set, swift's own default is 0.9"
    return computed((path, "optimizer.type"), (flag,), emit, read, since=since, note=note)


def precision_rows() -> tuple[Row, ...]:
    """Return the rows of delayed FP8 scaling."""
    prefix = "precision.fp8_amax_"
    return (
        _amax(f"{prefix}history_len", "fp8_amax_history_len", FP8_AMAX_HISTORY_LEN),
        _amax(f"{prefix}compute_algo", "fp8_amax_compute_algo", FP8_AMAX_COMPUTE_ALGO),
    )


def _amax(path: str, flag: str, usual: Value) -> Row:
    """Return the row of a setting whose canonical default equals swift's, so that only other values are written."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        if given is not None:
            yield flag, given

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {}
        given = view.take(flag)
        return {path: None if given == usual else given}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, since="3.6", note=f"none: {usual}, swift's own too")


def model_rows() -> tuple[Row, ...]:
    """Return the rows of rotary embeddings and weight initialization."""
    return (
        same("model.rotary_interleaved", "rotary_interleaved", since="3.6", until=THREE),
        same("model.cpu_initialization", "use_cpu_initialization"),
        same("model.init_per_replica", "data_parallel_random_init", since=FOUR),
    )


def other_rows() -> tuple[Row, ...]:
    """Return the rows of overlap, data, checkpoints and logs."""
    return (
        same("overlap.param_gather_with_optimizer_step", "overlap_param_gather_with_optimizer_step", since=FOUR),
        same("kernels.te_rng_tracker", "te_rng_tracker", since=FOUR),
        _attention_mask(),
        one_of("data.order", "dataloader_type", ("single", "cyclic", "external"), until=THREE),
        same("checkpoint.detect_format", "auto_detect_ckpt_format", until=THREE),
        same("checkpoint.parallel_load", "ckpt_fully_parallel_load", since="3.12", until=THREE),
        same("checkpoint.constant_structure", "ckpt_assume_constant_structure", since="3.12", until=THREE),
        same("logging.tensorboard_interval", "tensorboard_log_interval", until=THREE),
        same("logging.tensorboard_queue_size", "tensorboard_queue_size"),
        same("logging.wandb_dir", "wandb_save_dir", until=THREE),
        mapped("logging.level", "logging_level", str, int, until=THREE),
        only("schedule.lr_wsd_decay_samples", (), "3.x has no WSD schedule", until=THREE),
    )


def _attention_mask() -> Row:
    path, flag, names = "kernels.attention_mask", "no_create_attention_mask_in_dataloader", ("full", "compressed")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.kernels.attention_mask in names:
            yield flag, job.kernels.attention_mask == "compressed"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: names[bool(view.take(flag))]} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, until="3.6.99")


_NONE = "it has no option for it"
_UNAFFECTED = f"{_NONE}; training is unaffected"
_BY_CONFIG = "the model's config.json and mcore-bridge decide"
_OF_MEGATRON = "it has its own data sets, not Megatron's token files"
_TOKENS = "tokenizers are Hugging Face's"


def _told(why: str, *neutral: Value) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning")


# Unsupported fields, with the first and the last version that lacks them (None: unbounded).
_GAPS: tuple[tuple[str, Gap, str | None, str | None], ...] = (
    (
        "batch.rampup_batch_size",
        Gap(why="the global batch is constant", works=("batch.rampup_batch_size=[]",)),
        None,
        None,
    ),
    ("schedule.skip_iterations", Gap(why="no step is left out", works=("schedule.skip_iterations=[]",)), None, None),
    ("schedule.exit_interval", Gap(why="training runs to its end", works=("schedule.exit_interval=null",)), None, None),
    ("schedule.exit_minutes", Gap(why="training runs to its end", works=("schedule.exit_minutes=null",)), None, None),
    *(
        (f"optimizer.{name}", Gap(why="the weight decay is constant in 3.x", neutral=("constant",)), None, THREE)
        for name in ("weight_decay_style", "start_weight_decay", "end_weight_decay")
    ),
    ("optimizer.decay_qk_layernorm", Gap(why="it came with 3.12", neutral=(False,)), None, "3.11.99"),
    ("optimizer.decoupled_lr", Gap(why="all layers share one learning rate"), None, None),
    ("optimizer.decoupled_min_lr", Gap(why="all layers share one learning rate"), None, None),
    *(
        (f"optimizer.muon_{name}", Gap(why="Muon came with 4.6"), None, "4.5.99")
        for name in (
            "momentum",
            "nesterov",
            "ns_steps",
            "scale_mode",
            "extra_scale_factor",
            "split_qkv",
            "tp_mode",
            "matmul_precision",
        )
    ),
    ("precision.fp8_amax_history_len", Gap(why="FP8 came with 3.6"), None, "3.5.99"),
    ("precision.fp8_amax_compute_algo", Gap(why="FP8 came with 3.6"), None, "3.5.99"),
    ("precision.fp8_margin", Gap(why=_NONE, neutral=(0,)), None, None),
    ("precision.fp8_wgrad", Gap(why=_NONE, neutral=(True,)), None, None),
    ("precision.first_last_layers_bf16", Gap(why=_NONE, neutral=(False,)), None, None),
    ("precision.num_layers_at_start_in_bf16", Gap(why=_NONE, neutral=(0, 1)), None, None),
    ("precision.num_layers_at_end_in_bf16", Gap(why=_NONE, neutral=(0, 1)), None, None),
    ("precision.fp16_lm_cross_entropy", Gap(why="the loss is computed in fp32", neutral=(False,)), None, None),
    ("precision.min_loss_scale", _told(_NONE, 1.0), None, None),
    ("precision.loss_scale_hysteresis", _told(_NONE, 2), None, None),
    ("model.rotary_interleaved", Gap(why=_BY_CONFIG, neutral=(False,)), None, "3.5.99"),
    ("model.rotary_interleaved", Gap(why=_BY_CONFIG, neutral=(False,)), FOUR, None),
    ("model.norm_zero_centered", Gap(why=_BY_CONFIG, neutral=(False,)), None, "4.2.99"),
    ("model.post_norm_residual", Gap(why=_BY_CONFIG, neutral=(False,)), None, None),
    ("model.init_per_replica", Gap(why="replicas start alike in 3.x", neutral=(False,)), None, THREE),
    ("moe.force_load_balancing", Gap(why="the router decides", neutral=(False,)), None, None),
    ("overlap.param_gather_with_optimizer_step", _told("it came with 4.0", False), None, THREE),
    *(
        (f"overlap.{name}", _told(_UNAFFECTED, False, 0), None, None)
        for name in (
            "grad_bucket_size",
            "grad_buckets",
            "average_in_collective",
            "embedding_wgrad",
            "embedding_wgrad_limit",
            "p2p_warmup_flush",
        )
    ),
    ("kernels.persist_layer_norm", _told(_UNAFFECTED, True), None, None),
    ("kernels.empty_cache_level", _told(_UNAFFECTED, 0), None, None),
    ("kernels.te_rng_tracker", _told("it came with 4.0", False), None, THREE),
    ("parallel.optimizer_instances", _told(_UNAFFECTED, 1), None, None),
    ("parallel.dp_outermost", _told(_UNAFFECTED, False), None, None),
    ("parallel.gloo", _told(_UNAFFECTED, True), None, None),
    ("data.test_paths", _told("no test follows training"), None, None),
    ("data.paths_file", Gap(why="data sets are named on the command line", works=("data.paths=[…]",)), None, None),
    ("data.order", Gap(why="data.shuffle says it since 4.0", works=("data.shuffle=true",)), FOUR, None),
    ("data.mmap", _told(_OF_MEGATRON, True), None, None),
    ("data.index_threads", _told(_OF_MEGATRON, 1), None, None),
    ("tokenizer.extra_ids", Gap(why=_TOKENS, neutral=(0,)), None, None),
    *(
        (f"tokenizer.tiktoken_{name}", Gap(why=_TOKENS), None, None)
        for name in ("pattern", "special_tokens", "num_special_tokens")
    ),
    ("checkpoint.load_step", Gap(why="it loads the latest checkpoint of the folder"), None, None),
    ("checkpoint.fallback", Gap(why="weights come from the model or from checkpoint.load"), None, None),
    ("checkpoint.load_arguments", Gap(why="sizes come from the model's config.json", neutral=(False,)), None, None),
    ("checkpoint.load_schedule", Gap(why="the schedule is the job's", neutral=(False,)), None, None),
    ("checkpoint.detect_format", _told("the format is known", True), FOUR, None),
    ("checkpoint.parallel_save", _told("ranks always share the writing", True), None, None),
    ("checkpoint.parallel_load", _told(_UNAFFECTED, False), None, "3.11.99"),
    ("checkpoint.parallel_load", _told(_UNAFFECTED, False), FOUR, None),
    ("checkpoint.constant_structure", _told(_UNAFFECTED, False), None, "3.11.99"),
    ("checkpoint.constant_structure", _told(_UNAFFECTED, False), FOUR, None),
    *(
        (f"logging.{name}", _told(_UNAFFECTED, 1), FOUR, None)
        for name in ("tensorboard_interval", "wandb_dir", "level")
    ),
    *((f"logging.{name}", _told(_UNAFFECTED, False), None, None) for name in ("progress", "world_size")),
    *(
        (f"logging.{name}", _told(_UNAFFECTED), None, None)
        for name in ("loss_scale", "experts_by_layer", "timer_ranks")
    ),
    ("fault_tolerance.check_for_nan", _told(_NONE, True), None, None),
    *(
        (f"fault_tolerance.{name}", _told(_UNAFFECTED, False, "disabled"), None, None)
        for name in ("check_for_spiky_loss", "check_for_large_grads", "rerun", "weight_hash_interval", "exit_on_signal")
    ),
)


def gaps(version: str) -> dict[str, Gap]:
    """Return the fields of this module that a version does not support."""
    return {path: gap for path, gap, since, until in _GAPS if in_range(version, since, until)}


def irrelevant(version: str) -> dict[str, str]:
    """Return the fields of this module that are irrelevant to a version."""
    if in_range(version, None, "3.6.99"):
        return {}
    return {"kernels.attention_mask": "causal masks are made inside the kernel"}
