"""Rows of parallelism: dimensions, batch, pipeline split, sequence and context parallelism, optimizer sharding."""

import math
from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.batch_arithmetic import INTERLEAVE, checked_data_parallel, micro_batches
from backends.mindformers.mapping.graph import parallel_mode_rows
from backends.mindformers.mapping.stages import (
    Matrix,
    canonical_split,
    extra_layers,
    layers_per_chunk,
    matrix_of,
    offset_of,
)
from backends.mindformers.mapping.support import (
    drop,
    first_written,
    is_file,
    is_legacy,
    key,
    legacy_file,
    require,
    uses_flash,
)
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, same

DP, TP = "parallel_config.data_parallel", "parallel_config.model_parallel"
PP, CP = "parallel_config.pipeline_stage", "parallel_config.context_parallel"
MICRO_BATCHES, ACCUMULATION = "parallel_config.micro_batch_num", "runner_config.gradient_accumulation_steps"
VPP = (key("pp_interleave_num"), key("virtual_pipeline_model_parallel_size"))
OFFSET = key("offset")
LAYERS = tuple(key(name) for name in ("num_hidden_layers", "num_layers", "n_layer"))
MTP = tuple(key(name) for name in ("num_nextn_predict_layers", "mtp_num_layers", "mtp_depth"))
INTERLEAVED, SCHEDULER = "parallel.pipeline_config.pipeline_interleave", "parallel.pipeline_config.pipeline_scheduler"
_DEVICES_PER_NODE = 8


def _data_parallel() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield DP, checked_data_parallel(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        if not any(view.has(flag) for flag in (DP, TP, PP, CP)):
            return {}
        dp, world = view.take(DP, 1), math.prod(view.number(flag, 1) for flag in (DP, TP, PP, CP))
        nodes, left = divmod(world, _DEVICES_PER_NODE)
        whole = nodes > 0 and left == 0
        return {
            "parallel.dp": dp,
            "cluster.nodes": nodes if whole else 1,
            "cluster.devices_per_node": _DEVICES_PER_NODE if whole else world,
        }

    note = "derived: world size / (tp pp cp); read back, it gives the world size in nodes of 8"
    return computed(("parallel.dp", "cluster.nodes", "cluster.devices_per_node"), (DP,), emit, read, note=note)


def _sequence_parallel() -> Row:
    flag = "parallel_config.use_seq_parallel"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        # With tp 1 there is nothing to split, and MindFormers rejects the switch (transformer_config.py:2281 @2.1.0).
        yield flag, bool(job.parallel.sequence_parallel) and job.parallel.tp > 1

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"parallel.sequence_parallel": view.take(flag)} if view.has(flag) else {}

    return Row(fields=("parallel.sequence_parallel",), flags=(flag,), emit=emit, read=read)


def _micro_batches() -> Row:
    flags = (MICRO_BATCHES, ACCUMULATION)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        count = micro_batches(job)
        if count is not None:
            yield MICRO_BATCHES, count if job.parallel.pp > 1 else 1
            yield ACCUMULATION, count if job.parallel.pp == 1 else 1

    def read(view: NativeView) -> Mapping[str, Value]:
        if not any(view.has(flag) for flag in (*flags, "runner_config.batch_size", DP)):
            return {}
        pipelined, accumulated = view.take(MICRO_BATCHES, 1), view.take(ACCUMULATION, 1)
        count = pipelined if view.peek(PP, 1) > 1 else accumulated
        factors = [view.peek(name, 1) for name in ("runner_config.batch_size", DP, INTERLEAVE)]
        if min(factors) < 1:  # refused by its own name
            return {}
        return {"batch.global_batch_size": math.prod(factors) * count}

    note = "global batch / (batch_size dp): the factor that does not apply is 1, as MindFormers resets it (S2, S3)"
    return computed(("batch.global_batch_size",), flags, emit, read, note=note)


