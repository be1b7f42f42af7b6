"""Rows for advanced settings of Megatron-LM and its dialects: batch size ramp-up, Muon, FP8 scaling, fault handling."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import chosen, listed, many, when_given
from launcher.job import Job, Value, value_at
from launcher.job.optimizer import MUON_MOMENTUM
from launcher.job.precision import FP8_AMAX_COMPUTE_ALGO, FP8_AMAX_HISTORY_LEN
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, switch_off

_RAMPUP, _RAMPUP_FLAG = "batch.rampup_batch_size", "rampup-batch-size"


def says_nothing() -> Row:
    """Return the row that drops no-position-embedding with rope, where it has no effect."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek("position-embedding-type") == "rope":
            view.take("no-position-embedding")
        return {}

    note = "add_position_embedding with rope: nothing reads it."
    return Row(fields=(), flags=(), emit=lambda job: (), read=read, note=note)


def rampup() -> tuple[Row, Row]:
    """Return the rows of the batch size ramp-up; before 0.16 the parser keeps its three numbers as strings."""
    return _rampup(int, since="0.16"), _rampup(str, until="0.15.9")


def _rampup(kind: type, since: str | None = None, until: str | None = None) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.batch.rampup_batch_size
        if not wanted:
            return
        if len(wanted) != 3:
            raise Unsupported(_RAMPUP, "it takes three numbers: first size, step, sequences", (f"{_RAMPUP}=[]",))
        yield _RAMPUP_FLAG, tuple(kind(number) for number in wanted)

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(_RAMPUP_FLAG):
            return {}
        numbers = tuple(int(number) for number in many(view.peek(_RAMPUP_FLAG)))
        view.take(_RAMPUP_FLAG)
        return {_RAMPUP: numbers}

    return Row(fields=(_RAMPUP,), flags=(_RAMPUP_FLAG,), emit=emit, read=read, since=since, until=until)


def schedule() -> tuple[Row, ...]:
    """Return the rows of early exit and skipped iterations."""
    return (
        listed("schedule.skip_iterations", "iterations-to-skip", since="0.12"),
        when_given("schedule.exit_interval", "exit-interval"),
        when_given("schedule.exit_minutes", "exit-duration-in-mins"),
    )


def optimizer() -> tuple[Row, ...]:
    """Return the rows of the weight decay schedule, decoupled learning rates and Muon."""
    styles = {name: name for name in ("constant", "linear", "cosine")}
    return (
        chosen("optimizer.weight_decay_style", "weight-decay-incr-style", styles),
        when_given("optimizer.start_weight_decay", "start-weight-decay"),
        when_given("optimizer.end_weight_decay", "end-weight-decay"),
        when_given("optimizer.decoupled_lr", "decoupled-lr"),
        when_given("optimizer.decoupled_min_lr", "decoupled-min-lr"),
        *(replace(row, since="0.16") for row in muon(0.9, "muon-use-nesterov")),
    )


def muon(own_momentum: float, nesterov: str) -> tuple[Row, ...]:
    """Return the rows of Muon.

    Args:
        own_momentum: the parser's default, read where the argument is absent.
        nesterov: switch of Nesterov momentum.
    """
    path, flag = "optimizer.muon_momentum", "muon-momentum"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = job.optimizer.muon_momentum
        if given is not None or job.optimizer.type == "muon":
            yield flag, MUON_MOMENTUM if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        muon = "muon" in str(view.peek("optimizer"))
        return {path: view.take(flag, own_momentum)} if muon or view.has(flag) else {}

    note = f"Written with Muon: {MUON_MOMENTUM} unless set; backends' own defaults differ."
    return (
        switch("optimizer.decay_qk_layernorm", "apply-wd-to-qk-layernorm"),
        computed((path, "optimizer.type"), (flag,), emit, read, note=note),
        switch("optimizer.muon_nesterov", nesterov),
        when_given("optimizer.muon_ns_steps", "muon-num-ns-steps"),
        when_given("optimizer.muon_scale_mode", "muon-scale-mode"),
        when_given("optimizer.muon_extra_scale_factor", "muon-extra-scale-factor"),
        switch_off("optimizer.muon_split_qkv", "muon-no-split-qkv"),
        when_given("optimizer.muon_tp_mode", "muon-tp-mode"),
        when_given("optimizer.muon_matmul_precision", "muon-fp32-matmul-prec"),
    )


