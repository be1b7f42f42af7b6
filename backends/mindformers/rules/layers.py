"""Layers, recompute counts and swapping per stage: settings that MindFormers rejects or silently builds wrongly."""

from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.view import (
    ACCUMULATION,
    DP,
    INTERLEAVE,
    MICRO,
    MODE,
    OLD,
    PP,
    RECOMPUTE,
    SELECT,
    SWAP,
    TP,
    MindRule,
    View,
    declare,
    whole,
)

_UTILS = "mindformers 2.1.0 parallel_core/training_graph/transformer/utils.py"
_OLD_UTILS = "mindformers 1.6.0 models/utils.py"
_TRAINER = "mindformers 1.6.0 trainer/base_trainer.py"
_CHECKS = "mindformers 2.1.0 tools/check_rules.py"
OFFSET, CHUNKS = MODEL + "offset", MODEL + "pp_interleave_num"
_SPLIT = ("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers", "parallel.pp", "parallel.vpp")


def _stages(v: View) -> int:
    return v.size(PP) * v.chunks


def _is_ignored(v: View) -> bool:
    """Return whether offset is ignored: with one stage and one chunk, without a check since 2.0."""
    return _stages(v) <= 1 and v.version != OLD


def _shape(v: View) -> Any:
    if v.offset is None or _is_ignored(v):
        return None
    pp, rows = v.size(PP), v.offset
    wrong = next((len(row) for row in rows if len(row) != pp), None)
    if wrong is not None:
        return f"offset has {wrong} figures in a row, pp is {pp}"
    nested = isinstance(v.model("offset")[0], (list, tuple))
    return nested and len(rows) != v.chunks and f"offset has {len(rows)} rows, there are {v.chunks} chunks"


def _sum(v: View) -> Any:
    if v.layers is None or _is_ignored(v) or _shape(v):
        return None
    value = v.model("offset")
    total = sum(map(sum, v.offset)) if v.offset is not None else value if whole(value) else 0
    rest = v.layers % _stages(v)
    return total != rest and f"{v.layers} layers leave {rest} beyond {_stages(v)} equal chunks, offset adds {total}"


