"""Searches for the fewest and nearest changes with which a job passes all rules together.

A best-first search over sets of changes: a job with errors has to change in some field of each, so that the search
branches over the values of one error's fields, cheapest first. The cost of what is left is bounded from below by errors
without a field in common.
"""

import heapq
import itertools
from collections.abc import Collection, Iterator, Sequence

from launcher.job import Job, Value, with_values
from launcher.job.determined import determined_fields
from launcher.job.finding import Finding, Fix
from launcher.rules.candidates import candidates, node_counts
from launcher.rules.changes import LENIENT, STRICT, Change, Changes, Preferences, changes_of
from launcher.rules.variants import Variants

_DEEPEST = 7
# Number of jobs tried for another solution once there is one.
_FOR_ANOTHER = 20
# Number of jobs tried with other numbers of nodes.
_FOR_NODES = 12
_NONE = float("inf")
_NODES = "cluster.nodes"


class Solver:
    """Tries changes of one job, each once.

    Args:
        ignored: errors that no change removes, and that may stay.
        closed: fields that stay as they are.
    """

    def __init__(
        self,
        variants: Variants,
        errors: Sequence[Finding],
        ignored: Sequence[Finding] = (),
        closed: Collection[str] = (),
    ) -> None:
        self.variants = variants
        self.preferences = Preferences(variants.job, closed)
        self.ignored = {(error.rule, error.fields) for error in ignored}
        self.known: dict[frozenset[Change], list[Finding]] = {frozenset(): list(errors)}
        self.budget = 0
        self._open_fields: dict[tuple[tuple[Fix, ...], tuple[str, ...]], tuple[str, ...]] = {}

    def solve(self, budget: int, most: int = 1) -> list[Changes]:
        """Return up to `most` sets of changes with which the job passes, best first.

        Args:
            budget: number of jobs tried: so many for changes of the layout first, and as many for whatever is near.
        """
        for weights in (STRICT, LENIENT):
            self.preferences.weights = weights
            self.budget = budget
            # An error may go with a field that it does not name: where its own fields give nothing, those of all do.
            found = self._search(most) or self._search(most, of_all=True)
            if found:
                break
        self.preferences.weights = STRICT
        return found or self.other_nodes()

    def other_nodes(self) -> list[Changes]:
        """Return the nearest numbers of nodes, fewer and more, with which the job passes unchanged."""
        job, named = self.variants.job, {path for error in self.errors(()) or () for path in error.fields}
        if _NODES not in named or not self.preferences.is_open(_NODES):
            return []
        self.budget = max(self.budget, _FOR_NODES)
        found: dict[bool, Changes] = {}
        for count in node_counts(job):
            if (count > (job.cluster.nodes or 0)) not in found and self.errors(((_NODES, count),)) == []:
                found[count > (job.cluster.nodes or 0)] = ((_NODES, count),)
        return list(found.values())

    def ignore_closed(self, errors: Sequence[Finding]) -> list[Finding]:
        """Ignore from now on, and return, the errors for which no change is known."""
        closed = [error for error in errors if not self._open(error, ())]
        self.ignored |= {(error.rule, error.fields) for error in closed}
        return closed

    def nearest(self) -> Changes:
        """Return those of the changes tried that leave the fewest errors, and no rule that held before."""
        before = {error.rule for error in self.known[frozenset()]}
        helping = ((len(left), key) for key, left in self.known.items() if {error.rule for error in left} <= before)
        _, best = min(helping, key=lambda each: (each[0], self.preferences.cost(tuple(each[1]))))
        return tuple(best)

    def errors(self, changes: Changes) -> list[Finding] | None:
        """Return the errors of the job with these changes but the ignored; None if no more jobs may be tried."""
        found = self.all_errors(changes)
        return None if found is None else [each for each in found if (each.rule, each.fields) not in self.ignored]

    def all_errors(self, changes: Changes) -> list[Finding] | None:
        """Return the errors of the job with these changes, the ignored ones too; None if no more jobs may be tried."""
        key = frozenset(changes)
        if key not in self.known:
            if self.budget <= 0:
                return None
            self.budget -= 1
            self.known[key] = self.variants.errors(_as_typed(self.variants.job, changes))
        return self.known[key]

    def _search(self, most: int, *, of_all: bool = False) -> list[Changes]:
        order = itertools.count()
        waiting: list[tuple[float, int, float, Changes]] = [(0.0, next(order), 0.0, ())]
        seen: set[frozenset[Change]] = set()
        found: list[Changes] = []
        while waiting:
            least, _, cost, changes = heapq.heappop(waiting)
            errors = self.errors(changes)
            if errors is None:
                break
            if not errors:
                found.append(changes)
                if len(found) == most:
                    break
                self.budget = min(self.budget, _FOR_ANOTHER)
                continue
            changed = {path for path, _ in changes}
            left = self._left(errors, changed)
            if cost + left > least + 1e-9:
                if left < _NONE:
                    heapq.heappush(waiting, (cost + left, next(order), cost, changes))
                continue
            if len(changes) >= _DEEPEST:
                continue
            branches = errors if of_all else [self._first(errors, changed)]
            for option, price, saved in self._options(branches, changes, changed):
                child = (*changes, *option)
                key = frozenset(child)
                if key not in seen:
                    seen.add(key)
                    least_of_child = cost + price + max(0.0, left - saved)
                    heapq.heappush(waiting, (least_of_child, next(order), cost + price, child))
        return _shortest(found)

    def _left(self, errors: Sequence[Finding], changed: set[str]) -> float:
        """Return a lower bound of the cost to remove the errors: those without a field in common need a change each.

        An error may depend on fields that it does not name: one without an open field may go with another.
        """
        total, taken = 0.0, set[str]()
        options = sorted((self._open(error, changed) for error in errors), key=len)
        if not any(options):
            return _NONE
        for paths in filter(None, options):
            if taken.isdisjoint(paths):
                total += min(map(self.preferences.least, paths))
                taken.update(paths)
        return total

    def _open(self, error: Finding, changed: Collection[str]) -> tuple[str, ...]:
        key = error.fixes, error.fields
        if key not in self._open_fields:
            proposed = (path for fix in error.fixes for path in changes_of(fix) or ())
            self._open_fields[key] = (
                *(path for path in proposed if self.preferences.is_open(path, proposed=True)),
                *self.preferences.open_fields(error.fields),
            )
        return tuple(path for path in self._open_fields[key] if path not in changed)

    def _options(
        self, errors: Sequence[Finding], changes: Changes, changed: set[str]
    ) -> Iterator[tuple[Changes, float, float]]:
        """Yield changes of the errors' fields, each with its cost and the part of the bound that it may save."""
        job = with_values(self.variants.job, dict(changes)) if changes else self.variants.job
        for error in errors:
            saved = max(map(self.preferences.least, self._open(error, changed)), default=0.0)
            for option, price in self.changes_for(error, job):
                if changed.isdisjoint(path for path, _ in option):
                    yield option, price, saved

    def _first(self, errors: Sequence[Finding], changed: set[str]) -> Finding:
        """Return the error that the least kind of change may remove, then the one with the fewest fields.

        One that only a change of training would remove often goes with the layout of another.
        """
        least = self.preferences.least
        open_fields = ((self._open(error, changed), error) for error in errors)
        counts = [(min(map(least, paths)), len(paths), error) for paths, error in open_fields if paths]
        return min(counts, key=lambda each: each[:2])[2]

    def changes_for(self, error: Finding, job: Job) -> Iterator[tuple[Changes, float]]:
        """Yield changes that may remove an error of a job, with their costs: proposed ones first."""
        for fix in error.fixes:
            proposed = tuple((changes_of(fix) or {}).items())
            if proposed and all(self.preferences.is_open(path, proposed=True) for path, _ in proposed):
                yield proposed, self.preferences.cost(proposed, proposed=True)
        for path in filter(self.preferences.is_open, self._open(error, ())):
            for value in dict.fromkeys((*self.variants.settling(error.rule, path), *candidates(job, path))):
                change: Change = (path, value)
                yield (change,), self.preferences.cost((change,))


def _as_typed(job: Job, changes: Changes) -> dict[str, Value]:
    """Return changes with what else is set where a user types them: which values of the model's files they replace."""
    names = [path.removeprefix("model.") for path, _ in changes if path.startswith("model.")]
    own = [name for name in names if name in determined_fields()]
    if not own or not (job.model.path or job.model.hub_id):
        return dict(changes)
    return {**dict(changes), "model.overridden": tuple(dict.fromkeys((*job.model.overridden, *own)))}


def _shortest(found: list[Changes]) -> list[Changes]:
    """Return solutions that contain no other one."""
    sets = [frozenset(changes) for changes in found]
    return [
        changes
        for changes, change_set in zip(found, sets, strict=True)
        if not any(other < change_set for other in sets)
    ]
