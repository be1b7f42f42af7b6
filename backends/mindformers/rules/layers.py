"""Layers, recompute counts and swapping per stage: settings that MindFormers rejects or silently builds wrongly."""

from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import (
    ACCUMULATION,
    BACKENDS,
    CP,
    DP,
    EP,
    INTERLEAVE,
    MCORE,
    MICRO,
    MODE,
    OLD,
    PP,
    RECOMPUTE,
    SELECT,
    SP,
    STATIC,
    SWAP,
    TP,
    chunks_of,
    is_automatic,
    layers_of,
    model_key,
    offset_of,
    size_of,
    whole,
)
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import checked, declare, never

_UTILS = "mindformers 2.1.0 parallel_core/training_graph/transformer/utils.py"
_OLD_UTILS = "mindformers 1.6.0 models/utils.py"
_TRAINER = "mindformers 1.6.0 trainer/base_trainer.py"
_SELECT_COMM = "recompute_config.select_comm_recompute"
_CHECKS = "mindformers 2.1.0 tools/check_rules.py"
OFFSET, CHUNKS = MODEL + "offset", MODEL + "pp_interleave_num"
_ALONE = {DP: 1, TP: 1, CP: 1, EP: 1, PP: 1, MICRO: 1, SP: False}
_SPLIT = ("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers", "parallel.pp", "parallel.vpp")


def _stages(context: RuleContext) -> int:
    return size_of(context, PP) * chunks_of(context)


def _is_ignored(context: RuleContext) -> bool:
    """Return whether offset is ignored: with one stage and one chunk, without a check since 2.0."""
    return _stages(context) <= 1 and context.version != OLD


def _shape(context: RuleContext) -> Any:
    pp, rows, chunks = size_of(context, PP), offset_of(context), chunks_of(context)
    if rows is None or _is_ignored(context):
        return None
    wrong = next((len(row) for row in rows if len(row) != pp), None)
    if wrong is not None:
        return f"offset has a row of {wrong} numbers, but pp is {pp}"
    nested = isinstance(model_key(context, "offset")[0], (list, tuple))
    return nested and len(rows) != chunks and f"offset has {len(rows)} rows, but vpp is {chunks}"


def _sum(context: RuleContext) -> Any:
    layers, stages, rows, value = layers_of(context), _stages(context), offset_of(context), model_key(context, "offset")
    if layers is None or _is_ignored(context) or _shape(context):
        return None
    total = sum(map(sum, rows)) if rows is not None else value if whole(value) else 0
    rest = layers % stages
    return (
        total != rest
        and f"offset adds up to {total}, but {layers} layers on {stages} chunks leave a remainder of {rest}"
    )


