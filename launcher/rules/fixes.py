"""Computes what works for each error: the nearest changes with which the job passes all rules together."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from launcher.job import field_at, fields, value_at, with_values
from launcher.job.finding import Finding, Fix
from launcher.job.schema import Job
from launcher.mapping.engine import UNSUPPORTED
from launcher.mapping.passthrough import BAD_VALUE
from launcher.rules.candidates import LENGTHS
from launcher.rules.changes import Changes, Kind, affects_training, changes_of, fix_of
from launcher.rules.solver import Solver
from launcher.rules.variants import Variants

_MOST = 3
# Number of jobs tried for all errors of a job together, twice, and in addition for each error; fewer where the job as a
# whole has no solution: such searches never end early.
_TOGETHER, _EACH, _WITHOUT_SOLUTION = 300, 40, 20


def with_fixes(findings: list[Finding], variants: Callable[[], Variants]) -> list[Finding]:
    """Return the findings with fixes for the errors, at most three, in the order in which people would choose.

    A fix removes its error and causes no other; the first ones of all errors together give a job without errors, where
    there is one, else one with only the errors for which no change is known. What a rule itself proposes goes first if
    it works, and where nothing does, with what it makes necessary. What only the user knows is asked for.

    Args:
        variants: prepares the job to be checked with other values; called if there is an error.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    offers = _Offers(variants(), errors) if errors else None
    return [
        offers.on(finding) if offers is not None and finding.severity == "error" else _marked(finding)
        for finding in findings
    ]


def _marked(finding: Finding) -> Finding:
    """Return a finding that is no error, with a mark on what it proposes where that changes training."""
    fixes = tuple(
        dataclasses.replace(
            fix, affects_training=any(affects_training(path.partition("=")[0], None) for path in fix.overrides)
        )
        for fix in finding.fixes
    )
    return dataclasses.replace(finding, fixes=fixes) if fixes else finding


def missing(job: Job, error: Finding, assumed: Collection[str] = ()) -> tuple[str, ...]:
    """Return overrides with a placeholder for each unset value that only the user knows; empty: the error has others.

    An unset learning rate, length or size has no nearest value.

    Args:
        assumed: fields whose values are assumed, such as the number of devices of a script that does not say it.
    """
    if error.rule == BAD_VALUE and error.asks:
        return error.asks
    named = [path for path in error.fields if path in assumed]
    if named:
        return tuple(f"{path}=N" for path in named)
    unset = [path for path in error.fields if path in fields() and _is_missing(job, path)]
    if not unset or len(unset) < len(error.fields) or any(changes_of(fix) for fix in error.fixes):
        return ()
    if "model.hidden_size" in unset:
        return ("model=NAME",)
    return tuple(f"{path}={'N' if 'int' in str(field_at(path).type) else 'X'}" for path in unset)


def _is_missing(job: Job, path: str) -> bool:
    meta, kind = field_at(path).meta, str(field_at(path).type)
    is_number = ("int" in kind or "float" in kind) and "tuple" not in kind and "bool" not in kind
    return value_at(job, path) is None and meta.affects_training and is_number


def _reason(error: Finding) -> tuple[str, tuple[str, ...]]:
    """Return what an error says: its rule; what a backend cannot express is another error for each field."""
    return error.rule, error.fields if error.rule == UNSUPPORTED else ()


def asked_fields(asks: Iterable[Sequence[str]]) -> set[str]:
    """Return the fields that are asked for."""
    return {override.partition("=")[0] for each in asks for override in each}


