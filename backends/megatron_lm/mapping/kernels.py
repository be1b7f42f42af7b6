"""Rows for kernels: attention, fusions, CUDA graphs, random numbers, memory of the allocator."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import (
    BEFORE_0_14,
    BEFORE_0_15,
    BEFORE_0_16,
    BEFORE_0_18,
    chosen,
    many,
    reworded,
    when_set,
)
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, UnreadArgs, Unsupported, computed, switch, switch_off, warning


def kernels() -> tuple[Row, ...]:
    """Return the rows of kernels; Megatron enables most fusions by default, so the arguments disable them."""
    return (
        chosen(
            "kernels.attention_backend",
            "attention-backend",
            {name: name for name in ("flash", "fused", "unfused", "auto")},
            why="--attention-backend local needs a layer spec of its own; kernels.transformer_impl=local does the same",
        ),
        when_set("kernels.transformer_impl", "transformer-impl"),
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
        rope_fusion(lambda job: job.model.is_mla and job.model.rope_scaling.type != "yarn", since="0.14"),
        rope_fusion(lambda job: False, since="0.13", until=BEFORE_0_14),
        rope_fusion(lambda job: job.model.is_mla, until="0.12.9"),
        switch_off("kernels.gradient_accumulation_fusion", "no-gradient-accumulation-fusion"),
        switch("kernels.cross_entropy_fusion", "cross-entropy-loss-fusion"),
        when_set("kernels.cross_entropy_fusion_impl", "cross-entropy-fusion-impl"),
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
        note="TransformerConfig.__post_init__: MLA has it with YaRN only (since 0.13), never (0.12).",
    )


def _write_activation_fusion(job: Job) -> Iterable[tuple[str, Value]]:
    # The squared ReLU has no fused kernel; without biases there is none anyway (arguments.py:785 @core_v0.12.1).
    if job.kernels.bias_activation_fusion is False or (job.model.hidden_act == "relu2" and job.model.linear_bias):
        yield ("no-bias-swiglu-fusion" if job.model.hidden_act == "silu" else "no-bias-gelu-fusion"), True


def _read_activation_fusion(view: NativeView) -> Mapping[str, Value]:
    flag = "no-bias-swiglu-fusion" if view.peek("swiglu") else "no-bias-gelu-fusion"
    return {"kernels.bias_activation_fusion": False} if view.take(flag, False) else {}


def runtime() -> tuple[Row, ...]:
    """Return the rows of persistent norms, random numbers, allocator cache and the attention mask."""
    return (
        switch_off("kernels.persist_layer_norm", "no-persist-layer-norm"),
        switch("kernels.te_rng_tracker", "te-rng-tracker", since="0.12"),
        when_set("kernels.empty_cache_level", "empty-unused-memory-level"),
        attention_mask(),
        switch("kernels.inference_rng_tracker", "inference-rng-tracker", since="0.12"),
    )


def attention_mask() -> Row:
    """Return the row of the causal mask: created by the data loader, or implicit in the kernel."""
    path, flag = "kernels.attention_mask", "no-create-attention-mask-in-dataloader"

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: "compressed" if view.take(flag) else "full"} if view.has(flag) else {}

    return Row(
        fields=(path,),
        flags=(flag,),
        emit=lambda job: ((flag, True),) if job.kernels.attention_mask == "compressed" else (),
        read=read,
        note="Left to itself the loader makes one.",
    )


_IMPL, _SCOPE = "kernels.cuda_graph.impl", "kernels.cuda_graph.scope"


CUDA_GRAPHS = (_IMPL, _SCOPE, "kernels.cuda_graph.warmup_steps")


_SWITCHES = {"local": "enable-cuda-graph", "transformer_engine": "external-cuda-graph"}


def cuda_graphs() -> tuple[Row, ...]:
    """Return the rows of CUDA graphs, which two switches enabled before 0.15."""
    return (
        _captures_by_switch(),
        _captures(),
        _scope(("attn",), since="0.12", until=BEFORE_0_14),
        _scope(("attn", "full_iteration"), since="0.14", until=BEFORE_0_16),
        _scope(None, since="0.16", until=BEFORE_0_18),
        _scope(None, since="0.18", flag="cuda-graph-modules", older=("cuda-graph-scope",)),
        when_set(CUDA_GRAPHS[2], "cuda-graph-warmup-steps", since="0.12"),
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
    return Row(fields=(_IMPL,), flags=flags, emit=emit, read=_read_switches, since="0.12", until=BEFORE_0_15)


def _captures() -> Row:
    row = chosen(_IMPL, "cuda-graph-impl", {name: name for name in ("none", *_SWITCHES)})

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has("cuda-graph-impl"):
            return row.read(view) if row.read is not None else {}
        return _read_switches(view)

    note = "Read back, its older names --enable-cuda-graph and --external-cuda-graph are understood."
    flags = ("cuda-graph-impl", *_SWITCHES.values())
    return replace(row, flags=flags, read=read, since="0.15", note=note)


def renamed_scope() -> Row:
    """Return the row that reads the parts that CUDA graphs capture under their name of 0.18.

    Source: megatron/training/arguments.py:638 @core_v0.18.2.
    """
    return replace(reworded({"cuda-graph-scope": "cuda-graph-modules"}, {}), since="0.18")


def _scope(
    known: tuple[str, ...] | None,
    since: str,
    until: str | None = None,
    flag: str = "cuda-graph-scope",
    older: tuple[str, ...] = (),
) -> Row:
    """Return the row of the captured scope.

    Args:
        known: one of these; None: any list of parts.
        older: older names of the argument, which are read as the new one.
    """

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
    return Row(fields=(_SCOPE,), flags=(flag, *older), emit=emit, read=read, since=since, until=until, note=note)


FLASH_SWITCH = UnreadArgs(
    flags=("use-flash-attn",),
    why="Models of Megatron-core read --attention-backend, which takes flash attention where it can.",
    source="Megatron-LM core_v0.12.1 legacy/model/transformer.py:541; "
    "Megatron-LM core_v0.16.1 legacy/model/transformer.py:541",
    where={"use-legacy-models": (None, False)},
)


def embedding_output() -> Row:
    """Return the row of the copy of the embedding's output."""
    return switch_off("kernels.clone_scatter_output_in_embedding", "no-clone-scatter-output-in-embedding")


UNSUPPORTED: Mapping[str, Gap] = {
    "kernels.sparse_mode": Gap(
        why="an option of CANN's attention kernel", neutral=(0, 2), works=("model.sliding_window=4096",)
    ),
    "kernels.use_fused_mhc": warning("it has no hyper-connections", False),
    # Local layers take torch's norm, which a CPU composes of other kernels.
    "kernels.rmsnorm_fusion": replace(
        warning("the layer library decides: transformer_engine's is fused", True),
        matters=lambda job: job.kernels.transformer_impl != "local",
    ),
}