def _built(context: RuleContext) -> list[int] | None:
    """Return the number of layers built per chunk; a single row of an offset is repeated for all chunks."""
    layers, stages, offset = layers_of(context), _stages(context), offset_of(context)
    if layers is None or offset is None or stages <= 1 or _shape(context) or _sum(context):
        return None
    rows = offset * chunks_of(context) if len(offset) == 1 else offset
    return [layers // stages + extra for row in rows for extra in row]


def _repeated(context: RuleContext) -> Any:
    built, layers, chunks = _built(context), layers_of(context), chunks_of(context)
    return (
        built is not None
        and sum(built) != layers
        and f"offset has one row, used for each of {chunks} chunks: {sum(built)} layers are built, not {layers}"
    )


def _empty(context: RuleContext) -> Any:
    built = _built(context)
    if built is None:
        return None
    bad = built[0] < 0 or built[-1] < 0 or any(count < 1 for count in built[1:-1])
    return bad and f"chunks of {built} layers: only the first and the last chunk may be empty"


def _endless_layers(context: RuleContext) -> Any:
    built = _built(context)
    return (
        built is not None
        and min(built) < 0
        and f"chunks of {built} layers: a negative number sends MindFormers into an endless loop"
    )


def _numbers(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return []
    return [item for each in value for item in (each if isinstance(each, (list, tuple)) else (each,))]


def _recompute_kind(context: RuleContext) -> Any:
    value = context[RECOMPUTE]
    if value is None or isinstance(value, bool):
        return None
    items = _numbers(value)
    good = isinstance(value, (list, tuple)) and all(isinstance(item, (bool, int)) for item in items)
    return not good and f"recompute {value} must be true, false, or layer counts per stage (and chunk)"


def _clamped(context: RuleContext) -> Any:
    value, pp = context[RECOMPUTE], size_of(context, PP)
    if context[SWAP] or not isinstance(value, (list, tuple)) or (layers := layers_of(context)) is None:
        return None
    most = max(_built(context) or [-(-layers // _stages(context))])
    counts = [item for item in _numbers(value) if whole(item)]
    big = [count for count in counts if count > most]
    if big:
        return f"recompute {big[0]} → {most}: a chunk has only {most} layers"
    rows = value if isinstance(value[0], (list, tuple)) else (value,)
    short = any(len(row) < pp for row in rows)
    return short and f"recompute has {len(rows[0])} counts for pp {pp}: the other stages recompute nothing"


def _longer(key: str) -> Any:
    def when(context: RuleContext) -> Any:
        value, pp, chunks = context[key], size_of(context, PP), chunks_of(context)
        rows = [row for row in value if isinstance(row, (list, tuple))] if isinstance(value, (list, tuple)) else []
        if rows and not context[SWAP] and (len(rows) > chunks or any(len(row) > pp for row in rows)):
            return f"{key} has counts for {len(rows)} chunks on {len(rows[0])} stages, but vpp is {chunks} and pp {pp}"
        flat = isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value)
        stages = pp if is_automatic(context) else 1  # other modes reset the layout: trainer/base_trainer.py:278-283
        return (
            not context[SWAP] and flat and len(value) > stages and f"{key} has {len(value)} counts, but pp is {stages}"
        )

    return when


def _select_kind(context: RuleContext) -> Any:
    value = context[SELECT]
    if value is None or isinstance(value, (bool, dict, list, tuple)):
        return None
    return f"select_recompute {value} must be true, a list of cell names, or cell names with layers"


# fmt: off
LAYERS = (
    checked("MF-OFFSET-SHAPE", _shape,
            "offset has one number for each stage, in one row or in a row for each chunk.",
            f"{_UTILS}:579-582; {_OLD_UTILS}:593-596", flags=(OFFSET, PP, CHUNKS), fields=_SPLIT, reads="@chunks"),
    checked("MF-OFFSET-SUM", _sum,
            "offset distributes the layers that an even split leaves: its sum is the remainder.",
            f"{_UTILS}:585; {_OLD_UTILS}:600", flags=(OFFSET, PP, CHUNKS), fields=_SPLIT, reads="@layers @chunks"),
    checked("MF-OFFSET-REPEATED", _repeated,
            "One row of offset is checked once and used for every chunk: a wrong number of layers is trained.",
            f"{_UTILS}:585-592; seen: 29 layers become [[8,7],[8,7]] = 30, DeepSeek's 61 become 74",
            flags=(OFFSET, CHUNKS), fields=_SPLIT, reads="@layers parallel_config.pipeline_stage @chunks"),
    checked("MF-OFFSET-EMPTY", _empty,
            "Only the first and the last chunk may be empty.", f"{_UTILS}:595-603", since="1.8",
            flags=(OFFSET, PP, CHUNKS), fields=_SPLIT, reads="@layers @chunks"),
    checked("MF-OFFSET-ENDLESS", _endless_layers,
            "A chunk with a negative number of layers sends version 1.6 into an endless loop.", f"{_OLD_UTILS}:480",
            until="1.8.99", flags=(OFFSET, PP, CHUNKS), fields=_SPLIT, reads="@layers @chunks"),
    checked("MF-OFFSET-IGNORED",
            lambda context: (offset_of(context) is not None and _is_ignored(context)
                             and any(_numbers(offset_of(context)))),
            "offset has no effect without several stages or chunks.", f"{_UTILS}:572", severity="warning",
            flags=(OFFSET, PP), fields=("parallel.pp",), reads="@chunks",
            message="offset is ignored: there is one stage and one chunk"),
    never("MF-CHUNKS-OFF", f"@declared_chunks>1 & !{INTERLEAVE}",
          "Chunks need pipeline_interleave; without it, MindFormers uses one chunk without a message.",
          f"{_OLD_UTILS}: pp_interleave_num is read with pipeline_interleave; seen: [[14,14]]", severity="warning",
          flags=(CHUNKS, INTERLEAVE),
          message="vpp {@declared_chunks} → 1: parallel.pipeline_config.pipeline_interleave is not set"),
)
# fmt: on

RESETS = (
    Rule(
        id="MF-SET-SIZES",
        doc="Outside the automatic parallel modes, and without use_parallel, all parallel sizes are reset to 1.",
        source=f"{_TRAINER}:273-280; mindformers 1.6.0 core/context/build_context.py:68",
        flags=(MODE, "use_parallel", DP, TP, PP),
        fields=("parallel.tp", "parallel.pp", "parallel.cp"),
        when="!@automatic",
        check=lambda context: max(size_of(context, key) for key in (TP, PP, CP)) > 1,
        reads=CP,
        sets=_ALONE,
        message="tp, pp, cp → 1: parallel_mode is not semi_auto_parallel (1) or auto_parallel (2), or "
        "use_parallel is false",
        severity="warning",
    ),
    Rule(
        id="MF-SET-ALONE",
        doc="Outside the automatic parallel modes each device trains a separate model; parallel sizes have no effect.",
        source=f"{_TRAINER}:273-280",
        flags=(MODE, DP),
        when="!@automatic",
        sets=_ALONE,
        reports_written=False,
        severity="change",
    ),
    Rule(
        id="MF-SET-MICRO-BATCHES",
        doc="Without stages micro_batch_num is reset to 1, and the global batch shrinks with it.",
        source=f"{_TRAINER}:197",
        flags=(MICRO, PP),
        fields=("batch.global_batch_size", "parallel.pp"),
        when="@automatic",
        check=lambda context: (
            size_of(context, PP) == 1
            and size_of(context, MICRO) > 1
            and f"micro_batch_num {size_of(context, MICRO)} → 1 with pp 1: the global batch becomes smaller"
        ),
        sets={MICRO: 1},
        severity="warning",
    ),
    Rule(
        id="MF-SET-ACCUMULATION",
        doc="With stages gradient accumulation is reset to 1, and the global batch shrinks with it.",
        source=f"{_TRAINER}:301",
        flags=(ACCUMULATION, PP),
        fields=("batch.global_batch_size", "parallel.pp"),
        when=f"@automatic & {PP}>1 & {ACCUMULATION}>1",
        sets={ACCUMULATION: 1},
        message=f"gradient_accumulation_steps {{{ACCUMULATION}}} → 1 with pp {{{PP}}}: increase micro_batch_num "
        "instead",
        severity="warning",
    ),
    Rule(
        id="MF-SET-ACCUMULATION-ALONE",
        doc="Outside the automatic parallel modes gradients are not accumulated, and the global batch shrinks with it.",
        source=f"{_TRAINER}:308",
        flags=(ACCUMULATION, MODE),
        fields=("batch.global_batch_size",),
        when=f"!@automatic & {ACCUMULATION}>1",
        sets={ACCUMULATION: 1},
        message=f"gradient_accumulation_steps {{{ACCUMULATION}}} → 1: parallel_mode is not semi_auto_parallel (1) or "
        "auto_parallel (2)",
        severity="change",
    ),
    Rule(
        id="MF-SET-ONE-STEP",
        doc="The default of gradient accumulation is one step.",
        source=f"{_TRAINER}:286",
        when=f"{ACCUMULATION}=None",
        sets={ACCUMULATION: 1},
        severity="change",
    ),
    Rule(
        id="MF-SET-VOCABULARY",
        doc="With several stages the vocabulary is split over tensor-parallel ranks; vocab_emb_dp has no effect.",
        source="mindformers 1.6.0 core/parallel_config.py:66",
        fields=("parallel.pp",),
        when=f"parallel_config.vocab_emb_dp & {PP}>1",
        sets={"parallel_config.vocab_emb_dp": False},
        message="vocab_emb_dp true → false: with stages the vocabulary is split over tensor-parallel ranks",
        severity="change",
    ),
)

# fmt: off
MEMORY = (
    checked("MF-RECOMPUTE-KIND", _recompute_kind,
            "recompute is a switch, or counts of layers by stage.", f"{_OLD_UTILS}:512-516", flags=(RECOMPUTE,)),
    checked("MF-RECOMPUTE-LONG", _longer(RECOMPUTE),
            "There is at most one count for each stage.", f"{_CHECKS}:285-289", flags=(RECOMPUTE, PP),
            reads="@chunks @automatic swap_config.swap"),
    checked("MF-SELECT-LONG", _longer(SELECT),
            "There is at most one count for each stage.", f"{_CHECKS}:285-289", flags=(SELECT, PP),
            reads="@chunks @automatic swap_config.swap"),
    checked("MF-SELECT-COMM-LONG", _longer(_SELECT_COMM),
            "There is at most one count for each stage.", f"{_CHECKS}:285-289", flags=(_SELECT_COMM, PP),
            reads="@chunks @automatic swap_config.swap"),
    checked("MF-RECOMPUTE-ENDLESS",
            lambda context: any(whole(item) and item < 0 for item in _numbers(context[RECOMPUTE])),
            "A negative count sends MindFormers into an endless loop.", f"{_OLD_UTILS}:480 (_alloc_recompute_layer)",
            flags=(RECOMPUTE,),
            message="a negative recompute count sends MindFormers into an endless loop"),
    checked("MF-RECOMPUTE-CLAMPED", _clamped,
            "Counts above the layers of a chunk are cut, and stages without a count recompute nothing.",
            f"{_OLD_UTILS}:495-530", severity="warning", flags=(RECOMPUTE, PP),
            reads="swap_config.swap @layers @chunks @offset model.model_config.offset"),
    checked("MF-RECOMPUTE-IDS",
            lambda context: any(whole(item) for key in (RECOMPUTE, SELECT) for item in _numbers(context[key])),
            "With swapping, numbers in recompute lists are layers, not counts of layers.",
            "mindformers 1.6.0 models/utils.py; tools/check_rules.py:292-300", when=SWAP, severity="warning",
            flags=(RECOMPUTE, SELECT, SWAP),
            message="with swap_config.swap the numbers of recompute lists are layer ids, not counts per stage"),
    checked("MF-SELECT-KIND", _select_kind, "select_recompute names cells.", f"{_OLD_UTILS}:540", flags=(SELECT,)),
    never("MF-RECOMPUTE-SLICE", f"{MCORE} & recompute_config.recompute_slice_activation=True",
          "The mcore graph does not slice recomputed activations.",
          "mindformers 2.1.0 parallel_core/transformer_config.py:2709", since="1.7", fields=("backend.args",),
          message="recompute_slice_activation is not supported by the mcore graph"),
    Rule(
        id="MF-PREFETCH",
        doc="Swapped activations are prefetched at least one layer ahead.",
        source=f"{_CHECKS}:347",
        flags=("swap_config.default_prefetch", SWAP),
        fields=("backend.args",),
        when=SWAP,
        check=lambda context: (
            not whole(context["swap_config.default_prefetch"]) or context["swap_config.default_prefetch"] < 1
        ),
        message="swap_config.default_prefetch must be a whole number above 0",
    ),
    checked("MF-LAYER-SWAP", lambda context: _bad_swap(context["swap_config.layer_swap"]),
            "Swapped layers are a list of entries with layers and a prefetch of at least 1.", f"{_CHECKS}:329-345",
            when=SWAP, flags=("swap_config.layer_swap", SWAP), fields=("offload.activation_layers",),
            message="swap_config.layer_swap must be a list of mappings with layers and backward_prefetch of at "
                "least 1"),
    checked("MF-OP-SWAP", lambda context: not isinstance(context["swap_config.op_swap"], dict),
            "Swapped operators are named, each with entries of layers.", f"{_CHECKS}:352-360",
            when=f"{SWAP} & swap_config.op_swap", flags=("swap_config.op_swap", SWAP), fields=("backend.args",),
            message="swap_config.op_swap must be a mapping of operator names to entries"),
)
# fmt: on


def _bad_swap(value: Any) -> bool:
    if not value:
        return False
    if not isinstance(value, (list, tuple)):
        return True
    entries = [entry for entry in value if isinstance(entry, dict)]
    good = [e for e in entries if whole(e.get("backward_prefetch")) and e["backward_prefetch"] >= 1]
    return len(good) != len(value)


# fmt: off
OLDER = (
    checked("MF-HEADS-LEGACY",
            lambda context: (context.job.model.hidden_size or 0) % (context.job.model.num_attention_heads or 1),
            "The older Llama does not take head_dim: hidden_size is divisible by the number of heads.",
            "mindformers 1.6.0 models/llama/llama_transformer.py:175", when="@dialect=legacy & "
            f"{MODEL}type=LlamaConfig & job.model.hidden_size? & job.model.num_attention_heads>0",
            fields=("model.hidden_size", "model.num_attention_heads"),
            message="hidden_size {job.model.hidden_size} is not a multiple of {job.model.num_attention_heads} heads"),
    never("MF-MASK-LENGTH", f"@dialect=legacy & @flash & {MODEL}use_attn_mask_compression & {MODEL}seq_length<2048",
          "A compressed mask of the older models needs sequences of at least 2048 tokens.",
          "mindformers 1.6.0 modules/transformer/transformer.py:1262", fields=("batch.seq_length",),
          message="use_attn_mask_compression needs sequences of at least 2048 tokens"),
)
# fmt: on
declare((*LAYERS, *RESETS, *MEMORY), backends=BACKENDS, when=STATIC)
declare(OLDER, backends=BACKENDS)
