"""Rows and gaps for services that run beside training: profiler level, object storage cache, streamed data."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.optimizer import NO_QK_CLIPPING
from backends.megatron_lm.mapping.unsupported import WITHOUT_MEGATRON_LOOP
from backends.mindformers.mapping.legacy import modern
from backends.mindformers.mapping.loader import CONFIG, is_megatron
from backends.mindformers.mapping.support import key, require
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, same


def service_rows() -> tuple[Row, ...]:
    """Return the rows of profiler level, sparse attention mode and data streaming."""
    return (
        _profiler_level(),
        modern(same("kernels.sparse_mode", key("sparse_mode"))),
        same("data.object_storage_cache", f"{CONFIG}s3_cache_path", when=is_megatron),
        same("data.shuffle_buffer_size", "train_dataset.data_loader.shuffle_buffer_size"),
    )


def _profiler_level() -> Row:
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


def window_row() -> Row:
    """Return the row of sliding window attention, as (tokens to the left, 0 to the right)."""
    path, flag = "model.sliding_window", key("window_size")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.sliding_window is not None:
            yield flag, (job.model.sliding_window - 1, 0)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek(flag)
        if not isinstance(given, (list, tuple)) or len(given) != 2 or given[1] != 0:
            return {}
        if not isinstance(given[0], int) or given[0] < 0:
            return {}
        view.take(flag)
        return {path: given[0] + 1}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, since="2.1", note="flash_attention.py:125 @2.1.0")


SERVICES_BEFORE_2_1: Mapping[str, Gap] = {
    "model.sliding_window": Gap(why="windows of attention came with 2.1", works=("backend.version=2.1.0",)),
}
SERVICE_GAPS: Mapping[str, Gap] = {
    **WITHOUT_MEGATRON_LOOP,
    **NO_QK_CLIPPING,
    "data.enable_thinking": Gap(why="chats are tokenized before training", works=("data.enable_thinking=null",)),
    "task.reward_models": Gap(why="MindFormers has no GRPO", works=("task.reward_models=[]",)),
    "schedule.skip_train": Gap(why="run_mindformer.py trains", neutral=(False,), works=("schedule.skip_train=false",)),
    "generation.max_new_tokens": Gap(
        why="its files know the longest text only", severity="warning", works=("generation.max_length=…",)
    ),
}
