"""Rows for batch, schedule, optimizer, precision and seed that differ from Megatron-LM's."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, SEED, THREE, explicit, only
from backends.megatron.mapping.model import DTYPES
from backends.megatron.mapping.options import option
from backends.megatron.mapping.task import COMMAND
from launcher.job import Job, Value, value_at
from launcher.job.precision import FP8_AMAX_COMPUTE_ALGO, FP8_AMAX_HISTORY_LEN
from launcher.mapping.rows import NativeView, Row, Unsupported, computed
from launcher.mapping.schedule_units import in_steps


def rows(version: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "batch.seq_length": option(
            "batch.seq_length",
            "max_length",
            version,
            note="samples are cut or dropped at it; packed sequences are as long",
        ),
        "batch.packing": _batch(version),
        "schedule.train_samples": (
            _samples(),
            _epochs("max_epochs", version, until=THREE),
            _epochs("num_train_epochs", version, since=FOUR),
        ),
        "schedule.lr_decay_iters": (counted("lr_decay"),),
        "schedule.lr_warmup_iters": (counted("lr_warmup"),),
        "schedule.lr_wsd_decay_style": (
            *option("schedule.lr_wsd_decay_style", "lr_wsd_decay_style", version),
            *(
                only(f"schedule.{name}", (), "3.x has no WSD schedule", until=THREE)
                for name in ("lr_wsd_decay_style", "lr_wsd_decay_iters", "lr_wsd_decay_samples")
            ),
        ),
        "schedule.lr_wsd_decay_iters": (counted("lr_wsd_decay", since=FOUR),),
        "optimizer.muon_matmul_precision": (
            *option("optimizer.muon_matmul_precision", "muon_fp32_matmul_prec", version),
            *option("optimizer.muon_coefficient_type", "muon_coefficient_type", version),
            *option("optimizer.muon_scalar_optimizer", "muon_scalar_optimizer", version),
        ),
        "precision.dtype": (_dtype(),),
        "precision.grad_reduce_in_fp32": (
            _fp32_gradients(),
            only(
                "precision.grad_reduce_in_fp32", (True,), "3.x always accumulates bf16 gradients in fp32", until=THREE
            ),
        ),
        "precision.attention_softmax_in_fp32": (
            explicit("precision.attention_softmax_in_fp32", "attention_softmax_in_fp32", True),
        ),
        "precision.calculate_per_token_loss": (_loss_per_token(),),
        "precision.fp8_amax_history_len": (
            _amax("precision.fp8_amax_history_len", "fp8_amax_history_len", FP8_AMAX_HISTORY_LEN),
        ),
        "precision.fp8_amax_compute_algo": (
            _amax("precision.fp8_amax_compute_algo", "fp8_amax_compute_algo", FP8_AMAX_COMPUTE_ALGO),
        ),
        "seed": (*option("seed", "seed", version), _data_seed()),
    }


def _batch(version: str) -> tuple[Row, ...]:
    """Return the rows of packing; gradient accumulation follows from the three sizes and is never written."""
    return (
        *option("batch.packing", "packing", version),
        *option(
            "batch.padding_free", "padding_free", version, note="the default changed: false up to 3.6, true since 3.7"
        ),
        only(
            "batch.variable_seq_lengths",
            (True,),
            "swift always lets micro-batches differ in length (mcore_bridge/config/model_config.py @1.6.5)",
            ("batch.variable_seq_lengths=true",),
        ),
    )


def _samples() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        samples, batch = job.schedule.train_samples, job.batch.global_batch_size
        if samples is None:
            return
        if batch is None or samples % batch:
            steps = max(1, samples // batch) if batch else 0
            works = (f"schedule.train_samples={steps * batch}",) if batch else ()
            raise Unsupported(
                "schedule.train_samples", "swift counts steps, and this is not a whole number of batches", works
            )
        yield "train_iters", samples // batch

    return computed(("schedule.train_samples", "batch.global_batch_size"), ("train_iters",), emit)


def _epochs(flag: str, version: str, since: str | None = None, until: str | None = None) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        epochs, schedule = job.schedule.epochs, job.schedule
        if epochs is None:
            return
        if epochs != int(epochs) or epochs < 1:
            raise Unsupported("schedule.epochs", "whole epochs only", (f"schedule.epochs={max(1, round(epochs))}",))
        if version == SEED and schedule.train_iters is None and schedule.train_samples is None:
            raise Unsupported(
                "schedule.epochs",
                "before 3.5 epochs only end a training earlier; the number of steps must be given, too",
            )
        yield flag, int(epochs)

    return Row(
        fields=("schedule.epochs",),
        flags=(flag,),
        emit=emit,
        read=lambda view: {"schedule.epochs": float(view.take(flag))} if view.has(flag) else {},
        since=since,
        until=until,
    )


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


def _amax(path: str, flag: str, fallback: Value) -> Row:
    """Return the row of a setting whose canonical default equals swift's, so that only other values are written."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        if given is not None:
            yield flag, given

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {}
        given = view.take(flag)
        return {path: None if given == fallback else given}

    return Row(
        fields=(path,), flags=(flag,), emit=emit, read=read, since="3.6", note=f"none: {fallback}, swift's own too"
    )


