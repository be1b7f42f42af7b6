"""Converts a job's pipeline to a problem with estimated figures, and a split to values of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from launcher.balance.local import even, kinds_in_order
from launcher.balance.problem import BadProblem, Fixed, Kind, Mode, Problem, Split
from launcher.estimate import network
from launcher.estimate.as_run import as_run
from launcher.estimate.check import resolved
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.estimate.kinds import Kind as LayerKind
from launcher.estimate.machine import Machine, read_machine
from launcher.estimate.memory import static
from launcher.estimate.parameters import chunk_parameters
from launcher.estimate.placement import Chunk
from launcher.estimate.result import Estimate
from launcher.estimate.sizes import Sizes, kernel_sizes
from launcher.estimate.stages import ChunkCost, cost, parts_of
from launcher.job import Job, Value, with_values
from launcher.pipeline_schedule.layout import CannotSplit
from launcher.pipeline_schedule.order import PLAIN, SIMULATED
from launcher.pipeline_schedule.precedence import precedence
from launcher.records import dataclass
from launcher.rules.passthrough import with_passthrough

# Fields that a split replaces: the other ways to set the layers of a stage.
UNEVEN: dict[str, Value] = {
    "parallel.layout": None,
    "parallel.first_stage_layers": None,
    "parallel.last_stage_layers": None,
    "parallel.noop_layers": (),
    "parallel.account_for_embedding": None,
    "parallel.account_for_loss": None,
}
# Values for no recomputation: first the fields of full, then those of partial recomputation.
_IN_FULL = tuple(f"recompute.{name}" for name in ("granularity", "method", "num_layers", "layers_per_chunk"))
_IN_PART = "recompute.selective_layers_per_chunk"
RECOMPUTED: dict[str, Value] = {
    **dict(zip(_IN_FULL, (None, None, None, ()), strict=True)),
    _IN_PART: (),
    "recompute.modules": (),
    "recompute.activation": None,
    "recompute.activation_num_layers": None,
    "recompute.norm": None,
    "recompute.norm_num_layers": None,
    "recompute.per_pp_rank": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Posed:
    """A job's problem: seconds and bytes.

    Attributes:
        start: the same job with its layers spread evenly, used for estimates and encodings.
        before: its estimate.
    """

    problem: Problem
    start: Job
    before: Estimate


def layout_text(job: Job, layers: tuple[int, ...]) -> str:
    """Return layers per chunk in Megatron-core's layout syntax: `Ett|ttt|tmL`."""
    chunks = ["t" * count for count in layers]
    chunks[0] = "E" + chunks[0]
    chunks[-1] += "m" * (job.model.num_nextn_predict_layers or 0) + "L"
    return "|".join(chunks)


def short_layout(text: str) -> str:
    """Return a layout in short form, with repeated chunks as `(tt|)*n`.

    >>> short_layout("Ett|ttt|ttt|ttt|tL")
    'Et*2|(t*3|)*3tL'
    """

    def letters(chunk: str) -> str:
        runs = [(letter, len(list(run))) for letter, run in groupby(chunk)]
        return "".join(letter if count == 1 else f"{letter}*{count}" for letter, count in runs)

    chunks = [letters(chunk) for chunk in text.split("|")]
    written = ""
    for chunk, run in groupby(chunks[:-1]):
        count = len(list(run))
        written += f"{chunk}|" if count == 1 else f"({chunk}|)*{count}"
    return written + chunks[-1]


def split_values(job: Job, split: Split, recompute: Mapping[str, Value]) -> dict[str, Value]:
    """Return a split as canonical values that Megatron-core accepts: a layout, and recomputed layers."""
    return {**UNEVEN, "parallel.layout": layout_text(job, split.layers()), **recompute}


