"""Rows for checkpoints: loading, saving, formats, retention, non-persistent checkpoints, conversion."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import BEFORE_0_14, BEFORE_0_16, added_in_0_9, came, chosen, when_set
from backends.megatron_lm.mapping.sharding import uses_megatron_fsdp
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, UnreadArgs, Unsupported, computed, switch, switch_off, warning

_SINCE = "0.12"
_FORMATS = ("torch_dist", "torch", "torch_dcp", "fsdp_dtensor", "zarr")
_NO_SAFETENSORS = "Megatron-LM does not write safetensors"


def checkpoint() -> tuple[Row, ...]:
    """Return the rows of checkpoints."""
    return (
        when_set("checkpoint.load", "load"),
        pretrained(),
        when_set("checkpoint.save", "save"),
        computed(
            ("checkpoint.save_interval", "checkpoint.save", "schedule.train_iters"),
            ("save-interval",),
            _write_save_interval,
            lambda view: {"checkpoint.save_interval": view.take("save-interval")} if view.has("save-interval") else {},
            note="Megatron refuses --save without it; with none, once at the end.",
        ),
        switch("checkpoint.finetune", "finetune"),
        *formats(),
        asynchronous(),
        switch("checkpoint.async_save", "async-save", until=BEFORE_0_16),
        switch("checkpoint.optimizer_fully_reshardable", "dist-ckpt-optim-fully-reshardable", since="0.15"),
        switch("checkpoint.no_load_optim", "no-load-optim"),
        switch("checkpoint.no_load_rng", "no-load-rng"),
        switch("checkpoint.no_save_optim", "no-save-optim"),
        switch("checkpoint.no_save_rng", "no-save-rng"),
        when_set("checkpoint.strictness", "dist-ckpt-strictness"),
        switch("checkpoint.exit_on_missing", "exit-on-missing-checkpoint"),
        *resumed_state(),
        *retention(),
        *conversion(),
    )


def _write_save_interval(job: Job) -> Iterable[tuple[str, Value]]:
    if job.checkpoint.save_interval is not None:
        yield "save-interval", job.checkpoint.save_interval
    elif job.checkpoint.save is not None:
        if job.schedule.train_iters is None:
            why = "Megatron-LM needs the steps between checkpoints"
            raise Unsupported("checkpoint.save_interval", why, ("checkpoint.save_interval=1000",))
        yield "save-interval", job.schedule.train_iters


def pretrained() -> Row:
    """Return the row that rejects Hugging Face weights, which Megatron-LM cannot read."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.starts_from_weights and job.checkpoint.load is None:
            raise Unsupported(
                "model.pretrained",
                "only its own checkpoints are read: convert the weights and name them in checkpoint.load",
                ("model.pretrained=false",),
            )
        return ()

    return Row(fields=("model.pretrained", "model.path", "model.hub_id"), flags=(), emit=emit)


def formats() -> tuple[Row, ...]:
    """Return the rows of the checkpoint format."""
    path, flag = "checkpoint.format", "ckpt-format"
    before = {name: name for name in _FORMATS if name != "fsdp_dtensor"}
    after = {name: name for name in _FORMATS if name != "zarr"}
    return (
        _with_sharded(after, since="0.16"),
        _with_sharded({name: name for name in _FORMATS}, since="0.14", until=BEFORE_0_16),
        chosen(path, flag, before, why=_NO_SAFETENSORS, until=BEFORE_0_14),
    )


def _with_sharded(names: Mapping[Value, Value], since: str, until: str | None = None) -> Row:
    """Return the row of the checkpoint format where Megatron-core's FSDP has one of its own."""
    path, flag = "checkpoint.format", "ckpt-format"
    row = chosen(path, flag, names, why=_NO_SAFETENSORS)

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
    return computed(paths, (flag,), emit, read, since=since, until=until, note=note)


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


def resumed_state() -> tuple[Row, ...]:
    """Return the rows of the state loaded from a checkpoint, and of parallel saving and loading."""
    return (
        when_set("checkpoint.load_step", "ckpt-step"),
        when_set("checkpoint.fallback", "pretrained-checkpoint"),
        switch("checkpoint.load_arguments", "use-checkpoint-args"),
        load_schedule(),
        switch("checkpoint.detect_format", "auto-detect-ckpt-format"),
        switch_off("checkpoint.parallel_save", "no-ckpt-fully-parallel-save"),
        switch("checkpoint.parallel_load", "ckpt-fully-parallel-load"),
        switch("checkpoint.constant_structure", "ckpt-assume-constant-structure"),
    )


def load_schedule() -> Row:
    """Return the row of the learning-rate schedule, loaded from the checkpoint or set by the job."""
    path = "checkpoint.load_schedule"
    from_checkpoint, from_job = "use-checkpoint-opt_param-scheduler", "override-opt_param-scheduler"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.checkpoint.load_schedule is not None:
            yield (from_checkpoint if job.checkpoint.load_schedule else from_job), True

    def read(view: NativeView) -> Mapping[str, Value]:
        given = [flag for flag in (from_checkpoint, from_job) if view.peek(flag)]
        if len(given) != 1:  # Megatron rejects both together
            return {}
        view.take(given[0])
        return {path: given[0] == from_checkpoint}

    return Row(fields=(path,), flags=(from_checkpoint, from_job), emit=emit, read=read)


