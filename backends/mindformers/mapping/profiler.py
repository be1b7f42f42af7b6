"""Rows of the profiler."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.support import require
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, same


def profiler_rows() -> tuple[Row, ...]:
    """Return the rows of profiles."""
    return (
        _profile(),
        same("profiler.memory", "profile_memory"),
        same("profiler.communication", "profile_communication"),
        same("profiler.from_start", "init_start_profile"),
    )


def _profile() -> Row:
    paths = ("profiler.enabled", "profiler.start_step", "profiler.end_step", "profiler.ranks")
    flags = ("profile", "profile_start_step", "profile_stop_step", "profile_rank_ids")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        profiler = job.profiler
        yield flags[0], profiler.enabled
        if profiler.start_step is not None:
            yield flags[1], max(profiler.start_step, 1)
        if profiler.end_step is not None:
            yield flags[2], profiler.end_step
        if profiler.ranks:
            yield flags[3], profiler.ranks

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flags[0]):
            return {}
        found: dict[str, Value] = {paths[0]: bool(view.take(flags[0]))}
        for path, flag in zip(paths[1:], flags[1:], strict=True):
            if view.has(flag):
                found[path] = view.take(flag)
        return found

    return Row(fields=paths, flags=flags, emit=emit, read=read, note="steps count from 1")


def profiler_level_row() -> Row:
    """Return the row of the profiler's level."""

    path, flag = "profiler.level", "profiler_level"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        level = job.profiler.level
        why = "it has the levels 0, 1 and 2 and calls others invalid (core/callback/callback.py:1912)"
        require(level is None or level >= 0, path, why, f"{path}=0")
        if level is not None:
            yield flag, level

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.peek(flag) in (0, 1, 2) else {}

    note = "a key of the top level (trainer/trainer.py:1156 @2.1.0)"
    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note=note)
