"""MindSpeed-LLM mapping rows for parallelism, overlap and token permutation."""

from collections.abc import Collection, Iterable, Mapping

from backends.megatron_lm.mapping.factories import chosen, when_set
from backends.megatron_lm.mapping.moe import is_moe
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch
from launcher.rules.sanity_checks import layout_chunks
from launcher.syntax import is_count

DUALPIPEV = "dualpipev"


def layers_of(job: Job) -> int | None:
    """Return the number of layers distributed over stages, including no-op layers."""
    layers = job.model.num_hidden_layers
    return None if layers is None else layers + len(job.parallel.noop_layers)


def virtual_stages() -> Row:
    """Return the row of the interleaved schedule, in layers per chunk."""
    flag = "num-layers-per-virtual-pipeline-stage"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        chunks, layers = job.parallel.vpp, layers_of(job)
        folded = job.parallel.schedule == DUALPIPEV
        if chunks is None or chunks == 1 or job.parallel.layout is not None or folded:
            return
        stages = job.parallel.pp * chunks
        if layers is None:
            raise Unsupported("parallel.vpp", "it is written in layers, and the model's are not known yet")
        if stages < 1 or layers % stages:
            raise Unsupported("parallel.vpp", f"{layers} layers do not divide into pp * vpp = {stages} chunks")
        yield flag, layers // stages

    def read(view: NativeView) -> Mapping[str, Value]:
        size = view.peek(flag) or 0
        stages = size * view.peek("pipeline-model-parallel-size", 1)
        layers = view.peek("num-layers") or 0
        if not stages or layers % stages:
            return {}
        view.take(flag)
        return {"parallel.vpp": layers // stages}

    return computed(
        ("parallel.vpp", "parallel.pp", "model.num_hidden_layers", "parallel.schedule"),
        (flag,),
        emit,
        read,
        note="MindSpeed-LLM's checks and its weight converter know this form only (training_basic.py:98 @26.1.0).",
    )


def schedule() -> tuple[Row, ...]:
    """Return the rows of DualPipeV, which gives every stage two chunks without an argument for them."""
    path, flag, chunks = "parallel.schedule", "schedules-method", "parallel.vpp"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.parallel.schedule in (None, "1f1b"):
            return
        if job.parallel.schedule != DUALPIPEV:
            why = "its schedules are 1f1b, interleaved where parallel.vpp is set, and dualpipev"
            raise Unsupported(path, why, (f"{path}=1f1b",), severity="warning")
        if job.parallel.vpp != 2:
            raise Unsupported(chunks, "dualpipev gives every stage two chunks", (f"{chunks}=2",))
        yield flag, DUALPIPEV

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag), chunks: 2} if view.peek(flag) == DUALPIPEV else {}

    return (
        computed((path, chunks), (flag,), emit, read),
        switch("parallel.dw_detach", "dualpipev-dw-detach"),
    )


