"""Rows for data, tokenizer, vocabulary, checkpoints, logs, evaluation and profiler."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.effective import TOKENIZER
from backends.megatron_lm.mapping.checkpoints import asynchronous, formats
from backends.megatron_lm.mapping.factories import listed, many, valued, when_given
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch

# Evaluation interval in steps where none is set. Source: the default of core 0.12.1, arguments.py.
_EVAL_INTERVAL, _EVAL_ITERS = 1000, 100


def data() -> tuple[Row, ...]:
    """Return the rows of data."""
    return (
        paths(),
        split(),
        when_given("data.cache_path", "data-cache-path"),
        when_given("data.num_workers", "num-workers"),
        switch("data.reset_position_ids", "reset-position-ids"),
        switch("data.reset_attention_mask", "reset-attention-mask"),
        switch("data.eod_mask_loss", "eod-mask-loss"),
    )


def paths() -> Row:
    """Return the row of the data files."""
    return computed(
        ("data.paths", "data.format", "data.validation_paths", "task.type"),
        ("data-path", "train-data-path", "valid-data-path", "mock-data"),
        _write_paths,
        _read_paths,
        note="Pre-training reads .bin/.idx prefixes (tools/preprocess_data.py), --sft JSONL of messages.",
    )


def _write_paths(job: Job) -> Iterable[tuple[str, Value]]:
    kind, known = job.data.format, ("messages",) if job.task.type == "sft" else ("megatron",)
    if kind == "mock":
        yield "mock-data", True
        return
    if kind not in (None, "sample", *known):
        wanted = "JSONL of messages" if job.task.type == "sft" else "token files made by tools/preprocess_data.py"
        raise Unsupported("data.format", f"it reads {wanted}", tuple(f"data.format={name}" for name in known))
    if job.data.paths and job.data.validation_paths:
        yield "train-data-path", job.data.paths
        yield "valid-data-path", job.data.validation_paths
    elif job.data.paths:
        yield "data-path", job.data.paths


def _read_paths(view: NativeView) -> Mapping[str, Value]:
    if view.take("mock-data", False):
        return {"data.format": "mock"}
    found: dict[str, Value] = {}
    if view.has("train-data-path") and view.has("valid-data-path"):
        found["data.paths"] = many(view.take("train-data-path"))
        found["data.validation_paths"] = many(view.take("valid-data-path"))
    elif view.has("data-path"):
        found["data.paths"] = many(view.take("data-path"))
    if found:
        found["data.format"] = "messages" if view.peek("sft") else "megatron"
    return found


def evaluates(job: Job) -> bool:
    """Return whether the job sets an evaluation interval, evaluation steps or validation data."""
    asked = (job.evaluation.interval, job.evaluation.iters, job.data.validation_ratio)
    return any(asked) or bool(job.data.validation_paths)


def split() -> Row:
    """Return the row of the split into training and validation data."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.validation_paths:
            return
        if job.data.split is not None:
            yield "split", job.data.split
        elif job.data.validation_ratio is not None:
            yield "split", f"{round(1 - job.data.validation_ratio, 12)},{job.data.validation_ratio},0"
        elif job.data.paths and job.data.format != "mock" and not evaluates(job):
            yield "split", "100,0,0"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"data.split": view.take("split")} if view.has("split") else {}

    return computed(
        ("data.split", "data.validation_ratio"),
        ("split",),
        emit,
        read,
        note="Nobody asked for evaluation: all data trains. Megatron's own default keeps 3.1 % back (969,30,1).",
    )


def evaluation() -> tuple[Row, ...]:
    """Return the rows of evaluation."""
    return (
        computed(
            ("evaluation.interval",),
            ("eval-interval",),
            lambda job: (("eval-interval", job.evaluation.interval or _EVAL_INTERVAL),),
            lambda view: {"evaluation.interval": view.take("eval-interval")} if view.has("eval-interval") else {},
            note="Without it 0.16 divides by None (megatron/training/training.py:3307); 1000 was the default before.",
        ),
        computed(
            ("evaluation.iters",),
            ("eval-iters",),
            _write_eval_iters,
            _read_eval_iters,
            note="Nobody asked for evaluation: none. Megatron's own default is 100 batches, also after the last step.",
        ),
    )


