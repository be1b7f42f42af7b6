"""Changes with which a search that found no layout finds one: each is tried by a search before it is offered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from launcher.job import Job, Value, override_text, value_at, with_values
from launcher.search.begin import CannotSearch, begin
from launcher.search.search import Search
from launcher.search.space import FIELDS

# Changes offered; layouts of each that are tried; factors of nodes; sizes nearest to a fixed one.
_MOST, _TRIED, _FACTORS, _NEAREST = 3, 200, (2, 4, 8, 16), 2


def remedies(search: Search, backends: Sequence[str] = ()) -> list[str]:
    """Return overrides, at most three, with each of which the search of a job finds a layout.

    Args:
        search: a complete search that found none.
        backends: names of backends that must all accept, as `begin` takes them.
    """
    offered: list[str] = []
    for change in _changes(search):
        if len(offered) < _MOST and _finds(with_values(search.user_job, change), backends):
            offered.append(_text(change))
    for change in _more_nodes(search):
        if len(offered) < _MOST and _finds(with_values(search.user_job, change), backends):
            return [*offered, _text(change)]
    return offered


def _text(change: Mapping[str, Value]) -> str:
    return " ".join(f"{path}={override_text(value)}" for path, value in change.items())


def _finds(job: Job, backends: Sequence[str]) -> bool:
    """Return whether a layout among the first ones of a search is accepted and fits."""
    try:
        search = begin(job, backends, top=1)
    except CannotSearch:
        return False
    return any(search.found.best for _ in islice(search.run(), _TRIED))


def _changes(search: Search) -> Iterator[Mapping[str, Value]]:
    """Yield what may help on the job's devices: other axes, sizes of fixed ones, the batch that rules name."""
    job = search.user_job
    fixed = job.search.fix
    for axis in fixed:
        yield {"search.fix": tuple(other for other in fixed if other != axis)}
    if len(fixed) > 1:
        yield {"search.fix": ()}
    if job.search.axes:
        yield {"search.axes": ()}
    for axis in fixed:
        if axis in FIELDS:
            yield from _sizes(job, FIELDS[axis])
    named = {field for finding in search.validity.examples.values() for field in finding.fields}
    batch, world = job.batch.global_batch_size, job.cluster.world_size
    if "batch.global_batch_size" in named and batch is not None and batch % world:
        yield {"batch.global_batch_size": batch + world - batch % world}


def _more_nodes(search: Search) -> Iterator[Mapping[str, Value]]:
    """Yield larger numbers of nodes; with n times as many, a device holds at best an nth of what is too much."""
    found, nodes = search.found, search.user_job.cluster.nodes
    if found.nearest and found.limit:
        least = found.nearest[0].peak / found.limit
        yield from ({"cluster.nodes": nodes * factor} for factor in _FACTORS if factor >= least)


def _sizes(job: Job, path: str) -> Iterator[Mapping[str, Value]]:
    """Yield the nearest other values of a fixed parallel size that divide the devices."""
    value, world = value_at(job, path), job.cluster.world_size
    if not isinstance(value, int) or isinstance(value, bool):
        return
    others = [size for size in range(1, world + 1) if world % size == 0 and size != value]
    for size in sorted(others, key=lambda one: abs(one - value))[:_NEAREST]:
        yield {path: size}
