"""Arithmetic of MindSpeed-LLM: chunks, layers per stage, empty layers, dense layers, micro-batches, groups."""

from collections.abc import Iterator, Sequence

from backends.megatron_lm.rules.sizes import uneven_stages
from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, OLD_ARGUMENTS, SINCE
from launcher.rules.registry import RuleContext, Violation, lift, rule
from launcher.rules.sanity_checks import layout_chunks
from launcher.rules.table import declare, never
from launcher.syntax import is_count

_CHUNK = "num-layers-per-virtual-pipeline-stage"
_STAGES = "pipeline-model-parallel-size"
_TP, _EP = "tensor-model-parallel-size", "expert-model-parallel-size"
_NOOP = "noop-layers"
_FB = f"{FEATURES}/moe/fb_overlap.py"
_BASIC = f"{LLM}/megatron_basic/training_basic.py"
_DUAL = f"{FEATURES}/pipeline_parallel/dualpipev_feature.py"

# fmt: off
declare((
    never("MS-LAYOUT-LAYERS", "pipeline-model-parallel-layout & num-layers%{pipeline-model-parallel-size}",
          "Even with a layout, layers must be divisible by stages: Megatron-LM checks it for every job.",
          "Megatron-LM core_v0.12.1 training/arguments.py:490", since=SINCE,
          message="num_layers {num-layers} is not divisible by pp {pipeline-model-parallel-size}, which is checked "
          "even with an explicit layout"),
    never("MS-VPP-WHOLE", "pipeline-model-parallel-size>1 & "
          "num-layers={num-layers-per-virtual-pipeline-stage}*{pipeline-model-parallel-size}",
          "A chunk of a whole stage is not interleaving and is rejected: omit the argument.",
          f"{FEATURES}/megatron_basic/megatron_basic.py:28", since="2.3", flags=(_CHUNK, _STAGES, "num-layers"),
          message="chunks of {num-layers-per-virtual-pipeline-stage} layers × pp {pipeline-model-parallel-size} = "
          "num_layers: one chunk per stage is not interleaved; remove --num-layers-per-virtual-pipeline-stage"),
    never("MS-DENSE-ALL", "first-k-dense-replace>0 & first-k-dense-replace>={num-layers}",
          "The number of dense layers is smaller than the number of layers.",
          f"{LLM}/transformer/transformer_block.py:15; {OLD_ARGUMENTS}:1133",
          message="first_k_dense_replace {first-k-dense-replace} leaves no MoE layer: num_layers is {num-layers}"),
    never("MS-DUALPIPE-LAYERS", "schedules-method=dualpipev & num-layers<2*{pipeline-model-parallel-size}",
          "The DualPipeV schedule gives every stage two chunks of the model.", f"{_DUAL}:44",
          message="num_layers {num-layers} is less than 2 × pp {pipeline-model-parallel-size}, which DualPipeV "
          "needs", flags=("schedules-method", _STAGES, "num-layers")),
    never("MS-MOE-EXTEND-EXPERTS",
          "moe-tp-extend-ep & num-experts%{tensor-model-parallel-size}*{expert-model-parallel-size}",
          "With tensor-parallel ranks as expert ranks, experts are a multiple of tp x ep.",
          f"{FEATURES}/moe/tp_extend_ep.py:23",
          message="num_experts {num-experts} is not divisible by tp {tensor-model-parallel-size} × ep "
          "{expert-model-parallel-size} (moe.tp_extend_ep)", flags=(_EP, _TP, "num-experts", "moe-tp-extend-ep")),
    never("MS-MOE-GREEDY-GROUPS", "moe-router-load-balancing-type=group_limited_greedy & "
          "moe-router-topk-scaling-factor? & moe-router-group-topk>={expert-model-parallel-size}",
          "Group-limited greedy routing uses expert-parallel ranks as groups, and selects fewer than all.",
          f"{LLM}/moe/moe_router.py:75", since=SINCE, flags=("moe-router-group-topk", _EP),
          message="topk_group {moe-router-group-topk} must be below ep {expert-model-parallel-size}, the number of "
          "groups of group_limited_greedy"),
), backends=MINDSPEED)
# fmt: on