def recompute_values(problem: Problem, split: Split, part: Mapping[str, Value]) -> dict[str, Value]:
    """Return the recomputation of a split.

    Args:
        part: values of the partial recomputation of a layer.
    """
    if problem.covered is not None:
        most = min(problem.covered, max(split.layers()))
        full = dict(zip(_IN_FULL, ("full", "block", most, ()), strict=True)) if most else {}
        return {**RECOMPUTED, **part, **full}
    chunks, some = split.in_mode(problem, "full"), split.in_mode(problem, "selective")
    values = {**RECOMPUTED, **(part if any(some) else {})}
    if any(chunks):
        values |= zip(_IN_FULL, ("full", "block", max(chunks), _each(chunks)), strict=True)
    if any(some):
        everything = all(sum(counts) == all_ for *counts, all_ in zip(chunks, some, split.layers(), strict=True))
        values[_IN_PART] = () if everything and not any(chunks) else some
    return values


def _each(chunks: tuple[int, ...]) -> tuple[int, ...]:
    return () if len(set(chunks)) == 1 else chunks


def pose(
    job: Job, *, recompute: bool = True, empty_ends: bool = False, whole: Mapping[str, Value] | None = None
) -> Posed:
    """Return the problem of a job's pipeline.

    Args:
        recompute: also choose how many layers are recomputed; otherwise the job's recomputation is kept.
        empty_ends: the first and the last chunk may have no layers.
        whole: partial recomputation of every layer that is not recomputed in full.

    Raises:
        CannotEstimate: the job's figures are incomplete or wrong.
        BadProblem: there is no pipeline, or no time or memory to balance.
    """
    job = with_passthrough(job)
    if job.parallel.pp < 2:
        raise BadProblem("parallel.pp is 1: there are no stages to balance")
    if job.parallel.schedule in SIMULATED and job.parallel.schedule != PLAIN:
        raise BadProblem(f"parallel.schedule is {job.parallel.schedule}: balancing knows the order of 1f1b only")
    total = job.model.num_hidden_layers or 0
    shape = Problem(
        stages=job.parallel.pp,
        chunks=job.parallel.vpp or 1,
        micro_batches=job.parallel.pp,
        kinds=(Kind(name="all", count=total, forward=1, memory=0, modes=(Mode(name="none", backward=0, keeps=0),)),),
        limits=(0.0,) * job.parallel.pp,
    ).checked()
    layout = layout_text(job, tuple(even(shape)))
    values: dict[str, Value] = {**UNEVEN, "parallel.layout": layout}
    if recompute:
        values |= RECOMPUTED | dict(whole or {})
    start = with_values(job, values)
    before = estimate(start, changes=False)
    if before.time is None or before.capacity is None:
        raise BadProblem("hardware: balancing needs the device's peak FLOP/s and memory")
    problem = with_limits(layer_times(as_run(start)[0], choose=recompute, empty_ends=empty_ends), before)
    return Posed(problem=problem, start=start, before=before)


