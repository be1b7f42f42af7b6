"""Rows of checkpoints, logs and profiles."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping_support import KIND, drop, model_kind, require
from launcher.job import Job, Value, output_dir
from launcher.translate.rows import NativeView, Row, Unsupported, computed, fixed, same

_SAVE = "callbacks.CheckpointMonitor."


def _saves(job: Job) -> bool:
    return job.checkpoint.save is not None


def _load() -> Row:
    paths = ("checkpoint.load", "checkpoint.finetune", "checkpoint.no_load_optim", "checkpoint.no_load_rng")
    flags = ("load_checkpoint", "auto_trans_ckpt", "resume_training")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        checkpoint = job.checkpoint
        yield flags[2], checkpoint.load is not None and not checkpoint.finetune
        if checkpoint.load is None:
            return
        why = "it resumes with the optimizer, or starts anew from the weights (checkpoint.finetune=true)"
        require(not checkpoint.no_load_optim or bool(checkpoint.finetune), paths[2], why, "checkpoint.finetune=true")
        yield flags[0], checkpoint.load
        yield flags[1], True

    def read(view: NativeView) -> Mapping[str, Value]:
        load, resume = view.peek(flags[0]), view.peek(flags[2], False)
        if not load:
            drop(view, {flags[0]: "", flags[1]: False, flags[2]: False})
            return {}
        if not isinstance(resume, bool):
            return {}
        drop(view, {flags[1]: True})
        view.take(flags[0])
        view.take(flags[2])
        return {paths[0]: load, paths[1]: None if resume else True}

    note = "auto_trans_ckpt reshards what was saved at another layout; random states are neither saved nor loaded"
    return Row(fields=paths, flags=flags, emit=emit, read=read, note=note)


def _save() -> Row:
    paths = ("checkpoint.save", "checkpoint.save_interval")
    directory, steps = f"{_SAVE}directory", f"{_SAVE}save_checkpoint_steps"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        interval = job.checkpoint.save_interval or job.schedule.train_iters
        if interval is None:
            why = "without an interval MindFormers saves after every step"
            raise Unsupported(paths[1], why, (f"{paths[1]}=500",))
        yield directory, job.checkpoint.save
        yield steps, interval

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(steps):
            return {}
        # Without a directory of its own MindFormers saves below output_dir (callback.py:1722 @2.1.0).
        save = view.take(directory) or view.peek("output_dir", "./output")
        return {paths[0]: save, paths[1]: view.take(steps)}

    note = "no interval: saved once, at the end of training"
    return Row(fields=paths, flags=(directory, steps), emit=emit, read=read, when=_saves, note=note)


def _format() -> Row:
    path, flag = "checkpoint.format", f"{_SAVE}checkpoint_format"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "mcore models are saved as safetensors only (base_trainer.py:1415 @2.1.0)"
        require(job.checkpoint.format in (None, "safetensors"), path, why, f"{path}=safetensors")
        if _saves(job):
            yield flag, "safetensors"

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: "safetensors"})
        return {}

    return computed((path,), (flag,), emit, read)


def _prefix() -> Row:
    flag = f"{_SAVE}prefix"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flag, model_kind(job) or "llm"

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: view.peek(KIND, "llm")})
        return {}

    note = "a label of file names"
    return Row(fields=(), flags=(flag,), emit=emit, read=read, when=_saves, derived=True, note=note)


def _output_dir() -> Row:
    flag = "output_dir"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flag, f"{output_dir(job)}/mindformers"

    note = "logs, strategies and, where checkpoint.save names no other place, checkpoints"
    return Row(fields=("output_dir",), flags=(flag,), emit=emit, derived=True, note=note)


def checkpoint_rows() -> tuple[Row, ...]:
    """Return the rows at the top of the file that say what is loaded, and where files go."""
    return (_output_dir(), _load(), fixed("load_ckpt_format", "safetensors", note="mcore reads nothing else"))


def callback_rows() -> tuple[Row, ...]:
    """Return the rows of the section callbacks; `callbacks.TYPE.KEY` is KEY of the callback of that type."""
    return (
        _loss_monitor(),
        _prefix(),
        _save(),
        same("checkpoint.save_total_limit", f"{_SAVE}keep_checkpoint_max", when=_saves),
        fixed(f"{_SAVE}integrated_save", False, when=_saves, note="each rank saves its own part"),
        same("checkpoint.async_save", f"{_SAVE}async_save", when=_saves),
        _format(),
    )


def _loss_monitor() -> Row:
    path, flag = "logging.interval", "callbacks.MFLossMonitor.per_print_times"

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {"callbacks.MFLossMonitor.type": "MFLossMonitor"})
        return {path: view.take(flag)} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=lambda job: ((flag, job.logging.interval),), read=read)


def _profile() -> Row:
    paths = ("profiler.enabled", "profiler.start_step", "profiler.end_step", "profiler.ranks")
    flags = ("profile", "profile_start_step", "profile_stop_step", "profile_rank_ids")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        profiler = job.profiler
        yield flags[0], profiler.enabled
        if not profiler.enabled:
            return
        if profiler.start_step is not None:
            yield flags[1], max(profiler.start_step, 1)
        if profiler.end_step is not None:
            yield flags[2], profiler.end_step
        if profiler.ranks:
            yield flags[3], profiler.ranks

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flags[0]):
            return {}
        if not view.take(flags[0]):
            return {}
        found: dict[str, Value] = {paths[0]: True}
        for path, flag in zip(paths[1:], flags[1:], strict=True):
            if view.has(flag):
                found[path] = view.take(flag)
        return found

    return Row(fields=paths, flags=flags, emit=emit, read=read, note="steps count from 1")


def output_rows() -> tuple[Row, ...]:
    """Return the rows of logs and profiles outside the callbacks."""
    tensorboard = "a key of the top level: the template calls it useless and keeps it (tools/register/template.py:707)"
    return (same("logging.tensorboard_dir", "tensorboard.tensorboard_dir", note=tensorboard), _profile())