lift("PAR-PP-LAYERS", "mindspeed", lambda context: bool(context.flag("num-layer-list")))
lift("PAR-PP-LAYERS", "mindspeed", lambda context: bool(context.flag("pipeline-num-transformer-layers")))

lift("PAR-PP-LAYERS", "mindspeed", lambda context: bool(uneven_stages(context)))


@rule(
    "MS-UNEVEN-LAYERS",
    source="megatron-core 0.12.1 transformer_config.py:825",
    reads="num-layers pipeline-model-parallel-size decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers",
    backends=MINDSPEED,
    since=SINCE,
)
def middle_stages_are_even(context: RuleContext) -> Iterator[Violation]:
    """The layers outside uneven first and last stages are spread evenly over the other stages."""
    ends = uneven_stages(context)
    rest, stages = context.number("num-layers") - sum(ends), _stages(context) - len(ends)
    if ends and stages > 0 and rest % stages:
        yield Violation(
            message=f"{rest} layers are not divisible by the {stages} middle stages",
            flags=("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", _STAGES, "num-layers"),
        )


@rule(
    "MS-UNEVEN-CHUNKS",
    source="megatron-core 0.12.1 transformer_config.py:786-840",
    reads="job.parallel.vpp pipeline-model-parallel-size num-layers decoder-first-pipeline-num-layers "
    "decoder-last-pipeline-num-layers",
    backends=MINDSPEED,
    since=SINCE,
)
def uneven_stages_have_whole_chunks(context: RuleContext) -> Iterator[Violation]:
    """Stages of unequal length are cut into the same number of chunks as the others."""
    ends, chunks = uneven_stages(context), context.job.parallel.vpp or 1
    # With more stages than two, chunks and uneven stages exclude each other (MLM-VPP-UNEVEN).
    if chunks == 1 or not ends or not _hidden_from_megatron(context):
        return
    middle, stages = context.number("num-layers") - sum(ends), _stages(context) - len(ends)
    sizes = [*ends, *([middle // stages] if stages > 0 else [])]
    for size in sizes:
        if size % chunks:
            yield Violation(
                message=f"a stage of {size} layers is not divisible by the {chunks} chunks of every stage",
                flags=("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", _CHUNK, "num-layers"),
            )


@rule(
    "MS-LAYOUT-CHUNKS",
    source="MindSpeed 26.1.0 core/pipeline_parallel/pipeline_model_parallel_layout/adaptor.py:84-92",
    reads="num-layers pipeline-model-parallel-size pipeline-model-parallel-layout "
    "num-layers-per-virtual-pipeline-stage",
    backends=MINDSPEED,
    since="26.1",
)
def a_layout_has_the_chunks_that_are_written(context: RuleContext) -> Iterator[Violation]:
    """With two stages a layout may be combined with the layers per chunk, if both give the same number of chunks."""
    layout, chunk, stages = context.flag("pipeline-model-parallel-layout"), context.number(_CHUNK, 0), _stages(context)
    if not layout or not chunk or not _hidden_from_megatron(context):
        return
    written, listed = context.number("num-layers") // stages // chunk, len(layout_chunks(str(layout))) // stages
    if written != listed:
        yield Violation(
            message=f"--{_CHUNK} {chunk} makes {written} chunks per stage, but the layout has {listed}",
            flags=("pipeline-model-parallel-layout", _CHUNK, "num-layers", _STAGES),
        )


def _hidden_from_megatron(context: RuleContext) -> bool:
    """Return whether chunks are removed before Megatron's checks, as with two stages (training_basic.py:72)."""
    return context.number(_STAGES, 1) == 2


for _id in ("MLM-VPP-UNEVEN", "MLM-VPP-UNEVEN-LAST", "MS-LAYOUT-NUM-LAYERS-PER-VIRTUAL-PIPELINE-STAGE"):
    lift(_id, "mindspeed", _hidden_from_megatron)


def _stages(context: RuleContext) -> int:
    return max(1, context.number(_STAGES, 1))


def _numbers(text: object) -> Sequence[int] | None:
    """Return the numbers of a comma-separated list; None where one is not a number."""
    parts = [part.strip() for part in str(text or "").split(",") if part.strip()]
    return [int(part) for part in parts] if all(map(is_count, parts)) else None


def _micro_batches(context: RuleContext) -> int | None:
    batch, dp = context.job.batch, context.job.parallel.dp
    if batch.global_batch_size is None:  # the parser's default: one (megatron/training/arguments.py:422 @0.12.1)
        return 1 if context.existing else None
    if not dp:
        return None
    return batch.global_batch_size // batch.micro_batch_size // dp


@rule(
    "MS-VPP-TWO",
    source=f"{_BASIC}:104; {OLD_ARGUMENTS}:1396",
    reads="num-layers-per-virtual-pipeline-stage num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def chunks_are_smaller_than_two_stages(context: RuleContext) -> Iterator[Violation]:
    """In a pipeline of two stages a chunk is smaller than a stage."""
    size, layers = context.number(_CHUNK), context.number("num-layers")
    equal = context.version != "2.1.0" and size * 2 == layers
    if _stages(context) == 2 and size and layers and size >= layers / 2 and not equal:
        yield Violation(
            message=f"chunks of {size} layers are not smaller than the {layers / 2:g} layers of a stage",
            flags=(_CHUNK, _STAGES, "num-layers"),
        )


@rule(
    "MS-LIST-LENGTH",
    source=f"{LLM}/pipeline_parallel/num_layer_list.py:28; {OLD_ARGUMENTS}:1143",
    reads="num-layer-list pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def list_names_every_stage(context: RuleContext) -> Iterator[Violation]:
    """Layers per stage are given for every stage."""
    counts = _numbers(context.flag("num-layer-list"))
    if counts and len(counts) != _stages(context):
        yield Violation(
            message=f"--num-layer-list has {len(counts)} numbers, but pp is {_stages(context)}",
            flags=("num-layer-list", _STAGES),
        )


@rule(
    "MS-LIST-SUM",
    source="MindSpeed-LLM 26.1.0 training/arguments.py:147; 2.1.0:1208",
    reads="num-layer-list num-layers",
    backends=MINDSPEED,
)
def list_holds_every_layer(context: RuleContext) -> Iterator[Violation]:
    """Layers per stage add up to all layers."""
    counts, layers = _numbers(context.flag("num-layer-list")), context.number("num-layers")
    if counts and sum(counts) != layers:
        yield Violation(
            message=f"--num-layer-list adds up to {sum(counts)}, but num_layers is {layers}",
            flags=("num-layer-list", "num-layers"),
        )


@rule(
    "MS-NOOP-NUMBER", source=f"{FEATURES}/pipeline_parallel/noop_layers.py:43", reads="noop-layers", backends=MINDSPEED
)
def empty_layers_are_numbers(context: RuleContext) -> Iterator[Violation]:
    """No-op layers are given by index, without spaces."""
    text = context.flag(_NOOP)
    wrong = [part for part in str(text).split(",") if not is_count(part)] if text is not None else []
    if wrong:
        yield Violation(message=f"--{_NOOP} {text}: {wrong[0]!r} is not a number", flags=(_NOOP,))


@rule(
    "MS-NOOP-RANGE",
    source=f"{FEATURES}/pipeline_parallel/noop_layers.py:46; {OLD_ARGUMENTS}:1347",
    reads="noop-layers num-layers",
    backends=MINDSPEED,
)
def empty_layers_exist(context: RuleContext) -> Iterator[Violation]:
    """No-op layers have indices from 0 to num_layers - 1; num_layers includes them."""
    empty, layers = _numbers(context.flag(_NOOP)) or (), context.number("num-layers")
    if layers and any(layer >= layers for layer in empty):
        yield Violation(message=f"no-op layer {max(empty)} is outside 0 … {layers - 1}", flags=(_NOOP, "num-layers"))


@rule(
    "MS-NOOP-STAGE",
    source="MindSpeed-LLM 26.1.0 training/utils.py:1166-1180",
    reads="noop-layers num-layers pipeline-model-parallel-size lora-target-modules "
    "num-layers-per-virtual-pipeline-stage",
    backends=MINDSPEED,
    since="26.0",
)
def no_stage_is_empty(context: RuleContext) -> Iterator[Violation]:
    """In LoRA training no stage or chunk may consist of no-op layers only, as it would train nothing."""
    empty, layers = set(_numbers(context.flag(_NOOP)) or ()), context.number("num-layers")
    stage = layers // _stages(context)
    if not empty or not context.flag("lora-target-modules") or not stage:
        return
    size = context.number(_CHUNK) or stage
    for start in range(0, layers, size):
        if all(layer in empty for layer in range(start, min(start + size, layers))):
            yield Violation(
                message=f"all layers {start} … {start + size - 1} of a {'chunk' if size != stage else 'stage'} "
                "are no-op layers, so that LoRA has nothing to train there",
                flags=(_NOOP, _STAGES, _CHUNK),
            )
            return


@rule(
    "MS-UNALIGNED-LENGTH",
    source=f"{FEATURES}/pipeline_parallel/unaligned_pineline_feature.py:49",
    reads="pipeline-num-transformer-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
    since=SINCE,
)
def unaligned_stages_are_all(context: RuleContext) -> Iterator[Violation]:
    """Layers per stage and chunk are given for every stage."""
    text = context.flag("pipeline-num-transformer-layers")
    if not text:
        return
    count = str(text).replace(" ", "").count("[") - 1
    if count != _stages(context):
        yield Violation(
            message=f"--pipeline-num-transformer-layers has {count} stages, but pp is {_stages(context)}",
            flags=("pipeline-num-transformer-layers", _STAGES),
        )


@rule(
    "MS-DENSE-STAGE",
    source=f"{LLM}/transformer/transformer_block.py:19; {OLD_ARGUMENTS}:1137",
    reads="first-k-dense-replace num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def first_stage_has_experts(context: RuleContext) -> Iterator[Violation]:
    """The first stage has at least one MoE layer."""
    dense, layers = context.number("first-k-dense-replace"), context.number("num-layers")
    stage = layers // _stages(context)
    if dense > 0 and _stages(context) > 1 and stage <= dense < layers:
        yield Violation(
            message=f"first_k_dense_replace {dense} leaves no MoE layer in the first stage of {stage} layers",
            flags=(_STAGES, "first-k-dense-replace", "num-layers"),
        )


@rule(
    "MS-DUALPIPE-BATCHES",
    source=f"{_DUAL}:48",
    reads="job.parallel.dp job.batch.global_batch_size job.batch.micro_batch_size pipeline-model-parallel-size "
    "schedules-method",
    backends=MINDSPEED,
)
def dual_schedule_has_batches(context: RuleContext) -> Iterator[Violation]:
    """The DualPipeV schedule needs at least 2 x pp - 1 micro-batches."""
    count, fewest = _micro_batches(context), 2 * _stages(context) - 1
    if (
        context.flag("schedules-method") == "dualpipev"
        and _stages(context) > 1
        and count is not None
        and count < fewest
    ):
        yield Violation(
            message=f"{count} micro-batches are fewer than the {fewest} that DualPipeV needs",
            fields=("batch.global_batch_size", "batch.micro_batch_size", "parallel.pp"),
            flags=("schedules-method", "global-batch-size", _STAGES),
        )


@rule(
    "MS-TP2D-SIZES",
    source=f"{FEATURES}/tensor_parallel/tp_2d.py:40; {OLD_ARGUMENTS}:1371",
    reads="tp-2d tensor-model-parallel-size tp-x tp-y",
    backends=MINDSPEED,
)
def two_dimensions_make_tp(context: RuleContext) -> Iterator[Violation]:
    """The product of the two tensor-parallel dimensions is the tensor-parallel size."""
    x, y, tp = (context.number(name, 1) for name in ("tp-x", "tp-y", "tensor-model-parallel-size"))
    if context.flag("tp-2d") and x > 0 and tp // x != y:
        yield Violation(
            message=f"tp_2d_x {x} × tp_2d_y {y} is not tp {tp}", flags=("tp-x", "tp-y", "tensor-model-parallel-size")
        )


@rule(
    "MS-MOE-ZERO-MEMORY-LAYERS",
    source=f"{FEATURES}/moe/moe_zero_memory.py:30; {OLD_ARGUMENTS}:1073",
    reads="moe-zero-memory-num-layers num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def zero_memory_layers_fit_stage(context: RuleContext) -> Iterator[Violation]:
    """The number of layers whose expert activations are dropped is at most the layers of one stage."""
    count, stage = context.number("moe-zero-memory-num-layers"), context.number("num-layers") // _stages(context)
    if context.flag("moe-zero-memory-num-layers") is not None and not 0 <= count <= stage:
        yield Violation(
            message=f"moe_zero_memory_num_layers {count} is outside 0 … {stage} (one stage)",
            flags=("moe-zero-memory-num-layers", _STAGES),
        )


@rule(
    "MS-FB-BATCHES",
    source=f"{_FB}:116",
    reads="job.parallel.dp job.batch.global_batch_size job.batch.micro_batch_size "
    "num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank moe-fb-overlap "
    "pipeline-model-parallel-size",
    backends=MINDSPEED,
    since=SINCE,
)
def overlapped_experts_have_batches(context: RuleContext) -> Iterator[Violation]:
    """Overlapped experts in the interleaved schedule need at least two rounds of micro-batches."""
    count = _micro_batches(context)
    chunked = context.flag(_CHUNK) or context.flag("num-virtual-stages-per-pipeline-rank")
    if context.flag("moe-fb-overlap") and chunked and count is not None and count // _stages(context) <= 1:
        yield Violation(
            message=f"{count} micro-batches are fewer than 2 × pp {_stages(context)}, which moe.batch_overlap needs",
            fields=("batch.global_batch_size", "batch.micro_batch_size", "parallel.pp"),
            flags=("moe-fb-overlap", "global-batch-size", _CHUNK),
        )


@rule(
    "MS-FB-NOOP",
    source=f"{_FB}:135",
    reads="noop-layers num-layers num-layers-per-virtual-pipeline-stage schedules-method moe-fb-overlap",
    backends=MINDSPEED,
    since=SINCE,
)
def overlapped_experts_end_empty(context: RuleContext) -> Iterator[Violation]:
    """Overlapped experts in the interleaved schedule allow no-op layers in the last chunk only."""
    empty, layers, size = _numbers(context.flag(_NOOP)), context.number("num-layers"), context.number(_CHUNK)
    dual = context.flag("schedules-method") == "dualpipev"
    # The backend checks the first element of a Python set of them, not the smallest.
    first = next(iter(dict.fromkeys(set(empty)))) if empty else 0
    if context.flag("moe-fb-overlap") and empty and not dual and (not size or first < layers - size):
        yield Violation(
            message=f"no-op layer {first} is not in the last chunk"
            + (f" (layers {layers - size} … {layers - 1})" if size else ": there are no chunks")
            + ", which moe.batch_overlap needs",
            flags=(_NOOP, _CHUNK, "moe-fb-overlap"),
        )
