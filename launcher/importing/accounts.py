"""Result of porting each argument of a script: translated, passed through, or dropped with a reason."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from launcher.importing.imported import Imported, ImportedArg
from launcher.job import Job, Value, fields, override_text, value_at
from launcher.job.derive import with_values
from launcher.job.finding import Finding
from launcher.mapping.engine import fields_of_flags, read_back, write_row
from launcher.mapping.ignored_fields import (
    DATA_FIELDS,
    LAUNCHER_FIELDS,
    MODEL_FILE_FIELDS,
    AppliedFields,
    inapplicable,
    model_files,
)
from launcher.mapping.native import NativeArgs
from launcher.mapping.native_only import MODEL, NOTHING, SPEED, TRAINING
from launcher.mapping.rows import Row, active_rows
from launcher.port.dropped import DEFAULT, MODEL_FILES, DroppedArg, PortRoute, is_default, without_effect
from launcher.port.substitutes import SUBSTITUTE_RULE
from launcher.records import dataclass
from launcher.rules.native import effective_of

TRANSLATED, PASSED_THROUGH, DROPPED = "translated", "carried over", "left out"
BY_LAUNCHER = "the launcher sets it"
# An argument tied to more fields than this is a catch-all for fields without an argument of their own.
_BAG = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Result of porting one argument of the source.

    Attributes:
        flag, value: as the source spelled it.
        where: `file:line`, if known.
        status: TRANSLATED, PASSED_THROUGH or DROPPED.
        fields: canonical fields that hold its value.
        target_flags: the target's arguments; empty: the target's default behaviour is the same.
        note: condition under which the target writes it.
        missing: reason and substitute, if it is dropped.
    """

    flag: str
    value: Value
    where: str = ""
    status: str
    fields: tuple[str, ...] = ()
    target_flags: tuple[str, ...] = ()
    note: str = ""
    missing: DroppedArg | None = None

    def as_tree(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        tree: dict[str, Any] = {
            "flag": self.flag,
            "value": self.value,
            "where": self.where,
            "fate": self.status,
            "fields": list(self.fields),
            "becomes": list(self.target_flags),
            "note": self.note,
        }
        return tree if self.missing is None else {**self.missing.as_tree(), **tree}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a port, from which the account of each argument is derived.

    Attributes:
        job: the ported job.
        native: its arguments on the target.
        findings: findings of the mapping and of the rules.
        kept: arguments that are passed through on the target too: source name to target name.
        substituted: fields that an argument without a canonical field was translated to.
        missing: dropped arguments, by name.
    """

    job: Job
    native: NativeArgs
    findings: tuple[Finding, ...]
    kept: Mapping[str, str]
    substituted: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, DroppedArg]


def accounts(imported: Imported, route: PortRoute, outcome: Outcome) -> list[Account]:
    """Return one account for each argument of the source, in source order."""
    ledger = _Ledger(imported, route, outcome)
    return [ledger.account(each) for each in imported.mapped_args]


class _Ledger:
    """Arguments that the target writes, rejects or sets by default."""

    def __init__(self, imported: Imported, route: PortRoute, outcome: Outcome) -> None:
        self.route, self.outcome = route, outcome
        self.given = {arg.flag: arg.value for arg in imported.native}
        self.table = route.target.table(route.version)
        self.written = {arg.flag: arg.value for arg in outcome.native}
        self.ties = fields_of_flags(route.target.name, route.version)
        self.refused: dict[str, Finding] = {}
        self.replaced: dict[str, Finding] = {}
        for finding in outcome.findings:
            if finding.rule == "MAP-UNSUPPORTED":
                self.refused.update(dict.fromkeys(finding.fields, finding))
            elif finding.rule == SUBSTITUTE_RULE:
                self.replaced.update(dict.fromkeys(finding.fields, finding))
        self.unread = frozenset[str]()
        if route.source.catalogue(route.source_version).style == "yaml":
            job, native = imported.job, imported.native
            effective = effective_of(job, route.source, route.source_version, native, as_written=True)
            self.unread = effective.without_effect()
        self.applied = AppliedFields(outcome.job, route.target, route.version, self.written)

    def account(self, each: ImportedArg) -> Account:
        """Return the account of one argument."""
        found = self._passthrough(each, each.flag)
        if found is not None:
            return found
        return self._translated(each, each.fields) if each.fields else self._implied(each)

    def _passthrough(self, each: ImportedArg, name: str) -> Account | None:
        """Return the account of an argument that the source's job passes through under this name."""
        outcome = self.outcome
        if name in outcome.substituted:
            return self._translated(each, outcome.substituted[name])
        if name in outcome.kept:
            return _account(each, PASSED_THROUGH, target_flags=(outcome.kept[name],))
        applied = outcome.missing.get(name)
        return None if applied is None else _account(each, DROPPED, missing=applied)

    def _implied(self, each: ImportedArg) -> Account:
        if is_default(self.route, each.flag, each.value):
            return self._without_effect(each, DEFAULT)
        if self.route.source.catalogue(self.route.source_version).style == "yaml":
            return self._without_effect(each, "training does not read it" if each.flag in self.unread else BY_LAUNCHER)
        paths, names = self._read_in_addition(each)
        if paths:
            return self._translated(each, paths)
        found = self._passthrough(each, names[0]) if names else None
        return found or self._without_effect(each, BY_LAUNCHER)

    def _without_effect(self, each: ImportedArg, why: str) -> Account:
        return _account(each, DROPPED, missing=without_effect(self.route, each.flag, each.value, why))

    def _read_in_addition(self, each: ImportedArg) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the fields, or newer names, to which the source's table maps an argument that no row of it writes."""
        before = read_back(self.given, self.route.source, self.route.source_version).job
        rest = {flag: value for flag, value in self.given.items() if flag != each.flag}
        after = read_back(rest, self.route.source, self.route.source_version).job
        paths = (path for path in fields() if not path.startswith(LAUNCHER_FIELDS))
        names = (name for name in before.backend.args if name not in after.backend.args)
        return tuple(path for path in paths if value_at(before, path) != value_at(after, path)), tuple(names)

    def _translated(self, each: ImportedArg, paths: Iterable[str]) -> Account:
        paths = tuple(path for path in paths if path in fields())
        job = self.outcome.job
        set_paths = [path for path in paths if value_at(job, path) != fields()[path].default] or list(paths)
        target_flags = tuple(flag for flag in self.written if self._expresses(flag, set_paths))
        # The first field is the primary one; the others count only if no argument is written.
        heavy = set_paths[:1] if target_flags else set_paths
        refused = next((self.refused[path] for path in heavy if path in self.refused), None)
        if refused is not None:
            return self._refused(each, paths, refused)
        replaced = next((self.replaced[path] for path in paths[:1] if path in self.replaced), None)
        if replaced is not None:
            return self._replaced(each, paths, replaced)
        lost = [path for path in set_paths if not self.applied.is_applied(path)]
        if lost and not target_flags:
            return self._ignored(each, paths, lost[0])
        return _account(each, TRANSLATED, fields=paths, target_flags=target_flags)

    def _expresses(self, flag: str, set_paths: Iterable[str]) -> bool:
        """Return whether an argument of the target expresses one of the fields."""
        ties = self.ties.get(flag, ())
        mine = set(ties) & set(set_paths)
        # A catch-all argument is written for some of its fields only.
        return bool(mine) if len(ties) <= _BAG else any(self._matters(flag, path) for path in mine)

    def _matters(self, flag: str, path: str) -> bool:
        job = self.outcome.job
        reset = with_values(job, {path: fields()[path].default})
        rows = [row for row in active_rows(self.table, self.route.version) if flag in row.flags and path in row.fields]
        return any(self._emitted(job, row) != self._emitted(reset, row) for row in rows)

    def _emitted(self, job: Job, row: Row) -> list[tuple[str, Value]]:
        return [(arg.flag, arg.value) for arg in write_row(job, row, self.route.target, self.route.version)[0]]

    def _refused(self, each: ImportedArg, paths: tuple[str, ...], finding: Finding) -> Account:
        affects_training = any(fields()[path].meta.affects_training for path in finding.fields if path in fields())
        why = finding.message.partition(": ")[2] or finding.message
        return _dropped(
            each,
            paths,
            does=_doc(paths, finding.fields),
            effect=TRAINING if affects_training else SPEED,
            why=why,
            works=tuple(str(fix) for fix in finding.fixes),
            without="training proceeds without it" if affects_training else "training does not change without it",
            reported=True,
        )

    def _replaced(self, each: ImportedArg, paths: tuple[str, ...], finding: Finding) -> Account:
        """Return the account of an argument whose field has a substitute, which the job has."""
        job = self.outcome.job
        values = ((path, value_at(job, path)) for path in finding.fields)
        has = tuple(f"{path}={override_text(value)}" for path, value in values if value != fields()[path].default)
        return _dropped(
            each,
            paths,
            does=_doc(paths, finding.fields),
            effect=TRAINING if finding.severity == "warning" else SPEED,
            why=finding.message.partition(": ")[2],
            has=has,
            without="the backend's own is taken",
            reported=True,
        )

    def _ignored(self, each: ImportedArg, paths: tuple[str, ...], path: str) -> Account:
        """Return the account of an argument that the target neither writes nor rejects."""
        there, job = self.route.there, self.outcome.job
        if path in self.table.irrelevant:
            why = self.table.irrelevant[path]
            return _dropped(each, paths, does=_doc(paths, (path,)), why=why, without="no action is needed")
        if path.startswith(MODEL_FILE_FIELDS) and self.route.target.reads_hub and not inapplicable(job, path):
            return self._in_model_files(each, paths)
        if job.model.hidden_size is None:
            return _account(each, TRANSLATED, fields=paths, note=f"written if {there} knows the model: {MODEL_FILES}")
        if path.startswith(DATA_FIELDS) and "data.format" in self.refused:
            note = f"written if {there} reads the format of the data: data.format"
            return _account(each, TRANSLATED, fields=paths, note=note)
        return self._unread(each, paths, path)

    def _unread(self, each: ImportedArg, paths: tuple[str, ...], path: str) -> Account:
        """Return the account of an argument that the target's table ignores for this job."""
        why = inapplicable(self.outcome.job, path)
        affects_training = not why and fields()[path].meta.affects_training
        return _dropped(
            each,
            paths,
            does=_doc(paths, (path,)),
            effect=TRAINING if affects_training else NOTHING,
            why=why or f"{self.route.there} does not read it with the other values of this job",
            without=f"{self.route.there} uses its default" if affects_training else "no action is needed",
        )

    def _in_model_files(self, each: ImportedArg, paths: tuple[str, ...]) -> Account:
        """Return the account of an architecture argument, where the target reads the architecture from model files."""
        model, there = self.outcome.job.model, self.route.there
        named = model.path or model.hub_id
        return _dropped(
            each,
            paths,
            does="describes the model",
            effect=NOTHING if named else MODEL,
            why=f"{there} reads that from the model's own files" + (f" ({named})" if named else ""),
            works=() if named else model_files(self.outcome.job),
            without="no action is needed",
        )


def _doc(paths: tuple[str, ...], first: Iterable[str]) -> str:
    path = next((path for path in first if path in fields()), paths[0] if paths else "")
    doc = fields()[path].meta.doc if path else ""
    return f"{path}: {doc[:1].lower()}{doc[1:].rstrip('.')}" if doc else "has no description"


def _account(each: ImportedArg, status: str, **more: Any) -> Account:
    return Account(flag=each.flag, value=each.value, where=each.where, status=status, **more)


def _dropped(each: ImportedArg, paths: tuple[str, ...] = (), **applied: Any) -> Account:
    missing = DroppedArg(flag=each.flag, value=each.value, fields=paths, **applied)
    return _account(each, DROPPED, fields=paths, missing=missing)


def counted(found: Iterable[Account]) -> Iterator[tuple[str, int]]:
    """Yield the number of arguments by status, and the number of dropped ones that affect training."""
    each = list(found)
    for status in (TRANSLATED, PASSED_THROUGH, DROPPED):
        yield status, sum(one.status == status for one in each)
    yield "training", sum(one.missing is not None and one.missing.changes_training for one in each)