def precision() -> tuple[Row, ...]:
    """Return the rows of FP8 scaling, layers kept in bf16 and fp16 settings."""
    return (
        _amax("precision.fp8_amax_history_len", "fp8-amax-history-len", FP8_AMAX_HISTORY_LEN, 1),
        _amax("precision.fp8_amax_compute_algo", "fp8-amax-compute-algo", FP8_AMAX_COMPUTE_ALGO, "most_recent"),
        when_given("precision.fp8_margin", "fp8-margin"),
        switch_off("precision.fp8_wgrad", "no-fp8-wgrad"),
        switch("precision.first_last_layers_bf16", "first-last-layers-bf16", since="0.12"),
        when_given("precision.num_layers_at_start_in_bf16", "num-layers-at-start-in-bf16", since="0.12"),
        when_given("precision.num_layers_at_end_in_bf16", "num-layers-at-end-in-bf16", since="0.12"),
        switch("precision.fp16_lm_cross_entropy", "fp16-lm-cross-entropy"),
        when_given("precision.min_loss_scale", "min-loss-scale"),
        when_given("precision.loss_scale_hysteresis", "hysteresis"),
    )


def _amax(path: str, flag: str, usual: Value, own: Value) -> Row:
    """Return the row of a setting of delayed FP8 scaling, always written with it; `own` is the parser's default."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        delayed = job.precision.fp8_format is not None and job.precision.fp8_recipe in (None, "delayed")
        if given is not None or delayed:
            yield flag, usual if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        delayed = view.peek("fp8-format") is not None and view.peek("fp8-recipe", "delayed") == "delayed"
        return {path: view.take(flag, own)} if delayed or view.has(flag) else {}

    note = f"Written with FP8 of delayed scaling: {usual} unless set; Megatron's own default is {own}."
    return computed((path, "precision.fp8_format", "precision.fp8_recipe"), (flag,), emit, read, note=note)


def model() -> tuple[Row, ...]:
    """Return the rows of norms, rotary embeddings and weight initialization."""
    return (
        switch("model.rotary_interleaved", "rotary-interleaved"),
        switch("model.norm_zero_centered", "apply-layernorm-1p"),
        switch("model.post_norm_residual", "apply-residual-connection-post-layernorm"),
        switch("model.cpu_initialization", "use-cpu-initialization"),
        switch("model.init_per_replica", "data-parallel-random-init"),
    )


def activation() -> tuple[Row, Row]:
    """Return the rows of the activation function: GELU by default."""
    flags = {"silu": "swiglu", "relu2": "squared-relu"}
    return _activation({**flags, "quick_geglu": "quick-geglu"}, since="0.16"), _activation(flags, until="0.15.9")


def _activation(flags: Mapping[str, str], since: str | None = None, until: str | None = None) -> Row:
    path = "model.hidden_act"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.model.hidden_act
        if wanted == "gelu":
            return
        if wanted not in flags:
            why = "Megatron has SwiGLU and GELU; of ReLU only its square"
            raise Unsupported(path, why, tuple(f"{path}={name}" for name in ("silu", "gelu", "relu2")))
        yield flags[wanted], True

    def read(view: NativeView) -> Mapping[str, Value]:
        for name, flag in flags.items():
            if view.take(flag, False):
                return {path: name}
        return {path: "gelu"}

    return Row(fields=(path,), flags=tuple(flags.values()), emit=emit, read=read, since=since, until=until)


def tokenizer() -> tuple[Row, ...]:
    """Return the rows of TikTokenizer and extra tokens."""
    return (
        when_given("tokenizer.extra_ids", "vocab-extra-ids"),
        when_given("tokenizer.tiktoken_pattern", "tiktoken-pattern"),
        listed("tokenizer.tiktoken_special_tokens", "tiktoken-special-tokens"),
        when_given("tokenizer.tiktoken_num_special_tokens", "tiktoken-num-special-tokens"),
    )


def parallel() -> tuple[Row, ...]:
    """Return the rows of rank order, process groups, gradient buckets, further overlap and kernels."""
    return (
        when_given("parallel.optimizer_instances", "num-distributed-optimizer-instances", since="0.12"),
        switch("parallel.dp_outermost", "use-tp-pp-dp-mapping"),
        switch_off("parallel.gloo", "disable-gloo-process-groups", since="0.12"),
        switch("moe.force_load_balancing", "moe-router-force-load-balancing", since="0.16"),
        switch("overlap.param_gather_with_optimizer_step", "overlap-param-gather-with-optimizer-step", since="0.12"),
        when_given("overlap.grad_bucket_size", "ddp-bucket-size"),
        when_given("overlap.grad_buckets", "ddp-num-buckets", since="0.12"),
        switch("overlap.average_in_collective", "ddp-average-in-collective"),
        switch("overlap.embedding_wgrad", "defer-embedding-wgrad-compute"),
        when_given("overlap.embedding_wgrad_limit", "wgrad-deferral-limit"),
        switch("overlap.p2p_warmup_flush", "overlap-p2p-communication-warmup-flush", since="0.12"),
        switch_off("kernels.persist_layer_norm", "no-persist-layer-norm"),
        switch("kernels.te_rng_tracker", "te-rng-tracker", since="0.12"),
        when_given("kernels.empty_cache_level", "empty-unused-memory-level"),
        attention_mask(),
    )


def attention_mask() -> Row:
    """Return the row of the causal mask: created by the data loader, or implicit in the kernel."""
    path, flag = "kernels.attention_mask", "no-create-attention-mask-in-dataloader"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: "compressed" if view.take(flag) else "full"} if view.has(flag) else {}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, True),) if job.kernels.attention_mask == "compressed" else (),
        read=read,
        note="Left to itself the loader makes one.",
    )


def data() -> tuple[Row, ...]:
    """Return the rows of how token files are read."""
    return (
        listed("data.test_paths", "test-data-path"),
        when_given("data.paths_file", "data-args-path", since="0.12"),
        when_given("data.order", "dataloader-type"),
        # Read where batches are sampled at random (megatron/legacy/data/data_samplers.py:37 @core_v0.12.1).
        switch_off("data.sharding", "no-data-sharding", read_in=lambda job: job.data.order == "cyclic"),
        switch_off("data.mmap", "no-mmap-bin-files"),
        when_given("data.index_threads", "num-dataset-builder-threads"),
    )


def checkpoint() -> tuple[Row, ...]:
    """Return the rows of the state loaded from a checkpoint, and of parallel saving and loading."""
    return (
        when_given("checkpoint.load_step", "ckpt-step"),
        when_given("checkpoint.fallback", "pretrained-checkpoint"),
        switch("checkpoint.load_arguments", "use-checkpoint-args"),
        _load_schedule(),
        switch("checkpoint.detect_format", "auto-detect-ckpt-format"),
        switch_off("checkpoint.parallel_save", "no-ckpt-fully-parallel-save"),
        switch("checkpoint.parallel_load", "ckpt-fully-parallel-load"),
        switch("checkpoint.constant_structure", "ckpt-assume-constant-structure"),
    )


def _load_schedule() -> Row:
    path = "checkpoint.load_schedule"
    theirs, ours = "use-checkpoint-opt_param-scheduler", "override-opt_param-scheduler"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.checkpoint.load_schedule is not None:
            yield (theirs if job.checkpoint.load_schedule else ours), True

    def read(view: NativeView) -> Mapping[str, Value]:
        given = [flag for flag in (theirs, ours) if view.peek(flag)]
        if len(given) != 1:  # Megatron rejects both together
            return {}
        view.take(given[0])
        return {path: given[0] == theirs}

    return Row(fields=(path,), flags=(theirs, ours), emit=emit, read=read)


def logging() -> tuple[Row, ...]:
    """Return the rows of further logging settings."""
    return (
        when_given("logging.tensorboard_interval", "tensorboard-log-interval"),
        when_given("logging.tensorboard_queue_size", "tensorboard-queue-size"),
        when_given("logging.wandb_dir", "wandb-save-dir"),
        when_given("logging.level", "logging-level"),
        switch("logging.progress", "log-progress"),
        switch_off("logging.loss_scale", "no-log-loss-scale-to-tensorboard"),
        switch("logging.world_size", "log-world-size-to-tensorboard"),
        switch("logging.experts_by_layer", "moe-per-layer-logging"),
        when_given("logging.timer_ranks", "timing-log-option"),
    )


def faults() -> tuple[Row, ...]:
    """Return the rows of fault detection and handling."""
    return (
        switch_off("fault_tolerance.check_for_nan", "no-check-for-nan-in-loss-and-grad"),
        switch("fault_tolerance.check_for_spiky_loss", "check-for-spiky-loss", since="0.12"),
        switch("fault_tolerance.check_for_large_grads", "check-for-large-grads", since="0.12"),
        when_given("fault_tolerance.rerun", "rerun-mode", since="0.12"),
        when_given("fault_tolerance.weight_hash_interval", "check-weight-hash-across-dp-replicas-interval"),
        switch("fault_tolerance.exit_on_signal", "exit-signal-handler"),
    )


_LATER = ("backend.version=0.16.1",)


def _later(*neutral: Value, severity: str = "error") -> Gap:
    return Gap(why="it came with core 0.16", neutral=neutral, severity=severity, works=_LATER)


MUON: Mapping[str, Gap] = {
    **{
        f"optimizer.muon_{name}": _later()
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
    },
    "optimizer.decay_qk_layernorm": _later(False),
}
BEFORE_0_16: Mapping[str, Gap] = {**MUON, "moe.force_load_balancing": _later(False)}