def _interleave() -> Row:
    path = "batch.interleave"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if INTERLEAVE not in job.backend.passthrough:
            yield INTERLEAVE, job.batch.interleave or 1

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(INTERLEAVE)} if isinstance(view.peek(INTERLEAVE), int) and view.has(INTERLEAVE) else {}

    return Row(fields=(path,), flags=(INTERLEAVE,), emit=emit, read=read, note="it divides the micro-batches")


def _vocabulary() -> Row:
    flag, path = "parallel_config.vocab_emb_dp", "parallel.split_vocabulary"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.parallel.split_vocabulary
        why = "mcore always splits it: it resets vocab_emb_dp to false, with a warning (transformer_config.py:421)"
        require(wanted is not False or is_legacy(job), path, why, f"{path}=true")
        yield flag, wanted is False

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag) and not (legacy_file(view) and is_file(view)):
            return {}
        whole = view.take(flag, True)
        return {path: not whole} if legacy_file(view) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="a file without it does not split it")


def _split(version: str) -> Row:
    fields = ("layout", "first_stage_layers", "last_stage_layers", "noop_layers", "account_for_embedding")
    paths = tuple(f"parallel.{name}" for name in (*fields, "account_for_loss"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        # An offset given by the user overrides the fields of the split and is checked by the rules.
        matrix = None if OFFSET in job.backend.passthrough else layers_per_chunk(job)
        if matrix is None:
            return
        if job.parallel.schedule == "dualpipev":
            ends = (job.parallel.first_stage_layers, job.parallel.last_stage_layers)
            why = "with dualpipev the first stage has both ends of the model"
            require(ends == (None, None), "parallel.first_stage_layers", why, "parallel.layout=TEXT")
            matrix = _by_stage(matrix)
        chunks = [count for row in matrix for count in row]
        why = f"{chunks} layers: only the first and the last chunk may be empty (LayerSetting, utils.py:603 @2.1.0)"
        is_valid = all(count >= 0 for count in chunks) and all(count >= 1 for count in chunks[1:-1])
        require(is_valid, paths[0], why)
        yield OFFSET, offset_of(matrix, extra_layers(job, version))

    def read(view: NativeView) -> Mapping[str, Value]:
        offset = view.peek(OFFSET)
        given = first_written(view, LAYERS) or next((flag for flag in LAYERS if flag in view.values), None)
        if offset == 0 or offset is None:
            drop(view, {OFFSET: 0})
            return {}
        extra = _mtp_layers(view) if version == "1.6.0" or legacy_file(view) else 0
        layers = view.peek(given) if given else None
        if not isinstance(layers, int):
            return {}
        matrix = matrix_of(offset, layers + extra, view.peek(PP, 1), effective_vpp(view))
        if matrix is None:
            return {}
        view.take(OFFSET)
        if view.peek(SCHEDULER) == _SCHEDULES["dualpipev"]:
            matrix = _by_stage(matrix)
        rows = [list(row) for row in matrix]
        rows[-1][-1] -= extra
        return canonical_split(tuple(tuple(row) for row in rows), _mtp_layers(view))

    note = "one figure for each chunk: a single row would be broadcast over the chunks after its sum was checked (S9)"
    return computed((*paths, "model.num_hidden_layers"), (OFFSET,), emit, read, note=note)


def _by_stage(matrix: Matrix) -> Matrix:
    """Return layers by chunk and stage where they are in the model's order, and back.

    The second chunks of zero_bubble_v run from the last stage to the first (training_graph/transformer/utils.py:167).
    """
    return (matrix[0], *(row[::-1] for row in matrix[1:]))


def _mtp_layers(view: NativeView) -> int:
    return next((int(view.values[flag]) for flag in MTP if isinstance(view.values.get(flag), int)), 0)


def effective_vpp(view: NativeView) -> int:
    """Return the number of chunks per stage that MindFormers builds: one unless pipeline_interleave is on (S4)."""
    if not view.peek(INTERLEAVED):
        return 1
    return next((int(view.values[flag]) for flag in VPP if isinstance(view.values.get(flag), int)), 1)


def _virtual_pipeline() -> Row:
    path, scheduler = "parallel.vpp", "parallel.schedule"
    flags = (*VPP, INTERLEAVED, SCHEDULER)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        vpp, schedule = job.parallel.vpp, job.parallel.schedule
        if vpp is not None:
            why = "chunks need pipeline stages: with pp 1 MindFormers ignores them"
            require(vpp == 1 or job.parallel.pp > 1, path, why, f"{path}=1")
            yield VPP[0], vpp
        if (vpp or 1) > 1 or schedule is not None:
            yield INTERLEAVED, True
            if SCHEDULER not in job.backend.passthrough:
                yield SCHEDULER, _SCHEDULES[schedule or "1f1b"]

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, VPP)
        found: dict[str, Value] = {}
        vpp = view.take(given) if given is not None else 1
        on = bool(view.peek(INTERLEAVED))
        if given is not None and (vpp == 1 or on):
            found[path] = vpp
        if on and view.peek(SCHEDULER, "1f1b") in _SCHEDULES.values():
            view.take(INTERLEAVED)
            written = view.take(SCHEDULER, "1f1b")
            wanted = next(name for name, native in _SCHEDULES.items() if native == written)
            if wanted != "1f1b" or vpp == 1:
                found[scheduler] = wanted
        return found

    note = "without pipeline_interleave the chunks would be ignored (S4), and both keys are required together"
    return Row(fields=(path, scheduler), flags=flags, emit=emit, read=read, note=note)


# MindSpore's zero_bubble_v runs the phases of DualPipeV (pipeline_transformer/zero_bubble_v.cc).
_SCHEDULES = {
    **{name: name for name in ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp")},
    "dualpipev": "zero_bubble_v",
}
_ALGORITHM, _DEGREE = "parallel_config.context_parallel_algo", "parallel_config.ulysses_degree_in_cp"
_RING = key("use_ring_attention")
# Native algorithm by canonical name; `megatron` is ring attention, a switch in addition to colossalai_cp.
_ALGORITHMS = {
    "allgather": "colossalai_cp",
    "megatron": "colossalai_cp",
    "ulysses": "ulysses_cp",
    "hybrid": "hybrid_cp",
}


def _check_algorithm(job: Job, version: str) -> None:
    parallel, path = job.parallel, "parallel.cp_algorithm"
    name = parallel.cp_algorithm
    works = (f"{path}=megatron", f"{path}=allgather")
    require(name in (None, *_ALGORITHMS), path, f"it knows {', '.join(_ALGORITHMS)}", *works)
    why = "version 1.6's static graph always gathers keys and values (attention.py:145: cp_ds = 1)"
    require(version != "1.6.0" or name not in ("ulysses", "hybrid"), path, why, *works)
    degree, cp = parallel.ulysses_degree, parallel.cp
    if name == "hybrid":
        path, size = "parallel.ulysses_degree", f"parallel.ulysses_degree={cp}"
        require(degree is not None, path, "hybrid needs the size of its all-to-all part", size)
        require(degree is None or cp % degree == 0, path, f"cp {cp} is not a multiple of it", size)
    why = "context parallelism needs flash attention (transformer_config.py:2365 @2.1.0)"
    require(uses_flash(job), "kernels.attention_backend", why, "kernels.attention_backend=flash")


def _context_parallel(version: str) -> Row:
    paths = ("parallel.cp_algorithm", "parallel.ulysses_degree")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        parallel = job.parallel
        name = parallel.cp_algorithm
        if parallel.cp == 1:
            return
        _check_algorithm(job, version)
        if name is None:
            return
        yield _ALGORITHM, _ALGORITHMS[name]
        if name == "ulysses":
            # The mcore graph reads only the degree: ulysses_cp alone would all-gather (attention.py:165 @2.1.0).
            yield _DEGREE, parallel.cp
        if name == "hybrid":
            yield _DEGREE, parallel.ulysses_degree
        if name in ("megatron", "allgather"):
            yield _RING, name == "megatron"

    def read(view: NativeView) -> Mapping[str, Value]:
        cp = view.peek(CP, 1)
        if cp == 1 or not (view.has(_ALGORITHM) or view.has(_RING)):
            return {}
        written, degree = view.take(_ALGORITHM, "colossalai_cp"), view.take(_DEGREE, 1)
        ring = view.take(_RING, False)
        if version == "1.6.0" or degree == 1 or written == "colossalai_cp":
            return {paths[0]: "megatron" if ring else "allgather"}
        if degree == cp and written == "ulysses_cp":
            return {paths[0]: "ulysses"}
        return {paths[0]: "hybrid", paths[1]: degree}

    note = "ulysses gets its degree too: the mcore graph reads nothing else; ring attention is a switch of the model"
    return Row(fields=paths, flags=(_ALGORITHM, _DEGREE, _RING), emit=emit, read=read, note=note)


_SHARDED = "parallel.enable_parallel_optimizer"
_GRADIENTS = "parallel.parallel_optimizer_config.gradient_accumulation_shard"
_THRESHOLD = "parallel.parallel_optimizer_config.parallel_optimizer_threshold"


def _optimizer_sharding() -> Row:
    paths = ("parallel.distributed_optimizer", "parallel.zero_stage")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        sharded, stage = job.parallel.distributed_optimizer, job.parallel.zero_stage
        why = "MindFormers shards optimizer states (1) and accumulated gradients (2)"
        require(stage is None or stage <= 2, paths[1], why, f"{paths[1]}=2")
        contradiction = sharded is False and bool(stage)
        require(not contradiction, paths[1], "parallel.distributed_optimizer=false is the opposite")
        if sharded is None and stage is None:
            return
        on = bool(sharded) or bool(stage)
        yield _SHARDED, on
        if on:
            yield _GRADIENTS, stage == 2
            yield _THRESHOLD, 64

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(_SHARDED):
            return {}
        on = view.take(_SHARDED)
        drop(view, {_THRESHOLD: 64})
        if not on or not view.has(_GRADIENTS):
            return {paths[0]: on}
        return {paths[0]: True, paths[1]: 2} if view.take(_GRADIENTS) else {paths[0]: True}

    return Row(fields=paths, flags=(_SHARDED, _GRADIENTS, _THRESHOLD), emit=emit, read=read)


def _expert_tensor() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        etp = job.parallel.etp
        why = "its experts are split over ep devices and by nothing else (training_graph/transformer/moe/ffn.py:190)"
        if etp not in (None, 1):
            raise Unsupported("parallel.etp", why, ("parallel.etp=1",))
        return ()

    def read(view: NativeView) -> Mapping[str, Value]:
        # Set explicitly, because other backends split experts over tp by default.
        return {"parallel.etp": 1} if view.peek("parallel_config.expert_parallel", 1) > 1 else {}

    return Row(fields=("parallel.etp",), flags=(), emit=emit, read=read, note="1 is what MindFormers does")


def parallel_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of parallelism in the sections parallel_config and parallel."""
    return (
        _data_parallel(),
        same("parallel.tp", TP),
        same("parallel.pp", PP),
        same("parallel.cp", CP),
        _context_parallel(version),
        same(
            "parallel.ep", "parallel_config.expert_parallel", when=lambda job: job.model.is_moe or job.parallel.ep > 1
        ),
        _expert_tensor(),
        _micro_batches(),
        _sequence_parallel(),
        _vocabulary(),
        _interleave(),
        *parallel_mode_rows(),
        _optimizer_sharding(),
    )


def stage_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of the pipeline split in the model section."""
    return (_split(version), _virtual_pipeline())


def batch_rows() -> tuple[Row, ...]:
    """Return the rows of the batch size in the section runner_config."""
    return (same("batch.micro_batch_size", "runner_config.batch_size"),)
