"""Rows for ZeRO and the checkpoint format that depends on it."""

from collections.abc import Iterable, Mapping

from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported

_STAGE, _ENGINE = "parallel.zero_stage", "parallel.fsdp.implementation"
_STRATEGIES = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
_FSDP = "4.5"


def sharding() -> Row:
    """Return the row of ZeRO 2 and 3: Megatron-FSDP (swift/megatron/arguments/megatron_args.py:957 @4.6.0)."""

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
