"""Rows of logs and the output folder."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.support import drop, is_file, require
from launcher.job import Job, Value, output_dir
from launcher.mapping.rows import NativeView, Row, same


def native_output_dir(job: Job) -> str:
    """Return MindFormers' output folder."""
    return f"{output_dir(job)}/mindformers" if job.logging.dir is None else job.logging.dir


def output_dir_row() -> Row:
    """Return the row of the output folder."""

    flag, path = "output_dir", "logging.dir"

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag):
            return {path: view.take(flag)}
        return {path: "./output"} if is_file(view) else {}

    note = "logs, strategies and, where checkpoint.save names no other place, checkpoints"
    return Row(
        fields=(path, "output_dir"),
        flags=(flag,),
        emit=lambda job: ((flag, native_output_dir(job)),),
        read=read,
        note=note,
    )


def loss_monitor_row() -> Row:
    """Return the row of the callback that logs the loss."""

    path, flag, kind = "logging.interval", "callbacks.MFLossMonitor.per_print_times", "callbacks.MFLossMonitor.type"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.logging.loss is not False:
            yield flag, job.logging.interval
            return
        others = job.checkpoint.save is not None or any(
            name.startswith("callbacks.") for name in job.backend.passthrough
        )
        why = "a file without any callback gets this one (tools/register/template.py:523 @2.1.0)"
        require(others, "logging.loss", why, "checkpoint.save_interval=1000", "logging.loss=true")

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {kind: "MFLossMonitor"})
        if view.has(flag):
            return {path: view.take(flag)}
        callbacks = [name for name in view.values if name.startswith("callbacks.")]
        without_monitor = callbacks and not any(name.startswith("callbacks.MFLossMonitor") for name in callbacks)
        return {"logging.loss": False} if without_monitor and is_file(view) else {}

    note = "a file with callbacks, but without this one, logs no loss"
    return Row(fields=(path, "logging.loss"), flags=(flag, kind), emit=emit, read=read, note=note)


def tensorboard_row() -> Row:
    """Return the row of TensorBoard's folder."""
    note = "a key of the top level: the template calls it useless and keeps it (tools/register/template.py:707)"
    return same("logging.tensorboard_dir", "tensorboard.tensorboard_dir", note=note)