def _write_eval_iters(job: Job) -> Iterable[tuple[str, Value]]:
    if job.evaluation.iters is not None:
        yield "eval-iters", job.evaluation.iters
    elif not evaluates(job):
        yield "eval-iters", 0


def _read_eval_iters(view: NativeView) -> Mapping[str, Value]:
    if view.has("eval-iters"):
        return {"evaluation.iters": view.take("eval-iters")}
    asked = ("eval-interval", "valid-data-path", "valid-data-args-path", "data-args-path", "per-split-data-args-path")
    return {} if any(view.peek(flag) for flag in asked) else {"evaluation.iters": _EVAL_ITERS}


def tokenizer() -> tuple[Row, ...]:
    """Return the rows of the tokenizer."""
    return (
        tokenizer_class("0.15", None),
        tokenizer_class(None, "0.14.9"),
        when_given("tokenizer.vocab_file", "vocab-file"),
        when_given("tokenizer.merge_file", "merge-file"),
        switch("tokenizer.trust_remote_code", "trust-remote-code", since="0.13"),
        computed(
            ("data.template",),
            ("legacy-tokenizer", "sft-tokenizer-prompt-format"),
            _write_template,
            _read_template,
            when=lambda job: job.task.type == "sft",
            since="0.15",
            note="SFTTokenizer exists only in the legacy tokenizer system (megatron/training/tokenizer/tokenizer.py).",
        ),
    )


def tokenizer_class(since: str | None, until: str | None) -> Row:
    """Return the row of the tokenizer's class and path; with `until` None, --sft uses SFTTokenizer."""
    has_sft = until is None

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind, path = tokenizer_kind(job), tokenizer_path(job)
        yield "tokenizer-type", "SFTTokenizer" if has_sft and job.task.type == "sft" else kind
        if kind != "NullTokenizer" and path is not None:
            yield "tokenizer-model", path

    return computed(
        ("tokenizer.type", "tokenizer.path", "model.path", "model.hub_id"),
        ("tokenizer-type", "tokenizer-model"),
        emit,
        _read_tokenizer,
        since=since,
        until=until,
        note="Without any tokenizer the token files carry the numbers: NullTokenizer.",
    )


def tokenizer_path(job: Job) -> str | None:
    """Return the tokenizer's path, else the model's path or hub id."""
    return job.tokenizer.path or job.model.path or job.model.hub_id


def tokenizer_kind(job: Job) -> str:
    """Return Megatron's name of the tokenizer class for this job."""
    passed = job.backend.args.get("tokenizer-type")
    if passed is not None:
        return str(passed)
    if job.tokenizer.type is not None:
        return job.tokenizer.type
    return "HuggingFaceTokenizer" if tokenizer_path(job) else "NullTokenizer"


def _read_tokenizer(view: NativeView) -> Mapping[str, Value]:
    known = ("HuggingFaceTokenizer", "NullTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer", "TikTokenizer")
    found: dict[str, Value] = {}
    view.values.setdefault("tokenizer-type", TOKENIZER)  # the default has no canonical value
    if view.peek("tokenizer-type") in (*known, "SFTTokenizer"):
        kind = view.take("tokenizer-type")
        found["tokenizer.type"] = kind if kind in known else None
        if view.has("tokenizer-model"):
            found["tokenizer.path"] = view.take("tokenizer-model")
    return found


def _write_template(job: Job) -> Iterable[tuple[str, Value]]:
    known = ("nemotron-h-aligned", "nemotron-nano-v2")
    yield "legacy-tokenizer", True
    if job.data.template not in known:
        raise Unsupported(
            "data.template", "--sft knows two chat templates only", tuple(f"data.template={name}" for name in known)
        )
    yield "sft-tokenizer-prompt-format", job.data.template


def _read_template(view: NativeView) -> Mapping[str, Value]:
    if not view.peek("sft"):
        return {}
    view.take("legacy-tokenizer")
    return {"data.template": view.take("sft-tokenizer-prompt-format", "nemotron-h-aligned")}