def _loss_per_token() -> Row:
    """Return the row, always written: swift's default is true for language models except in RLHF, Megatron's false."""
    path, flag = "precision.calculate_per_token_loss", "calculate_per_token_loss"

    def read(view: NativeView) -> Mapping[str, Value]:
        preference = view.peek(COMMAND) == "rlhf" or view.peek("rlhf_type") is not None
        value = view.take(flag)
        if value is None:
            value = not preference and view.peek("task_type", "causal_lm") == "causal_lm"
        return {path: value}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, job.precision.calculate_per_token_loss),),
        read=read,
        note="swift's default is true but in RLHF (swift/megatron/arguments/megatron_args.py:758 @4.6.0)",
    )


def _dtype() -> Row:
    """Return the row, always written: without it swift uses config.json's dtype, and trains float32 models in fp16."""
    back = {native: canonical for canonical, native in DTYPES.items()}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield "torch_dtype", DTYPES[job.precision.dtype]
        if job.precision.dtype == "fp32":
            yield "fp16", False
            yield "bf16", False

    def read(view: NativeView) -> Mapping[str, Value]:
        wanted = back.get(str(view.peek("torch_dtype")))
        if view.peek("bf16") is True or view.peek("fp16") is True:
            mixed = "bf16" if view.peek("bf16") is True else "fp16"
            if wanted not in (None, mixed):
                return {}
            wanted = mixed
            for flag in ("bf16", "fp16"):
                view.take(flag)
        elif wanted == "fp32" and view.peek("bf16") is False and view.peek("fp16") is False:
            view.take("bf16")
            view.take("fp16")
        elif wanted == "fp32":
            return {}
        view.take("torch_dtype")
        return {"precision.dtype": wanted}

    return Row(
        fields=("precision.dtype",),
        flags=("torch_dtype", "fp16", "bf16"),
        emit=emit,
        read=read,
        note="float32 alone would mean fp16 mixed precision (swift/arguments/base_args/model_args.py:130 @4.6.0)",
    )


def _fp32_gradients() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = job.precision.grad_reduce_in_fp32
        forced = job.precision.dtype == "bf16" and job.optimizer.main_grads_dtype in (None, "fp32")
        if value is False and forced:
            raise Unsupported(
                "precision.grad_reduce_in_fp32",
                "with bf16 and fp32 main gradients swift always reduces in fp32 (megatron_args.py:1211 @4.6.0)",
                ("precision.grad_reduce_in_fp32=true", "optimizer.main_grads_dtype=bf16"),
            )
        if value is not None:
            yield "accumulate_allreduce_grads_in_fp32", value

    def read(view: NativeView) -> Mapping[str, Value]:
        flag = "accumulate_allreduce_grads_in_fp32"
        if not view.has(flag) or view.peek(flag) is False:
            return {}
        return {"precision.grad_reduce_in_fp32": view.take(flag)}

    return Row(
        fields=("precision.grad_reduce_in_fp32",),
        flags=("accumulate_allreduce_grads_in_fp32",),
        emit=emit,
        read=read,
        since=FOUR,
    )


def _data_seed() -> Row:
    """Return the row of the second seed, with which swift shuffles samples and which has its own default."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.seed if job.data.seed is None else job.data.seed
        if wanted != 42:
            yield "data_seed", wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        seed = view.peek("seed", 42)
        written = view.take("data_seed", 42)
        return {} if written == seed else {"data.seed": written}

    return Row(
        fields=("data.seed", "seed"),
        flags=("data_seed",),
        emit=emit,
        read=read,
        since="3.5.0",
        note="its default is 42, not seed",
    )
