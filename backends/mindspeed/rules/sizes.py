"""Arithmetic of MindSpeed-LLM: chunks, layers per stage, empty layers, dense layers, micro-batches, groups."""

from collections.abc import Iterator, Sequence

from backends.megatron_lm.rules.sizes import uneven_stages
from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, OLD_ARGUMENTS, SINCE
from launcher.rules.registry import RuleContext, Violation, lift, rule
from launcher.rules.sanity_checks import layout_chunks

_CHUNK = "num-layers-per-virtual-pipeline-stage"
_STAGES = "pipeline-model-parallel-size"
_NOOP = "noop-layers"
_FB = f"{FEATURES}/moe/fb_overlap.py"
_BASIC = f"{LLM}/megatron_basic/training_basic.py"
_DUAL = f"{FEATURES}/pipeline_parallel/dualpipev_feature.py"


lift("PAR-PP-LAYERS", "mindspeed", lambda facts: bool(facts.flag("num-layer-list")))
lift("PAR-PP-LAYERS", "mindspeed", lambda facts: bool(facts.flag("pipeline-num-transformer-layers")))

lift("PAR-PP-LAYERS", "mindspeed", lambda facts: bool(uneven_stages(facts)))


@rule(
    "MS-UNEVEN-LAYERS",
    source="megatron-core 0.12.1 transformer_config.py:825",
    reads="num-layers pipeline-model-parallel-size decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers",
    backends=MINDSPEED,
    since=SINCE,
)
def middle_stages_are_even(facts: RuleContext) -> Iterator[Violation]:
    """The layers outside uneven first and last stages are spread evenly over the other stages."""
    ends = uneven_stages(facts)
    rest, stages = facts.number("num-layers") - sum(ends), _stages(facts) - len(ends)
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
def uneven_stages_have_whole_chunks(facts: RuleContext) -> Iterator[Violation]:
    """Stages of unequal length are cut into the same number of chunks as the others."""
    ends, chunks = uneven_stages(facts), facts.job.parallel.vpp or 1
    # With more stages than two, chunks and uneven stages exclude each other (MLM-VPP-UNEVEN).
    if chunks == 1 or not ends or not _hidden_from_megatron(facts):
        return
    middle, stages = facts.number("num-layers") - sum(ends), _stages(facts) - len(ends)
    sizes = [*ends, *([middle // stages] if stages > 0 else [])]
    for size in sizes:
        if size % chunks:
            yield Violation(
                message=f"a stage of {size} layers is not divisible by the {chunks} chunks of every stage",
                flags=("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", _CHUNK, "num-layers"),
            )


@rule(
    "MS-LAYOUT-LAYERS",
    source="Megatron-LM core_v0.12.1 training/arguments.py:490",
    reads="num-layers pipeline-model-parallel-size pipeline-model-parallel-layout",
    backends=MINDSPEED,
    since=SINCE,
)
def layers_with_a_layout_divide(facts: RuleContext) -> Iterator[Violation]:
    """Even with a layout, layers must be divisible by stages: Megatron's check of even stages still runs."""
    layers, stages = facts.number("num-layers"), _stages(facts)
    if facts.flag("pipeline-model-parallel-layout") and layers % stages:
        yield Violation(
            message=f"{layers} layers are not divisible by {stages} stages, as an explicit layout needs, too",
            flags=("pipeline-model-parallel-layout", "num-layers", _STAGES),
        )


@rule(
    "MS-LAYOUT-CHUNKS",
    source="MindSpeed 26.1.0 core/pipeline_parallel/pipeline_model_parallel_layout/adaptor.py:84-92",
    reads="num-layers pipeline-model-parallel-size pipeline-model-parallel-layout "
    "num-layers-per-virtual-pipeline-stage",
    backends=MINDSPEED,
    since=SINCE,
)
def a_layout_has_the_chunks_that_are_written(facts: RuleContext) -> Iterator[Violation]:
    """With two stages a layout may stand beside the layers of a chunk, if both give the same number of chunks."""
    layout, chunk, stages = facts.flag("pipeline-model-parallel-layout"), facts.number(_CHUNK, 0), _stages(facts)
    if not layout or not chunk or not _hidden_from_megatron(facts):
        return
    written, listed = facts.number("num-layers") // stages // chunk, len(layout_chunks(str(layout))) // stages
    if written != listed:
        yield Violation(
            message=f"{_CHUNK} {chunk} makes {written} chunks of a stage, the layout has {listed}",
            flags=("pipeline-model-parallel-layout", _CHUNK, "num-layers", _STAGES),
        )


def _hidden_from_megatron(facts: RuleContext) -> bool:
    """Return whether chunks are removed before Megatron's checks, as with two stages (training_basic.py:72)."""
    return facts.number(_STAGES, 1) == 2


for _id in ("MLM-VPP-UNEVEN", "MLM-VPP-UNEVEN-LAST", "MS-LAYOUT-NUM-LAYERS-PER-VIRTUAL-PIPELINE-STAGE"):
    lift(_id, "mindspeed", _hidden_from_megatron)


def _stages(facts: RuleContext) -> int:
    return max(1, facts.number(_STAGES, 1))


def _numbers(text: object) -> Sequence[int] | None:
    """Return the numbers of a comma-separated list; None where one is not a number."""
    parts = [part.strip() for part in str(text or "").split(",") if part.strip()]
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else None


def _micro_batches(facts: RuleContext) -> int | None:
    batch, dp = facts.job.batch, facts.job.parallel.dp
    if batch.global_batch_size is None or not dp:
        return None
    return batch.global_batch_size // batch.micro_batch_size // dp


@rule(
    "MS-VPP-WHOLE",
    source=f"{FEATURES}/megatron_basic/megatron_basic.py:28",
    reads="num-layers-per-virtual-pipeline-stage num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
    since=SINCE,
)
def chunks_are_several(facts: RuleContext) -> Iterator[Violation]:
    """A chunk of a whole stage is not interleaving and is rejected: omit the argument."""
    size, layers = facts.number(_CHUNK), facts.number("num-layers")
    if size and _stages(facts) > 1 and size * _stages(facts) == layers:
        yield Violation(
            message=f"chunks of {size} layers × pp {_stages(facts)} = {layers} layers: leave --{_CHUNK} out",
            flags=(_CHUNK, _STAGES, "num-layers"),
        )


@rule(
    "MS-VPP-TWO",
    source=f"{_BASIC}:104; {OLD_ARGUMENTS}:1396",
    reads="num-layers-per-virtual-pipeline-stage num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def chunks_are_smaller_than_two_stages(facts: RuleContext) -> Iterator[Violation]:
    """In a pipeline of two stages a chunk is smaller than a stage."""
    size, layers = facts.number(_CHUNK), facts.number("num-layers")
    equal = facts.version != "2.1.0" and size * 2 == layers
    if _stages(facts) == 2 and size and layers and size >= layers / 2 and not equal:
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
def list_names_every_stage(facts: RuleContext) -> Iterator[Violation]:
    """Layers per stage are given for every stage."""
    counts = _numbers(facts.flag("num-layer-list"))
    if counts and len(counts) != _stages(facts):
        yield Violation(
            message=f"--num-layer-list has {len(counts)} stages, pp is {_stages(facts)}",
            flags=("num-layer-list", _STAGES),
        )


@rule(
    "MS-LIST-SUM",
    source="MindSpeed-LLM 26.1.0 training/arguments.py:147; 2.1.0:1208",
    reads="num-layer-list num-layers",
    backends=MINDSPEED,
)
def list_holds_every_layer(facts: RuleContext) -> Iterator[Violation]:
    """Layers per stage add up to all layers."""
    counts, layers = _numbers(facts.flag("num-layer-list")), facts.number("num-layers")
    if counts and sum(counts) != layers:
        yield Violation(
            message=f"--num-layer-list adds up to {sum(counts)} layers, not {layers}",
            flags=("num-layer-list", "num-layers"),
        )


@rule(
    "MS-NOOP-NUMBER", source=f"{FEATURES}/pipeline_parallel/noop_layers.py:43", reads="noop-layers", backends=MINDSPEED
)
def empty_layers_are_numbers(facts: RuleContext) -> Iterator[Violation]:
    """Empty layers are given by number, without spaces."""
    text = facts.flag(_NOOP)
    wrong = [part for part in str(text).split(",") if not part.isdigit()] if text is not None else []
    if wrong:
        yield Violation(message=f"--{_NOOP} {text}: {wrong[0]!r} is not a number", flags=(_NOOP,))


@rule(
    "MS-NOOP-RANGE",
    source=f"{FEATURES}/pipeline_parallel/noop_layers.py:46; {OLD_ARGUMENTS}:1347",
    reads="noop-layers num-layers",
    backends=MINDSPEED,
)
def empty_layers_exist(facts: RuleContext) -> Iterator[Violation]:
    """Empty layers have indices from 0 to num_layers - 1; num_layers includes them."""
    empty, layers = _numbers(facts.flag(_NOOP)) or (), facts.number("num-layers")
    if layers and any(layer >= layers for layer in empty):
        yield Violation(message=f"empty layer {max(empty)} is outside 0 … {layers - 1}", flags=(_NOOP, "num-layers"))


@rule(
    "MS-NOOP-STAGE",
    source="MindSpeed-LLM 26.1.0 training/utils.py:1166-1180",
    reads="noop-layers num-layers pipeline-model-parallel-size lora-target-modules "
    "num-layers-per-virtual-pipeline-stage",
    backends=MINDSPEED,
    since=SINCE,
)
def no_stage_is_empty(facts: RuleContext) -> Iterator[Violation]:
    """In LoRA training no stage or chunk may consist of empty layers, as it would train nothing."""
    empty, layers = set(_numbers(facts.flag(_NOOP)) or ()), facts.number("num-layers")
    stage = layers // _stages(facts)
    if not empty or not facts.flag("lora-target-modules") or not stage:
        return
    size = facts.number(_CHUNK) or stage
    for start in range(0, layers, size):
        if all(layer in empty for layer in range(start, min(start + size, layers))):
            yield Violation(
                message=f"layers {start} … {start + size - 1} are one {'chunk' if size != stage else 'stage'}, and all "
                "of them are empty",
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
def unaligned_stages_are_all(facts: RuleContext) -> Iterator[Violation]:
    """Layers per stage and chunk are given for every stage."""
    text = facts.flag("pipeline-num-transformer-layers")
    if not text:
        return
    count = str(text).replace(" ", "").count("[") - 1
    if count != _stages(facts):
        yield Violation(
            message=f"--pipeline-num-transformer-layers has {count} stages, pp is {_stages(facts)}",
            flags=("pipeline-num-transformer-layers", _STAGES),
        )


@rule(
    "MS-DENSE-ALL",
    source=f"{LLM}/transformer/transformer_block.py:15; {OLD_ARGUMENTS}:1133",
    reads="first-k-dense-replace num-layers",
    backends=MINDSPEED,
)
def some_layers_have_experts(facts: RuleContext) -> Iterator[Violation]:
    """The number of dense layers is smaller than the number of layers."""
    dense, layers = facts.number("first-k-dense-replace"), facts.number("num-layers")
    if dense > 0 and layers and dense >= layers:
        yield Violation(
            message=f"first_k_dense_replace {dense} leaves no MoE layer of {layers}",
            flags=("first-k-dense-replace", "num-layers"),
        )


@rule(
    "MS-DENSE-STAGE",
    source=f"{LLM}/transformer/transformer_block.py:19; {OLD_ARGUMENTS}:1137",
    reads="first-k-dense-replace num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def first_stage_has_experts(facts: RuleContext) -> Iterator[Violation]:
    """The first stage has at least one MoE layer."""
    dense, layers = facts.number("first-k-dense-replace"), facts.number("num-layers")
    stage = layers // _stages(facts)
    if dense > 0 and _stages(facts) > 1 and stage <= dense < layers:
        yield Violation(
            message=f"first_k_dense_replace {dense} makes the whole first stage of {stage} layers dense",
            flags=(_STAGES, "first-k-dense-replace", "num-layers"),
        )


@rule(
    "MS-DUALPIPE-LAYERS",
    source=f"{_DUAL}:44",
    reads="num-layers schedules-method pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def dual_schedule_has_layers(facts: RuleContext) -> Iterator[Violation]:
    """The dual schedule gives every stage two chunks of the model."""
    layers = facts.number("num-layers")
    if facts.flag("schedules-method") == "dualpipev" and layers < 2 * _stages(facts):
        yield Violation(
            message=f"{layers} layers are fewer than 2 × pp {_stages(facts)}, which the dual schedule needs",
            flags=("schedules-method", _STAGES, "num-layers"),
        )


@rule(
    "MS-DUALPIPE-BATCHES",
    source=f"{_DUAL}:48",
    reads="job.parallel.dp job.batch.global_batch_size job.batch.micro_batch_size pipeline-model-parallel-size "
    "schedules-method",
    backends=MINDSPEED,
)
def dual_schedule_has_batches(facts: RuleContext) -> Iterator[Violation]:
    """The dual schedule needs at least 2 x pp - 1 micro-batches."""
    count, fewest = _micro_batches(facts), 2 * _stages(facts) - 1
    if facts.flag("schedules-method") == "dualpipev" and _stages(facts) > 1 and count is not None and count < fewest:
        yield Violation(
            message=f"{count} micro-batches are fewer than the {fewest} that the dual schedule needs",
            fields=("batch.global_batch_size", "batch.micro_batch_size", "parallel.pp"),
            flags=("schedules-method", "global-batch-size", _STAGES),
        )


@rule(
    "MS-TP2D-SIZES",
    source=f"{FEATURES}/tensor_parallel/tp_2d.py:40; {OLD_ARGUMENTS}:1371",
    reads="tp-2d tensor-model-parallel-size tp-x tp-y",
    backends=MINDSPEED,
)
def two_dimensions_make_tp(facts: RuleContext) -> Iterator[Violation]:
    """The product of the two tensor-parallel dimensions is the tensor-parallel size."""
    x, y, tp = (facts.number(name, 1) for name in ("tp-x", "tp-y", "tensor-model-parallel-size"))
    if facts.flag("tp-2d") and x > 0 and tp // x != y:
        yield Violation(
            message=f"tp_2d_x {x} × tp_2d_y {y} is not tp {tp}", flags=("tp-x", "tp-y", "tensor-model-parallel-size")
        )


@rule(
    "MS-MOE-EXTEND-EXPERTS",
    source=f"{FEATURES}/moe/tp_extend_ep.py:23",
    reads="num-experts tensor-model-parallel-size expert-model-parallel-size moe-tp-extend-ep",
    backends=MINDSPEED,
)
def experts_divide_by_extended_ranks(facts: RuleContext) -> Iterator[Violation]:
    """With tensor-parallel ranks as expert ranks, experts are a multiple of tp x ep."""
    experts, tp = facts.number("num-experts"), facts.number("tensor-model-parallel-size", 1)
    ep = facts.number("expert-model-parallel-size", 1)
    if facts.flag("moe-tp-extend-ep") and experts and experts % (tp * ep):
        yield Violation(
            message=f"num_experts {experts} is not divisible by tp {tp} × ep {ep} (moe.tp_extend_ep)",
            flags=("expert-model-parallel-size", "tensor-model-parallel-size", "num-experts", "moe-tp-extend-ep"),
        )


@rule(
    "MS-MOE-GREEDY-GROUPS",
    source=f"{LLM}/moe/moe_router.py:75",
    reads="moe-router-group-topk expert-model-parallel-size moe-router-load-balancing-type "
    "moe-router-topk-scaling-factor",
    backends=MINDSPEED,
    since=SINCE,
)
def greedy_groups_are_ranks(facts: RuleContext) -> Iterator[Violation]:
    """Group-limited greedy routing uses expert-parallel ranks as groups, and selects fewer than all."""
    count, ep = facts.number("moe-router-group-topk"), facts.number("expert-model-parallel-size", 1)
    greedy = facts.flag("moe-router-load-balancing-type") == "group_limited_greedy"
    if greedy and count and facts.flag("moe-router-topk-scaling-factor") is not None and count >= ep:
        yield Violation(
            message=f"topk_group {count} is not below ep {ep}, the number of groups of group_limited_greedy",
            flags=("moe-router-group-topk", "expert-model-parallel-size"),
        )


@rule(
    "MS-MOE-ZERO-MEMORY-LAYERS",
    source=f"{FEATURES}/moe/moe_zero_memory.py:30; {OLD_ARGUMENTS}:1073",
    reads="moe-zero-memory-num-layers num-layers pipeline-model-parallel-size",
    backends=MINDSPEED,
)
def zero_memory_layers_fit_stage(facts: RuleContext) -> Iterator[Violation]:
    """The number of layers whose expert activations are dropped is at most the layers of one stage."""
    count, stage = facts.number("moe-zero-memory-num-layers"), facts.number("num-layers") // _stages(facts)
    if facts.flag("moe-zero-memory-num-layers") is not None and not 0 <= count <= stage:
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
def overlapped_experts_have_batches(facts: RuleContext) -> Iterator[Violation]:
    """Overlapped experts in the interleaved schedule need at least two rounds of micro-batches."""
    count = _micro_batches(facts)
    chunked = facts.flag(_CHUNK) or facts.flag("num-virtual-stages-per-pipeline-rank")
    if facts.flag("moe-fb-overlap") and chunked and count is not None and count // _stages(facts) <= 1:
        yield Violation(
            message=f"{count} micro-batches are fewer than 2 × pp {_stages(facts)}, which moe.batch_overlap needs",
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
def overlapped_experts_end_empty(facts: RuleContext) -> Iterator[Violation]:
    """Overlapped experts in the interleaved schedule allow empty layers in the last chunk only."""
    empty, layers, size = _numbers(facts.flag(_NOOP)), facts.number("num-layers"), facts.number(_CHUNK)
    dual = facts.flag("schedules-method") == "dualpipev"
    # The backend checks the first element of a Python set of them, not the smallest.
    first = next(iter(dict.fromkeys(set(empty)))) if empty else 0
    if facts.flag("moe-fb-overlap") and empty and not dual and (not size or first < layers - size):
        yield Violation(
            message=f"empty layer {first} is not in the last chunk"
            + (f" (layers {layers - size} … {layers - 1})" if size else ": there are no chunks")
            + ", which moe.batch_overlap needs",
            flags=(_NOOP, _CHUNK, "moe-fb-overlap"),
        )
