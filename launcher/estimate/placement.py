"""Which layers, embeddings and heads lie on which pipeline stage: Megatron-core's rules for even and uneven splits."""

import re
from dataclasses import dataclass

from launcher.estimate.sizes import Sizes
from launcher.job import Job


class CannotSplit(ValueError):
    """The layers cannot be spread over the stages; `fields` names what to change."""

    def __init__(self, message: str, fields: tuple[str, ...]) -> None:
        super().__init__(message)
        self.fields = fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One model chunk of a stage: dense and MoE layers in order, and what stands before and after them.

    Attributes:
        kinds: per layer, whether it has experts.
        embedding: the token embedding is at its start.
        mtp: multi-token-prediction layers at its end.
        norm: the final normalisation is at its end.
        head: the output layer and the loss are at its end.
    """

    kinds: tuple[bool, ...]
    embedding: bool = False
    mtp: int = 0
    norm: bool = False
    head: bool = False


def place(job: Job, sizes: Sizes) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks of every stage, stage by stage.

    Source: get_num_layers_to_build and get_transformer_layer_offset, megatron-core 0.16.1.

    Raises:
        CannotSplit: the numbers of layers do not come out.
    """
    if job.parallel.layout:
        return _from_layout(job.parallel.layout, sizes)
    counts = _counts(job, sizes)
    noop = set(job.parallel.noop_layers)
    chunks: list[list[Chunk]] = [[] for _ in range(sizes.pp)]
    position, real = 0, 0
    total = sizes.layers + len(noop)
    for virtual in range(sizes.vpp):
        for stage in range(sizes.pp):
            kinds = []
            for _ in range(counts[stage][virtual]):
                if position not in noop:
                    kinds.append(sizes.is_moe_layer(real))
                    real += 1
                position += 1
            last = stage == sizes.pp - 1 and virtual == sizes.vpp - 1
            chunks[stage].append(
                Chunk(
                    kinds=tuple(kinds),
                    embedding=stage == 0 and virtual == 0,
                    mtp=sizes.mtp if last else 0,
                    norm=(position == total and bool(kinds)) if sizes.mtp else last,
                    head=last,
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
    counts[0][0] -= extra_first
    counts[-1][-1] -= extra_last
    if counts[0][0] < 0 or counts[-1][-1] < 0:
        raise CannotSplit("a stage that counts the embedding or loss as a layer has none left", ("parallel.pp",))
    return counts


def parse_layout(text: str) -> list[str]:
    """Return the chunks of a layout such as `Et*3|(tt|)*29,m|L` as strings of E, t, m and L.

    Raises:
        CannotSplit: a letter is unknown.
    """
    text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda match: match[1] * int(match[2]), text.replace(",", "").replace(" ", ""))
    text = re.sub(r"(.)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    wrong = sorted(set(text) - set("EtmL|"))
    if wrong:
        raise CannotSplit(f"{''.join(wrong)!r} is no part of a layout: E, t, m, L, |, (…)*n", ("parallel.layout",))
    return text.split("|")


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
    real = 0
    for index, part in enumerate(parts):
        count = part.count("t")
        kinds = tuple(sizes.is_moe_layer(real + offset) for offset in range(count))
        real += count
        head = "L" in part
        norm = (count > 0 and real == sizes.layers) if sizes.mtp else head
        stages[index % sizes.pp].append(
            Chunk(kinds=kinds, embedding="E" in part, mtp=part.count("m"), norm=norm, head=head)
        )
    return tuple(tuple(stage) for stage in stages)
