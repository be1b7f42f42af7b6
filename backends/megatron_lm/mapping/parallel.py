"""Rows for the parallel strategy: tensor, pipeline, context and expert parallelism, process groups."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from backends.megatron_lm.mapping.chunks import chunks_of
from backends.megatron_lm.mapping.factories import added_in_0_9, came, chosen, many, single, valued, when_set
from backends.megatron_lm.mapping.moe import is_moe
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, switch_off, warning


def parallel() -> tuple[Row, ...]:
    """Return the rows of tensor, pipeline, context, expert and data parallelism."""
    return (
        valued("parallel.tp", "tensor-model-parallel-size", 1),
        valued("parallel.pp", "pipeline-model-parallel-size", 1),
        virtual_stages(),
        valued("parallel.cp", "context-parallel-size", 1, quiet=True),
        *context_parallel(),
        valued("parallel.ep", "expert-model-parallel-size", 1, quiet=True),
        when_set("parallel.etp", "expert-tensor-parallel-size", when=is_moe),
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


@lru_cache(1024)
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
        when_set("parallel.first_stage_layers", "decoder-first-pipeline-num-layers"),
        when_set("parallel.last_stage_layers", "decoder-last-pipeline-num-layers"),
        when_set("parallel.layout", "pipeline-model-parallel-layout", since="0.13"),
        switch("parallel.account_for_embedding", "account-for-embedding-in-pipeline-split"),
        switch("parallel.account_for_loss", "account-for-loss-in-pipeline-split"),
        when_set("parallel.microbatch_group_size", "microbatch-group-size-per-virtual-pipeline-stage"),
    )


def process_groups() -> tuple[Row, ...]:
    """Return the rows of optimizer instances, rank order and gloo groups."""
    return (
        when_set("parallel.optimizer_instances", "num-distributed-optimizer-instances", since="0.12"),
        switch("parallel.dp_outermost", "use-tp-pp-dp-mapping"),
        switch_off("parallel.gloo", "disable-gloo-process-groups", since="0.12"),
    )


def communication() -> tuple[Row, ...]:
    """Return the rows of the communication libraries."""
    prefix = "parallel.communication."
    return (
        chosen(f"{prefix}backend", "distributed-backend", {"nccl": "nccl", "gloo": "gloo"}),
        chosen(
            f"{prefix}pipeline_backend",
            "pipeline-model-parallel-comm-backend",
            {"nccl": "nccl", "ucc": "ucc"},
            since="0.12",
        ),
        when_set(f"{prefix}nccl_config", "nccl-communicator-config-path"),
        switch(f"{prefix}ring_exchange_p2p", "use-ring-exchange-p2p"),
    )


UNSUPPORTED: Mapping[str, Gap] = {
    "parallel.cp_window": warning("Megatron's ring has one level", 1, works=("parallel.cp_window=1",)),
    "parallel.cp_mask_type": Gap(
        why="attention of GPT models is causal", neutral=("causal",), works=("parallel.cp_mask_type=causal",)
    ),
    "parallel.noop_layers": Gap(
        why="empty layers exist on Ascend only",
        works=("parallel.first_stage_layers=…", "parallel.last_stage_layers=…", "parallel.layout=…"),
    ),
    "parallel.tp_2d_x": Gap(why="2-D tensor parallelism exists on Ascend only", neutral=(1,)),
    "parallel.tp_2d_y": Gap(why="2-D tensor parallelism exists on Ascend only", neutral=(1,)),
}
CAME_LATER: Mapping[str, Gap] = {"parallel.layout": came(why="layouts came with core {since}")}
BEFORE_0_12: Mapping[str, Gap] = {
    "parallel.communication.pipeline_backend": added_in_0_9("nccl", severity="warning"),
}
