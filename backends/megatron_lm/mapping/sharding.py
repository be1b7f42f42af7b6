"""Rows for the sharding of optimizer, gradients and weights: the distributed optimizer and FSDP."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import BEFORE_0_14, BEFORE_0_18, added_in_0_9, came, when_set
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, switch, switch_off

_SINCE = "0.12"


_STRATEGIES = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}


_DP, _STAGE, _ENGINE = "parallel.distributed_optimizer", "parallel.zero_stage", "parallel.fsdp.implementation"


_SHARDED, _STRATEGY, _TORCH = "use-distributed-optimizer", "data-parallel-sharding-strategy", "use-torch-fsdp2"


_ENGINES = {"0.12": "use-custom-fsdp", "0.14": "use-megatron-fsdp", "torch": _TORCH}


def sharding() -> tuple[Row, ...]:
    """Return the rows of ZeRO: stage 1 is the distributed optimizer, 2 and 3 are FSDP, Megatron's own or torch's."""
    return (
        replace(distributed_optimizer(), until="0.11.9"),
        _distributed_optimizer(),
        _sharding(_ENGINES["0.12"], since=_SINCE, until=BEFORE_0_14),
        _sharding(_ENGINES["0.14"], since="0.14", until=BEFORE_0_18),
        _sharding(_ENGINES["0.14"], since="0.18", default=3),
        when_set("parallel.fsdp.communication_unit_size", "suggested-communication-unit-size", since=_SINCE),
        switch(
            "parallel.fsdp.keep_fp8_transpose_cache",
            "keep-fp8-transpose-cache-when-using-custom-fsdp",
            since=_SINCE,
            until=BEFORE_0_14,
        ),
        switch("parallel.fsdp.keep_fp8_transpose_cache", "keep-fp8-transpose-cache", since="0.14"),
        switch("parallel.fsdp.init_model_with_meta_device", "init-model-with-meta-device", since=_SINCE),
        switch_off("parallel.fsdp.strict_load", "no-strict-fsdp-dtensor-load", since="0.14"),
    )


def uses_megatron_fsdp(job: Job) -> bool:
    """Return whether the job shards with Megatron-core's own FSDP."""
    stage, engine = job.parallel.zero_stage, job.parallel.fsdp.implementation
    return engine == "megatron" or (engine is None and stage is not None and stage > 1)


def uses_fsdp(job: Job) -> bool:
    """Return whether the job shards with an FSDP, Megatron-core's own or torch's."""
    return uses_megatron_fsdp(job) or job.parallel.fsdp.implementation == "torch"


def distributed_optimizer() -> Row:
    """Return the row of ZeRO 1; higher stages are FSDP (`sharding`)."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted, stage = job.parallel.distributed_optimizer, job.parallel.zero_stage
        if stage is not None and stage > 1:
            raise Unsupported(
                "parallel.zero_stage", "Megatron's own sharding is that of stage 1", ("parallel.zero_stage=1",)
            )
        if stage is not None and wanted is not None and wanted != (stage == 1):
            raise Unsupported("parallel.zero_stage", "it contradicts parallel.distributed_optimizer")
        if wanted or stage == 1:
            yield "use-distributed-optimizer", True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"parallel.distributed_optimizer": True} if view.take("use-distributed-optimizer", False) else {}

    return Row(
        fields=("parallel.distributed_optimizer", "parallel.zero_stage"),
        flags=("use-distributed-optimizer",),
        emit=emit,
        read=read,
    )


def _distributed_optimizer() -> Row:
    """Return the row of the distributed optimizer, which Megatron-core's FSDP includes."""
    plain = distributed_optimizer()

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if uses_megatron_fsdp(job):
            wanted = job.parallel.distributed_optimizer is not False
        elif job.parallel.fsdp.implementation == "torch":
            wanted = bool(job.parallel.distributed_optimizer)
        else:
            yield from plain.emit(job)
            return
        if wanted:
            yield _SHARDED, True

    def read(view: NativeView) -> Mapping[str, Value]:
        given = bool(view.take(_SHARDED, False))
        shards = any(view.peek(flag) for flag in _ENGINES.values())
        return {_DP: given} if given or shards else {}

    return Row(fields=(_DP, _STAGE, _ENGINE), flags=(_SHARDED,), emit=emit, read=read, since=_SINCE)


def _sharding(flag: str, since: str, until: str | None = None, default: int = 0) -> Row:
    """Return the row of FSDP.

    Args:
        flag: enables Megatron-core's own.
        default: stage of the parser's default strategy.
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        stage = job.parallel.zero_stage
        if job.parallel.fsdp.implementation == "torch":
            if stage not in (None, 3):
                raise Unsupported(_STAGE, "torch's FSDP2 shards weights too: stage 3", (f"{_STAGE}=3",))
            yield _TORCH, True
        elif uses_megatron_fsdp(job):
            if stage is not None and stage not in _STRATEGIES:
                raise Unsupported(_STAGE, "there are the stages 0 to 3", (f"{_STAGE}=3",))
            yield flag, True
            yield _STRATEGY, _STRATEGIES[3 if stage is None else stage]

    def read(view: NativeView) -> Mapping[str, Value]:
        if bool(view.peek(flag)) == bool(view.peek(_TORCH)):  # neither, or both, of which Megatron uses the second
            return {}
        if view.take(_TORCH, False):
            return {_STAGE: 3, _ENGINE: "torch"}
        view.take(flag)
        stages = {name: stage for stage, name in _STRATEGIES.items()}
        stage = stages[view.take(_STRATEGY, _STRATEGIES[default])]
        return {_STAGE: stage} if stage > 1 else {_STAGE: stage, _ENGINE: "megatron"}

    note = "FSDP is stage 2 or 3, or named in parallel.fsdp.implementation; stage 1 alone is the distributed optimizer."
    flags = (flag, _STRATEGY, _TORCH)
    return Row(fields=(_STAGE, _ENGINE), flags=flags, emit=emit, read=read, since=since, until=until, note=note)


CAME_LATER: Mapping[str, Gap] = {"parallel.fsdp.strict_load": came(True, severity="warning")}
BEFORE_0_12: Mapping[str, Gap] = {
    "parallel.fsdp.implementation": added_in_0_9(severity="warning"),
    "parallel.fsdp.communication_unit_size": added_in_0_9(severity="warning"),
    "parallel.fsdp.keep_fp8_transpose_cache": added_in_0_9(False, severity="warning"),
    "parallel.fsdp.init_model_with_meta_device": added_in_0_9(False, severity="warning"),
}