def vocabulary() -> tuple[Row, ...]:
    """Return the rows of the vocabulary; its size is config.json's, independent of the tokenizer."""
    return (
        computed(
            ("model.vocab_size", "tokenizer.type"),
            ("vocab-size",),
            _write_vocabulary,
            _read_vocabulary,
            note="NullTokenizer adds one for the end of a document, which must be a row of the embedding too.",
        ),
        computed(
            (
                "tokenizer.padded_vocab_size",
                "tokenizer.make_vocab_size_divisible_by",
                "model.vocab_size",
                "parallel.tp",
            ),
            ("make-vocab-size-divisible-by", "padded-vocab-size"),
            _write_padding,
            _read_padding,
            since="0.16",
            note="config.json's size, padded only to a multiple of tp: the same rows as in Hugging Face at any layout.",
        ),
        computed(
            (
                "tokenizer.padded_vocab_size",
                "tokenizer.make_vocab_size_divisible_by",
                "model.vocab_size",
                "parallel.tp",
            ),
            ("make-vocab-size-divisible-by",),
            _write_divisor,
            _read_divisor,
            until="0.15.9",
            note="No argument sets the padded size; a divisor of that size over tp gives it for any smaller tokenizer.",
        ),
    )


def _write_vocabulary(job: Job) -> Iterable[tuple[str, Value]]:
    size = job.model.vocab_size
    if size is not None:
        yield "vocab-size", size - 1 if tokenizer_kind(job) == "NullTokenizer" else size


def _read_vocabulary(view: NativeView) -> Mapping[str, Value]:
    if not view.has("vocab-size") or not pads_as_we_do(view):
        return {}
    return {"model.vocab_size": view.take("vocab-size") + int(view.peek("tokenizer-type") == "NullTokenizer")}


def pads_as_we_do(view: NativeView) -> bool:
    """Return whether the arguments alone, without the tokenizer, ensure at least --vocab-size embedding rows."""
    if view.has("padded-vocab-size"):
        return True
    divisor = view.peek("make-vocab-size-divisible-by") or 0
    return bool(divisor * view.peek("tensor-model-parallel-size", 1) >= view.peek("vocab-size", 0) > 0)


