"""Rows of MindSpore settings: graph compilation, memory, and how the graph is partitioned over devices."""

import re
from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.loader import is_megatron
from backends.mindformers.mapping.support import (
    always_written,
    drop,
    first_written,
    is_legacy,
    legacy_file,
    renamed,
    require,
)
from launcher.job import Job, Value, output_dir
from launcher.mapping.rows import NativeView, Row, same

_CONTEXT = "context."
_PARALLEL = "parallel."
_ASCEND = "context.ascend_config."
_MODES = {"graph": 0, "eager": 1}
_SPREAD = {"data": 0, "semi_auto": 1, "auto": 2, "hybrid": 3}
_GIB = re.compile(r"(\d+(?:\.\d+)?)\s*GB\Z")
_STRATEGY = (f"{_PARALLEL}strategy_ckpt_config.save_file", f"{_PARALLEL}strategy_ckpt_save_file")
SINK, SINK_SIZE = "runner_config.sink_mode", "runner_config.sink_size"
ALLTOALL = f"{_PARALLEL}enable_alltoall"


def _mode() -> Row:
    flag, path = f"{_CONTEXT}mode", "graph.mode"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        why = "outside the graph 2.x starts another trainer, which reads other settings (run_mindformer.py @2.1.0)"
        require(job.graph.mode != "eager" or is_legacy(job), path, why, f"{path}=graph")
        yield flag, _MODES[job.graph.mode or "graph"]

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(flag) != 0 and view.peek("use_legacy") is False:
            return {}
        names = {code: name for name, code in _MODES.items()}
        return {path: names[view.take(flag)]} if view.has(flag) and view.peek(flag) in names else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="0 is the graph")


def _memory(path: str, name: str) -> Row:
    flag = f"{_CONTEXT}{name}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        size = job.graph.memory_gib if path.endswith("memory_gib") else job.graph.memory_block_gib
        if size is not None:
            yield flag, f"{size:g}GB"

    def read(view: NativeView) -> Mapping[str, Value]:
        found = _GIB.match(str(view.peek(flag)))
        if found is None or not view.has(flag):
            return {}
        view.take(flag)
        return {path: float(found[1])}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read)


def _level() -> Row:
    flag, path = f"{_CONTEXT}jit_config.jit_level", "graph.level"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        level = job.graph.level or (None if is_legacy(job) else "O0")
        if level is not None:
            yield flag, level

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.peek(flag) in ("O0", "O1", "O2") and view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="O0 as in every mcore example of MindFormers")


def options_path(job: Job) -> str:
    """Return the path of the options file that the launcher writes."""
    return f"{output_dir(job)}/parallel_speed_up.json"


def _options(version: str) -> Row:
    flag, path = f"{_ASCEND}parallel_speed_up_json_path", "graph.options_file"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.graph.options_file is not None:
            yield flag, job.graph.options_file
        elif version == "1.6.0" and is_megatron(job):
            yield flag, options_path(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) else {}

    note = "version 1.6 refuses token files below dataset_broadcast_opt_level 3 (base_trainer.py:761), which only this "
    note += "file can say: the launch writes it; later versions set the level themselves"
    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note=note)


def context_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of the section context."""
    return (
        _mode(),
        always_written("graph.device_target", f"{_CONTEXT}device_target", "Ascend"),
        same("graph.device_id", f"{_CONTEXT}device_id"),
        _level(),
        same("graph.max_call_depth", f"{_CONTEXT}max_call_depth"),
        _memory("graph.memory_gib", "max_device_memory"),
        _memory("graph.memory_block_gib", "mempool_block_size"),
        same("graph.memory_optimize_level", f"{_CONTEXT}memory_optimize_level"),
        same("graph.precision_mode", f"{_ASCEND}precision_mode"),
        _options(version),
        renamed("graph.save", f"{_CONTEXT}save_graphs", {True: True, False: False}),
        same("graph.save_path", f"{_CONTEXT}save_graphs_path"),
    )


def sink_row() -> Row:
    """Return the row of data sinking: the number of steps per sink."""
    path = "graph.sink_size"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        size = 1 if job.graph.sink_size is None else job.graph.sink_size
        yield SINK, size > 0
        if size:
            yield SINK_SIZE, size

    def read(view: NativeView) -> Mapping[str, Value]:
        if not (view.has(SINK) or view.has(SINK_SIZE)):
            return {}
        on, size = view.take(SINK, True), view.take(SINK_SIZE, 1)
        return {path: size if on else 0}

    note = "1: the host sees every step, so that callbacks, logs and stops are exact"
    return Row(fields=(path,), flags=(SINK, SINK_SIZE), emit=emit, read=read, note=note)


def _parallel_mode() -> Row:
    flag, path = f"{_PARALLEL}parallel_mode", "graph.parallel_mode"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        mode, parallel = job.graph.parallel_mode or "semi_auto", job.parallel
        spread = max(parallel.tp, parallel.pp, parallel.cp, parallel.ep)
        why = "outside the automatic modes MindFormers sets every parallel size to 1 (base_trainer.py:273 @1.8.0)"
        require(mode in ("semi_auto", "auto") or spread == 1, path, why, f"{path}=semi_auto")
        yield flag, _SPREAD[mode]

    def read(view: NativeView) -> Mapping[str, Value]:
        names = {code: name for name, code in _SPREAD.items()}
        return {path: names[view.take(flag)]} if view.has(flag) and view.peek(flag) in names else {}

    note = "semi_auto: anything else silently sets every parallel size to 1 (S1)"
    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note=note)


def _strategy_file() -> Row:
    path = "graph.strategy_file"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.graph.strategy_file is not None:
            yield _STRATEGY[0], job.graph.strategy_file

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, _STRATEGY)
        return {path: view.take(given)} if given is not None else {}

    return Row(fields=(path,), flags=_STRATEGY, emit=emit, read=read, note="strategy_ckpt_save_file is its older name")


def all_to_all_row() -> Row:
    """Return the row of resharding by all-to-all."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.graph.alltoall is not None:
            yield ALLTOALL, job.graph.alltoall
        elif job.parallel.ep > 1 and not is_legacy(job):
            yield ALLTOALL, True

    def read(view: NativeView) -> Mapping[str, Value]:
        if not legacy_file(view):
            drop(view, {ALLTOALL: view.peek("parallel_config.expert_parallel", 1) > 1})
        return {"graph.alltoall": view.take(ALLTOALL)} if view.has(ALLTOALL) else {}

    return Row(
        fields=("graph.alltoall", "parallel.ep"),
        flags=(ALLTOALL,),
        emit=emit,
        read=read,
        note="on with expert parallelism",
    )


def parallel_mode_rows() -> tuple[Row, ...]:
    """Return the rows of the section parallel: parallel mode, batch distribution and strategy files."""
    return (
        _parallel_mode(),
        always_written(
            "graph.gradients_mean", f"{_PARALLEL}gradients_mean", False, note="the loss is the mean already"
        ),
        always_written(
            "graph.full_batch", f"{_PARALLEL}full_batch", False, absent=True, note="each rank reads its share"
        ),
        same("graph.search_mode", f"{_PARALLEL}search_mode"),
        same("graph.gradient_groups", "parallel_config.gradient_aggregation_group"),
        _strategy_file(),
        same("graph.strategy_trainable_only", f"{_PARALLEL}strategy_ckpt_config.only_trainable_params"),
        same("graph.strategy_only", "only_save_strategy"),
        same("parallel.optimizer_shard_size", f"{_PARALLEL}parallel_optimizer_config.optimizer_weight_shard_size"),
    )
