"""Finds command-line overrides that do not change this job's estimate, by estimating with other values of each."""

from collections.abc import Callable, Iterator

from launcher.estimate.check import problems
from launcher.estimate.result import Estimate
from launcher.job import Job, Value, fields, value_at, with_values
from launcher.job.build import WrongValue, convert
from launcher.job.schema import FieldInfo

NO_EFFECT = "does not change the estimate of this job"
# Fields that obviously do not affect memory or time.
_NAMES = frozenset({"hardware.name", "hardware.source", "hardware.measured", "estimate.enforce"})


def without_effect(job: Job, quick: Callable[[Job], Estimate], existing: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note for every override of a field whose value does not change any figure of the estimate.

    Arguments passed through to a backend are not read, so each of them has a note.

    Args:
        quick: estimates a valid job.
        existing: existing notes; a field that one of them names gets no second note.
    """
    named = {note.partition(":")[0] for note in existing}
    notes = [f"backend.args.{name}: {NO_EFFECT}" for name in job.backend.args]
    before = None
    for path, origin in job.origins.items():
        if origin.kind != "override" or path in _NAMES or path in named or "." not in path:
            continue
        if path.startswith("backend.") or path not in fields() or value_at(job, path) == fields()[path].default:
            continue
        valid = [other for other in _others(job, path) if not problems(other)]
        if not valid:
            continue
        before = before or _figures(quick(job))
        if all(_figures(quick(other)) == before for other in valid):
            notes.append(f"{path}: {NO_EFFECT}")
    return tuple(notes)


def _others(job: Job, path: str) -> Iterator[Job]:
    """Yield the job with the default of a field and with other values of it.

    The default alone would not do: what a recipe or a model's preset sets is another value, and an unset field may
    count as the value that the user gives.
    """
    value, info = value_at(job, path), fields()[path]
    others: list[Value] = [info.default, *info.meta.choices]
    if isinstance(value, bool):
        others.append(not value)
    elif isinstance(value, int | float):
        others += [value * 2, value // 2 if isinstance(value, int) else value / 2]
    for other in others:
        if other != value and _is_legal(other, info):
            yield with_values(job, {path: other})


def _is_legal(value: Value, info: FieldInfo) -> bool:
    """Return whether a field can have a value: half of one device is none."""
    try:
        convert(value, info.type, info.meta)
    except WrongValue:
        return False
    return True


def _figures(answer: Estimate) -> str:
    return repr(answer.as_tree())
