"""Rows and gaps for FSDP, communication and advanced checkpoint settings, shared with Megatron-LM."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, THREE, one_of
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, negated, only_with, same

_STAGE, _ENGINE = "parallel.zero_stage", "parallel.fsdp.implementation"
_STRATEGIES = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
_FSDP = "4.6"


def sharding_rows() -> tuple[Row, ...]:
    """Return the rows of ZeRO 2 and 3: Megatron-FSDP (swift/megatron/arguments/megatron_args.py:957 @4.6.0)."""
    return (_sharding(), same("parallel.fsdp.strict_load", "strict_fsdp_dtensor_load", since=_FSDP))


def _sharding() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        stage, engine = job.parallel.zero_stage, job.parallel.fsdp.implementation
        if engine == "torch":
            raise Unsupported(_ENGINE, "its FSDP is Megatron-core's", (f"{_ENGINE}=null",))
        if stage is None and engine is None:
            return
        if stage not in (2, 3) and engine is None:
            why = "stages 0 and 1 are parallel.distributed_optimizer, off and on"
            raise Unsupported(_STAGE, why, (f"{_STAGE}=null",))
        if stage is not None and stage not in _STRATEGIES:
            raise Unsupported(_STAGE, "there are the stages 0 to 3", (f"{_STAGE}=3",))
        yield "use_megatron_fsdp", True
        yield "data_parallel_sharding_strategy", _STRATEGIES[3 if stage is None else stage]

    def read(view: NativeView) -> Mapping[str, Value]:
        stages = {name: stage for stage, name in _STRATEGIES.items()}
        stage = stages.get(view.peek("data_parallel_sharding_strategy", "optim_grads_params"))
        if view.peek("use_megatron_fsdp") is not True or stage is None:
            return {}
        view.take("use_megatron_fsdp")
        view.take("data_parallel_sharding_strategy")
        return {_STAGE: stage} if stage > 1 else {_STAGE: stage, _ENGINE: "megatron"}

    flags = ("use_megatron_fsdp", "data_parallel_sharding_strategy")
    return Row(fields=(_STAGE, _ENGINE), flags=flags, emit=emit, read=read, since=_FSDP)


def format_row() -> Row:
    """Return the row of the checkpoint format, which depends on FSDP (megatron_lm_utils.py:310 @4.6.0)."""
    path = "checkpoint.format"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        sharded = job.parallel.zero_stage in (2, 3) or job.parallel.fsdp.implementation == "megatron"
        written = "fsdp_dtensor" if sharded else "torch_dist"
        if job.checkpoint.format not in (None, written):
            raise Unsupported(path, f"this job's checkpoints are of {written}", (f"{path}={written}",))
        return ()

    return Row(fields=(path, _STAGE, _ENGINE), flags=(), emit=emit, since=_FSDP)


def other_rows() -> tuple[Row, ...]:
    """Return the rows of communication, sample order and checkpoints."""
    backend, libraries = "parallel.communication.backend", ("nccl", "gloo")
    return (
        one_of(backend, "ddp_backend", libraries),
        _other_library(),
        same("overlap.align_grad_reduce", "align_grad_reduce", since=FOUR),
        same("overlap.align_param_gather", "align_param_gather", since=FOUR),
        negated("data.sharding", "no_data_sharding", since="3.12", until=THREE),
        same("data.sharding", "data_sharding", since=FOUR),
        same("checkpoint.save_retain_interval", "save_retain_interval", since="3.12", until=THREE),
        same("checkpoint.persistent_worker", "use_persistent_ckpt_worker", since="3.12"),
        same("checkpoint.save_pre_mcore_014", "dist_ckpt_save_pre_mcore_014", since=FOUR),
        same(
            "checkpoint.optimizer_reshardable_mem_efficient",
            "distrib_optim_fully_reshardable_mem_efficient",
            since=FOUR,
        ),
        _flash_switch(),
    )


def _other_library() -> Row:
    flag = "distributed_backend"

    def read(view: NativeView) -> Mapping[str, Value]:
        view.take(flag)
        return {}

    note = "read only: swift has started the collectives with ddp_backend before (train_args.py:20 @3.12.6)"
    return Row(fields=(), flags=(flag,), emit=lambda job: (), read=read, until=THREE, note=note)


def _flash_switch() -> Row:
    flag = "use_flash_attn"

    def read(view: NativeView) -> Mapping[str, Value]:
        view.take(flag)
        return {}

    note = "read only: attention_backend decides, which takes flash attention where nothing is said"
    return Row(fields=(), flags=(flag,), emit=lambda job: (), read=read, until=THREE, note=note)


_NONE = "it has no option for it; training is unaffected"


def _told(why: str, *neutral: Value, works: tuple[str, ...] = ()) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning", works=works)


def _before(version: str, *neutral: Value) -> Gap:
    return _told(f"it came with {version}; training is unaffected", *neutral, works=("backend.version=4.6.0",))


# Unsupported fields, with the first and the last version that lacks them (None: unbounded).
_GAPS: tuple[tuple[str, Gap, str | None, str | None], ...] = (
    *(
        (f"parallel.communication.{name}", _told(_NONE, "nccl", False), None, None)
        for name in ("pipeline_backend", "nccl_config", "ring_exchange_p2p")
    ),
    (_ENGINE, Gap(why="FSDP came with 4.6", works=("backend.version=4.6.0",)), None, "4.5.99"),
    ("parallel.fsdp.strict_load", _before(_FSDP, True), None, "4.5.99"),
    *(
        (f"parallel.fsdp.{name}", _told(_NONE, False), None, None)
        for name in ("communication_unit_size", "keep_fp8_transpose_cache", "init_model_with_meta_device")
    ),
    ("kernels.cuda_graph.impl", _told(_NONE, "none"), None, None),
    ("kernels.clone_scatter_output_in_embedding", _told(_NONE, True), None, None),
    *((f"overlap.{name}", _told(_NONE, True), None, None) for name in ("gradient_reduce_div_fusion", "tp_allreduce")),
    ("overlap.align_grad_reduce", _before("4.0", True), None, THREE),
    ("overlap.align_param_gather", _before("4.0", True), None, THREE),
    ("overlap.pad_buckets", _told(_NONE, False), None, None),
    *(
        (f"overlap.tp.{name}", _told("overlap.tp_comm is all or nothing", True), None, None)
        for name in ("overlap_ag", "overlap_rs", "split_ag", "split_rs", "bulk_dgrad", "bulk_wgrad")
    ),
    ("overlap.tp.overlap_rs_dgrad", _told("overlap.tp_comm is all or nothing", False), None, None),
    *(
        (f"overlap.tp.{name}", _told("overlap.tp_comm is all or nothing"), None, None)
        for name in ("config", "bootstrap_backend")
    ),
    ("offload.torch_optimizer", _told(_NONE, False), None, None),
    ("offload.overlap_cpu_optimizer_d2h_h2d", _told(_NONE, False), None, None),
    *((f"offload.{name}", _told(_NONE, True), None, None) for name in ("pin_cpu_grads", "pin_cpu_params")),
    (
        "data.sharding",
        Gap(why="this version always draws from a rank's own share", neutral=(True,), works=("data.sharding=true",)),
        None,
        "3.11.99",
    ),
    ("checkpoint.save_retain_interval", _before("3.12"), None, "3.11.99"),
    (
        "checkpoint.save_retain_interval",
        _told("4.x keeps the newest checkpoints", works=("checkpoint.save_total_limit=2",)),
        FOUR,
        None,
    ),
    ("checkpoint.persistent_worker", _before("3.12", False), None, "3.11.99"),
    ("checkpoint.save_pre_mcore_014", _told("this version's Megatron-core is older", True, False), None, THREE),
    ("checkpoint.optimizer_reshardable_mem_efficient", _before("4.0", False), None, THREE),
    (
        "checkpoint.non_persistent.type",
        _told("all checkpoints are of one kind", works=("checkpoint.save_interval=100",)),
        None,
        None,
    ),
    *(
        (
            f"checkpoint.convert.{name}",
            Gap(
                why="training does not convert: launch convert, or swift export, does",
                works=("checkpoint.convert.format=null",),
            ),
            None,
            None,
        )
        for name in ("format", "save")
    ),
    ("checkpoint.convert.update_legacy_optimizer", _told("it reads the present layout", False), None, None),
    ("checkpoint.load_parallel_arguments", _told("the layout is the job's", False), None, None),
    (
        "checkpoint.load_tokenizer",
        Gap(why="the tokenizer is the model's or tokenizer.path's", neutral=(False,)),
        None,
        None,
    ),
    ("profiler.memory_history", _told("it records no allocations", False), None, None),
)


def gaps(version: str) -> dict[str, Gap]:
    """Return the fields of this module that a version does not support."""
    return {path: gap for path, gap, since, until in _GAPS if in_range(version, since, until)}


IRRELEVANT: Mapping[str, str] = {
    **dict.fromkeys(
        ("kernels.cuda_graph.scope", "kernels.cuda_graph.warmup_steps"),
        "only with kernels.cuda_graph.impl, which it cannot express",
    ),
    **only_with("checkpoint.non_persistent.type", "checkpoint.non_persistent."),
    "profiler.memory_snapshot_path": "only with profiler.memory_history, which it cannot express",
}
