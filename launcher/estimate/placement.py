"""Placement of layers, embeddings and heads on pipeline stages: Megatron-core's rules for even and uneven splits."""

from functools import lru_cache

from launcher.estimate.kinds import Kind
from launcher.estimate.schedule import schedule_of
from launcher.estimate.sizes import Sizes
from launcher.job import Job
from launcher.pipeline_schedule.layout import CannotSplit, parse_layout
from launcher.records import record


@record(eq=False)
class Chunk:
    """One model chunk of a stage: dense and MoE layers in order, with embedding, MTP layers and head.

    Equal chunks are one object (`_chunk`), because the cost caches look them up often, by identity.

    Attributes:
        kinds: kind of each layer.
        embedding: the token embedding is at its start.
        mtp: multi-token-prediction layers at its end.
        norm: the final normalisation is at its end.
        head: the output layer and the loss are at its end.
        recomputed: layers at its beginning that method `block` recomputes; None: the same number in all chunks.
        in_part: layers after those of which modules are recomputed; None: all that are left.
    """

    kinds: tuple[Kind, ...]
    embedding: bool = False
    mtp: int = 0
    norm: bool = False
    head: bool = False
    recomputed: int | None = None
    in_part: int | None = None


@lru_cache(maxsize=4096)
def _chunk(
    kinds: tuple[Kind, ...],
    embedding: bool,
    mtp: int,
    norm: bool,
    head: bool,
    recomputed: int | None = None,
    in_part: int | None = None,
) -> Chunk:
    return Chunk(
        kinds=kinds, embedding=embedding, mtp=mtp, norm=norm, head=head, recomputed=recomputed, in_part=in_part
    )


_PLACED: dict[tuple[object, ...], tuple[tuple[Chunk, ...], ...]] = {}
_MOST_PLACED = 512


def place(job: Job, sizes: Sizes) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks of every stage, stage by stage; the same splits of the same model are computed once.

    Raises:
        CannotSplit: the numbers of layers do not come out.
    """
    parallel, recompute = job.parallel, job.recompute
    key = (
        (
            sizes.layers,
            sizes.experts > 0,
            sizes.dense_first,
            sizes.moe_every,
            sizes.dense_at,
            sizes.mtp,
            sizes.pp,
            sizes.vpp,
        ),
        sizes.schedule,
        sizes.variants,
        (parallel.layout, parallel.noop_layers, parallel.first_stage_layers, parallel.last_stage_layers),
        (parallel.account_for_embedding, parallel.account_for_loss),
        (recompute.layers_per_chunk, recompute.selective_layers_per_chunk),
    )
    found = _PLACED.get(key)
    if found is None:
        if len(_PLACED) >= _MOST_PLACED:
            _PLACED.clear()
        found = _PLACED[key] = _treated(
            _place(job, sizes), recompute.layers_per_chunk, recompute.selective_layers_per_chunk
        )
    return found


def _treated(
    stages: tuple[tuple[Chunk, ...], ...], full: tuple[int, ...], in_part: tuple[int, ...]
) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks with their recomputation, where the job sets it per chunk."""
    parts = sum(map(len, stages))
    counts = [each if len(each) == parts else (None,) * parts for each in (full, in_part)]
    if all(each[0] is None for each in counts):
        return stages
    return tuple(
        tuple(
            _chunk(
                *(each.kinds, each.embedding, each.mtp, each.norm, each.head),
                *(numbers[virtual * len(stages) + stage] for numbers in counts),
            )
            for virtual, each in enumerate(chunks)
        )
        for stage, chunks in enumerate(stages)
    )


