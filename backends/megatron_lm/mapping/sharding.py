"""Rows for communication libraries, ZeRO and FSDP, CUDA graphs, gradient buckets and optimizer offloading."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import chosen, many, when_given
from backends.megatron_lm.mapping.parallel import distributed_optimizer
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, switch_off

_SINCE = "0.12"
_RENAMED = "0.15.9"
"""Last version, to our knowledge, before some switches were renamed."""


def communication() -> tuple[Row, ...]:
    """Return the rows of the communication libraries."""
    prefix = "parallel.communication."
    return (
        chosen(f"{prefix}backend", "distributed-backend", {"nccl": "nccl", "gloo": "gloo"}),
        chosen(
            f"{prefix}pipeline_backend",
            "pipeline-model-parallel-comm-backend",
            {"nccl": "nccl", "ucc": "ucc"},
            since=_SINCE,
        ),
        when_given(f"{prefix}nccl_config", "nccl-communicator-config-path"),
        switch(f"{prefix}ring_exchange_p2p", "use-ring-exchange-p2p"),
    )


# -- sharded optimizer, gradients and weights

_STRATEGIES = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
_DP, _STAGE, _ENGINE = "parallel.distributed_optimizer", "parallel.zero_stage", "parallel.fsdp.implementation"
_SHARDED, _STRATEGY, _TORCH = "use-distributed-optimizer", "data-parallel-sharding-strategy", "use-torch-fsdp2"
_ENGINES = {"0.12": "use-custom-fsdp", "0.16": "use-megatron-fsdp", "torch": _TORCH}


def sharding() -> tuple[Row, ...]:
    """Return the rows of ZeRO: stage 1 is the distributed optimizer, 2 and 3 are FSDP, Megatron's own or torch's."""
    return (
        replace(distributed_optimizer(), until="0.11.9"),
        _distributed_optimizer(),
        _sharding(_ENGINES["0.12"], since=_SINCE, until=_RENAMED),
        _sharding(_ENGINES["0.16"], since="0.16"),
        when_given("parallel.fsdp.communication_unit_size", "suggested-communication-unit-size", since=_SINCE),
        switch(
            "parallel.fsdp.keep_fp8_transpose_cache",
            "keep-fp8-transpose-cache-when-using-custom-fsdp",
            since=_SINCE,
            until=_RENAMED,
        ),
        switch("parallel.fsdp.keep_fp8_transpose_cache", "keep-fp8-transpose-cache", since="0.16"),
        switch("parallel.fsdp.init_model_with_meta_device", "init-model-with-meta-device", since=_SINCE),
        switch_off("parallel.fsdp.strict_load", "no-strict-fsdp-dtensor-load", since="0.16"),
    )


def uses_megatron_fsdp(job: Job) -> bool:
    """Return whether the job shards with Megatron-core's own FSDP."""
    stage, engine = job.parallel.zero_stage, job.parallel.fsdp.implementation
    return engine == "megatron" or (engine is None and stage is not None and stage > 1)


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


def _sharding(flag: str, since: str, until: str | None = None) -> Row:
    """Return the row of FSDP; `flag` enables Megatron-core's own."""

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
        stage = stages[view.take(_STRATEGY, _STRATEGIES[0])]
        return {_STAGE: stage} if stage > 1 else {_STAGE: stage, _ENGINE: "megatron"}

    note = "FSDP is stage 2 or 3, or named in parallel.fsdp.implementation; stage 1 alone is the distributed optimizer."
    flags = (flag, _STRATEGY, _TORCH)
    return Row(fields=(_STAGE, _ENGINE), flags=flags, emit=emit, read=read, since=since, until=until, note=note)


# -- CUDA graphs

_IMPL, _SCOPE = "kernels.cuda_graph.impl", "kernels.cuda_graph.scope"
CUDA_GRAPHS = (_IMPL, _SCOPE, "kernels.cuda_graph.warmup_steps")
_SWITCHES = {"local": "enable-cuda-graph", "transformer_engine": "external-cuda-graph"}


def cuda_graphs() -> tuple[Row, ...]:
    """Return the rows of CUDA graphs, which two switches enabled before 0.16."""
    return (
        _captures_by_switch(),
        _captures(),
        _scope(("attn",), since=_SINCE, until=_RENAMED),
        _scope(None, since="0.16"),
        when_given(CUDA_GRAPHS[2], "cuda-graph-warmup-steps", since=_SINCE),
    )


def _read_switches(view: NativeView) -> Mapping[str, Value]:
    given = [name for name, flag in _SWITCHES.items() if view.peek(flag) is True]
    if len(given) != 1:
        return {}
    view.take(_SWITCHES[given[0]])
    return {_IMPL: given[0]}


def _captures_by_switch() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.kernels.cuda_graph.impl in _SWITCHES:
            yield _SWITCHES[job.kernels.cuda_graph.impl], True

    flags = tuple(_SWITCHES.values())
    return Row(fields=(_IMPL,), flags=flags, emit=emit, read=_read_switches, since=_SINCE, until=_RENAMED)


