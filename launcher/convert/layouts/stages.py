"""Assigns layers to pipeline stages and chunks, with their local layer numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launcher.convert.containers.errors import ConvertError
from launcher.convert.layouts.offers import Problem, Undivided, divisors, problem
from launcher.pipeline_schedule.layout import CannotSplit, parse_layout
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Pipeline split of a model.

    Attributes:
        pp, vpp: stages, and model chunks of each.
        first, last: layers of the first and the last stage, if different from the others.
        layout: an explicit pipeline layout instead.
        noop: numbers of no-op layers; they count as layers and have no weights.
        account_for_embedding, account_for_loss: the first or the last stage holds one layer less.
        folded: two chunks per stage, the second ones in reverse order (a V-shaped pipeline).
    """

    pp: int = 1
    vpp: int = 1
    first: int | None = None
    last: int | None = None
    layout: str | None = None
    noop: tuple[int, ...] = ()
    account_for_embedding: bool = False
    account_for_loss: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Content of one model chunk of a stage.

    Attributes:
        stage, virtual: indices of the stage and of the chunk in it.
        layers: (number inside the chunk, number in the model) of each decoder layer; no-op layers are omitted.
        first: it is the first chunk of the model.
        mtp: it holds the multi-token-prediction layers.
        norm: it holds the final norm.
        head: it is the last chunk of the model.
    """

    stage: int
    virtual: int
    layers: tuple[tuple[int, int], ...]
    first: bool = False
    mtp: bool = False
    norm: bool = False
    head: bool = False


def place_layers(stages: Stages, layers: int, mtp: int, *, norm_with_head: bool = False) -> tuple[Chunk, ...]:
    """Return all chunks in forward order.

    Args:
        stages: the pipeline split.
        layers: decoder layers of the model, without no-op layers.
        mtp: multi-token-prediction layers.
        norm_with_head: the final norm is stored with the output layer even if MTP layers follow the decoder.

    Source: get_num_layers_to_build, get_transformer_layer_offset, megatron-core 0.16.1 transformer_block.py.

    Raises:
        ConvertError: the layers cannot be distributed this way.
    """
    if stages.layout is not None:
        return _from_layout(stages.layout, stages, layers, mtp)
    _check_noop(stages, layers)
    order = chunk_order(stages)
    counts = _counts(stages, layers + len(stages.noop))
    chunks, position, number = [], 0, 0
    for index, (stage, virtual) in enumerate(order):
        held = []
        for local in range(counts[stage][virtual]):
            if position + local not in stages.noop:
                held.append((local, number))
                number += 1
        position += counts[stage][virtual]
        last = index == len(order) - 1
        ends = bool(held) and number == layers
        chunks.append(
            Chunk(
                stage=stage,
                virtual=virtual,
                layers=tuple(held),
                first=index == 0,
                mtp=last and mtp > 0,
                norm=ends if mtp and not norm_with_head else last,
                head=last,
            )
        )
    assert number == layers
    return tuple(chunks)


def _check_noop(stages: Stages, layers: int) -> None:
    """Refuse numbers that are no layer, or named twice; offered are those at the end that fill up the stages."""
    total, parts = layers + len(stages.noop), stages.pp * stages.vpp
    outside = [number for number in stages.noop if not 0 <= number < total]
    if not outside and len(set(stages.noop)) == len(stages.noop):
        return
    what = f"layer {outside[0]} is outside 0 … {total - 1}" if outside else "a layer is named twice"
    text = f"parallel.noop_layers={_shown(stages.noop)}: {what}"
    filling = tuple(range(layers, -(-layers // parts) * parts))
    try:
        _counts(replace(stages, noop=filling), layers + len(filling))
    except ConvertError:
        raise ConvertError(text) from None
    raise ConvertError(f"{text}; works: parallel.noop_layers={_shown(filling)}")


def _shown(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def chunk_order(stages: Stages) -> list[tuple[int, int]]:
    """Return (stage, chunk) in forward order."""
    if not stages.folded:
        return [(stage, virtual) for virtual in range(stages.vpp) for stage in range(stages.pp)]
    down = [(stage, 0) for stage in range(stages.pp)]
    return [*down, *((stage, 1) for stage, _ in reversed(down))]


def _counts(stages: Stages, total: int) -> list[list[int]]:
    """Return the number of layers of each stage and chunk, including no-op layers."""
    share = _per_stage(stages, total)
    uneven = [count for count in share if count % stages.vpp]
    if uneven:
        shared = f"{uneven[0]} layers of a stage cannot be shared equally by {stages.vpp} chunks"
        raise Undivided(problem(shared, "vpp", stages.vpp, divisors(*share)))
    counts = [[count // stages.vpp] * stages.vpp for count in share]
    counts[0][0] -= stages.account_for_embedding
    counts[-1][-1] -= stages.account_for_loss
    return counts


def _per_stage(stages: Stages, total: int) -> list[int]:
    first, last, pp = stages.first, stages.last, stages.pp
    if pp == 1:
        return [total]
    if first is None and last is None:
        total += stages.account_for_embedding + stages.account_for_loss
    ends = [count for count in (first, last) if count is not None]
    rest, others = total - sum(ends), pp - len(ends)
    if rest < 0 or (rest % others if others else rest):
        shared = f"{rest} layers cannot be shared equally by {others} pipeline stages"
        if rest < 0 or not others:
            given = {"first_stage_layers": first, "last_stage_layers": last}
            named = " and ".join(f"{name}={count}" for name, count in given.items() if count is not None)
            shared = f"{named}: the model has {total} layers for {pp} pipeline stages"
        raise Undivided(_uneven(shared, stages, total, others))
    share = [rest // others if others else 0] * pp
    if first is not None:
        share[0] = first
    if last is not None:
        share[-1] = last
    return share


def _from_layout(text: str, stages: Stages, layers: int, mtp: int) -> tuple[Chunk, ...]:
    try:
        parts = parse_layout(text)
    except CannotSplit as error:
        raise ConvertError(f"parallel.layout: {error}") from None
    held = "".join(parts)
    for letter, count in {"t": layers, "m": mtp, "E": 1, "L": 1}.items():
        if held.count(letter) != count:
            text = f"parallel.layout has {held.count(letter)} × {letter}, the model needs {count}"
            raise ConvertError(text + _with_mtp(parts, mtp) if letter == "m" else text)
    if len(parts) != stages.pp * stages.vpp:
        raise ConvertError(f"parallel.layout has {len(parts)} chunks, {stages.pp} stages × {stages.vpp} are requested")
    chunks, number = [], 0
    for index, part in enumerate(parts):
        count = part.count("t")
        numbers = tuple((local, number + local) for local in range(count))
        number += count
        head = "L" in part
        chunks.append(
            Chunk(
                stage=index % stages.pp,
                virtual=index // stages.pp,
                layers=numbers,
                first="E" in part,
                mtp="m" in part,
                norm=(count > 0 and number == layers) if mtp else head,
                head=head,
            )
        )
    return tuple(chunks)


def _with_mtp(parts: Sequence[str], mtp: int) -> str:
    """Return the layout whose last part with the loss has the model's multi-token-prediction layers, as an offer."""
    bare = [part.replace("m", "") for part in parts]
    if any(not part for part in bare) or sum("L" in part for part in bare) != 1:
        return ""
    return f"; works: 'parallel.layout={'|'.join(part.replace('L', 'm' * mtp + 'L') for part in bare)}'"


def _uneven(text: str, stages: Stages, total: int, others: int) -> Problem:
    """Return the problem with the sizes that leave equal stages where no size is given."""
    first, last = stages.first, stages.last
    if first is None and last is None:
        return problem(text, "pp", stages.pp, divisors(total))
    field, now = ("first_stage_layers", first) if first is not None else ("last_stage_layers", last)
    kept = (last or 0) if first is not None else 0
    sizes = [
        size
        for size in range(1, total - kept + 1)
        if (size < total - kept and (total - kept - size) % others == 0 if others else size == total - kept)
    ]
    return problem(text, field, now, sizes) if sizes else problem(text, "pp", stages.pp, range(1, total + 1))