def _place(job: Job, sizes: Sizes) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks of every stage, stage by stage.

    Source: get_num_layers_to_build and get_transformer_layer_offset, megatron-core 0.16.1; with DualPipeV
    dualpipev_chunks.py:43 (MindSpeed 26.1.0).

    Raises:
        CannotSplit: the numbers of layers do not come out.
    """
    if job.parallel.layout:
        return _from_layout(job.parallel.layout, sizes)
    schedule = schedule_of(sizes)
    counts = _counts(job, sizes)
    noop = set(job.parallel.noop_layers)
    chunks: list[list[Chunk]] = [[] for _ in range(sizes.pp)]
    position, real = 0, 0
    total = sizes.layers + len(noop)
    for virtual in range(sizes.vpp):
        for number in range(virtual * sizes.pp, (virtual + 1) * sizes.pp):
            stage = schedule.stage(number)
            kinds = []
            for _ in range(counts[stage][virtual]):
                if position not in noop:
                    kinds.append(sizes.kind(real))
                    real += 1
                position += 1
            last = number == sizes.pp * sizes.vpp - 1
            chunks[stage].append(
                _chunk(
                    tuple(kinds),
                    stage == 0 and virtual == 0,
                    sizes.mtp if last else 0,
                    (position == total and bool(kinds)) if sizes.mtp else last,
                    last,
                )
            )
    return tuple(tuple(stage) for stage in chunks)


def _counts(job: Job, sizes: Sizes) -> list[list[int]]:
    """Return layers per stage and chunk."""
    parallel, pp, vpp = job.parallel, sizes.pp, sizes.vpp
    total = sizes.layers + sizes.noop
    first, last = parallel.first_stage_layers, parallel.last_stage_layers
    if pp == 1:
        return [[total // vpp] * vpp] if total % vpp == 0 else [[total]]
    stages: list[int]
    if first is not None or last is not None:
        middle = pp - (first is not None) - (last is not None)
        rest = total - (first or 0) - (last or 0)
        if rest < 0 or (middle and rest % middle) or (not middle and rest):
            raise CannotSplit(
                f"{total} layers less {(first or 0) + (last or 0)} of the first and last stage are {rest}, which "
                f"{middle} stages cannot share equally",
                ("parallel.first_stage_layers", "parallel.last_stage_layers", "parallel.pp", "model.num_hidden_layers"),
            )
        share = rest // middle if middle else 0
        stages = [share] * pp
        if first is not None:
            stages[0] = first
        if last is not None:
            stages[-1] = last
        extra_first = extra_last = 0
    else:
        extra_first, extra_last = int(bool(parallel.account_for_embedding)), int(bool(parallel.account_for_loss))
        share, rest = divmod(total + extra_first + extra_last, pp)
        if rest:
            raise CannotSplit(
                f"{total + extra_first + extra_last} layers cannot be shared equally by {pp} stages",
                ("model.num_hidden_layers", "parallel.pp"),
            )
        stages = [share] * pp
    if any(count % vpp for count in stages):
        raise CannotSplit(
            f"{max(stages)} layers of a stage cannot be shared equally by {vpp} chunks",
            ("parallel.vpp", "parallel.pp", "model.num_hidden_layers"),
        )
    counts = [[count // vpp] * vpp for count in stages]
    end = schedule_of(sizes).stage(pp * vpp - 1)
    counts[0][0] -= extra_first
    counts[end][-1] -= extra_last
    if counts[0][0] < 0 or counts[end][-1] < 0:
        raise CannotSplit("a stage that counts the embedding or loss as a layer has none left", ("parallel.pp",))
    return counts


def _from_layout(text: str, sizes: Sizes) -> tuple[tuple[Chunk, ...], ...]:
    parts = parse_layout(text)
    flat = "".join(parts)
    wanted = {"t": sizes.layers, "m": sizes.mtp, "E": 1, "L": 1}
    for letter, count in wanted.items():
        if flat.count(letter) != count:
            message = f"the layout has {flat.count(letter)} × {letter}, the model needs {count}"
            raise CannotSplit(message, ("parallel.layout", "model.num_hidden_layers"))
    if len(parts) % sizes.pp:
        raise CannotSplit(
            f"{len(parts)} chunks cannot be shared by {sizes.pp} stages", ("parallel.layout", "parallel.pp")
        )
    stages: list[list[Chunk]] = [[] for _ in range(sizes.pp)]
    real, schedule = 0, schedule_of(sizes)
    for index, part in enumerate(parts):
        count = part.count("t")
        kinds = tuple(sizes.kind(real + offset) for offset in range(count))
        real += count
        head = "L" in part
        norm = (count > 0 and real == sizes.layers) if sizes.mtp else head
        stage = schedule.stage(index) if index < 2 * sizes.pp else index % sizes.pp
        stages[stage].append(_chunk(kinds, "E" in part, part.count("m"), norm, head))
    return tuple(tuple(stage) for stage in stages)


__all__ = ["CannotSplit", "Chunk", "place"]
