"""Builds the search of a job: checks required fields and selects the backends whose rules apply."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from launcher.balance.from_job import UNEVEN
from launcher.estimate.as_run import before_validation, chosen_by_backend, positions
from launcher.estimate.check import problems
from launcher.job import Job, Origin, Value, with_values
from launcher.job.finding import Finding, Fix
from launcher.job.planning import SEARCH_AXES
from launcher.pipeline import chosen_backend, variants_of
from launcher.rules.passthrough import passthrough_errors, passthrough_fields
from launcher.rules.variants import Variants
from launcher.search.found import Found
from launcher.search.points import SWITCHED, nothing_recomputed
from launcher.search.search import Search
from launcher.search.space import FIELDS, axes_of
from launcher.search.switches import SWITCHES, paths_of
from launcher.search.validity import ValidityCache


class CannotSearch(ValueError):
    """The job lacks fields that every point needs, or has errors that no strategy can fix; holds the findings."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = list(findings)


_MOST_HARDWARE = 3
_NEEDED = (
    ("model.num_hidden_layers", "model.num_hidden_layers is not known: choose a model (model=… or model.path=…)"),
    ("batch.global_batch_size", "batch.global_batch_size is not set: how much is learned in a step is not searched"),
    ("batch.seq_length", "batch.seq_length is not set"),
    ("hardware.memory_gib", "the device's memory is not known: choose hardware"),
    ("hardware.bf16_tflops", "the device's peak FLOP/s is not known: choose hardware"),
)


def begin(
    job: Job, backends: Sequence[str] = (), *, top: int = 10, watch: Callable[[Found], None] | None = None
) -> Search:
    """Return the search of a job, ready to run.

    Args:
        backends: names of backends that must all accept; empty: the job's backend, or backend-independent rules only.

    Raises:
        CannotSearch: the job lacks required fields, or has errors that no strategy can fix.
        pipeline.Refused: there is no such backend or version.
    """
    if job.backend.name is not None:
        chosen_backend(job)
    varied_paths = {path for axis in axes_of(job) for path in _paths_of_axes()[axis]}
    if wrong := [each for each in passthrough_errors(job) if varied_paths.isdisjoint(each.fields)]:
        raise CannotSearch(wrong)
    read = before_validation(job)[0]
    lacking = [_lacks(path, text) for path, text in _NEEDED if _value(read, path) is None]
    probability = job.search.fit_probability
    if probability is not None and probability >= 1:
        lacking.append(
            _lacks(
                "search.fit_probability",
                f"search.fit_probability={probability:g}: no estimate is certain; works: search.fit_probability=0.99",
            )
        )
    if lacking:
        raise CannotSearch(_with_hardware(lacking, job))
    start = _start(with_values(read, {"search.fix": (*job.search.fix, *kept_axes(job))}))
    judges = [_judge(start, name) for name in backends] or [_judge(start, start.backend.name)]
    _mended(judges)
    if unusable := [finding for finding in problems(start) if not _of_layout(finding)]:
        raise CannotSearch(unusable)
    return Search(ValidityCache(*judges), top=top, watch=watch, user_job=job)


def _of_layout(finding: Finding) -> bool:
    """Return whether another layout may be without a finding of the estimate; one that names no field may be."""
    return not finding.fields or not _searched().isdisjoint(finding.fields)


def _searched() -> set[str]:
    """Return the fields that a search may change."""
    return {*FIELDS.values(), *UNEVEN, *nothing_recomputed(), *SWITCHED, "parallel.dp"}


def _start(job: Job) -> Job:
    """Return the job with default stages and no recomputation where searched; remaining errors have other causes."""
    axes = axes_of(job)
    values = dict(UNEVEN) if "stages" in axes else {}
    if "recompute" in axes:
        values |= nothing_recomputed()
    values |= unasked(job)
    return with_values(job, values) if values else job


def unasked(job: Job) -> dict[str, Value]:
    """Return values for what training needs, the job lacks, and no layout depends on."""
    schedule, values = job.schedule, dict[str, Value]()
    if schedule.train_iters is None and schedule.train_samples is None and schedule.epochs is None:
        values["schedule.train_iters"] = 1000
    if job.optimizer.lr is None:
        values["optimizer.lr"] = 1e-4
    return {**values, **positions(job)}