def _built(v: View) -> list[int] | None:
    """Return the number of layers built per chunk; a single row of an offset is repeated for all chunks."""
    if v.layers is None or v.offset is None or _stages(v) <= 1 or _shape(v) or _sum(v):
        return None
    rows = v.offset * v.chunks if len(v.offset) == 1 else v.offset
    return [v.layers // _stages(v) + extra for row in rows for extra in row]


def _repeated(v: View) -> Any:
    built = _built(v)
    return (
        built is not None
        and sum(built) != v.layers
        and f"one row of offset is repeated for {v.chunks} chunks: {sum(built)} layers are built, not {v.layers}"
    )


def _empty(v: View) -> Any:
    built = _built(v)
    if built is None:
        return None
    bad = built[0] < 0 or built[-1] < 0 or any(count < 1 for count in built[1:-1])
    return bad and f"{built} layers: the first and last chunk may be empty, the others hold at least one"


def _endless_layers(v: View) -> Any:
    built = _built(v)
    return built is not None and min(built) < 0 and f"{built} layers: a negative number starts an endless loop"


def _numbers(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return []
    return [item for each in value for item in (each if isinstance(each, (list, tuple)) else (each,))]


def _recompute_kind(v: View) -> Any:
    value = v[RECOMPUTE]
    if value is None or isinstance(value, bool):
        return None
    items = _numbers(value)
    good = isinstance(value, (list, tuple)) and all(isinstance(item, (bool, int)) for item in items)
    return not good and f"recompute {value}: true, false, or counts of layers by stage (and chunk)"


def _clamped(v: View) -> Any:
    value, pp = v[RECOMPUTE], v.size(PP)
    if v[SWAP] or not isinstance(value, (list, tuple)) or v.layers is None:
        return None
    most = max(_built(v) or [-(-v.layers // _stages(v))])
    counts = [item for item in _numbers(value) if whole(item)]
    big = [count for count in counts if count > most]
    if big:
        return f"recompute {big[0]} → {most}: a chunk has no more layers"
    rows = value if isinstance(value[0], (list, tuple)) else (value,)
    short = any(len(row) < pp for row in rows)
    return short and f"recompute counts {len(rows[0])} stages of {pp}: the others recompute nothing"


def _longer(key: str) -> Any:
    def when(v: View) -> Any:
        value, pp = v[key], v.size(PP)
        rows = [row for row in value if isinstance(row, (list, tuple))] if isinstance(value, (list, tuple)) else []
        if rows and not v[SWAP] and (len(rows) > v.chunks or any(len(row) > pp for row in rows)):
            return f"{key} has counts for {len(rows)} chunks of {len(rows[0])} stages: there are {v.chunks} of {pp}"
        flat = isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value)
        return not v[SWAP] and flat and len(value) > pp and f"{key} has {len(value)} counts, pp is {pp}"

    return when


def _select_kind(v: View) -> Any:
    value = v[SELECT]
    if value is None or isinstance(value, (bool, dict, list, tuple)):
        return None
    return f"select_recompute {value}: true, a list of cell names, or names with layers"


LAYERS = (
    MindRule(
        id="MF-OFFSET-SHAPE",
        doc="offset has one figure for each stage, in one row or in a row for each chunk.",
        source=f"{_UTILS}:579-582; {_OLD_UTILS}:593-596",
        keys=(OFFSET, PP, CHUNKS),
        fields=_SPLIT,
        when=_shape,
    ),
    MindRule(
        id="MF-OFFSET-SUM",
        doc="offset says where the layers go that an even split leaves over: its sum is that rest.",
        source=f"{_UTILS}:585; {_OLD_UTILS}:600",
        keys=(OFFSET, PP, CHUNKS),
        fields=_SPLIT,
        when=_sum,
    ),
    MindRule(
        id="MF-OFFSET-REPEATED",
        doc="One row of offset is checked once and used for every chunk: a wrong number of layers is trained (S9).",
        source=f"{_UTILS}:585-592; seen: 29 layers become [[8,7],[8,7]] = 30, DeepSeek's 61 become 74",
        keys=(OFFSET, CHUNKS),
        fields=_SPLIT,
        when=_repeated,
    ),
    MindRule(
        id="MF-OFFSET-EMPTY",
        doc="Only the first and the last chunk may be empty.",
        source=f"{_UTILS}:595-603",
        keys=(OFFSET, PP, CHUNKS),
        fields=_SPLIT,
        when=_empty,
        since="2.0",
    ),
    MindRule(
        id="MF-OFFSET-ENDLESS",
        doc="A chunk with a negative number of layers sends version 1.6 into an endless loop (S8).",
        source=f"{_OLD_UTILS}:480",
        keys=(OFFSET, PP, CHUNKS),
        fields=_SPLIT,
        when=_endless_layers,
        until="1.8.99",
    ),
    MindRule(
        id="MF-OFFSET-IGNORED",
        doc="Without several stages or chunks offset means nothing (S5).",
        source=f"{_UTILS}:572",
        keys=(OFFSET, PP),
        fields=("parallel.pp",),
        when=lambda v: v.offset is not None and _is_ignored(v) and any(_numbers(v.offset)),
        say="offset is ignored: there is one stage and one chunk",
        severity="warning",
    ),
    MindRule(
        id="MF-CHUNKS-OFF",
        doc="Chunks exist only with pipeline_interleave; without it they are silently one (S4).",
        source=f"{_OLD_UTILS}: pp_interleave_num is read with pipeline_interleave; seen: [[14,14]]",
        keys=(CHUNKS, INTERLEAVE),
        when=lambda v: (
            v.declared_chunks > 1
            and not v[INTERLEAVE]
            and f"vpp {v.declared_chunks} → 1: parallel.pipeline_config.pipeline_interleave is not on"
        ),
        severity="warning",
    ),
)

RESETS = (
    MindRule(
        id="MF-SET-SIZES",
        doc="Outside the automatic parallel modes all parallel sizes are reset to 1 (S1).",
        source=f"{_TRAINER}:273-280",
        keys=(MODE, DP, TP, PP),
        fields=("parallel.tp", "parallel.pp", "parallel.cp"),
        when=lambda v: not v.automatic and max(v.size(key) for key in (TP, PP, "parallel_config.context_parallel")) > 1,
        say="tp, pp, cp → 1: parallel_mode is not automatic (1), and every device trains alone with its data",
        severity="warning",
    ),
    MindRule(
        id="MF-SET-MICRO-BATCHES",
        doc="Without stages micro_batch_num is reset to 1, and the global batch shrinks with it (S2).",
        source=f"{_TRAINER}:197",
        keys=(MICRO, PP),
        fields=("batch.global_batch_size", "parallel.pp"),
        when=lambda v: (
            v.automatic
            and v.size(PP) == 1
            and v.size(MICRO) > 1
            and f"micro_batch_num {v.size(MICRO)} → 1 with pp 1: the global batch shrinks with it"
        ),
        severity="warning",
    ),
    MindRule(
        id="MF-SET-ACCUMULATION",
        doc="With stages gradient accumulation is reset to 1, and the global batch shrinks with it (S3).",
        source=f"{_TRAINER}:301",
        keys=(ACCUMULATION, PP),
        fields=("batch.global_batch_size", "parallel.pp"),
        when=lambda v: (
            v.size(PP) > 1
            and v.size(ACCUMULATION) > 1
            and f"gradient_accumulation_steps {v.size(ACCUMULATION)} → 1 with pp {v.size(PP)}: raise micro_batch_num"
        ),
        severity="warning",
    ),
    MindRule(
        id="MF-SET-VOCABULARY",
        doc="With stages the vocabulary is split over tensor-parallel ranks, whatever vocab_emb_dp says (S3).",
        source="mindformers 1.6.0 core/parallel_config.py:66",
        keys=("parallel_config.vocab_emb_dp", PP),
        fields=("parallel.pp",),
        when=lambda v: v.given("parallel_config.vocab_emb_dp") and v["parallel_config.vocab_emb_dp"] and v.size(PP) > 1,
        say="vocab_emb_dp true → false: with stages the vocabulary is split over tensor-parallel ranks",
        severity="change",
    ),
)

MEMORY = (
    MindRule(
        id="MF-RECOMPUTE-KIND",
        doc="recompute is a switch, or counts of layers by stage.",
        source=f"{_OLD_UTILS}:512-516",
        keys=(RECOMPUTE,),
        when=_recompute_kind,
    ),
    MindRule(
        id="MF-RECOMPUTE-LONG",
        doc="There is at most one count for each stage.",
        source=f"{_CHECKS}:285-289",
        keys=(RECOMPUTE, PP),
        when=_longer(RECOMPUTE),
    ),
    MindRule(
        id="MF-SELECT-LONG",
        doc="There is at most one count for each stage.",
        source=f"{_CHECKS}:285-289",
        keys=(SELECT, PP),
        when=_longer(SELECT),
    ),
    MindRule(
        id="MF-RECOMPUTE-ENDLESS",
        doc="A negative count sends MindFormers into an endless loop (S8).",
        source=f"{_OLD_UTILS}:480 (_alloc_recompute_layer)",
        keys=(RECOMPUTE,),
        when=lambda v: any(whole(item) and item < 0 for item in _numbers(v[RECOMPUTE])),
        say="a negative recompute count starts an endless loop",
    ),
    MindRule(
        id="MF-RECOMPUTE-CLAMPED",
        doc="Counts above the layers of a chunk are cut, and stages without a count recompute nothing (S6).",
        source=f"{_OLD_UTILS}:495-530",
        keys=(RECOMPUTE, PP),
        when=_clamped,
        severity="warning",
    ),
    MindRule(
        id="MF-RECOMPUTE-IDS",
        doc="With swapping, numbers in recompute lists are layers, not counts of layers (S7).",
        source="mindformers 1.6.0 models/utils.py; tools/check_rules.py:292-300",
        keys=(RECOMPUTE, SELECT, SWAP),
        when=lambda v: v[SWAP] and any(whole(item) for key in (RECOMPUTE, SELECT) for item in _numbers(v[key])),
        say="with swap_config.swap the numbers of recompute lists are layer ids, no longer counts by stage",
        severity="warning",
    ),
    MindRule(
        id="MF-SELECT-KIND",
        doc="select_recompute names cells.",
        source=f"{_OLD_UTILS}:540",
        keys=(SELECT,),
        when=_select_kind,
    ),
    MindRule(
        id="MF-RECOMPUTE-SLICE",
        doc="The mcore graph does not slice recomputed activations.",
        source="mindformers 2.1.0 parallel_core/transformer_config.py:2709",
        keys=("recompute_config.recompute_slice_activation",),
        fields=("backend.args",),
        when=lambda v: v["recompute_config.recompute_slice_activation"] is True,
        say="recompute_slice_activation is not supported by the mcore graph",
        since="2.0",
        dialects=("mcore",),
    ),
    MindRule(
        id="MF-PREFETCH",
        doc="Swapped activations come back at least one layer ahead.",
        source=f"{_CHECKS}:347",
        keys=("swap_config.default_prefetch", SWAP),
        fields=("backend.args",),
        when=lambda v: (
            v[SWAP] and (not whole(v["swap_config.default_prefetch"]) or v["swap_config.default_prefetch"] < 1)
        ),
        say="swap_config.default_prefetch must be a whole number above 0",
    ),
    MindRule(
        id="MF-LAYER-SWAP",
        doc="Swapped layers are a list of entries with layers and a prefetch of at least 1.",
        source=f"{_CHECKS}:329-345",
        keys=("swap_config.layer_swap", SWAP),
        fields=("offload.activation_layers",),
        when=lambda v: v[SWAP] and _bad_swap(v["swap_config.layer_swap"]),
        say="swap_config.layer_swap must be a list of {layers, backward_prefetch ≥ 1}",
    ),
    MindRule(
        id="MF-OP-SWAP",
        doc="Swapped operators are named, each with entries of layers.",
        source=f"{_CHECKS}:352-360",
        keys=("swap_config.op_swap", SWAP),
        fields=("backend.args",),
        when=lambda v: v[SWAP] and v["swap_config.op_swap"] and not isinstance(v["swap_config.op_swap"], dict),
        say="swap_config.op_swap must be a mapping of operator names to entries",
    ),
)


def _bad_swap(value: Any) -> bool:
    if not value:
        return False
    if not isinstance(value, (list, tuple)):
        return True
    entries = [entry for entry in value if isinstance(entry, dict)]
    good = [e for e in entries if whole(e.get("backward_prefetch")) and e["backward_prefetch"] >= 1]
    return len(good) != len(value)


OLDER = (
    MindRule(
        id="MF-MASK-LENGTH",
        doc="A compressed mask of the older models is for sequences of at least 2048 tokens.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:1262",
        keys=(MODEL + "use_attn_mask_compression", MODEL + "seq_length"),
        fields=("batch.seq_length",),
        when=lambda v: v.flash and v.model("use_attn_mask_compression") and (v.model("seq_length") or 2048) < 2048,
        say="use_attn_mask_compression needs sequences of at least 2048 tokens",
        dialects=("legacy",),
    ),
)
declare(*LAYERS, *RESETS, *MEMORY, *OLDER)
