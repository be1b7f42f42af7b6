"""Solves all errors of a job jointly, for `launch check --fix`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from launcher.job import Job, Origin, Value, override_text, with_values
from launcher.job.finding import Finding
from launcher.records import dataclass
from launcher.rules.changes import Changes, affects_training
from launcher.rules.fixes import asked_fields, missing
from launcher.rules.solver import Solver
from launcher.rules.variants import Variants

Judge = Callable[[Job], Sequence[Finding]]
# Number of jobs tried, twice.
_BUDGET = 800
# Values count as the user's once they are overrides: some rules then say something else, which is solved once more.
_ROUNDS = 3
# Supposed while the rest is solved, where the user is asked: other rules say what these values decide.
_SUPPOSED: Mapping[str, Value] = {"schedule.train_iters": 1000, "optimizer.lr": 1e-5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Changes of a job with which it passes, and what is left.

    Attributes:
        values: canonical path to new value.
        affects_training: those of the paths whose change alters what is learned.
        asks: overrides with a placeholder for what only the user knows.
        left: errors of the job with these values that are not asked for.
    """

    values: Mapping[str, Value]
    affects_training: tuple[str, ...]
    asks: tuple[str, ...]
    left: tuple[Finding, ...]

    @property
    def overrides(self) -> tuple[str, ...]:
        """Return the changes as overrides of the command line."""
        return tuple(f"{path}={override_text(value)}" for path, value in self.values.items())

    def as_answer(self) -> dict[str, Any]:
        """Return all of it as plain data (JSON)."""
        return {
            "overrides": list(self.overrides),
            "affects_training": list(self.affects_training),
            "ask": list(self.asks),
            "left": [finding.as_tree() for finding in self.left],
        }

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


def repair(job: Job, judge: Judge, variants_of: Callable[[Job], Variants], assumed: Collection[str] = ()) -> Repair:
    """Return the nearest changes with which the job passes: layout before batch before model, machines last.

    Args:
        judge: job to its findings; those that the rules propose are enough.
        variants_of: job to what checks it with other values.
        assumed: fields whose values are assumed: errors on them are asked about.
    """
    values: dict[str, Value] = {}
    errors, unknown = _errors(job, judge, assumed)
    asks = tuple(dict.fromkeys(ask for asks in unknown.values() for ask in asks))
    supposed = {path: _SUPPOSED[path] for path in asked_fields([asks]) & _SUPPOSED.keys()}
    if supposed:
        job = with_values(job, supposed)
        errors, unknown = _errors(job, judge, assumed)
    for _ in range(_ROUNDS):
        if not errors:
            break
        found = _solution(variants_of(job), errors, unknown, asked_fields([asks, *unknown.values()]))
        values.update(found)
        job = with_values(job, dict(found), Origin(kind="override", where="launch check --fix"))
        errors, unknown = _errors(job, judge, assumed)
        if not found:
            break
    return Repair(
        values=values,
        affects_training=tuple(path for path in values if affects_training(path, job.backend.name)),
        asks=tuple(dict.fromkeys((*asks, *(ask for asks in unknown.values() for ask in asks)))),
        left=tuple(errors),
    )


def _errors(job: Job, judge: Judge, assumed: Collection[str]) -> tuple[list[Finding], dict[Finding, tuple[str, ...]]]:
    """Return the errors of the job that a change may remove, and the others with what is asked for."""
    errors = [finding for finding in judge(job) if finding.severity == "error"]
    unknown = {error: asks for error in errors if (asks := missing(job, error, assumed))}
    return [error for error in errors if error not in unknown], unknown


def _solution(
    variants: Variants, errors: list[Finding], unknown: Mapping[Finding, Sequence[str]], closed: Collection[str]
) -> Changes:
    """Return the nearest changes without errors; if there are none, those that leave the fewest."""
    solver = Solver(variants, [*errors, *unknown], [*unknown], closed)
    found = solver.solve(_BUDGET)
    return found[0] if found else solver.nearest()
