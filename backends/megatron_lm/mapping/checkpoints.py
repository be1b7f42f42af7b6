"""Rows for checkpoint formats, retention, non-persistent checkpoints, loading and conversion."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import chosen, when_given
from backends.megatron_lm.mapping.sharding import uses_megatron_fsdp
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, switch_off

_SINCE = "0.12"
_FORMATS = ("torch_dist", "torch", "torch_dcp", "fsdp_dtensor", "zarr")
_NO_SAFETENSORS = "Megatron-LM does not write safetensors"


def formats() -> tuple[Row, ...]:
    """Return the rows of the checkpoint format."""
    path, flag = "checkpoint.format", "ckpt-format"
    before = {name: name for name in _FORMATS if name != "fsdp_dtensor"}
    row = chosen(path, flag, {name: name for name in _FORMATS if name != "zarr"}, why=_NO_SAFETENSORS)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.checkpoint.format is None and uses_megatron_fsdp(job):
            yield flag, "fsdp_dtensor"
        yield from row.emit(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        if flag not in view.values and view.peek("use-megatron-fsdp"):
            return {path: "torch_dist"}  # the parser's default; FSDP jobs default to fsdp_dtensor
        return row.read(view) if row.read is not None else {}

    paths = (path, "parallel.zero_stage", "parallel.fsdp.implementation")
    note = "Megatron-core's FSDP writes fsdp_dtensor only (arguments.py:690 @core_v0.16.1)."
    return (
        computed(paths, (flag,), emit, read, since="0.16", note=note),
        chosen(path, flag, before, why=_NO_SAFETENSORS, until="0.15.9"),
    )


def saving() -> tuple[Row, ...]:
    """Return the rows of saving, retention and non-persistent checkpoints."""
    prefix = "checkpoint.non_persistent."
    names = ("fully_parallel", "atomic")
    return (
        switch("checkpoint.persistent_worker", "use-persistent-ckpt-worker", since=_SINCE, until="0.15.9"),
        when_given("checkpoint.save_retain_interval", "save-retain-interval", since="0.16"),
        switch(
            "checkpoint.optimizer_reshardable_mem_efficient",
            "distrib-optim-fully-reshardable-mem-efficient",
            since="0.16",
        ),
        when_given(f"{prefix}save_interval", "non-persistent-save-interval", since=_SINCE),
        when_given(f"{prefix}type", "non-persistent-ckpt-type", since=_SINCE),
        when_given(f"{prefix}global_dir", "non-persistent-global-ckpt-dir", since=_SINCE),
        when_given(f"{prefix}local_dir", "non-persistent-local-ckpt-dir", since=_SINCE),
        chosen(f"{prefix}local_algo", "non-persistent-local-ckpt-algo", {name: name for name in names}, since=_SINCE),
        switch(f"{prefix}replication", "replication", since=_SINCE),
        when_given(f"{prefix}replication_jump", "replication-jump", since=_SINCE),
        when_given(f"{prefix}replication_factor", "replication-factor", since=_SINCE),
    )


def asynchronous() -> Row:
    """Return the row of asynchronous saving, which needs a persistent worker since 0.16."""
    paths = ("checkpoint.async_save", "checkpoint.persistent_worker")
    flags = ("async-save", "use-persistent-ckpt-worker")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted, worker = job.checkpoint.async_save, job.checkpoint.persistent_worker
        if wanted and worker is False:
            raise Unsupported(paths[1], "0.16 switches --async-save off without it", (f"{paths[1]}=null",))
        if wanted:
            yield flags[0], True
        if wanted or worker:
            yield flags[1], True

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flags[1]):
            return {}
        worker = bool(view.take(flags[1]))
        return {paths[0]: bool(view.take(flags[0]))} if view.has(flags[0]) else {paths[1]: worker}

    note = "Without the persistent worker 0.16 switches --async-save off (validate_args)."
    return computed(paths, flags, emit, read, since="0.16", note=note)


def loading() -> tuple[Row, ...]:
    """Return the rows of other settings loaded from a checkpoint, and of checkpoint conversion."""
    prefix = "checkpoint.convert."
    older = ("torch", "torch_dist", "zarr")
    return (
        switch("checkpoint.load_parallel_arguments", "use-mp-args-from-checkpoint-args", since=_SINCE),
        switch_off("checkpoint.load_tokenizer", "no-use-tokenizer-model-from-checkpoint-args", since=_SINCE),
        _converted(older, since=_SINCE, until="0.15.9"),
        _converted(older[:2], since="0.16"),
        when_given(f"{prefix}save", "ckpt-convert-save", since=_SINCE),
        switch(f"{prefix}update_legacy_optimizer", "ckpt-convert-update-legacy-dist-opt-format", since=_SINCE),
    )


def _converted(names: tuple[str, ...], since: str, until: str | None = None) -> Row:
    known = {name: name for name in names}
    return chosen("checkpoint.convert.format", "ckpt-convert-format", known, since=since, until=until)


def ignored() -> tuple[Row, ...]:
    """Return the rows of arguments that the parser accepts and ignores; `effective.py` lists the same names."""
    return (
        _ignored(("ckpt-fully-parallel-save",), "It has become the default."),
        _ignored(("use-dist-ckpt", "dist-ckpt-format"), "--ckpt-format says it.", since=_SINCE),
        _ignored(("dist-ckpt-save-pre-mcore-014",), "No line of Megatron-LM reads it.", since="0.16"),
    )


def _ignored(flags: tuple[str, ...], note: str, since: str | None = None) -> Row:
    def read(view: NativeView) -> Mapping[str, Value]:
        for flag in flags:
            view.take(flag)
        return {}

    return Row(fields=(), flags=flags, emit=lambda job: (), read=read, since=since, note=f"Read only. {note}")


def memory() -> tuple[Row, ...]:
    """Return the rows of the device memory history."""
    return (
        switch("profiler.memory_history", "record-memory-history", since=_SINCE),
        when_given("profiler.memory_snapshot_path", "memory-snapshot-path", since=_SINCE),
    )


def _told(why: str, *neutral: Value) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning")


GAPS: Mapping[str, Gap] = {
    "checkpoint.save_pre_mcore_014": Gap(
        why="weights are laid out as its own version of Megatron-core does", neutral=(False,), severity="warning"
    ),
}
BEFORE_0_16: Mapping[str, Gap] = {
    "checkpoint.save_retain_interval": _told("checkpoints are not removed before 0.16"),
    "checkpoint.optimizer_reshardable_mem_efficient": _told("it came with core 0.16", False),
}
# Fields of these rows that core 0.8 lacks, each with the values that have no effect there.
BEFORE_0_12: Mapping[str, tuple[Value, ...]] = {
    "checkpoint.persistent_worker": (False,),
    "checkpoint.load_parallel_arguments": (False,),
    "checkpoint.load_tokenizer": (False,),
    **{
        f"checkpoint.non_persistent.{name}": ()
        for name in (
            "save_interval",
            "type",
            "global_dir",
            "local_dir",
            "local_algo",
            "replication_jump",
            "replication_factor",
        )
    },
    "checkpoint.non_persistent.replication": (False,),
    "checkpoint.convert.format": (),
    "checkpoint.convert.save": (),
    "checkpoint.convert.update_legacy_optimizer": (False,),
    "profiler.memory_history": (False,),
    "profiler.memory_snapshot_path": (),
}
CHANGES_THE_RUN = ("checkpoint.convert.format", "checkpoint.load_tokenizer")
"""Of these, the fields whose omission is an error."""
