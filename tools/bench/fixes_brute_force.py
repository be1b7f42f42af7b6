"""Brute force beside the search for fixes: which jobs near a broken one pass, and how few fields have to change."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.job import FieldInfo, Job, Value, fields, value_at
from launcher.pipeline import judge, variants_of
from launcher.search.validity import ValidityCache

# A product of layouts: these fields together, each with its own value first.
_LAYOUT: dict[str, tuple[Value, ...]] = {
    "parallel.tp": (1, 2, 4, 8),
    "parallel.pp": (1, 2, 4, 8),
    "parallel.cp": (1, 2, 4),
    "parallel.ep": (1, 2, 4, 8),
    "parallel.vpp": (None, 2),
    "batch.micro_batch_size": (1, 2, 4),
    "parallel.sequence_parallel": (True, None),
}
# Together with each of these repairs of the rest: nothing, and what else of the layout is usually in the way.
_WITH: tuple[dict[str, Value], ...] = (
    {},
    {"recompute.granularity": None},
    {"recompute.granularity": "full", "recompute.method": "uniform", "recompute.num_layers": 1},
    {"parallel.first_stage_layers": None, "parallel.last_stage_layers": None},
    {"parallel.cp_algorithm": None, "parallel.ulysses_degree": None},
    {"parallel.etp": None},
    {"recompute.modules": ()},
)
_SECTIONS = ("parallel.", "recompute.", "offload.", "overlap.", "moe.", "kernels.", "batch.", "schedule.", "optimizer.")
_NUMBERS = (1, 2, 3, 4, 6, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brute:
    """What brute force found.

    Attributes:
        fewest: number of fields changed.
        same_training: one of the jobs that pass changes no field that affects training.
    """

    fewest: int
    same_training: bool


def fewest_changes(job: Job) -> Brute | None:
    """Return what the cheapest job that passes needs; None: none passes in these ranges."""
    variants = variants_of(job)
    errors = [finding for finding in judge(job, fixes=False).findings if finding.severity == "error"]
    named = [path for path in dict.fromkeys(path for error in errors for path in error.fields) if path in fields()]
    found: list[tuple[int, bool]] = []
    every = [path for path in fields() if path.startswith(_SECTIONS)]
    for count, changes in _small(job, every, named):
        if variants.passes(changes):
            found.append((count, _same_training(changes)))
            if found[-1][1]:
                break
        if found and count > found[0][0]:
            break
    layout = _layout(job, ValidityCache(variants))
    if layout is not None:
        found.append((layout, True))
    if not found:
        return None
    return Brute(fewest=min(count for count, _ in found), same_training=any(same for _, same in found))


def _same_training(changes: dict[str, Value]) -> bool:
    return not any(fields()[path].meta.affects_training for path in changes)


def _small(job: Job, every: list[str], named: list[str]) -> Iterator[tuple[int, dict[str, Value]]]:
    """Yield all changes of one field, then of two that errors name."""
    for path in every:
        for value in _values(job, fields()[path]):
            yield 1, {path: value}
    own = [(path, value) for path in named if path.startswith(_SECTIONS) for value in _values(job, fields()[path])]
    for one, two in itertools.combinations(own, 2):
        if one[0] != two[0]:
            yield 2, dict((one, two))


def _values(job: Job, info: FieldInfo) -> Iterator[Value]:
    now, kind = value_at(job, info.path), str(info.type)
    values: list[Value] = [None] if "None" in kind else []
    if "bool" in kind:
        values += [True, False]
    elif "tuple" in kind:
        values = [()]
    elif "int" in kind:
        low = info.meta.minimum or 0
        values += [each for each in _NUMBERS if each >= low]
        if isinstance(now, int) and not isinstance(now, bool):
            values += [each for each in (now - 1, now + 1, now // 2, now * 2) if each >= low]
    values += info.meta.choices
    yield from (value for value in dict.fromkeys(values) if value != now)


def _layout(job: Job, cache: ValidityCache) -> int | None:
    """Return the fewest fields of a layout that passes."""
    best: int | None = None
    for extra in _WITH:
        more = {path: value for path, value in extra.items() if value_at(job, path) != value}
        if extra and not more:
            continue
        for count, values in _by_number_of_changes(job):
            if best is not None and count + len(more) >= best:
                break
            if cache.accepts({**values, **more}, weight=0):
                best = count + len(more)
    return best


def _by_number_of_changes(job: Job) -> list[tuple[int, dict[str, Value]]]:
    now = {path: value_at(job, path) for path in _LAYOUT}
    choices = [dict.fromkeys((now[path], *values)) for path, values in _LAYOUT.items()]
    world = job.cluster.world_size
    made = []
    for each in itertools.product(*choices):
        values = dict(zip(_LAYOUT, each, strict=True))
        if world % (values["parallel.tp"] * values["parallel.pp"] * values["parallel.cp"]) == 0:
            made.append((sum(values[path] != now[path] for path in values), values))
    return sorted(made, key=lambda each: each[0])
