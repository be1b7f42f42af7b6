"""Rows for the parallel strategy, recomputation, offloading, overlap and kernels."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.effective import chunks_of
from backends.megatron_lm.mapping.factories import chosen, listed, many, single, valued, when_given
from backends.megatron_lm.mapping.moe import is_moe
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch, switch_off

_SWAPPED_FOR_ATTENTION = ("qkv_linear", "core_attn", "attn_proj")
_RECOMPUTED = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")


def parallel() -> tuple[Row, ...]:
    """Return the rows of tensor, pipeline, context, expert and data parallelism."""
    return (
        valued("parallel.tp", "tensor-model-parallel-size", 1),
        valued("parallel.pp", "pipeline-model-parallel-size", 1),
        virtual_stages(),
        valued("parallel.cp", "context-parallel-size", 1, quiet=True),
        *context_parallel(),
        valued("parallel.ep", "expert-model-parallel-size", 1, quiet=True),
        when_given("parallel.etp", "expert-tensor-parallel-size", when=is_moe),
        switch("parallel.sequence_parallel", "sequence-parallel"),
        *uneven_stages(),
    )


def virtual_stages() -> Row:
    """Return the row of the interleaved schedule, in chunks per stage."""
    return computed(
        ("parallel.vpp", "parallel.layout"),
        ("num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"),
        _write_chunks,
        _read_chunks,
        note="Of this, --num-layers-per-virtual-pipeline-stage and a layout at most one may be given (validate_args).",
    )


def _write_chunks(job: Job) -> Iterable[tuple[str, Value]]:
    chunks, layout = job.parallel.vpp, job.parallel.layout
    if layout is not None:
        stages = stages_of(layout)
        if chunks is not None and stages != chunks * job.parallel.pp:
            raise Unsupported(
                "parallel.vpp", f"the layout has {stages} stages, not pp * vpp = {job.parallel.pp * chunks}"
            )
    elif chunks is not None and chunks > 1:
        yield "num-virtual-stages-per-pipeline-rank", chunks


def _read_chunks(view: NativeView) -> Mapping[str, Value]:
    if view.has("num-virtual-stages-per-pipeline-rank"):
        return {"parallel.vpp": view.take("num-virtual-stages-per-pipeline-rank")}
    chunks = chunks_of(view.values)
    if chunks is None:
        return {}
    view.take("num-layers-per-virtual-pipeline-stage")
    return {"parallel.vpp": chunks}


def stages_of(layout: str) -> int:
    """Return the number of stages (times chunks) of a pipeline layout such as `Et*3|(tt|)*29,m|L`.

    Source: PipelineParallelLayerLayout.parse_str_to_list, pipeline_parallel_layer_layout.py @core_v0.16.1.
    """
    text = layout.replace(",", "")
    while (found := re.search(r"\(([^()]*)\)\*(\d+)", text)) is not None:
        text = text[: found.start()] + found.group(1) * int(found.group(2)) + text[found.end() :]
    return text.count("|") + 1


def context_parallel() -> tuple[Row, ...]:
    """Return the row of the context-parallel algorithm."""
    return (
        computed(
            ("parallel.cp_algorithm", "parallel.ulysses_degree", "parallel.cp"),
            ("cp-comm-type", "hierarchical-context-parallel-sizes"),
            _write_algorithm,
            _read_algorithm,
            note="Megatron's ring is p2p, Ulysses a2a; a2a+p2p takes the size of the all-to-all level first.",
        ),
    )


_ALGORITHMS = {"megatron": "p2p", "ulysses": "a2a", "allgather": "all_gather", "hybrid": "a2a+p2p"}


def _write_algorithm(job: Job) -> Iterable[tuple[str, Value]]:
    algorithm, degree, cp = job.parallel.cp_algorithm, job.parallel.ulysses_degree, job.parallel.cp
    if degree is not None and algorithm != "hybrid":
        raise Unsupported(
            "parallel.ulysses_degree", "only the hybrid algorithm has a degree", ("parallel.cp_algorithm=hybrid",)
        )
    if algorithm is None:
        return
    if algorithm not in _ALGORITHMS:
        works = tuple(f"parallel.cp_algorithm={name}" for name in ("megatron", "ulysses", "hybrid"))
        raise Unsupported("parallel.cp_algorithm", "adaptive context parallelism is Ascend's", works)
    if algorithm == "hybrid" and (degree is None or cp % degree):
        raise Unsupported(
            "parallel.ulysses_degree", f"hybrid needs a divisor of cp={cp}", ("parallel.ulysses_degree=2",)
        )
    yield "cp-comm-type", _ALGORITHMS[algorithm]
    if algorithm == "hybrid" and degree is not None:
        yield "hierarchical-context-parallel-sizes", (degree, cp // degree)


def _read_algorithm(view: NativeView) -> Mapping[str, Value]:
    names = {native: name for name, native in _ALGORITHMS.items()}
    native = single(view.peek("cp-comm-type"))
    if not isinstance(native, str) or native not in names:
        return {}
    view.take("cp-comm-type")
    found: dict[str, Value] = {"parallel.cp_algorithm": names[native]}
    sizes = many(view.peek("hierarchical-context-parallel-sizes") or ())
    if names[native] == "hybrid" and len(sizes) == 2:
        view.take("hierarchical-context-parallel-sizes")
        found["parallel.ulysses_degree"] = sizes[0]
    return found


def uneven_stages() -> tuple[Row, ...]:
    """Return the rows of uneven pipeline stages."""
    return (
        when_given("parallel.first_stage_layers", "decoder-first-pipeline-num-layers"),
        when_given("parallel.last_stage_layers", "decoder-last-pipeline-num-layers"),
        when_given("parallel.layout", "pipeline-model-parallel-layout", since="0.13"),
        switch("parallel.account_for_embedding", "account-for-embedding-in-pipeline-split"),
        switch("parallel.account_for_loss", "account-for-loss-in-pipeline-split"),
        when_given("parallel.microbatch_group_size", "microbatch-group-size-per-virtual-pipeline-stage"),
    )


def distributed_optimizer() -> Row:
    """Return the row of ZeRO 1; higher stages are FSDP (`sharding.sharding`)."""

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


def recompute() -> tuple[Row, ...]:
    """Return the rows of recomputation."""
    return (
        when_given("recompute.granularity", "recompute-granularity"),
        _recompute_activations(),
        when_given("recompute.method", "recompute-method"),
        when_given("recompute.num_layers", "recompute-num-layers"),
        recompute_modules(_RECOMPUTED, since="0.13"),
        recompute_modules(_RECOMPUTED[:-1], until="0.12.9"),
        switch("recompute.distribute_saved_activations", "distribute-saved-activations"),
    )


def _recompute_activations() -> Row:
    """Return the row that reads --recompute-activations (arguments.py: validate_args)."""

    def read(view: NativeView) -> Mapping[str, Value]:
        other = view.peek("recompute-granularity", "selective") != "selective"
        if other or view.peek("recompute-activations") is not True:
            return {}
        view.take("recompute-activations")
        return {"recompute.granularity": "selective"}

    note = "Read only: `--recompute-activations` is `--recompute-granularity selective`."
    return computed(("recompute.granularity",), ("recompute-activations",), lambda job: (), read, note=note)


def recompute_modules(known: tuple[str, ...], since: str | None = None, until: str | None = None) -> Row:
    """Return the row of selectively recomputed modules, of which this version supports `known`."""
    row = listed("recompute.modules", "recompute-modules")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        missing = [name for name in job.recompute.modules if name not in known]
        if missing:
            raise Unsupported("recompute.modules", f"it knows {', '.join(known)}, not {', '.join(missing)}")
        return row.emit(job)

    return replace(row, emit=emit, since=since, until=until)


def offload() -> tuple[Row, ...]:
    """Return the rows of offloading to the host."""
    return (
        computed(
            ("offload.modules", "offload.attention"),
            ("fine-grained-activation-offloading", "offload-modules"),
            _write_offload,
            lambda view: (
                {"offload.modules": many(view.take("offload-modules", ()))}
                if view.take("fine-grained-activation-offloading", False)
                else {}
            ),
            since="0.16",
            note="Attention as a whole is its three modules: " + ", ".join(_SWAPPED_FOR_ATTENTION) + ".",
        ),
        switch("offload.optimizer", "optimizer-cpu-offload"),
        when_given("offload.optimizer_fraction", "optimizer-offload-fraction"),
        when_given("offload.activation_layers", "cpu-offloading-num-layers", since="0.16"),
    )


def _write_offload(job: Job) -> Iterable[tuple[str, Value]]:
    known = ("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear")
    attention = _SWAPPED_FOR_ATTENTION if job.offload.attention else ()
    modules = tuple(dict.fromkeys((*attention, *job.offload.modules)))
    missing = [name for name in modules if name not in known]
    if missing:
        raise Unsupported("offload.modules", f"it knows {', '.join(known)}, not {', '.join(missing)}")
    if modules:
        yield "fine-grained-activation-offloading", True
        yield "offload-modules", modules


def overlap() -> tuple[Row, ...]:
    """Return the rows of communication that overlaps computation."""
    return (
        switch("overlap.grad_reduce", "overlap-grad-reduce"),
        switch("overlap.param_gather", "overlap-param-gather"),
        switch("overlap.tp_comm", "tp-comm-overlap"),
        switch_off("overlap.p2p", "no-overlap-p2p-communication"),
    )


def kernels() -> tuple[Row, ...]:
    """Return the rows of kernels; Megatron enables most fusions by default, so the arguments disable them."""
    return (
        chosen(
            "kernels.attention_backend",
            "attention-backend",
            {name: name for name in ("flash", "fused", "unfused", "auto")},
            why="--attention-backend local needs a layer spec of its own; kernels.transformer_impl=local does the same",
        ),
        when_given("kernels.transformer_impl", "transformer-impl"),
        *fusions(),
        switch("kernels.deterministic", "deterministic-mode"),
        computed(
            ("kernels.manual_gc_interval",),
            ("manual-gc", "manual-gc-interval"),
            lambda job: (
                (("manual-gc", True), ("manual-gc-interval", job.kernels.manual_gc_interval))
                if job.kernels.manual_gc_interval is not None
                else ()
            ),
            lambda view: (
                {"kernels.manual_gc_interval": view.take("manual-gc-interval", 0)}
                if view.take("manual-gc", False)
                else {}
            ),
        ),
    )


def fusions() -> tuple[Row, ...]:
    """Return the rows of individual fused kernels."""
    return (
        switch_off("kernels.masked_softmax_fusion", "no-masked-softmax-fusion"),
        computed(
            ("kernels.bias_activation_fusion", "model.hidden_act"),
            ("no-bias-swiglu-fusion", "no-bias-gelu-fusion"),
            _write_activation_fusion,
            _read_activation_fusion,
        ),
        switch_off("kernels.bias_dropout_fusion", "no-bias-dropout-fusion"),
        rope_fusion(lambda job: job.model.is_mla and job.model.rope_scaling.type != "yarn", since="0.13"),
        rope_fusion(lambda job: job.model.is_mla, until="0.12.9"),
        switch_off("kernels.gradient_accumulation_fusion", "no-gradient-accumulation-fusion"),
        switch("kernels.cross_entropy_fusion", "cross-entropy-loss-fusion"),
        when_given("kernels.cross_entropy_fusion_impl", "cross-entropy-fusion-impl"),
    )


def rope_fusion(impossible: Callable[[Job], bool], since: str | None = None, until: str | None = None) -> Row:
    """Return the row of fused rotary embeddings, enabled by default and rejected where `impossible` is true."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.kernels.rope_fusion
        if wanted and impossible(job):
            raise Unsupported(
                "kernels.rope_fusion",
                "there is no fused kernel for these rotary embeddings of latent attention",
                ("kernels.rope_fusion=false",),
            )
        if wanted is False or (impossible(job) and job.model.position_embedding == "rope"):
            yield "no-rope-fusion", True

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"kernels.rope_fusion": False} if view.take("no-rope-fusion", False) else {}

    return computed(
        ("kernels.rope_fusion",),
        ("no-rope-fusion",),
        emit,
        read,
        since=since,
        until=until,
        note="TransformerConfig.__post_init__: MLA has it with YaRN only (0.16), never (0.12).",
    )


def _write_activation_fusion(job: Job) -> Iterable[tuple[str, Value]]:
    # The squared ReLU has no fused kernel; without biases there is none anyway (arguments.py:785 @core_v0.12.1).
    if job.kernels.bias_activation_fusion is False or (job.model.hidden_act == "relu2" and job.model.linear_bias):
        yield ("no-bias-swiglu-fusion" if job.model.hidden_act == "silu" else "no-bias-gelu-fusion"), True


def _read_activation_fusion(view: NativeView) -> Mapping[str, Value]:
    flag = "no-bias-swiglu-fusion" if view.peek("swiglu") else "no-bias-gelu-fusion"
    return {"kernels.bias_activation_fusion": False} if view.take(flag, False) else {}
