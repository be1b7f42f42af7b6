"""Checks many variants of one job incrementally: after a change, only what reads a changed value is run again.

The first check records what every row of the mapping table and every rule reads: canonical fields and native
arguments. Both are pure functions, so one whose reads are unchanged gives the same result. A variant therefore costs
only its changed rows and rules, and one that cannot affect an existing error is refused without running any.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from launcher.job import Job, Value, with_values
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import gap_finding, write_row
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.mapping.passthrough import pass_through
from launcher.mapping.rows import Gap, Row, active_rows
from launcher.records import dataclass
from launcher.rules.dependency_tracking import (
    EVERY_FLAG,
    TrackedMapping,
    changed_leaves,
    flag_token,
    reading,
    tracked,
    tracked_native,
)
from launcher.rules.engine import findings_of, without_duplicates
from launcher.rules.formula import settling_values
from launcher.rules.native import rule_context
from launcher.rules.registry import RULES, Rule, RuleContext, applicable_rules

# Fields that select the rows and rules: a variant that changes one is checked from scratch.
_CHOICES = ("backend.name", "backend.version", "rules.")
_PASSED = "backend.args"
_Written = tuple[list[NativeArg], Finding | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A row, a field that the backend does not take, or a rule, with its reads and its errors."""

    reads: frozenset[str]
    errors: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The first error of a variant, and the canonical fields that decided it.

    A variant with the same values in all of `reads` has the same error, whatever its other values; None: unknown.
    """

    finding: Finding
    reads: frozenset[str] | None


class Variants:
    """A job, and the errors of it with other values.

    Results are those of `launcher.pipeline.judge`, at thousands per second. Values count as set where the job set
    them: a variant has the job's origins.

    Args:
        prepare: pure function that is applied to a job before it is translated.
        backend, version: as chosen by the job; without a backend only the common rules are applied.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend | None = None,
        version: str = "",
        prepare: Callable[[Job], Job] = lambda job: job,
    ) -> None:
        self.job = job
        self._backend = backend
        self._version = version
        self._prepare = prepare
        self._prepared = prepare(job)
        self._rows: list[Row] = []
        self._gaps: list[tuple[str, Gap]] = []
        if backend is not None:
            table = backend.table(version)
            self._rows, self._gaps = list(active_rows(table, version)), list(table.unsupported.items())
        self._written, self._row_parts = self._first_rows()
        self._native, self._more = self._with_passthrough(self._prepared, self._written)
        self._context = self._context_of(self._prepared, self._native)
        self._rules = [rule for rule in applicable_rules(self._context) if rule.severity == "error"]
        self._rule_parts = self._first_rules()
        self._rows_by_read = _by_read(self._row_parts)
        self._rules_by_read = _by_read(self._rule_parts)
        self._row_errors = {index for index, part in enumerate(self._row_parts) if part.errors}
        self._rule_errors = {index for index, part in enumerate(self._rule_parts) if part.errors}
        self._settling: dict[tuple[str, str], tuple[Value, ...]] = {}

    def expresses(self, path: str) -> bool:
        """Return whether the backend has an argument for a field; without a backend, every field counts."""
        return self._backend is None or any(path in row.fields for row in self._rows)

    def settling(self, rule: str, path: str) -> tuple[Value, ...]:
        """Return values of a field that the text of a rule names and with which it may hold."""
        if self._backend is None or rule not in RULES or path.startswith("backend."):
            return ()
        if (rule, path) not in self._settling:
            self._settling[rule, path] = tuple(settling_values(RULES[rule], path, self._backend, self._version))
        return self._settling[rule, path]

    def errors(self, changes: Mapping[str, Value]) -> list[Finding]:
        """Return the errors of the job with these values, in no particular order."""
        job, changed = self._changed(changes)
        return without_duplicates(self._errors(job, changed))

    def passes(self, changes: Mapping[str, Value]) -> bool:
        """Return whether the job with these values has no error; stops at the first one."""
        job, changed = self._changed(changes)
        return not self.has_remaining_error(changed) and next(self._errors(job, changed), None) is None

    def refused(self, changes: Mapping[str, Value]) -> Refusal | None:
        """Return the first error of the job with these values and what decided it; None: it passes."""
        job, changed = self._changed(changes)
        if any(path.startswith(("backend.", "rules.")) for path in changed):
            first = next(self._errors(job, changed), None)
            return None if first is None else Refusal(finding=first, reads=None)
        first = next(self._errors(job, set(changed)), None)
        if first is None:
            return None
        return Refusal(finding=first, reads=self._reads_of(first, job))

    def _reads_of(self, error: Finding, job: Job) -> frozenset[str] | None:
        """Return the canonical fields that the row or rule which gives an error reads."""
        watched = tracked(job)
        for index in filter(lambda each: self._may_report(each, error), range(len(self._rows) + len(self._gaps))):
            with reading() as reads:
                found = self._row(watched, index)[1]
            if found == error:
                return frozenset(reads)
        native, _ = self._with_passthrough(
            job, [self._row(job, index) for index in range(len(self._rows) + len(self._gaps))]
        )
        context = self._tracked(self._context_of(job, native), native)
        for rule in self._rules:
            if rule.id == error.rule:
                with reading() as reads:
                    found = next((each for each in _errors_of(rule, context) if each == error), None)
                if found is not None:
                    return self._origins(frozenset(reads))
        return None

    def _may_report(self, index: int, error: Finding) -> bool:
        """Return whether a row or gap concerns a field that the error names."""
        names = self._rows[index].fields if index < len(self._rows) else (self._gaps[index - len(self._rows)][0],)
        return not set(names).isdisjoint(error.fields)

    def leaves(self, changes: Mapping[str, Value]) -> frozenset[str]:
        """Return the paths of the values that change, including derived ones."""
        return frozenset(self._changed(changes)[1])

    def has_remaining_error(self, leaves: Collection[str]) -> bool:
        """Return whether an error of the job reads none of these paths, so that it remains whatever their values."""
        return any(reads is not None and reads.isdisjoint(leaves) for reads in self._persistent)

    def _changed(self, changes: Mapping[str, Value]) -> tuple[Job, set[str]]:
        job = self._prepare(with_values(self.job, changes))
        return job, set(changed_leaves(self._prepared, job))

    def _errors(self, job: Job, changed: set[str]) -> Iterator[Finding]:
        if any(path.startswith(_CHOICES) for path in changed):
            yield from Variants(job, *self._chosen(job, changed)).errors({})
            return
        again = {index: self._row(job, index) for index in _touched(self._rows_by_read, changed)}
        for index in sorted(self._row_errors | again.keys()):
            _, found = again[index] if index in again else self._written[index]
            if found is not None and found.severity == "error":
                yield found
        context, more, flags = self._context_with(job, again, changed)
        yield from (finding for finding in more if finding.severity == "error")
        if context.job is not job or self._context.job is not self._prepared:
            changed |= set(changed_leaves(self._context.job, context.job))
        changed |= flags
        rules = _touched(self._rules_by_read, changed)
        if _unrecorded(context) != _unrecorded(self._context):
            rules = set(range(len(self._rules)))
        for index in sorted(self._rule_errors - rules):
            yield from self._rule_parts[index].errors
        for index in sorted(rules):
            yield from _errors_of(self._rules[index], context)

    def _chosen(self, job: Job, changed: Collection[str]) -> tuple[Backend | None, str]:
        """Return the backend and version of a variant: its own where it chooses others."""
        if self._backend is None or not any(path.startswith("backend.") for path in changed):
            return self._backend, self._version
        backend = get_backend(job.backend.name) if job.backend.name else self._backend
        return backend, backend.version(job.backend.version) if job.backend.version else self._version

    def _context_with(
        self, job: Job, again: Mapping[int, _Written], changed: Collection[str]
    ) -> tuple[RuleContext, list[Finding], set[str]]:
        """Return the input of rules with rows written again, findings of pass-through, and tokens of changed flags."""
        different = [index for index, (args, _) in again.items() if not _are_same(args, self._written[index][0])]
        has_passthrough = bool(job.backend.args or self._prepared.backend.args)
        if self._backend is not None and not has_passthrough and not different:
            return replace(self._context, job=job, command=self._backend.command(job)), [], set()
        if not again and _PASSED not in changed:
            return self._context_of(job, self._native), self._more, set()
        written = list(self._written)
        for index, each in again.items():
            written[index] = each
        native, more = self._with_passthrough(job, written)
        context = self._context_of(job, native)
        rows = (args for index in different for args in (self._written[index][0], written[index][0]))
        flags = None if has_passthrough else {arg.flag for args in rows for arg in args}
        return context, more, _changed_flags(self._context, context, flags)

    def _first_rows(self) -> tuple[list[_Written], list[_Part]]:
        job = tracked(self._prepared)
        written: list[_Written] = []
        parts: list[_Part] = []
        for index in range(len(self._rows) + len(self._gaps)):
            with reading() as reads:
                args, finding = self._row(job, index)
            written.append((args, finding))
            is_error = finding is not None and finding.severity == "error"
            parts.append(_Part(reads=frozenset(reads), errors=(finding,) if finding is not None and is_error else ()))
        return written, parts

    def _row(self, job: Job, index: int) -> _Written:
        assert self._backend is not None
        if index < len(self._rows):
            return write_row(job, self._rows[index], self._backend, self._version)
        path, gap = self._gaps[index - len(self._rows)]
        return [], gap_finding(job, path, gap, self._backend, self._version)

    def _with_passthrough(self, job: Job, written: list[_Written]) -> tuple[NativeArgs | None, list[Finding]]:
        if self._backend is None:
            return None, []
        args = [arg for args, _ in written for arg in args]
        more: list[Finding] = []
        if job.backend.args:
            args, more = pass_through(job, args, self._backend, self._version)
        return NativeArgs(backend=self._backend.name, version=self._version, args=tuple(args)), more

    def _context_of(self, job: Job, native: NativeArgs | None) -> RuleContext:
        if self._backend is None or native is None:
            return RuleContext(job=job)
        return rule_context(job, self._backend, self._version, native)

    def _first_rules(self) -> list[_Part]:
        context = self._tracked(self._context, self._native)
        parts = []
        for rule in self._rules:
            with reading() as reads:
                errors = tuple(_errors_of(rule, context))
            parts.append(_Part(reads=frozenset(reads), errors=errors))
        return parts

    @staticmethod
    def _tracked(context: RuleContext, native: NativeArgs | None) -> RuleContext:
        return replace(
            context,
            job=tracked(context.job),
            native=None if native is None else tracked_native(native),
            values=TrackedMapping(context.values),
            written=TrackedMapping(context.written),
        )

    @cached_property
    def _persistent(self) -> list[frozenset[str] | None]:
        """What the errors of the job read, with flags traced back to the fields they come from; None: unknown."""
        rows: list[frozenset[str] | None] = [part.reads for part in self._row_parts if part.errors]
        rules = [self._origins(part.reads) for part in self._rule_parts if part.errors]
        more = [_passed(finding) for finding in self._more if finding.severity == "error"]
        return [*rows, *rules, *more]

    def _origins(self, reads: frozenset[str]) -> frozenset[str] | None:
        """Return the canonical fields behind what was read; None: unknown.

        A pass-through argument replaces what a row writes. In an imported job, a field that is set replaces it in turn.
        """
        job = self._prepared
        if EVERY_FLAG in reads or (job.backend.args and job.imported.backend is not None):
            return None
        passed = (_PASSED,) if job.backend.args else ()
        return reads.union(passed, *(self._fields_by_flag.get(token, ()) for token in reads))

    @cached_property
    def _fields_by_flag(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for row, part, (args, _) in zip(self._rows, self._row_parts, self._written, strict=False):
            for flag in {*row.flags, *(arg.flag for arg in args)}:
                found.setdefault(flag_token(flag), set()).update(part.reads)
        return found


def _passed(finding: Finding) -> frozenset[str] | None:
    """Return what an error of pass-through arguments reads: these alone, as one that is unknown; None: unknown."""
    alone = all(path.startswith(f"{_PASSED}.") for path in finding.fields)
    return frozenset((_PASSED,)) if alone else None


def _unrecorded(context: RuleContext) -> tuple[object, ...]:
    """Return those of a rule's inputs of which no reads are recorded."""
    return context.command, context.passthrough, context.beyond


def _errors_of(rule: Rule, context: RuleContext) -> Iterator[Finding]:
    return (finding for finding in findings_of(rule, context) if finding.severity == "error")


def _by_read(parts: list[_Part]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        for token in part.reads:
            found.setdefault(token, []).append(index)
    return found


def _touched(by_read: Mapping[str, list[int]], changed: Iterable[str]) -> set[int]:
    return {index for token in changed for index in by_read.get(token, ())}


def _are_same(one: list[NativeArg], two: list[NativeArg]) -> bool:
    return one == two and all(type(a.value) is type(b.value) for a, b in zip(one, two, strict=True))


def _changed_flags(before: RuleContext, after: RuleContext, flags: Collection[str] | None) -> set[str]:
    """Return the tokens of the native arguments that differ, and the token for all of them if any does.

    Args:
        flags: those that may differ; None: any.
    """
    found: set[str] = set()
    for one, two in ((before.values, after.values), (before.written, after.written)):
        for flag in one.keys() | two.keys() if flags is None else flags:
            first, second = one.get(flag, one), two.get(flag, two)
            if first is not second and (type(first) is not type(second) or first != second):
                found.add(flag_token(flag))
    return found | {EVERY_FLAG} if found else found
