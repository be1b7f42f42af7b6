"""Rows for task, LoRA, batch, schedule, optimizer, precision and seed."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from backends.megatron.mapping.details import counted
from backends.megatron.mapping.factories import FOUR, SEED, THREE, explicit, listed, one_of, only, single
from backends.megatron.mapping.model import DTYPES
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, value_at
from launcher.job.task import LORA_ALPHA, LORA_DROPOUT
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, same

# Not an argument: name under which importers pass the subcommand to the table (`megatron COMMAND ...`).
COMMAND = "command"
_RLHF_36 = {"dpo": "dpo"}
_RLHF_37 = {"dpo": "dpo", "kto": "kto", "reward_model": "rm", "grpo": "grpo", "gkd": "gkd"}


def rlhf_types(version: str) -> Mapping[str, str]:
    """Return the tasks of `megatron rlhf`: canonical name to `--rlhf_type`."""
    if in_range(version, "3.7", None):
        return _RLHF_37
    return _RLHF_36 if in_range(version, "3.6", None) else {}


def task_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `task`."""
    return (
        _task(version),
        same("task.beta", "beta", since="3.6"),
        same("task.loss_type", "loss_type", since="3.6"),
        same("task.label_smoothing", "label_smoothing", since="3.6"),
        _sft_loss(),
        same("task.rpo_alpha", "rpo_alpha", since="3.7"),
        same("task.desirable_weight", "desirable_weight", since="3.7"),
        same("task.undesirable_weight", "undesirable_weight", since="3.7"),
        same("task.reference_model", "ref_load", since="3.6", until="3.9"),
        same("task.reference_model", "ref_model", since="3.10", note="a Hugging Face directory or hub id"),
    )


def _task(version: str) -> Row:
    names = rlhf_types(version)
    back = {native: canonical for canonical, native in names.items()}
    commands = {"pt": "pretrain", "sft": "sft"}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.task.type in commands.values():
            return
        if job.task.type not in names:
            works = ("pretrain", "sft", *names)
            why = f"`megatron rlhf` of this version has {', '.join(names)}" if names else "this version has pt and sft"
            raise Unsupported("task.type", why, tuple(f"task.type={name}" for name in works))
        yield "rlhf_type", names[job.task.type]

    def read(view: NativeView) -> Mapping[str, Value]:
        command = view.take(COMMAND)
        if command in commands:
            return {"task.type": commands[command]}
        if view.peek("rlhf_type") in back:
            return {"task.type": back[view.take("rlhf_type")]}
        return {"task.type": "dpo"} if command == "rlhf" and not view.has("rlhf_type") else {}

    return Row(fields=("task.type",), flags=("rlhf_type",) if names else (), emit=emit, read=read)


def _sft_loss() -> Row:
    """Return the row of rpo_alpha in 3.6, whose default of 1 adds the SFT loss to DPO; unset means DPO alone."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(COMMAND) != "rlhf" and not view.has("rpo_alpha"):
            return {}
        return {"task.rpo_alpha": view.take("rpo_alpha", 1.0) or None}

    return Row(
        fields=("task.rpo_alpha",),
        flags=("rpo_alpha",),
        emit=lambda job: (("rpo_alpha", job.task.rpo_alpha or 0.0),),
        read=read,
        when=lambda job: job.task.type == "dpo",
        since="3.6",
        until="3.6.99",
    )


def lora_rows() -> tuple[Row, ...]:
    """Return the rows of section `lora`."""
    why = "this version trains all parameters"
    return (
        only("lora.rank", (), why, ("backend.version=4.6.0",), until="3.6.99"),
        _lora("train_type", since="3.7", until=THREE),
        _lora("tuner_type", since=FOUR),
        _adapter_value("lora.alpha", "lora_alpha", LORA_ALPHA, 32, _whole_alpha, since="3.7", until="4.5.99"),
        _adapter_value("lora.alpha", "lora_alpha", LORA_ALPHA, 32, since="4.6"),
        _adapter_value("lora.dropout", "lora_dropout", LORA_DROPOUT, 0.05, since="3.7"),
        listed("lora.target_modules", "target_modules", since="3.7"),
        same("lora.rslora", "use_rslora", since="3.7"),
        same("lora.merge", "merge_lora", since="3.7"),
        _adapters(),
    )


def _whole_alpha(alpha: float) -> int:
    if alpha != int(alpha):
        raise Unsupported("lora.alpha", "a whole number in this version", (f"lora.alpha={round(alpha)}",))
    return int(alpha)


def _adapter_value(
    path: str, flag: str, usual: float, own: float, forward: Callable[[float], Value] = float, **row: Any
) -> Row:
    """Return a row for a LoRA setting, written for every LoRA job; `own` is swift's default, used when reading."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None or job.lora.rank is not None:
            yield flag, forward(usual if value is None else value)

    def read(view: NativeView) -> Mapping[str, Value]:
        adapters = "lora" in (view.peek("train_type"), view.peek("tuner_type"))
        return {path: float(view.take(flag, own))} if adapters or view.has(flag) else {}

    note = f"written wherever there are adapters: {usual:g} unless set, swift's own default is {own:g}"
    return computed((path,), (flag,), emit, read, note=note, **row)


def _lora(kind: str, since: str, until: str | None = None) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.lora.rank is not None:
            yield kind, "lora"
            yield "lora_rank", job.lora.rank

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(kind) == "full":
            view.take(kind)
            return {}
        if view.peek(kind) != "lora":
            return {}
        view.take(kind)
        return {"lora.rank": view.take("lora_rank", 8)}

    return Row(fields=("lora.rank",), flags=(kind, "lora_rank"), emit=emit, read=read, since=since, until=until)


