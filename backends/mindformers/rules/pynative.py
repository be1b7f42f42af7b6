"""Settings that MindFormers 2.x's pynative trainer rejects; the launcher writes static graph files, but reads both."""

from typing import Any

from backends.mindformers.rules.view import MindRule, View, declare, whole

_P = "parallelism."
_DIMS = "mindformers 2.1.0 pynative/distributed/parallel_dims.py"
_CONFIG = "mindformers 2.1.0 pynative/config/config.py"
_PIPELINE = "mindformers 2.1.0 pynative/distributed/pipeline_parallel.py"
_CONTEXT = "mindformers 2.1.0 pynative/distributed/context_parallel.py"
_RECOMPUTE = "mindformers 2.1.0 pynative/distributed/activation_checkpoint.py"


def _size(v: View, name: str) -> int:
    value = v[_P + name]
    return value if whole(value) and value > 0 else 1


def _ranks(v: View) -> int:
    return _size(v, "tensor_parallel") * _size(v, "pipeline_parallel") * _size(v, "context_parallel")


def _shards(v: View) -> int:
    """Return the data-parallel shard size; -1 in the file derives it from the world size."""
    value = v[_P + "data_parallel_shard"]
    if whole(value) and value > 0:
        return int(value)
    return max(1, v.job.cluster.world_size // (_ranks(v) * _size(v, "data_parallel_replicate")))


def _world(v: View) -> Any:
    made, world = _shards(v) * _size(v, "data_parallel_replicate") * _ranks(v), v.job.cluster.world_size
    return made != world and f"dp_replicate·dp_shard·cp·tp·pp = {made}, but there are {world} devices"


def _batch(v: View) -> Any:
    size, local = v["training.global_batch_size"] or 1, v["training.local_batch_size"] or 1
    dp = _shards(v) * _size(v, "data_parallel_replicate")
    return size % (dp * local) and f"global_batch_size {size} is not a multiple of dp {dp} × local_batch_size {local}"


def _experts(v: View) -> Any:
    ep, ranks = _size(v, "expert_parallel"), _shards(v) * _size(v, "context_parallel") * _size(v, "tensor_parallel")
    return ranks % ep and f"ep {ep} does not divide dp_shard·cp·tp = {ranks}"


def _split(v: View) -> Any:
    pp, split = _size(v, "pipeline_parallel"), v[_P + "pipeline_parallel_layers_per_stage"]
    chunks, layers = _size(v, "pipeline_parallel_interleave_num"), v.layers
    if pp == 1:
        return None
    if split is None:
        return "pipeline_parallel_layers_per_stage null: say auto or the layers of each stage"
    if split == "auto":
        return (
            layers is not None and layers % (pp * chunks) and f"auto: {layers} layers on {pp} stages × {chunks} chunks"
        )
    return isinstance(split, (list, tuple)) and len(split) != pp and f"layers of {len(split)} stages, pp is {pp}"


def _gaps(v: View) -> Any:
    """Check for layers that are listed twice or missing, which the trainer accepts."""
    split = v[_P + "pipeline_parallel_layers_per_stage"]
    if not isinstance(split, (list, tuple)) or v.layers is None:
        return None
    named = [layer for part in split for layer in _layers_of(part)]
    return sorted(named) != list(range(v.layers)) and "stages name layers twice, or leave some out: nothing checks it"


def _layers_of(part: Any) -> list[int]:
    if isinstance(part, (list, tuple)):
        return [layer for item in part for layer in _layers_of(item)]
    found: list[int] = []
    for piece in str(part).split(","):
        first, _, last = piece.partition("-")
        if first.strip().isdigit():
            found.extend(range(int(first), int(last or first) + 1))
    return found


def _schedule(v: View) -> Any:
    name, chunks = v[_P + "pipeline_parallel_schedule"], _size(v, "pipeline_parallel_interleave_num")
    wanted = "interleaved_1f1b" if chunks > 1 else "1f1b"
    known = name in (None, "1f1b", "interleaved_1f1b") and _size(v, "pipeline_parallel") > 1
    return known and (name or "1f1b") != wanted and f"schedule {name or '1f1b'} with {chunks} chunks: use {wanted}"


def _context(v: View) -> Any:
    cp, method, degree = _size(v, "context_parallel"), v[_P + "context_parallel_method"], v[_P + "ulysses_degree_in_cp"]
    if cp == 1:
        return None
    if method not in (None, "colossal", "ulysses", "hybrid"):
        return f"context_parallel_method {method}: known are colossal, ulysses, hybrid"
    if method == "ulysses" and degree not in (None, cp):
        return f"ulysses degree {degree} must be cp {cp}"
    if method == "hybrid" and not (whole(degree) and 1 < degree < cp and cp % degree == 0):
        return f"hybrid: ulysses degree {degree} must lie between 1 and cp {cp} and divide it"
    length = v.job.batch.seq_length
    return length is not None and length % cp and f"seq_length {length} is not a multiple of cp {cp}"


def _recompute(v: View) -> Any:
    mode, layers = v["recompute.mode"], v["recompute.full_recompute_layer"]
    if mode not in (None, "None", "full", "select"):
        return f"recompute.mode {mode}: None, full or select"
    if mode == "full" and not layers:
        return "recompute.mode full needs full_recompute_layer"
    numbers = [layer for layer in layers or () if whole(layer)]
    return numbers != sorted(set(numbers)) and "full_recompute_layer must ascend"


def _pynative(id: str, doc: str, source: str, keys: tuple[str, ...], when: Any, say: str = "", **row: Any) -> MindRule:
    return MindRule(
        id=id,
        doc=doc,
        source=source,
        keys=keys,
        when=when,
        say=say,
        since="2.0",
        fields=("backend.args",),
        **row,
    )


PYNATIVE = (
    _pynative(
        "MF-PY-WORLD",
        "Replicas, shards and the other sizes use every device.",
        f"{_DIMS}:128; trainer/trainer.py:575",
        (_P + "data_parallel_shard", _P + "tensor_parallel", _P + "pipeline_parallel"),
        _world,
    ),
    _pynative(
        "MF-PY-BATCH",
        "The global batch is whole local batches on every data-parallel rank.",
        "mindformers 2.1.0 pynative/trainer/trainer.py:598",
        ("training.global_batch_size", "training.local_batch_size"),
        _batch,
    ),
    _pynative(
        "MF-PY-SP",
        "Tensor parallelism needs sequence parallelism.",
        f"{_CONFIG}:559",
        (_P + "sequence_parallel", _P + "tensor_parallel"),
        lambda v: _size(v, "tensor_parallel") > 1 and v[_P + "sequence_parallel"] is not True,
        "parallelism.tensor_parallel above 1 needs sequence_parallel true",
    ),
    _pynative(
        "MF-PY-EXPERTS",
        "Experts are spread over shards, context- and tensor-parallel ranks.",
        f"{_DIMS}:142",
        (_P + "expert_parallel",),
        _experts,
    ),
    _pynative(
        "MF-PY-DENSE-SHARD",
        "Dense weights are sharded over a part of the shards.",
        f"{_CONFIG}:465",
        (_P + "dense_fsdp_shard_size",),
        lambda v: (_shards(v) * _size(v, "context_parallel")) % _size(v, "dense_fsdp_shard_size"),
        "dense_fsdp_shard_size does not divide dp_shard·cp",
    ),
    _pynative(
        "MF-PY-STAGES",
        "Layers divide over stages, or are named for each of them.",
        f"{_PIPELINE}:158-198",
        (_P + "pipeline_parallel_layers_per_stage", _P + "pipeline_parallel"),
        _split,
    ),
    _pynative(
        "MF-PY-STAGES-COVER",
        "Named layers must be all layers once; upstream accepts others and trains another model.",
        f"{_PIPELINE}:178-188; seen: ['0-9','7-15'] is accepted",
        (_P + "pipeline_parallel_layers_per_stage",),
        _gaps,
    ),
    _pynative(
        "MF-PY-SCHEDULE",
        "Chunks and their schedule go together.",
        f"{_PIPELINE}:392-399",
        (_P + "pipeline_parallel_schedule", _P + "pipeline_parallel_interleave_num"),
        _schedule,
    ),
    _pynative(
        "MF-PY-CONTEXT",
        "Context parallelism: the method, its degree and the sequence fit the size.",
        f"{_CONTEXT}:322-371",
        (_P + "context_parallel", _P + "context_parallel_method", _P + "ulysses_degree_in_cp"),
        _context,
    ),
    _pynative(
        "MF-PY-CONTEXT-CAUSAL",
        "Context parallelism masks causally.",
        f"{_CONTEXT}:345",
        (_P + "context_parallel_mask_type",),
        lambda v: _size(v, "context_parallel") > 1 and v[_P + "context_parallel_mask_type"] not in (None, "causal"),
        "context_parallel_mask_type must be causal with cp above 1",
    ),
    _pynative(
        "MF-PY-RECOMPUTE",
        "Recompute is None (as text), full with layers, or select.",
        f"{_RECOMPUTE}:239-355; config.py:889",
        ("recompute.mode", "recompute.full_recompute_layer"),
        _recompute,
    ),
    _pynative(
        "MF-PY-SWAP-PP",
        "Swapping does not work with pipeline stages.",
        f"{_RECOMPUTE}:1222",
        ("swap.enable", _P + "pipeline_parallel"),
        lambda v: v["swap.enable"] is True and _size(v, "pipeline_parallel") > 1,
        "swap.enable true needs pipeline_parallel 1",
    ),
    _pynative(
        "MF-PY-DEREDUNDANCY",
        "The dispatcher without repeated sending spreads experts over whole nodes.",
        f"{_CONFIG}:565",
        (_P + "moe_token_dispatcher_type", _P + "expert_parallel"),
        lambda v: (
            v[_P + "moe_token_dispatcher_type"] == "alltoall_deredundency"
            and _size(v, "expert_parallel") < (v[_P + "npu_nums_per_device"] or 8)
        ),
        "alltoall_deredundency needs expert_parallel of at least the devices of a node",
    ),
)

declare(*PYNATIVE, dialects=("pynative",))
