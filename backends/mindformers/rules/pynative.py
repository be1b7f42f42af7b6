"""Settings that MindFormers 2.x's pynative trainer rejects; the launcher writes static graph files, but reads both."""

from typing import Any

from backends.mindformers.rules.terms import BACKENDS, PYNATIVE, layers_of, whole
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import checked, declare
from launcher.syntax import is_count

_P = "parallelism."
_DIMS = "mindformers 2.1.0 pynative/distributed/parallel_dims.py"
_CONFIG = "mindformers 2.1.0 pynative/config/config.py"
_PIPELINE = "mindformers 2.1.0 pynative/distributed/pipeline_parallel.py"
_CONTEXT = "mindformers 2.1.0 pynative/distributed/context_parallel.py"
_RECOMPUTE = "mindformers 2.1.0 pynative/distributed/activation_checkpoint.py"


def _size(context: RuleContext, name: str) -> int:
    value = context[_P + name]
    return value if whole(value) and value > 0 else 1


def _ranks(context: RuleContext) -> int:
    return _size(context, "tensor_parallel") * _size(context, "pipeline_parallel") * _size(context, "context_parallel")


def _shards(context: RuleContext) -> int:
    """Return the data-parallel shard size; -1 in the file derives it from the world size."""
    value = context[_P + "data_parallel_shard"]
    if whole(value) and value > 0:
        return int(value)
    return max(1, context.job.cluster.world_size // (_ranks(context) * _size(context, "data_parallel_replicate")))


def _world(context: RuleContext) -> Any:
    made, world = (
        _shards(context) * _size(context, "data_parallel_replicate") * _ranks(context),
        context.job.cluster.world_size,
    )
    return made != world and f"dp_replicate × dp_shard × cp × tp × pp = {made}, but there are {world} devices"


def _batch(context: RuleContext) -> Any:
    size, local = context["training.global_batch_size"] or 1, context["training.local_batch_size"] or 1
    dp = _shards(context) * _size(context, "data_parallel_replicate")
    return size % (dp * local) and f"global_batch_size {size} is not a multiple of dp {dp} × local_batch_size {local}"


def _experts(context: RuleContext) -> Any:
    ep, ranks = (
        _size(context, "expert_parallel"),
        _shards(context) * _size(context, "context_parallel") * _size(context, "tensor_parallel"),
    )
    return ranks % ep and f"ep {ep} does not divide dp_shard × cp × tp = {ranks}"


def _split(context: RuleContext) -> Any:
    pp, split = _size(context, "pipeline_parallel"), context[_P + "pipeline_parallel_layers_per_stage"]
    chunks, layers = _size(context, "pipeline_parallel_interleave_num"), layers_of(context)
    if pp == 1:
        return None
    if split is None:
        return "pipeline_parallel_layers_per_stage must be auto or a list with the layers of each stage, not null"
    if split == "auto":
        return (
            layers is not None
            and layers % (pp * chunks)
            and f"pipeline_parallel_layers_per_stage auto: {layers} layers are not divisible by pp {pp} × "
            f"{chunks} chunks"
        )
    return (
        isinstance(split, (list, tuple))
        and len(split) != pp
        and f"pipeline_parallel_layers_per_stage has {len(split)} stages, but pp is {pp}"
    )


def _gaps(context: RuleContext) -> Any:
    """Check for layers that are listed twice or missing, which the trainer accepts."""
    split, layers = context[_P + "pipeline_parallel_layers_per_stage"], layers_of(context)
    if not isinstance(split, (list, tuple)) or layers is None:
        return None
    named = [layer for part in split for layer in _layers_of(part)]
    return (
        sorted(named) != list(range(layers))
        and "pipeline_parallel_layers_per_stage lists layers twice or omits some, which MindFormers does not check"
    )


def _layers_of(part: Any) -> list[int]:
    if isinstance(part, (list, tuple)):
        return [layer for item in part for layer in _layers_of(item)]
    found: list[int] = []
    for piece in str(part).split(","):
        first, _, last = piece.partition("-")
        if is_count(first.strip()):
            found.extend(range(int(first), int(last or first) + 1))
    return found


def _schedule(context: RuleContext) -> Any:
    name, chunks = context[_P + "pipeline_parallel_schedule"], _size(context, "pipeline_parallel_interleave_num")
    wanted = "interleaved_1f1b" if chunks > 1 else "1f1b"
    known = name in (None, "1f1b", "interleaved_1f1b") and _size(context, "pipeline_parallel") > 1
    return (
        known
        and (name or "1f1b") != wanted
        and f"pipeline_parallel_schedule {name or '1f1b'} with {chunks} chunks: use {wanted}"
    )


def _context(context: RuleContext) -> Any:
    cp, method, degree = (
        _size(context, "context_parallel"),
        context[_P + "context_parallel_method"],
        context[_P + "ulysses_degree_in_cp"],
    )
    if cp == 1:
        return None
    if method not in (None, "colossal", "ulysses", "hybrid"):
        return f"context_parallel_method {method}: supported are colossal, ulysses, hybrid"
    if method == "ulysses" and degree not in (None, cp):
        return f"ulysses_degree_in_cp {degree} must be cp {cp}"
    if method == "hybrid" and not (whole(degree) and 1 < degree < cp and cp % degree == 0):
        return f"hybrid: ulysses_degree_in_cp {degree} must be above 1, below cp {cp}, and divide it"
    length = context.job.batch.seq_length
    return length is not None and length % cp and f"seq_length {length} is not a multiple of cp {cp}"


def _recompute(context: RuleContext) -> Any:
    mode, layers = context["recompute.mode"], context["recompute.full_recompute_layer"]
    if mode not in (None, "None", "full", "select"):
        return f"recompute.mode {mode} must be None, full or select"
    if mode == "full" and not layers:
        return "recompute.mode full needs recompute.full_recompute_layer"
    numbers = [layer for layer in layers or () if whole(layer)]
    return numbers != sorted(set(numbers)) and "recompute.full_recompute_layer must be in ascending order"


# fmt: off
_TABLE = (
    checked("MF-PY-WORLD", _world,
            "Replicas, shards and the other sizes use every device.", f"{_DIMS}:128; trainer/trainer.py:575",
            flags=(_P + "data_parallel_shard", _P + "tensor_parallel", _P + "pipeline_parallel"),
            since="1.9", fields=("backend.args",),
            reads="job.cluster.world_size parallelism.context_parallel parallelism.data_parallel_replicate"),
    checked("MF-PY-BATCH", _batch,
            "The global batch is whole local batches on every data-parallel rank.",
            "mindformers 2.1.0 pynative/trainer/trainer.py:598",
            flags=("training.global_batch_size", "training.local_batch_size"), since="1.9", fields=("backend.args",),
            reads="parallelism.data_parallel_shard job.cluster.world_size parallelism.tensor_parallel "
            "parallelism.pipeline_parallel parallelism.context_parallel parallelism.data_parallel_replicate"),
    checked("MF-PY-SP",
            lambda context: _size(context, "tensor_parallel") > 1 and context[_P + "sequence_parallel"] is not True,
            "Tensor parallelism needs sequence parallelism.", f"{_CONFIG}:559",
            flags=(_P + "sequence_parallel", _P + "tensor_parallel"), fields=("backend.args",),
            message="parallelism.tensor_parallel above 1 needs sequence_parallel true"),
    checked("MF-PY-EXPERTS", _experts,
            "Experts are spread over shards, context- and tensor-parallel ranks.", f"{_DIMS}:142",
            flags=(_P + "expert_parallel",), since="1.9", fields=("backend.args",),
            reads="parallelism.data_parallel_shard "
            "job.cluster.world_size parallelism.tensor_parallel parallelism.pipeline_parallel "
            "parallelism.context_parallel parallelism.data_parallel_replicate"),
    checked("MF-PY-DENSE-SHARD",
            lambda context: (_shards(context) * _size(context, "context_parallel")
                             % _size(context, "dense_fsdp_shard_size")),
            "The shard size of dense weights divides dp_shard x cp.", f"{_CONFIG}:465",
            flags=(_P + "dense_fsdp_shard_size",), fields=("backend.args",), reads="parallelism.data_parallel_shard "
            "job.cluster.world_size parallelism.tensor_parallel parallelism.pipeline_parallel "
            "parallelism.context_parallel parallelism.data_parallel_replicate",
            message="dense_fsdp_shard_size does not divide dp_shard × cp"),
    checked("MF-PY-STAGES", _split,
            "Layers divide over stages, or are named for each of them.", f"{_PIPELINE}:158-198",
            flags=(_P + "pipeline_parallel_layers_per_stage", _P + "pipeline_parallel"), fields=("backend.args",),
            reads="parallelism.pipeline_parallel_interleave_num @layers"),
    checked("MF-PY-STAGES-COVER", _gaps,
            "Named layers must be all layers once; upstream accepts others and trains another model.",
            f"{_PIPELINE}:178-188; seen: ['0-9','7-15'] is accepted",
            flags=(_P + "pipeline_parallel_layers_per_stage",), fields=("backend.args",), reads="@layers"),
    checked("MF-PY-SCHEDULE", _schedule,
            "Several chunks and the interleaved schedule require each other.", f"{_PIPELINE}:392-399",
            flags=(_P + "pipeline_parallel_schedule", _P + "pipeline_parallel_interleave_num"),
            fields=("backend.args",), reads="parallelism.pipeline_parallel"),
    checked("MF-PY-CONTEXT", _context,
            "Context parallelism: the method, its degree and the sequence fit the size.", f"{_CONTEXT}:322-371",
            flags=(_P + "context_parallel", _P + "context_parallel_method", _P + "ulysses_degree_in_cp"),
            fields=("backend.args",), reads="job.batch.seq_length"),
    Rule(
        id="MF-PY-CONTEXT-CAUSAL",
        doc="Context parallelism supports the causal mask only.",
        source=f"{_CONTEXT}:345",
        flags=(_P + "context_parallel_mask_type",),
        fields=("backend.args",),
        check=lambda context: (
            _size(context, "context_parallel") > 1
            and context[_P + "context_parallel_mask_type"] not in (None, "causal")
        ),
        reads="parallelism.context_parallel",
        message="context_parallel_mask_type must be causal with cp above 1",
    ),
    checked("MF-PY-RECOMPUTE", _recompute,
            "Recompute is None (as text), full with layers, or select.",
            f"{_RECOMPUTE}:239-355; pynative/config/config.py:889",
            flags=("recompute.mode", "recompute.full_recompute_layer"), fields=("backend.args",)),
    checked("MF-PY-SWAP-PP", lambda context: _size(context, "pipeline_parallel") > 1,
            "Swapping does not work with pipeline stages.", f"{_RECOMPUTE}:1222", when="swap.enable=True",
            flags=("swap.enable", _P + "pipeline_parallel"), fields=("backend.args",),
            message="swap.enable true needs pipeline_parallel 1"),
    checked("MF-PY-DEREDUNDANCY",
            lambda context: _size(context, "expert_parallel") < (context[_P + "npu_nums_per_device"] or 8),
            "The alltoall_deredundancy dispatcher distributes experts over whole nodes.", f"{_CONFIG}:565",
            when=f"{_P}moe_token_dispatcher_type=alltoall_deredundancy",
            flags=(_P + "moe_token_dispatcher_type", _P + "expert_parallel"), fields=("backend.args",),
            reads="parallelism.npu_nums_per_device",
            message="alltoall_deredundancy needs expert_parallel of at least the devices per node"),
)
# fmt: on

declare(_TABLE, backends=BACKENDS, when=PYNATIVE, since="2.0")
