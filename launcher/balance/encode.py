"""Encodes a split in a backend's own arguments: every encoding is tried against its table and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launcher.balance.from_job import UNEVEN, layout_text, short_layout
from launcher.balance.problem import Split
from launcher.job import Job, Origin, Value, with_values
from launcher.job.finding import Finding
from launcher.mapping.native import NativeArg
from launcher.pipeline import Outcome, judge
from launcher.records import dataclass

_ORIGIN = Origin(kind="override", where="launch balance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressed:
    """A split as values of canonical fields that the backend accepts.

    Attributes:
        how: the field that encodes the layers.
        native: the backend's arguments for it, where they differ from the job's.
        refused: the encodings tried before, with the backend's first error.
    """

    how: str
    values: dict[str, Value]
    outcome: Outcome
    native: tuple[NativeArg, ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inexpressible:
    """The backend accepts no encoding of the split; holds the error of each."""

    refused: tuple[tuple[str, str], ...]


def express(job: Job, split: Split, recompute: Mapping[str, Value]) -> Expressed | Inexpressible:
    """Return the first encoding of a split that adds no error to those of the job.

    Args:
        recompute: values of the recomputation.

    Raises:
        pipeline.Refused: the job has no backend.
    """
    before = judge(job, fixes=False)
    known = {_key(finding) for finding in before.findings if finding.severity == "error"}
    given = {arg.flag: arg.value for arg in before.native}
    refused: list[tuple[str, str]] = []
    for how, layers in encodings(job, split.layers(), job.parallel.pp):
        values = {**UNEVEN, **layers, **recompute}
        changed = {path: value for path, value in values.items() if value != _default(job, path) or path in layers}
        outcome = judge(with_values(job, changed, _ORIGIN), fixes=False)
        new = [f for f in outcome.findings if f.severity == "error" and _key(f) not in known]
        if not new:
            native = tuple(arg for arg in outcome.native if given.get(arg.flag, given) != arg.value)
            return Expressed(how=how, values=changed, outcome=outcome, native=native, refused=tuple(refused))
        refused.append((how, f"{new[0].rule}: {new[0].message}"))
    return Inexpressible(refused=tuple(refused))


def _key(finding: Finding) -> tuple[str, tuple[str, ...]]:
    return finding.rule, finding.fields


def _default(job: Job, path: str) -> Value:
    from launcher.job import value_at

    return value_at(job, path)


def encodings(job: Job, layers: tuple[int, ...], stages: int) -> Iterator[tuple[str, dict[str, Value]]]:
    """Yield encodings of layers per chunk (in the model's order), the simplest first: a name and the values."""
    chunks = len(layers) // stages
    per_stage = [sum(layers[stage::stages]) for stage in range(stages)]
    if len(set(layers)) == 1:
        yield "an even split", {}
    elif chunks == 1 and len(set(per_stage[1:-1])) <= 1:
        ends: dict[str, Value] = {
            "parallel.first_stage_layers": per_stage[0],
            "parallel.last_stage_layers": per_stage[-1],
        }
        yield "parallel.first_stage_layers, parallel.last_stage_layers", ends
    yield "parallel.layout", {"parallel.layout": short_layout(layout_text(job, layers))}
    yield "parallel.noop_layers", {"parallel.noop_layers": _noop(layers)}


def _noop(layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices, among all layers, of the no-op layers that pad every chunk to the longest."""
    longest = max(layers)
    return tuple(chunk * longest + place for chunk, count in enumerate(layers) for place in range(count, longest))