def padded_vocabulary(job: Job) -> int | None:
    """Return the rows of the embedding: given, or the vocabulary padded to the divisor (else 1) times tp."""
    if job.tokenizer.padded_vocab_size is not None or job.model.vocab_size is None:
        return job.tokenizer.padded_vocab_size
    multiple = (job.tokenizer.make_vocab_size_divisible_by or 1) * job.parallel.tp
    return -(-job.model.vocab_size // multiple) * multiple


def _write_padding(job: Job) -> Iterable[tuple[str, Value]]:
    if job.tokenizer.make_vocab_size_divisible_by is not None:
        yield "make-vocab-size-divisible-by", job.tokenizer.make_vocab_size_divisible_by
    size = padded_vocabulary(job)
    if size is not None:
        yield "padded-vocab-size", size


def _read_padding(view: NativeView) -> Mapping[str, Value]:
    return {
        "tokenizer.padded_vocab_size": view.take("padded-vocab-size"),
        "tokenizer.make_vocab_size_divisible_by": view.take("make-vocab-size-divisible-by"),
    }


def _write_divisor(job: Job) -> Iterable[tuple[str, Value]]:
    size = padded_vocabulary(job)
    if size is None:
        if job.tokenizer.make_vocab_size_divisible_by is not None:
            yield "make-vocab-size-divisible-by", job.tokenizer.make_vocab_size_divisible_by
        return
    if size % job.parallel.tp:
        raise Unsupported("tokenizer.padded_vocab_size", f"it must be a multiple of tp={job.parallel.tp}")
    yield "make-vocab-size-divisible-by", size // job.parallel.tp


def _read_divisor(view: NativeView) -> Mapping[str, Value]:
    divisor, size = view.peek("make-vocab-size-divisible-by"), view.peek("vocab-size")
    rows = (divisor or 0) * view.peek("tensor-model-parallel-size", 1)
    if size and size <= rows:
        view.take("make-vocab-size-divisible-by")
        return {"tokenizer.padded_vocab_size": rows}
    return {"tokenizer.make_vocab_size_divisible_by": view.take("make-vocab-size-divisible-by")}


def checkpoint() -> tuple[Row, ...]:
    """Return the rows of checkpoints."""
    return (
        when_given("checkpoint.load", "load"),
        pretrained(),
        when_given("checkpoint.save", "save"),
        computed(
            ("checkpoint.save_interval", "checkpoint.save", "schedule.train_iters"),
            ("save-interval",),
            _write_save_interval,
            lambda view: {"checkpoint.save_interval": view.take("save-interval")} if view.has("save-interval") else {},
            note="Megatron refuses --save without it; with none, once at the end.",
        ),
        switch("checkpoint.finetune", "finetune"),
        *formats(),
        *saving(),
        switch("checkpoint.no_load_optim", "no-load-optim"),
        switch("checkpoint.no_load_rng", "no-load-rng"),
        switch("checkpoint.no_save_optim", "no-save-optim"),
        switch("checkpoint.no_save_rng", "no-save-rng"),
        when_given("checkpoint.strictness", "dist-ckpt-strictness"),
        switch("checkpoint.exit_on_missing", "exit-on-missing-checkpoint"),
    )


def _write_save_interval(job: Job) -> Iterable[tuple[str, Value]]:
    if job.checkpoint.save_interval is not None:
        yield "save-interval", job.checkpoint.save_interval
    elif job.checkpoint.save is not None:
        if job.schedule.train_iters is None:
            why = "Megatron-LM needs the steps between checkpoints"
            raise Unsupported("checkpoint.save_interval", why, ("checkpoint.save_interval=1000",))
        yield "save-interval", job.schedule.train_iters


def saving() -> tuple[Row, ...]:
    """Return the rows of how checkpoints are written, which differ between versions."""
    return (
        asynchronous(),
        switch("checkpoint.async_save", "async-save", until="0.15.9"),
        switch("checkpoint.optimizer_fully_reshardable", "dist-ckpt-optim-fully-reshardable", since="0.14"),
    )


def starts_from_weights(job: Job) -> bool:
    """Return whether training starts from Hugging Face weights."""
    if job.model.pretrained is not None:
        return job.model.pretrained
    return job.model.path is not None or job.model.hub_id is not None


def pretrained() -> Row:
    """Return the row that rejects Hugging Face weights, which Megatron-LM cannot read."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if starts_from_weights(job) and job.checkpoint.load is None:
            raise Unsupported(
                "model.pretrained",
                "only its own checkpoints are read: convert the weights and name them in checkpoint.load",
                ("model.pretrained=false",),
            )
        return ()

    return Row(fields=("model.pretrained", "model.path", "model.hub_id"), flags=(), emit=emit)


def logging() -> tuple[Row, ...]:
    """Return the rows of logs, profiler and time-outs."""
    return (
        valued("logging.interval", "log-interval", 100),
        when_given("logging.tensorboard_dir", "tensorboard-dir"),
        when_given("logging.wandb_project", "wandb-project"),
        when_given("logging.wandb_name", "wandb-exp-name"),
        switch("logging.throughput", "log-throughput"),
        switch("logging.params_norm", "log-params-norm"),
        switch("logging.zero_gradients", "log-num-zeros-in-grad"),
        when_given("logging.timer_level", "timing-log-level"),
        switch("logging.timers", "log-timers-to-tensorboard"),
        switch("logging.memory", "log-memory-to-tensorboard"),
        switch("logging.perplexity", "log-validation-ppl-to-tensorboard"),
        *profiler(),
        when_given("fault_tolerance.timeout_minutes", "distributed-timeout-minutes"),
    )


def profiler() -> tuple[Row, ...]:
    """Return the rows of the profiler."""
    return (
        computed(
            ("profiler.enabled",),
            ("profile", "use-pytorch-profiler"),
            lambda job: (("profile", True), ("use-pytorch-profiler", True)) if job.profiler.enabled else (),
            _read_profile,
            note="Without --use-pytorch-profiler the steps are marked for Nsight Systems, and no trace is written.",
        ),
        when_given("profiler.start_step", "profile-step-start"),
        when_given("profiler.end_step", "profile-step-end"),
        listed("profiler.ranks", "profile-ranks"),
    )


def _read_profile(view: NativeView) -> Mapping[str, Value]:
    if not (view.has("profile") and view.has("use-pytorch-profiler")):
        return {}
    view.take("use-pytorch-profiler")
    return {"profiler.enabled": bool(view.take("profile"))}
