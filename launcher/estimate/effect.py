"""What was set on the command line and makes no difference to this job's estimate: found by trying without it."""

from collections.abc import Callable

from launcher.estimate.check import problems
from launcher.estimate.result import Estimate
from launcher.job import Job, fields, value_at, with_values

NO_EFFECT = "does not change the estimate of this job"
# What nobody takes for a matter of memory or time.
_NAMES = frozenset({"hardware.name", "hardware.source", "hardware.measured", "estimate.enforce"})


def without_effect(job: Job, quick: Callable[[Job], Estimate], said: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note for every override without which the answer would be the same to the last figure.

    Arguments passed through to a backend are not read at all, so each of them has one.

    Args:
        quick: estimates a sound job.
        said: notes of the answer; a field that one of them names needs no second one.
    """
    named = {note.partition(":")[0] for note in said}
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