def retention() -> tuple[Row, ...]:
    """Return the rows of saving, retention and non-persistent checkpoints."""
    prefix = "checkpoint.non_persistent."
    names = ("fully_parallel", "atomic")
    return (
        switch("checkpoint.persistent_worker", "use-persistent-ckpt-worker", since=_SINCE, until=BEFORE_0_16),
        switch("checkpoint.save_pre_mcore_014", "dist-ckpt-save-pre-mcore-014", since="0.15", until=BEFORE_0_16),
        when_set("checkpoint.save_retain_interval", "save-retain-interval", since="0.14"),
        switch(
            "checkpoint.optimizer_reshardable_mem_efficient",
            "distrib-optim-fully-reshardable-mem-efficient",
            since="0.15",
        ),
        when_set(f"{prefix}save_interval", "non-persistent-save-interval", since=_SINCE),
        when_set(f"{prefix}type", "non-persistent-ckpt-type", since=_SINCE),
        when_set(f"{prefix}global_dir", "non-persistent-global-ckpt-dir", since=_SINCE),
        when_set(f"{prefix}local_dir", "non-persistent-local-ckpt-dir", since=_SINCE),
        chosen(f"{prefix}local_algo", "non-persistent-local-ckpt-algo", {name: name for name in names}, since=_SINCE),
        switch(f"{prefix}replication", "replication", since=_SINCE),
        when_set(f"{prefix}replication_jump", "replication-jump", since=_SINCE),
        when_set(f"{prefix}replication_factor", "replication-factor", since=_SINCE),
    )


def conversion() -> tuple[Row, ...]:
    """Return the rows of arguments loaded from a checkpoint, and of checkpoint conversion."""
    prefix = "checkpoint.convert."
    older = ("torch", "torch_dist", "zarr")
    return (
        switch("checkpoint.load_parallel_arguments", "use-mp-args-from-checkpoint-args", since=_SINCE),
        switch_off("checkpoint.load_tokenizer", "no-use-tokenizer-model-from-checkpoint-args", since=_SINCE),
        _converted(older, since=_SINCE, until=BEFORE_0_16),
        _converted(older[:2], since="0.16"),
        when_set(f"{prefix}save", "ckpt-convert-save", since=_SINCE),
        switch(f"{prefix}update_legacy_optimizer", "ckpt-convert-update-legacy-dist-opt-format", since=_SINCE),
    )


def _converted(names: tuple[str, ...], since: str, until: str | None = None) -> Row:
    known = {name: name for name in names}
    return chosen("checkpoint.convert.format", "ckpt-convert-format", known, since=since, until=until)


# Arguments about checkpoints that the parser accepts and nothing reads.
PARALLEL_SAVE = UnreadArgs(
    flags=("ckpt-fully-parallel-save",),
    why="Saving in parallel has become the default.",
    source="Megatron-LM core_v0.12.1 arguments.py:907; Megatron-LM core_v0.16.1 arguments.py:1117",
)
OLD_FORMAT = UnreadArgs(
    flags=("use-dist-ckpt", "dist-ckpt-format"),
    why="The format of checkpoints is that of --ckpt-format.",
    source="Megatron-LM core_v0.12.1 arguments.py:918, 921; Megatron-LM core_v0.16.1 arguments.py:1129, 1132",
    since=_SINCE,
)
SAVE_PRE_014 = UnreadArgs(
    flags=("dist-ckpt-save-pre-mcore-014",),
    why="No line of Megatron-LM reads the switch.",
    source="Megatron-LM core_v0.16.1 training_config.py:471",
    since="0.16",
)


def unread() -> tuple[Row, ...]:
    """Return the rows of arguments that the parser accepts and nothing reads."""
    return (PARALLEL_SAVE.row(), OLD_FORMAT.row(), SAVE_PRE_014.row())


UNSUPPORTED: Mapping[str, Gap] = {
    "checkpoint.save_pre_mcore_014": warning("weights are laid out as its own version of Megatron-core does", False),
    "checkpoint.save_safetensors": warning("Megatron-LM writes its own format only", False),
    "checkpoint.save_total_limit": warning("old checkpoints are not removed"),
}
CAME_LATER: Mapping[str, Gap] = {
    "checkpoint.save_retain_interval": came(why="checkpoints are not removed before {since}", severity="warning"),
    "checkpoint.optimizer_reshardable_mem_efficient": came(False, severity="warning"),
    "checkpoint.optimizer_fully_reshardable": came(
        True, why="checkpoints of this version are always reshardable", severity="warning"
    ),
}
BEFORE_0_12: Mapping[str, Gap] = {
    "checkpoint.persistent_worker": added_in_0_9(False, severity="warning"),
    "checkpoint.load_parallel_arguments": added_in_0_9(False, severity="warning"),
    "checkpoint.load_tokenizer": added_in_0_9(False),
    **{
        f"checkpoint.non_persistent.{name}": added_in_0_9(severity="warning")
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
    "checkpoint.non_persistent.replication": added_in_0_9(False, severity="warning"),
    "checkpoint.convert.format": added_in_0_9(),
    "checkpoint.convert.save": added_in_0_9(severity="warning"),
    "checkpoint.convert.update_legacy_optimizer": added_in_0_9(False, severity="warning"),
}
