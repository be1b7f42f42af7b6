"""Applies proposed fixes until a job passes, for `launch check --fix`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launcher.job import Job, Origin, Value, override_text, with_values
from launcher.job.finding import Finding, Fix
from launcher.rules.fixes import changes_of

Judge = Callable[[Job], list[Finding]]
# Every round removes at least one error, so that no more rounds than errors are needed.
_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Changes of a job, and the errors that no proposed change removes.

    Attributes:
        values: canonical path to new value, in the order in which they were found.
        left: errors of the job with these values.
    """

    values: Mapping[str, Value]
    left: tuple[Finding, ...]

    @property
    def overrides(self) -> tuple[str, ...]:
        """Return the changes as overrides of the command line."""
        return tuple(f"{path}={override_text(value)}" for path, value in self.values.items())

    def as_tree(self) -> dict[str, Value]:
        """Return the changes as nested plain data, for an override file."""
        tree: dict[str, Value] = {}
        for path, value in self.values.items():
            *parents, leaf = path.split(".")
            node = tree
            for part in parents:
                node = node.setdefault(part, {})
            node[leaf] = list(value) if isinstance(value, tuple) else value
        return tree


def repair(job: Job, judge: Judge) -> Repair:
    """Return the changes with which the job passes, each the nearest one that its finding proposes.

    Args:
        judge: job to its findings, with fixes.
    """
    values: dict[str, Value] = {}
    errors = _errors(judge(job))
    for _ in range(_ROUNDS):
        step = _best(job, errors, judge)
        if step is None:
            break
        job, changed, errors = step
        values.update(changed)
    return Repair(values=values, left=tuple(errors))


def _best(job: Job, errors: list[Finding], judge: Judge) -> tuple[Job, dict[str, Value], list[Finding]] | None:
    """Return the first proposed change that leaves the fewest errors; None if none leaves fewer than there are."""
    best: tuple[Job, dict[str, Value], list[Finding]] | None = None
    fewest = len(errors)
    for fix in sorted(dict.fromkeys(fix for error in errors for fix in error.fixes), key=_changes_machines):
        changed = changes_of(fix)
        if changed is None:
            continue
        candidate = with_values(job, changed, Origin(kind="override", where=str(fix)))
        left = _errors(judge(candidate))
        if len(left) < fewest:
            best, fewest = (candidate, changed, left), len(left)
        if not left:
            break
    return best


def _changes_machines(fix: Fix) -> bool:
    """Return whether a fix needs other machines; such fixes come last, since machines are hard to change."""
    return any(override.startswith("cluster.") for override in fix.overrides)


def _errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == "error"]
