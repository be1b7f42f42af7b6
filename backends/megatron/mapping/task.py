"""Rows for task and LoRA."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from backends.megatron.mapping.factories import FOUR, THREE, listed, only, single
from backends.megatron.mapping.options import option
from backends.megatron.versions import catalogue
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, field_at, value_at
from launcher.job.task import LORA_ALPHA, LORA_DROPOUT
from launcher.mapping.rows import NativeView, Row, Unsupported, computed

# Not an argument: name under which importers pass the subcommand to the table (`megatron COMMAND ...`).
COMMAND = "command"
_RENAMED = {"reward_model": "rm"}


def rlhf_types(version: str) -> Mapping[str, str]:
    """Return the tasks of `megatron rlhf`: canonical name to `--rlhf_type`."""
    argument = catalogue(version).get("rlhf_type")
    native = () if argument is None else argument.choices or ()
    named = {kind: _RENAMED.get(kind, kind) for kind in field_at("task.type").meta.choices}
    return {kind: name for kind, name in named.items() if name in native}


def task_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `task`."""
    return (
        _task(version),
        *option("task.beta", "beta", version),
        *option("task.loss_type", "loss_type", version),
        *option("task.label_smoothing", "label_smoothing", version),
        *(option("task.rpo_alpha", "rpo_alpha", version) if in_range(version, "3.7", None) else (_sft_loss(),)),
        *option("task.desirable_weight", "desirable_weight", version),
        *option("task.undesirable_weight", "undesirable_weight", version),
        *(
            option("task.reference_model", "ref_model", version, note="a Hugging Face directory or hub id")
            or option("task.reference_model", "ref_load", version)
        ),
        *option("task.reward_models", "reward_model", version),
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


def lora_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of section `lora`."""
    why = "this version trains all parameters"
    return (
        only("lora.rank", (), why, ("backend.version=4.6.0",), until="3.6.99"),
        _lora("train_type", since="3.7", until=THREE),
        _lora("tuner_type", since=FOUR),
        _adapter_value("lora.alpha", "lora_alpha", LORA_ALPHA, 32, _integer_alpha, since="3.7", until="4.4.99"),
        _adapter_value("lora.alpha", "lora_alpha", LORA_ALPHA, 32, since="4.5"),
        _adapter_value("lora.dropout", "lora_dropout", LORA_DROPOUT, 0.05, since="3.7"),
        listed("lora.target_modules", "target_modules", since="3.7"),
        *option("lora.rslora", "use_rslora", version),
        *option("lora.merge", "merge_lora", version),
        _adapters(),
    )


def _integer_alpha(alpha: float) -> int:
    if alpha != int(alpha):
        raise Unsupported("lora.alpha", "a whole number in this version", (f"lora.alpha={round(alpha)}",))
    return int(alpha)


def _adapter_value(
    path: str, flag: str, fallback: float, parser_default: float, forward: Callable[[float], Value] = float, **row: Any
) -> Row:
    """Return a row for a LoRA setting, written for every LoRA job; read, an absent one is `parser_default`."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None or job.lora.rank is not None:
            yield flag, forward(fallback if value is None else value)

    def read(view: NativeView) -> Mapping[str, Value]:
        adapters = "lora" in (view.peek("train_type"), view.peek("tuner_type"))
        return {path: float(view.take(flag, parser_default))} if adapters or view.has(flag) else {}

    note = f"written wherever there are adapters: {fallback:g} unless set, swift's own default is {parser_default:g}"
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