def uneven_stages() -> Row:
    """Return the row of stages of unequal length, as a list of layers per stage."""
    fields = ("parallel.first_stage_layers", "parallel.last_stage_layers")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        first, last, stages, layers = (*(value_at(job, path) for path in fields), job.parallel.pp, layers_of(job))
        if first is None and last is None:
            return
        if (job.parallel.vpp or 1) > 1:
            raise Unsupported(fields[0], "stages of unequal length exclude vpp", ("parallel.vpp=null",))
        others = stages - (first is not None) - (last is not None)
        rest = (layers or 0) - (first or 0) - (last or 0)
        if layers is None:
            known = next(path for path, value in zip(fields, (first, last), strict=True) if value is not None)
            raise Unsupported(known, "it is written in layers of all stages, and the model's are not known yet")
        if others < 0 or rest < 0 or (rest if others == 0 else rest % others):
            raise Unsupported(fields[0], f"{rest} layers do not divide over the {others} other stages")
        middle = [rest // others] * others if others else []
        ends = ([first] if first is not None else []), ([last] if last is not None else [])
        yield "num-layer-list", ",".join(str(count) for count in (*ends[0], *middle, *ends[1]))

    def read(view: NativeView) -> Mapping[str, Value]:
        counts = [int(part) for part in str(view.peek("num-layer-list") or "").split(",") if is_count(part.strip())]
        if len(counts) < 2 or len(set(counts[1:-1])) > 1:
            return {}
        view.take("num-layer-list")
        return {fields[0]: counts[0], fields[1]: counts[-1]}

    return computed((*fields, "parallel.pp"), ("num-layer-list",), emit, read)


def stage_list(has_layouts: bool) -> Row:
    """Return the row of --num-layer-list for other uneven stages, the only form in versions without layouts.

    Later versions take either form; a list that was read comes back as one, passed through beside the layout.
    """
    flag, path = "num-layer-list", "parallel.layout"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if has_layouts or job.parallel.layout is None:
            return
        counts = _whole_stages(job)
        if counts is None:
            why = "this version counts the layers of whole stages (--num-layer-list): without vpp and empty layers, "
            raise Unsupported(path, why + "embedding and loss at the ends", ("backend.version=26.1.0",))
        yield flag, ",".join(str(count) for count in counts)

    def read(view: NativeView) -> Mapping[str, Value]:
        parts = str(view.peek(flag) or "").split(",")
        if not view.has(flag) or not all(is_count(part.strip()) and int(part) > 0 for part in parts) or len(parts) < 2:
            return {}
        view.take(flag)
        chunks = [f"t*{int(part)}" for part in parts]
        chunks[0], chunks[-1] = f"E{chunks[0]}", chunks[-1] + "m" * int(view.peek("mtp-num-layers") or 0) + "L"
        return {path: "|".join(chunks)}

    note = "read from a list; since 26.1 a layout is written, which is equivalent"
    return computed((path, "parallel.pp"), (flag,), emit, read, note=note)


def _whole_stages(job: Job) -> list[int] | None:
    """Return the number of layers per stage of a layout; None if such a list cannot express it."""
    chunks = layout_chunks(job.parallel.layout or "")
    if len(chunks) != job.parallel.pp or len(chunks) < 2 or (job.parallel.vpp or 1) > 1 or job.parallel.noop_layers:
        return None
    ends = chunks[0].removeprefix("E"), chunks[-1].removesuffix("L").rstrip("m")
    stages = [ends[0], *chunks[1:-1], ends[1]]
    return None if any(set(stage) != {"t"} for stage in stages) else [len(stage) for stage in stages]


_ALGORITHMS = {
    "megatron": "megatron_cp_algo",
    "ulysses": "ulysses_cp_algo",
    "hybrid": "hybrid_cp_algo",
    "allgather": "kvallgather_cp_algo",
    "adaptive": "adaptive_cp_algo",
    "hybrid_adaptive": "hybrid_adaptive_cp_algo",
}


def context_parallel(old: bool, known: Collection[str]) -> tuple[Row, ...]:
    """Return the rows of context parallelism; `old`: 2.1.0; `known`: the algorithms that the version accepts."""
    names = {name: native for name, native in _ALGORITHMS.items() if native in known}
    mask = "cp-attention-mask-type" if old else "attention-mask-type"
    return (
        chosen("parallel.cp_algorithm", "context-parallel-algo", names),
        when_set("parallel.ulysses_degree", "ulysses-degree-in-cp"),
        when_set("parallel.cp_window", "cp-window-size"),
        when_set(
            "parallel.cp_mask_type",
            mask,
            note="2.1.0 overwrites --attention-mask-type; its --cp-attention-mask-type became that one." if old else "",
        ),
    )


def two_dimensional() -> Row:
    """Return the row of 2-D tensor parallelism."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        x, y = job.parallel.tp_2d_x, job.parallel.tp_2d_y
        if (x or 1) * (y or 1) == 1:
            return
        yield "tp-2d", True
        yield "tp-x", x or 1
        yield "tp-y", y or 1

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.take("tp-2d", False):
            return {}
        return {"parallel.tp_2d_x": view.take("tp-x", 1), "parallel.tp_2d_y": view.take("tp-y", 1)}

    return computed(("parallel.tp_2d_x", "parallel.tp_2d_y"), ("tp-2d", "tp-x", "tp-y"), emit, read)


def overlap() -> tuple[Row, ...]:
    """Return the rows of overlapping expert dispatch with computation."""
    return (
        switch("moe.dispatch_overlap", "moe-permutation-async-comm", when=is_moe),
        switch("moe.batch_overlap", "moe-fb-overlap", when=is_moe),
        switch("moe.tp_extend_ep", "moe-tp-extend-ep", when=is_moe),
    )


def permutation(old: bool) -> Row:
    """Return the row of the fused token permutation; `old`: the name of 2.1.0."""
    flag = "use-fused-moe-token-permute-and-unpermute"
    if old:
        return switch("moe.permute_fusion", flag, when=is_moe)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = bool(view.take("moe-permute-fusion", False)) | bool(view.take(flag, False))
        return {"moe.permute_fusion": True} if given else {}

    row = switch("moe.permute_fusion", "moe-permute-fusion")
    note = f"--{flag} is its deprecated form."
    return Row(fields=row.fields, flags=row.flags, emit=row.emit, read=read, when=is_moe, note=note)
