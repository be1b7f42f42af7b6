"""Recomputation choices that a backend supports: parts of a layer, number of layers, and the problem of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from launcher.balance.from_job import RECOMPUTED, Posed, layer_times, pose, with_limits
from launcher.balance.parts import MODULES, PARTS, union
from launcher.balance.problem import Problem
from launcher.job import Job, Origin, Value, value_at, with_values
from launcher.job.finding import Finding
from launcher.pipeline import Outcome, judge
from launcher.pipeline_schedule.layout import parse_layout
from launcher.records import dataclass

_ORIGIN = Origin(kind="override", where="launch balance")
_FULL, _PART = "recompute.layers_per_chunk", "recompute.selective_layers_per_chunk"
_OWN = (MODULES, "recompute.activation", "recompute.norm")
# Maximum number of unions of parts to try.
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One recomputation choice, and the problem of splitting the layers under it.

    Attributes:
        estimated: the problem with the estimate's times.
        problem: the problem to solve: with measured times where available, with corrected limits.
        part: values of the partial recomputation of a layer.
    """

    estimated: Problem
    problem: Problem
    part: Mapping[str, Value]


def _choice(problem: Problem, part: Mapping[str, Value]) -> Choice:
    return Choice(estimated=problem, problem=problem, part=part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Whether a backend supports layer counts per chunk, and if not, why."""

    full_each: bool
    part_each: bool
    why: tuple[str, ...]


class _Backend:
    """Recomputation support of the job's backend; without a backend, that of Megatron-core."""

    def __init__(self, start: Job) -> None:
        self.start = start
        self.plain = None if start.backend.name is None else self._judged({})
        self.known = {(each.rule, each.fields) for each in self.plain.findings} if self.plain is not None else set()

    def _judged(self, values: Mapping[str, Value]) -> Outcome:
        return judge(with_values(self.start, {**RECOMPUTED, **values}, _ORIGIN), fixes=False)

    def against(self, values: Mapping[str, Value]) -> list[Finding]:
        """Return errors and warnings that these values add."""
        return [
            finding
            for finding in self._judged(values).findings
            if finding.severity in ("error", "warning") and (finding.rule, finding.fields) not in self.known
        ]

    def takes(self, part: Mapping[str, Value]) -> bool:
        """Return whether these parts of every layer can be recomputed: no new findings, but other native arguments."""
        if self.plain is None:
            return "recompute.activation" not in part and "recompute.norm" not in part
        outcome = self._judged(part)
        return not self.against(part) and _given(outcome) != _given(self.plain)

    def taken(self) -> Taken:
        """Return which layer counts per chunk the backend supports."""
        if self.plain is None:
            return Taken(full_each=False, part_each=False, why=())
        parallel = self.start.parallel
        counts = (1, *(0 for _ in range(parallel.pp * _chunks(self.start) - 1)))
        names = ("recompute.granularity", "recompute.method", "recompute.num_layers")
        block: dict[str, Value] = dict(zip(names, ("full", "block", 1), strict=True))
        some: dict[str, Value] = {"recompute.granularity": "selective", "recompute.modules": ("core_attn",)}
        full, part = (
            [finding for finding in self.against(values) if path in finding.fields]
            for path, values in (
                (_FULL, {**block, _FULL: counts}),
                (_PART, {**some, _PART: counts}),
            )
        )
        return Taken(
            full_each=not full,
            part_each=not full and not part,
            why=tuple(f"{found[0].rule}: {found[0].message}" for found in (full, part) if found),
        )


def _given(outcome: Outcome) -> dict[str, Value]:
    return {arg.flag: arg.value for arg in outcome.native}


def _chunks(job: Job) -> int:
    parts = len(parse_layout(job.parallel.layout)) if job.parallel.layout else 1
    return job.parallel.vpp or max(1, parts // job.parallel.pp)


def partial_recompute(job: Job) -> dict[str, Value]:
    """Return the partial recomputation that the job sets; empty where it sets none."""
    part = {path: value_at(job, path) for path in _OWN if value_at(job, path)}
    if job.recompute.granularity == "selective":
        part["recompute.granularity"] = "selective"
    elif "recompute.modules" in part and not job.recompute.selective_layers_per_chunk:
        del part["recompute.modules"]
    return part


def parts_of(job: Job, backend: _Backend) -> list[dict[str, Value]]:
    """Return sets of parts to recompute that the backend supports: the job's set, else growing sets.

    The part that frees most memory per time comes first. If the backend rejects a union, a second chain has modules
    only: some stacks recompute activation function and norms by their own options, or Megatron-core's modules.
    """
    own = partial_recompute(job)
    if own:
        return [own]
    rated = [part for _, part in sorted(_rated(backend), key=lambda item: item[0])]
    sets, refused = _chain(backend, rated)
    return sets + (_chain(backend, [part for part in rated if MODULES in part])[0] if refused else [])


def _chain(backend: _Backend, rated: list[dict[str, Value]]) -> tuple[list[dict[str, Value]], bool]:
    """Return growing unions of parts, and whether the backend rejected one."""
    sets: list[dict[str, Value]] = []
    freed, refused = 0.0, False
    for part in rated:
        joined = union(sets[-1] if sets else {}, part)
        if len(sets) == _MOST:
            break
        if not backend.takes(joined):
            refused = True
            continue
        more = _figures(backend.start, joined)[0]
        if more > 1.001 * freed:
            sets.append(joined)
            freed = more
    return sets, refused


def _rated(backend: _Backend) -> Iterator[tuple[float, dict[str, Value]]]:
    """Yield each part that frees memory with its seconds per byte, unless it costs as much as the whole layer."""
    for part in PARTS:
        if backend.takes(part):
            freed, seconds, whole = _figures(backend.start, part)
            if freed > 0 and seconds < whole:
                yield seconds / freed, part


def _figures(start: Job, part: Mapping[str, Value]) -> tuple[float, float, float]:
    """Return bytes freed by a part in all layers, its seconds, and the seconds of recomputing all."""
    freed = seconds = whole = 0.0
    for kind in layer_times(start, part=part).kinds:
        none, some, full = kind.modes
        freed += kind.count * (none.keeps - some.keeps)
        seconds += kind.count * (some.backward - none.backward)
        whole += kind.count * (full.backward - none.backward)
    return freed, seconds, whole


def choices_of(job: Job, *, recompute: bool, empty_ends: bool) -> tuple[Posed, list[Choice], Taken]:
    """Return the even split to compare with, every recomputation choice of the backend, and what it supports.

    Args:
        recompute: also choose recomputation; otherwise the job's is kept.
        empty_ends: the first and the last chunk may have no layers.

    Raises:
        CannotEstimate, BadProblem: see `pose`.
    """
    plain = pose(job, recompute=recompute, empty_ends=empty_ends)
    if not recompute:
        return plain, [_choice(plain.problem, {})], Taken(full_each=False, part_each=False, why=())
    backend = _Backend(plain.start)
    taken, parts = backend.taken(), parts_of(job, backend)
    if not taken.full_each:
        return plain, [*_for_all(job, plain, parts, empty_ends)], taken
    base = replace(plain.problem, in_order=True, one_mode_a_chunk=False)
    if not taken.part_each or not parts:
        return plain, [_choice(base, {})], taken
    choices = []
    for part in parts:
        times = with_limits(layer_times(plain.start, empty_ends=empty_ends, part=part), plain.before)
        choices.append(_choice(replace(times, in_order=True, one_mode_a_chunk=False), part))
    return plain, choices, taken


def _for_all(job: Job, plain: Posed, parts: list[dict[str, Value]], empty_ends: bool) -> Iterator[Choice]:
    """Yield the choices that apply to all chunks: a number of layers in full, or the same parts of every layer.

    Both together only where the job sets parts: some stacks count the layers of the two differently.
    """
    most = 2 * -(-plain.problem.layers // plain.problem.parts)
    yield from (_choice(replace(plain.problem, covered=count), {}) for count in range(most + 1))
    own = partial_recompute(job)
    for part in parts:
        posed = pose(job, empty_ends=empty_ends, whole=part)
        depths = range(most + 1) if own and part.get("recompute.granularity") != "selective" else range(1)
        yield from (_choice(replace(posed.problem, covered=count), part) for count in depths)