def _captures() -> Row:
    row = chosen(_IMPL, "cuda-graph-impl", {name: name for name in ("none", *_SWITCHES)})

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has("cuda-graph-impl"):
            return row.read(view) if row.read is not None else {}
        return _read_switches(view)

    note = "Read back, its older names --enable-cuda-graph and --external-cuda-graph are understood."
    flags = ("cuda-graph-impl", *_SWITCHES.values())
    return replace(row, flags=flags, read=read, since="0.16", note=note)


def _scope(known: tuple[str, ...] | None, since: str, until: str | None = None) -> Row:
    """Return the row of the captured scope; `known`: one of these, None: any list of parts."""
    flag = "cuda-graph-scope"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        scope = job.kernels.cuda_graph.scope
        if not scope:
            return
        if known is not None and (len(scope) > 1 or scope[0] not in known):
            raise Unsupported(_SCOPE, f"it captures whole layers or {', '.join(known)}", (f"{_SCOPE}=[{known[0]}]",))
        yield flag, scope if known is None else scope[0]

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag):
            return {}
        parts = many(view.take(flag))
        return {} if parts == ("full",) else {_SCOPE: parts}

    note = "Whole layers, once called `full`, are what no scope means (arguments.py:1255 @core_v0.16.1)."
    return Row(fields=(_SCOPE,), flags=(flag,), emit=emit, read=read, since=since, until=until, note=note)


def flash_switch() -> Row:
    """Return the row that reads --use-flash-attn, which Megatron-core's models ignore."""
    path, flag = "kernels.attention_backend", "use-flash-attn"

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek("use-legacy-models"):
            view.take(flag)
        return {}

    note = "Read only: --attention-backend decides, whose default auto takes flash attention where it can."
    return computed((path,), (flag,), lambda job: (), read, note=note)


# -- gradients, tensor parallelism, host


def overlap() -> tuple[Row, ...]:
    """Return the rows of gradient reduction and tensor-parallel communication overlap."""
    return (
        switch_off("overlap.gradient_reduce_div_fusion", "no-gradient-reduce-div-fusion", since=_SINCE),
        switch("overlap.pad_buckets", "ddp-pad-buckets-for-high-nccl-busbw", since=_SINCE),
        switch_off("overlap.align_grad_reduce", "no-align-grad-reduce", since=_SINCE),
        switch_off("overlap.align_param_gather", "no-align-param-gather", since=_SINCE),
        switch_off(
            "overlap.tp_allreduce",
            "no-async-tensor-model-parallel-allreduce",
            note="Megatron-core's own layers overlap it always, those of MindSpeed's experts as this says.",
        ),
        *(row for name in _PRODUCTS for row in _product(name)),
        switch("overlap.tp.overlap_rs_dgrad", "tp-comm-overlap-rs-dgrad"),
        when_given("overlap.tp.config", "tp-comm-overlap-cfg"),
        when_given("overlap.tp.bootstrap_backend", "tp-comm-bootstrap-backend", since=_SINCE),
    )


_PRODUCTS = ("overlap_ag", "overlap_rs", "split_ag", "split_rs", "bulk_dgrad", "bulk_wgrad")


def _product(name: str) -> tuple[Row, Row]:
    path, flag = f"overlap.tp.{name}", f"tp-comm-{name.replace('_', '-')}"
    return (
        switch_off(path, f"disable-{flag}", until=_RENAMED),
        switch_off(path, f"no-{flag}", since="0.16"),
    )


def host() -> tuple[Row, ...]:
    """Return the rows of optimizer CPU offloading and of the embedding's output."""
    return (
        switch("offload.torch_optimizer", "use-torch-optimizer-for-cpu-offload", since=_SINCE),
        switch("offload.overlap_cpu_optimizer_d2h_h2d", "overlap-cpu-optimizer-d2h-h2d", since=_SINCE),
        switch_off("offload.pin_cpu_grads", "no-pin-cpu-grads", since=_SINCE),
        switch_off("offload.pin_cpu_params", "no-pin-cpu-params", since=_SINCE),
        switch_off("kernels.clone_scatter_output_in_embedding", "no-clone-scatter-output-in-embedding"),
    )


# -- unsupported by older versions


def _told(why: str, *neutral: Value) -> Gap:
    return Gap(why=why, neutral=neutral, severity="warning")


BEFORE_0_16: Mapping[str, Gap] = {
    "parallel.fsdp.strict_load": _told("it came with core 0.16", True),
}
# Fields of these rows that core 0.8 lacks, each with the values that have no effect there.
BEFORE_0_12: Mapping[str, tuple[Value, ...]] = {
    "parallel.communication.pipeline_backend": ("nccl",),
    "parallel.fsdp.implementation": (),
    "parallel.fsdp.communication_unit_size": (),
    "parallel.fsdp.keep_fp8_transpose_cache": (False,),
    "parallel.fsdp.init_model_with_meta_device": (False,),
    "overlap.gradient_reduce_div_fusion": (True,),
    "overlap.pad_buckets": (False,),
    "overlap.align_grad_reduce": (True,),
    "overlap.align_param_gather": (True,),
    "overlap.tp.bootstrap_backend": (),
    "offload.torch_optimizer": (),
    "offload.overlap_cpu_optimizer_d2h_h2d": (False,),
    "offload.pin_cpu_grads": (),
    "offload.pin_cpu_params": (),
}