def _adapters() -> Row:
    def read(view: NativeView) -> Mapping[str, Value]:
        value = single(view.peek("adapters"))
        if not isinstance(value, str):
            return {}
        view.take("adapters")
        return {"lora.load": value}

    return Row(
        fields=("lora.load",),
        flags=("adapters",),
        emit=lambda job: (("adapters", (job.lora.load,)),) if job.lora.load else (),
        read=read,
        since="3.10",
    )


def batch_rows() -> tuple[Row, ...]:
    """Return the rows of section `batch`; gradient accumulation follows from the three sizes and is never written."""
    return (
        same("batch.micro_batch_size", "micro_batch_size"),
        same("batch.global_batch_size", "global_batch_size"),
        same("batch.seq_length", "max_length", note="samples are cut or dropped at it; packed sequences are as long"),
        same("batch.packing", "packing"),
        same("batch.padding_free", "padding_free", note="the default changed: false up to 3.6, true since 3.7"),
        only(
            "batch.variable_seq_lengths",
            (True,),
            "swift always lets micro-batches differ in length (mcore_bridge/config/model_config.py @1.6.5)",
            ("batch.variable_seq_lengths=true",),
        ),
    )


def schedule_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `schedule`."""
    styles: tuple[str, ...] = ("cosine", "linear", "constant")
    if in_range(version, FOUR, None):
        styles += ("inverse-square-root", "WSD")
    return (
        same("schedule.train_iters", "train_iters"),
        _samples(),
        _epochs("max_epochs", version, until=THREE),
        _epochs("num_train_epochs", version, since=FOUR),
        same("optimizer.lr", "lr"),
        same("optimizer.min_lr", "min_lr"),
        one_of("schedule.lr_decay_style", "lr_decay_style", styles),
        counted("lr_decay"),
        counted("lr_warmup"),
        same("schedule.lr_warmup_fraction", "lr_warmup_fraction", since="3.5.0"),
        same("schedule.lr_warmup_init", "lr_warmup_init", since=FOUR),
        same("schedule.lr_wsd_decay_style", "lr_wsd_decay_style", since=FOUR),
        counted("lr_wsd_decay", since=FOUR),
        only("schedule.lr_wsd_decay_style", (), "3.x has no WSD schedule", until=THREE),
        only("schedule.lr_wsd_decay_iters", (), "3.x has no WSD schedule", until=THREE),
    )


def _samples() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        samples, batch = job.schedule.train_samples, job.batch.global_batch_size
        if samples is None:
            return
        if batch is None or samples % batch:
            works = (f"schedule.train_iters={max(1, round(samples / batch))}",) if batch else ()
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


def optimizer_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `optimizer`, except learning rates (see `schedule_rows`)."""
    kinds = ("adam", "sgd", *(("muon",) if in_range(version, "4.6", None) else ()))
    adam = _uses("adam", "muon")
    return (
        one_of("optimizer.type", "optimizer", kinds),
        same("optimizer.weight_decay", "weight_decay"),
        same("optimizer.adam_beta1", "adam_beta1", when=adam),
        same("optimizer.adam_beta2", "adam_beta2", when=adam),
        same("optimizer.adam_eps", "adam_eps", when=adam),
        same("optimizer.sgd_momentum", "sgd_momentum"),
        same("optimizer.clip_grad", "clip_grad"),
        same("optimizer.precision_aware", "use_precision_aware_optimizer", since="3.5.0"),
        same("optimizer.main_grads_dtype", "main_grads_dtype", since="3.6"),
        same("optimizer.main_params_dtype", "main_params_dtype", since="3.6"),
        same("optimizer.exp_avg_dtype", "exp_avg_dtype", since="3.6"),
        same("optimizer.exp_avg_sq_dtype", "exp_avg_sq_dtype", since="3.6"),
    )


def _uses(*kinds: str) -> Callable[[Job], bool]:
    return lambda job: job.optimizer.type in kinds


def precision_rows() -> tuple[Row, ...]:
    """Return the rows of section `precision`."""
    return (
        _dtype(),
        same("precision.fp8_format", "fp8_format", since="3.6"),
        same("precision.fp8_recipe", "fp8_recipe", since="3.6"),
        same("precision.fp8_param_gather", "fp8_param_gather", since="3.6"),
        _fp32_gradients(),
        only("precision.grad_reduce_in_fp32", (True,), "3.x always accumulates bf16 gradients in fp32", until=THREE),
        explicit("precision.attention_softmax_in_fp32", "attention_softmax_in_fp32", True),
        same("precision.apply_query_key_layer_scaling", "apply_query_key_layer_scaling"),
        _loss_per_token(),
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


def seed_rows() -> tuple[Row, ...]:
    """Return the rows of the seeds; swift shuffles samples with a second seed that has its own default."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.seed if job.data.seed is None else job.data.seed
        if wanted != 42:
            yield "data_seed", wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        seed = view.peek("seed", 42)
        written = view.take("data_seed", 42)
        return {} if written == seed else {"data.seed": written}

    return (
        same("seed", "seed"),
        Row(
            fields=("data.seed", "seed"),
            flags=("data_seed",),
            emit=emit,
            read=read,
            since="3.5.0",
            note="its default is 42, not seed",
        ),
    )
