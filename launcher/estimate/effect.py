"""Finds command-line overrides that do not change this job's estimate, by estimating without each of them."""

from collections.abc import Callable

from launcher.estimate.check import problems
from launcher.estimate.result import Estimate
from launcher.job import Job, fields, value_at, with_values

NO_EFFECT = "does not change the estimate of this job"
# Fields that obviously do not affect memory or time.
_NAMES = frozenset({"hardware.name", "hardware.source", "hardware.measured", "estimate.enforce"})


def without_effect(job: Job, quick: Callable[[Job], Estimate], existing: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note for every override that does not change any figure of the estimate.

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
        other = with_values(job, {path: fields()[path].default})
        if problems(other):
            continue
        before = before or _figures(quick(job))
        if _figures(quick(other)) == before:
            notes.append(f"{path}: {NO_EFFECT}")
    return tuple(notes)


def _figures(answer: Estimate) -> str:
    return repr(answer.as_tree())
