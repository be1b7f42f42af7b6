"""Rows of checkpoints."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.logging import native_output_dir
from backends.mindformers.mapping.support import (
    KIND,
    WEIGHTS,
    drop,
    is_file,
    is_legacy,
    legacy_file,
    model_kind,
    require,
)
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported, same

_SAVE = "callbacks.CheckpointMonitor."


def _saves(job: Job) -> bool:
    return job.checkpoint.save is not None


def _load() -> Row:
    paths = ("checkpoint.load", "checkpoint.finetune", "checkpoint.no_load_optim", "checkpoint.no_load_rng")
    flags = ("load_checkpoint", "resume_training")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        checkpoint = job.checkpoint
        yield flags[1], checkpoint.load is not None and not checkpoint.finetune
        if checkpoint.load is None:
            return
        why = "it resumes with the optimizer, or starts a new run from the weights (checkpoint.finetune=true)"
        require(not checkpoint.no_load_optim or bool(checkpoint.finetune), paths[2], why, "checkpoint.finetune=true")
        yield flags[0], checkpoint.load

    def read(view: NativeView) -> Mapping[str, Value]:
        load, resume = view.peek(flags[0]), view.peek(flags[1], False)
        if not load:
            drop(view, {flags[0]: load, flags[1]: False})
            return {}
        if not isinstance(resume, bool):
            return {}
        view.take(flags[0])
        view.take(flags[1])
        return {paths[0]: load, paths[1]: None if resume else True}

    return Row(fields=paths, flags=flags, emit=emit, read=read, note="random states are neither saved nor loaded")


def reshard_row() -> Row:
    """Return the row of resharding a loaded checkpoint."""
    path, flag = "checkpoint.reshard", "auto_trans_ckpt"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        loads = job.checkpoint.load is not None or job.model.starts_from_weights
        if loads or job.checkpoint.reshard is not None:
            yield flag, True if job.checkpoint.reshard is None else job.checkpoint.reshard

    def read(view: NativeView) -> Mapping[str, Value]:
        loads = bool(view.peek("load_checkpoint")) or bool(view.peek(WEIGHTS))
        if not view.has(flag) and not (loads and is_file(view)):
            return {}
        written = view.take(flag, False)
        return {} if written is loads else {path: written}

    note = "on where something is loaded: it is resharded from the layout that it was saved at"
    fields = (path, "checkpoint.load", "model.pretrained")
    return Row(fields=fields, flags=(flag,), emit=emit, read=read, note=note)


def _save() -> Row:
    paths = ("checkpoint.save", "checkpoint.save_interval")
    directory, steps = f"{_SAVE}directory", f"{_SAVE}save_checkpoint_steps"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        interval = job.checkpoint.save_interval or job.schedule.train_iters
        if interval is None:
            why = "without an interval MindFormers saves after every step"
            raise Unsupported(paths[1], why, (f"{paths[1]}=500",))
        if job.checkpoint.save != native_output_dir(job):
            yield directory, job.checkpoint.save
        yield steps, interval

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(steps):
            return {}
        # Without a checkpoint directory MindFormers saves below output_dir (callback.py:1586 @1.8.0).
        save = view.take(directory) or view.peek("output_dir") or "./output"
        return {paths[0]: save, paths[1]: view.take(steps)}

    note = "no interval: saved once, at the end of training"
    return Row(fields=paths, flags=(directory, steps), emit=emit, read=read, when=_saves, note=note)


def _format(path: str, flag: str) -> Row:
    """Return the row of a checkpoint's format, which is fixed for mcore models."""
    fields = (path, "model.legacy")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted, fallback = value_at(job, path), "ckpt" if is_legacy(job) else "safetensors"
        known = ("safetensors", "ckpt") if is_legacy(job) else ("safetensors",)
        why = "mcore models are saved and loaded as safetensors only (base_trainer.py:1375 @1.8.0)"
        require(wanted in (None, *known), path, why, f"{path}=safetensors")
        if path == "checkpoint.load_format" or _saves(job):
            yield flag, wanted or fallback

    def read(view: NativeView) -> Mapping[str, Value]:
        written = view.peek(flag, "ckpt")
        if not view.has(flag) or written not in ("safetensors", "ckpt"):
            return {}
        # mcore always saves safetensors, with a warning; an unsupported load format is left to the rules.
        if not legacy_file(view) and written == "ckpt" and path == "checkpoint.load_format":
            return {}
        view.take(flag)
        return {} if written == ("ckpt" if legacy_file(view) else "safetensors") else {path: written}

    return Row(fields=fields, flags=(flag,), emit=emit, read=read)


def _prefix() -> Row:
    flag, path = f"{_SAVE}prefix", "checkpoint.prefix"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flag, job.checkpoint.prefix or job.model.label or model_kind(job) or "llm"

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: view.peek("trainer.model_name") or view.peek(KIND, "llm")})
        return {path: view.take(flag)} if view.has(flag) else {}

    return Row(fields=(path, "model.label", "model.model_type"), flags=(flag,), emit=emit, read=read, when=_saves)


def _merge() -> Row:
    flag, path = f"{_SAVE}integrated_save", "checkpoint.merge_shards"

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {path: True} if f"{_SAVE}save_checkpoint_steps" in view.values and is_file(view) else {}
        return {path: view.take(flag)}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, bool(job.checkpoint.merge_shards)),),
        read=read,
        when=_saves,
        note="each rank saves its own part; MindSpore's own default is true",
    )


def _optional_text(path: str, flag: str) -> Row:
    """Return a row of a text for which empty means unset."""

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag) or None} if view.has(flag) else {}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, value

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read)


def checkpoint_rows() -> tuple[Row, ...]:
    """Return the top-level rows of loaded checkpoints."""
    return (
        _load(),
        _format("checkpoint.load_format", "load_ckpt_format"),
        _optional_text("checkpoint.load_strategy", "src_strategy_path_or_dir"),
        _optional_text("checkpoint.remote", "remote_save_url"),
    )


def checkpoint_monitor_rows() -> tuple[Row, ...]:
    """Return the rows of the callback that saves; `callbacks.TYPE.KEY` is KEY of the callback of that type."""
    return (
        _prefix(),
        _save(),
        same("checkpoint.save_total_limit", f"{_SAVE}keep_checkpoint_max", when=_saves),
        _merge(),
        same("checkpoint.async_save", f"{_SAVE}async_save", when=_saves),
        same("checkpoint.remove_redundancy", f"{_SAVE}remove_redundancy", when=_saves),
        _format("checkpoint.format", f"{_SAVE}checkpoint_format"),
    )