def layer_times(
    start: Job, *, choose: bool = True, empty_ends: bool = False, part: Mapping[str, Value] | None = None
) -> Problem:
    """Return the layers of a job with their times and bytes, without memory limits.

    Args:
        choose: layers may be recomputed in full; the job itself then recomputes none in full.
        part: values under which layers may be recomputed in part, too.

    Raises:
        CannotSplit: the job's layers cannot be spread over its stages.
    """
    split = resolved(start)
    if isinstance(split, CannotSplit):
        raise split
    sizes = split.sizes
    machine, _ = read_machine(start, experts=sizes.experts > 0)
    layers = [layer for chunk in _in_order(split.stages) for layer in chunk.kinds]
    more = _modes(start, choose=choose, part=part)
    kinds = tuple(_kind(sizes, machine, layer, len(list(run)), more) for layer, run in groupby(layers))
    parts = sizes.pp * sizes.vpp
    first = _fixed(sizes, machine, Chunk(kinds=(), embedding=True))
    last = _fixed(sizes, machine, Chunk(kinds=(), mtp=sizes.mtp, norm=True, head=True))
    activation = sizes.local_tokens * sizes.hidden * float(sizes.act)
    if parts == 1:
        last = Fixed(
            forward=first.forward + last.forward,
            backward=first.backward + last.backward,
            keeps=first.keeps + last.keeps,
        )
    return Problem(
        stages=sizes.pp,
        chunks=sizes.vpp,
        micro_batches=sizes.micro_batches,
        kinds=kinds,
        limits=(float("inf"),) * sizes.pp,
        fixed={0: first, parts - 1: last},
        transfer=network.send(machine, activation, sizes.world // sizes.pp),
        fewest=1,
        may_be_empty=frozenset({0, parts - 1}) if empty_ends else frozenset(),
    )


def layers_of(job: Job) -> list[int]:
    """Return the layers of a job per chunk, in the model's order.

    Raises:
        CannotSplit: they cannot be spread over its stages.
    """
    split = resolved(job)
    if isinstance(split, CannotSplit):
        raise split
    return [len(chunk.kinds) for chunk in _in_order(split.stages)]


def _in_order(stages: tuple[tuple[Chunk, ...], ...]) -> list[Chunk]:
    """Return chunks in the model's order."""
    return [chunk for virtual in zip(*stages, strict=True) for chunk in virtual]


def _modes(start: Job, *, choose: bool, part: Mapping[str, Value] | None) -> dict[str, tuple[str, ...]]:
    """Return the recomputation modes of a layer by name, with the modules that each recomputes."""
    modes: dict[str, tuple[str, ...]] = {}
    if part:
        split = resolved(with_values(start, part))
        assert not isinstance(split, CannotSplit)
        modes["selective"] = split.sizes.recompute_modules
    return {**modes, "full": ()} if choose else modes


def _kind(sizes: Sizes, machine: Machine, layer: LayerKind, count: int, more: Mapping[str, tuple[str, ...]]) -> Kind:
    one = Chunk(kinds=(layer,))
    plain = _cost(sizes, machine, one)
    own = "full" if sizes.recompute in ("full", "block") else "none"
    modes = [Mode(name=own, backward=plain.backward_total, keeps=plain.keeps)]
    for name, modules in more.items():
        again = _cost(replace(sizes, recompute=name, recompute_modules=modules), machine, one)
        modes.append(Mode(name=name, backward=again.backward_total, keeps=again.keeps))
    return Kind(
        name=layer.name,
        count=count,
        forward=plain.forward_total,
        memory=sum(static(sizes, chunk_parameters(sizes, one), 0)),
        modes=tuple(modes),
    )


def _cost(sizes: Sizes, machine: Machine, chunk: Chunk) -> ChunkCost:
    return cost(parts_of(kernel_sizes(sizes), machine, chunk))


def _fixed(sizes: Sizes, machine: Machine, chunk: Chunk) -> Fixed:
    made = _cost(sizes, machine, chunk)
    return Fixed(forward=made.forward_total, backward=made.backward_total, keeps=made.keeps)


def _dealt(problem: Problem) -> Split:
    """Return the layers spread evenly, without optional recomputation."""
    dealt = kinds_in_order(problem, even(problem))
    zeros = (0,) * problem.parts
    return Split(
        counts=tuple(
            (tuple(counts), *(zeros for _ in kind.modes[1:])) for kind, counts in zip(problem.kinds, dealt, strict=True)
        )
    )


def even_split(posed: Posed) -> Split:
    """Return the even split that a problem starts from."""
    return _dealt(posed.problem)


def with_limits(problem: Problem, before: Estimate) -> Problem:
    """Return the problem with limits that leave the even split the headroom that its estimate has to capacity.

    What the estimate counts beyond layers and activations in flight (embedding, head, workspaces, temporaries of the
    running kernel, the allocator's reserve) is thereby subtracted from each stage.
    """
    assert before.capacity is not None
    steps = precedence(problem.schedule)
    counted = _dealt(problem).memory(problem, steps.in_flight)
    limits = []
    for stage, used in zip(before.stages, counted, strict=True):
        left = before.capacity - before.outside - stage.peak_reserved
        limits.append(used + left * stage.peak_allocated / stage.peak_reserved)
    return replace(problem, limits=tuple(limits))


__all__ = [
    "RECOMPUTED",
    "UNEVEN",
    "CannotEstimate",
    "Posed",
    "even_split",
    "layer_times",
    "layers_of",
    "layout_text",
    "pose",
    "recompute_values",
    "short_layout",
    "split_values",
    "with_limits",
]