class _Offers:
    """Offers for the errors of one job; each change is tried once for all of them."""

    def __init__(self, variants: Variants, errors: list[Finding]) -> None:
        self.job = variants.job
        self.asked = {id(error): asked for error in errors if (asked := missing(self.job, error))}
        self.before = set(map(_reason, errors))
        unknown = [error for error in errors if id(error) in self.asked]
        self.solver = Solver(variants, errors, unknown, asked_fields(self.asked.values()))
        self.preferences = self.solver.preferences
        self.solutions = self.solver.solve(_TOGETHER, _MOST) if len(unknown) < len(errors) else []
        self.closed: list[Finding] = []
        if not self.solutions and len(unknown) < len(errors):
            # Such as a model that the backend cannot build: the others are settled beside it.
            self.closed = self.solver.ignore_closed([error for error in errors if error not in unknown])
            if self.closed and len(self.closed) + len(unknown) < len(errors):
                self.solutions = self.solver.solve(_TOGETHER, _MOST)
        if self.solutions and (self.job.cluster.nodes or 1) > 1 and all(len(each) > 1 for each in self.solutions):
            # A layout that differs in several sizes is further away than other machines for the layout as it is.
            self.solutions = [*self.solutions[:1], *self.solver.other_nodes()]

    def on(self, error: Finding) -> Finding:
        """Return the error with what works."""
        if id(error) in self.asked:
            return dataclasses.replace(error, fixes=(), asks=self.asked[id(error)])
        if error in self.closed:
            self.solver.budget = max(self.solver.budget, _WITHOUT_SOLUTION)
            proposed = tuple(fix_of(changes, self.job.backend.name) for changes in self._proposed(error)[:_MOST])
            return dataclasses.replace(error, fixes=proposed or self._hints(error))
        self.solver.budget = _EACH if self.solutions else _WITHOUT_SOLUTION
        found = self._proposed(error)
        if not found:
            parts = list(self._parts(error))
            # The last one is of another kind, so that the user sees what else would do.
            others = list(self._alone(error, max(map(self._kind, parts), default=None)))
            found = self._minimal(list(dict.fromkeys((*parts[: _MOST - 1], *others, *parts[_MOST - 1 :]))))
            # How long to train is the user's: another length is offered where nothing else works.
            found = [each for each in found if not any(path in LENGTHS for path, _ in each)] or found
            found = self._nearest_size(found, error)
        fixes = tuple(fix_of(changes, self.job.backend.name) for changes in found[:_MOST])
        if fixes:
            return dataclasses.replace(error, fixes=fixes, asks=())
        return dataclasses.replace(error, fixes=self._hints(error))

    def _proposed(self, error: Finding) -> list[Changes]:
        """Return what the rule itself proposes, if it settles the error: what gives a job without errors first."""
        known = [tuple((changes_of(fix) or {}).items()) for fix in error.fixes]
        works = [changes for changes in known if changes and self._settles(changes, error)]
        return sorted(works, key=lambda changes: (self.solver.errors(changes) != [], *self._order(changes)))

    def _order(self, changes: Changes) -> tuple[bool, Kind]:
        """Return the place of a proposal: another version of the backend keeps the training, which others change."""
        return any(affects_training(path, self.job.backend.name) for path, _ in changes), self._kind(changes)

    def _parts(self, error: Finding) -> Iterator[Changes]:
        """Yield the part of each solution of the job that settles this error; all of it where no part does."""
        named = {path for option, _ in self.solver.changes_for(error, self.job) for path, _ in option}
        for changes in self.solutions:
            change_set = tuple(change for change in changes if change[0] in named)
            parts = dict.fromkeys((change_set, *((change,) for change in changes))) if len(changes) > 1 else ()
            yield next((part for part in parts if part and self._settles(part, error)), changes)

    def _alone(self, error: Finding, beyond: Kind | None) -> Iterator[Changes]:
        """Yield single changes that settle this error, of later kinds than one: the nearest of each kind."""
        options = sorted(self.solver.changes_for(error, self.job), key=lambda each: self._rank(each[0]))
        for kind, same in itertools.groupby(options, key=lambda each: self._kind(each[0])):
            if beyond is not None and (kind <= beyond or kind >= Kind.MODEL):
                continue
            tried = (option for option, _ in itertools.islice(same, _EACH // 2))
            found = list(itertools.islice((each for each in tried if self._settles(each, error)), _MOST))
            yield from found if beyond is None else found[:1]
            if found and beyond is None:
                return

    def _nearest_size(self, found: list[Changes], error: Finding) -> list[Changes]:
        """Return the changes with the nearest value, where the first one is another size of the model: by bisection."""
        if not found or len(found[0]) > 1 or not found[0][0][0].startswith("model."):
            return found
        [(path, works)], fails = found[0], value_at(self.job, found[0][0][0])
        if type(works) is not int or type(fails) is not int:
            return found
        while abs(fails - works) > 1:
            middle = (works + fails) // 2
            if self._settles(((path, middle),), error):
                works = middle
            else:
                fails = middle
        return [((path, works),), *(each for each in found if {name for name, _ in each} != {path})]

    def _minimal(self, found: Sequence[Changes]) -> list[Changes]:
        """Return the changes without those that contain others."""
        sets = [frozenset(changes) for changes in found]
        return [
            each for each, change_set in zip(found, sets, strict=True) if not any(other < change_set for other in sets)
        ]

    def _rank(self, changes: Changes) -> tuple[int, float]:
        return self._kind(changes), self.preferences.cost(changes)

    def _kind(self, changes: Changes) -> Kind:
        return max((self.preferences.kind(path) for path, _ in changes), default=Kind.LAYOUT)

    def _settles(self, changes: Changes, error: Finding) -> bool:
        """Return whether the error is removed, except others of its rule on other fields, and no new rule fails."""
        errors = self.solver.all_errors(changes)
        if errors is None or any(each.rule == error.rule and each.fields == error.fields for each in errors):
            return False
        return set(map(_reason, errors)) <= self.before

    def _hints(self, error: Finding) -> tuple[Fix, ...]:
        """Return what the rule proposes, completed where it causes other errors, and what cannot be tried."""
        self.solver.budget = max(self.solver.budget, _WITHOUT_SOLUTION)
        found = []
        for fix in error.fixes:
            changes = tuple((changes_of(fix) or {}).items())
            whole = self._completed(changes, error) if changes else None
            if whole is not None or not changes:
                found.append(fix if whole is None else fix_of(whole, self.job.backend.name))
        return tuple(found)

    def _completed(self, changes: Changes, error: Finding) -> Changes | None:
        """Return changes with one more, which settles the other error that they cause; None: no single one does."""
        caused = [each for each in self.solver.errors(changes) or () if _reason(each) not in self.before]
        if not caused:
            return None
        changed = with_values(self.job, dict(changes))
        options = sorted(self.solver.changes_for(caused[0], changed), key=lambda each: self._rank(each[0]))
        taken = {path for path, _ in changes}
        more = (option for option, _ in options if not taken & {path for path, _ in option})
        return next((whole for option in more if self._settles(whole := (*changes, *option), error)), None)