def _judge(job: Job, name: str | None) -> Variants:
    if name is None:
        from launcher.rules.engine import load

        load(())
        return Variants(job)
    if name != job.backend.name:
        job = replace(job, backend=replace(job.backend, name=name, version=None))
    chosen_backend(job)
    free = {path: value for path, value in chosen_by_backend(job).items() if not _varies(path)}
    return variants_of(with_values(job, free, Origin(kind="derived")) if free else job)


def _varies(path: str) -> bool:
    """Return whether what a backend chooses for a field may differ between the layouts of a search."""
    return path.startswith("parallel.") or path in _searched()


def _mended(judges: Sequence[Variants]) -> None:
    """Raise CannotSearch for errors that do not depend on any searched field."""
    searched = _searched()
    for judge in judges:
        if judge.has_remaining_error(searched):
            raise CannotSearch([error for error in judge.errors({}) if searched.isdisjoint(error.fields)])


def _paths_of_axes() -> dict[str, tuple[str, ...]]:
    return {
        **{axis: (path,) for axis, path in FIELDS.items()},
        "recompute": tuple(nothing_recomputed()),
        "stages": tuple(UNEVEN),
        **{switch.axis: paths_of([switch.axis]) for switch in SWITCHES},
    }


def kept_axes(job: Job) -> dict[str, str]:
    """Return the axes that a job searches but for an argument in `backend.args`, which every layout has, with it."""
    passed, searched = passthrough_fields(job), axes_of(job)
    by_axis = {axis: [passed[path] for path in paths if path in passed] for axis, paths in _paths_of_axes().items()}
    return {axis: flags[0] for axis, flags in by_axis.items() if flags and axis in searched}


def varied(job: Job, *, compared: bool = False) -> list[Finding]:
    """Return warnings: of arguments that a search keeps, and of values on the command line that it does not keep.

    Values of a recipe are only the start of a search, and an axis in `search.axes` is meant to vary.

    Args:
        compared: the job's own values are a layout that the search ranks.
    """
    kept = kept_axes(job)
    return [*_kept(kept), *(() if compared else _overridden(job, axes_of(job) - set(job.search.axes) - kept.keys()))]


def _kept(kept: Mapping[str, str]) -> list[Finding]:
    if not kept:
        return []
    names = tuple(dict.fromkeys(f"backend.args.{key}" for key in kept.values()))
    return [
        Finding(
            rule="SEARCH-KEEPS",
            severity="warning",
            message=f"the search keeps {', '.join(kept)}, set by {', '.join(names)}; without these it varies",
            fields=names,
            source="launch search",
        )
    ]


def _overridden(job: Job, searched: Collection[str]) -> list[Finding]:
    paths = _paths_of_axes()
    set_by_hand = {
        axis: [path for path in paths[axis] if job.origin(path).kind == "override"]
        for axis in SEARCH_AXES
        if axis in searched
    }
    overridden = {axis: own for axis, own in set_by_hand.items() if own}
    if not overridden:
        return []
    fields = tuple(path for own in overridden.values() for path in own)
    fix = f"search.fix=[{','.join((*job.search.fix, *overridden))}]"
    message = f"the search varies {', '.join(fields)}, and ignores what the command line sets there"
    return [
        Finding(
            rule="SEARCH-VARIES",
            severity="warning",
            message=message,
            fields=fields,
            fixes=(Fix(overrides=(fix,)),),
            source="launch search",
        )
    ]


def _lacks(path: str, text: str) -> Finding:
    return Finding(rule="SEARCH-NEEDS", severity="error", message=text, fields=(path,), source="launch search")


def _with_hardware(lacking: Sequence[Finding], job: Job) -> list[Finding]:
    """Return what the job lacks, with hardware on which it can be searched."""
    if not any(each.fields[0].startswith("hardware.") for each in lacking):
        return list(lacking)
    from launcher.estimate.hardware import timed_hardware

    fixes = tuple(Fix(overrides=(each,)) for each in islice(timed_hardware(job), _MOST_HARDWARE))
    return [replace(each, fixes=fixes) if each.fields[0].startswith("hardware.") else each for each in lacking]


def _value(job: Job, path: str) -> object:
    section, name = path.split(".")
    return getattr(getattr(job, section), name)
