"""DeepSeek-V4's attention over pipeline stages: where its layers with an indexer must be."""

from collections.abc import Iterator, Sequence

from backends.megatron_lm.rules.sizes import uneven_stages
from backends.mindspeed.rules.tables import MINDSPEED
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.sanity_checks import layout_chunks

_STAGES, _CHUNK = "pipeline-model-parallel-size", "num-layers-per-virtual-pipeline-stage"
_LAYOUT, _SCHEDULE = "pipeline-model-parallel-layout", "schedules-method"
# tasks/models/transformer/deepseek4/csa.py:278 @26.1.0: layers with other ratios have no indexer.
_INDEXED_RATIO = 4


@rule(
    "MS-DSA-STAGE",
    source="MindSpeed-LLM 26.1.0 tasks/models/transformer/dsa_indexer.py:700-716, training/training.py:1128; measured: "
    "the rehearsal of such a job hangs in its first iteration",
    reads=f"enable-dsa-indexer kv-compress indexer-loss-coeff compress-ratios num-layers {_STAGES} {_CHUNK} {_LAYOUT} "
    f"{_SCHEDULE} decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers",
    backends=MINDSPEED,
    since="26.1",
    stricter=True,
    reason="it does not check it, and hangs: ranks without an indexer leave out the all-reduce of its loss",
)
def every_stage_has_an_indexer(context: RuleContext) -> Iterator[Violation]:
    """With compressed attention, every pipeline stage has a layer with an indexer (compression ratio 4)."""
    ratios, stages = context.items("compress-ratios"), context.number(_STAGES, 1)
    compressed = context.flag("enable-dsa-indexer") and context.flag("kv-compress")
    if not compressed or stages < 2 or not ratios or context.flag("indexer-loss-coeff") == 0:
        return
    start, chunks = 0, _chunks(context, stages)
    indexed: set[int] = set()
    for number, size in enumerate(chunks):
        # Ratios after those of the layers are of layers that predict, which are in the last chunk.
        end = start + size if number + 1 < len(chunks) else None
        if _INDEXED_RATIO in ratios[start:end]:
            indexed.add(_stage(context, number, stages))
        start += size
    lacking = sorted(set(range(stages)) - indexed)
    if indexed and lacking:
        yield Violation(
            message=f"stage {lacking[0]} of {stages} has no layer with compression ratio {_INDEXED_RATIO}: the stages "
            "with one wait for it for ever when they reduce the loss of their indexers",
            flags=("compress-ratios", _STAGES, "num-layers"),
        )


def _stage(context: RuleContext, chunk: int, stages: int) -> int:
    turn, place = divmod(chunk, stages)
    return stages - 1 - place if turn % 2 and context.flag(_SCHEDULE) == "dualpipev" else place


def _chunks(context: RuleContext, stages: int) -> Sequence[int]:
    """Return the layers of each chunk; none where other rules refuse the split."""
    layers, layout, ends = context.number("num-layers"), context.flag(_LAYOUT), uneven_stages(context)
    if layout:
        return [chunk.count("t") for chunk in layout_chunks(str(layout))]
    if ends:
        middle = stages - len(ends)
        rest = layers - sum(ends)
        first = [ends[0]] if context.flag("decoder-first-pipeline-num-layers") is not None else []
        return [*first, *[rest // middle if middle else 0] * middle, *ends[len(first) :]]
    size = context.number(_CHUNK) or layers // stages // (2 if context.flag(_SCHEDULE) == "dualpipev" else 1)
    return [size] * (layers // size) if size else []
