"""Registry of rules: one record for the launcher and all backends, with a condition as text or a plain function."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any

from launcher.catalogue.catalogue import Catalogue
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.records import dataclass, record
from launcher.syntax import is_count

Range = tuple[str | None, str | None]


@record()
class RuleContext:
    """Input of a rule: the job, and its translation for the chosen backend.

    Attributes:
        job: canonical values, including those of pass-through native arguments.
        native: the arguments as they are written.
        values: the same by name, deprecated ones also under their new names.
        written: the arguments by name, with the origin of each.
        catalogue: what the backend's parser accepts, for defaults.
        command: sub-command of the backend, on which defaults may depend; "": it has none.
        fields_by_flag: the canonical field that each native argument expresses first.
        as_written: the arguments are an existing command line, not one that the launcher writes.
        passthrough: canonical path to the key in `backend.args` that sets its value instead of the field.
        beyond: canonical path to the argument whose number is outside the field's bounds, and why; the field keeps its
            own value.
    """

    job: Job
    backend: str | None = None
    version: str | None = None
    native: NativeArgs | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    written: Mapping[str, NativeArg] = field(default_factory=dict)
    catalogue: Catalogue | None = None
    command: str = ""
    fields_by_flag: Mapping[str, str] = field(default_factory=dict)
    as_written: bool = False
    passthrough: Mapping[str, str] = field(default_factory=dict)
    beyond: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def existing(self) -> bool:
        """Whether the job is an existing script or file, read directly or from its imported job file.

        What such a job omits has the backend's default, not the launcher's.
        """
        return self.as_written or (self.backend is not None and self.job.imported.backend == self.backend)

    def given(self, name: str) -> bool:
        """Return whether the native argument is written with a value."""
        return self.values.get(name) is not None

    def has_argument(self, name: str) -> bool:
        """Return whether this version of the backend has the native argument."""
        return self.catalogue is not None and self.catalogue.get(name) is not None

    def flag(self, name: str, default: Value = None) -> Value:
        """Return the value that the backend's parser would see: as written, else its own default.

        A bare switch is True when it is written and False when it is not, whatever it switches; one that stores true
        and has that default is always True.
        """
        if name in self.values:
            return self.values[name]
        value = _default(self.catalogue, name, self.command) if self.catalogue is not None else None
        return default if value is None else value

    def __getitem__(self, name: str) -> Any:
        """Return `flag(name)` for functions that expect a type; one of another type ends in no finding."""
        return self.flag(name)

    def items(self, name: str) -> tuple[Any, ...]:
        """Return the values of an argument that takes one or several."""
        value = self.flag(name)
        if value is None:
            return ()
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)

    def number(self, name: str, default: int = 0) -> int:
        """Return a whole number's value; `default` where it is not set or not a whole number."""
        value = self.flag(name)
        if isinstance(value, str) and is_count(value.strip().lstrip("-")):
            return int(value)
        return value if isinstance(value, int) else default

    def fields_of(self, flags: Iterable[str]) -> tuple[str, ...]:
        """Return the canonical fields of native arguments, and the paths of pass-through ones."""
        given = self.job.backend.passthrough
        paths: dict[str, None] = {}
        for name in flags:
            if name in self.fields_by_flag:
                paths[self.fields_by_flag[name]] = None
            # A section is no argument: each of its keys is one.
            if name in given and (name in self.written or not isinstance(given[name], Mapping)):
                paths[f"backend.args.{self.key(name)}"] = None
        return tuple(paths)

    def key(self, flag: str) -> str:
        """Return the key of an argument in `backend.args`, as it is spelled there; its name if it is not there."""
        written = self.written.get(flag)
        return written.key or flag if written is not None else flag


@cache
def _default(catalogue: Catalogue, name: str, command: str) -> Value:
    argument = catalogue.get(name)
    if argument is None:
        return None
    if argument.is_flag:
        return argument.action == "store_true" and argument.default is True
    return argument.default_for(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Violation of a rule: one sentence with the figures, and the fields and flags it concerns.

    Without fields, those that the flags express are used. `works` are overrides each of which fixes it, or several
    that do so together; `asks` stand for what only the user knows, such as `checkpoint.load=DIR`, where nothing works.
    """

    message: str
    fields: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    works: tuple[str | tuple[str, ...], ...] = ()
    asks: tuple[str, ...] = ()


Check = Callable[[RuleContext], Any]
Works = tuple[str | tuple[str, ...], ...]
Setting = Value | Callable[[RuleContext], Value]
Values = Callable[[RuleContext], Mapping[str, Value]]
PHASES = ("parse", "validate", "config", "model", "launch")


def _nothing(context: RuleContext) -> tuple[Violation, ...]:
    return ()


@record()
class Rule:
    """One rule of the launcher or of a backend.

    Its condition is text (`when`, `then`), a plain function (`check`), or both: the function then applies where `when`
    holds. `launcher.rules.table` has the syntax of the text.

    Attributes:
        id: stable name, such as `MOE-EP-EXPERTS`.
        source: upstream file:line, document section or paper.
        severity: of its findings.
        phase: when the backend would notice: one of `PHASES`.
        when: conditions under which the rule applies.
        then: what must hold then; empty: nothing can, `when` itself is the violation.
        check: function that returns the violations; in a table also a message, or whether the rule is violated.
        computes: the text is only a part of the condition: a function decides where it holds.
        applies: of a rule in a table: whether it is violated, or the message of its function; made by `declare`.
        reads: names that the rule reads beside its `flags` and those of its text, separated by spaces; `job.cluster.*`
            is a section, `*` all arguments.
        sets: for a `change`: arguments and the values that the backend gives them; `{name}` is the value of another
            argument, a function computes it from the context. Where they differ and the job writes one of the
            arguments, that is a finding; what is not written is set without one.
        fills: function of the defaults of arguments that are not written, where names and values depend on others, such
            as the class of the model; they are defaults, not changes.
        unread: arguments that training does not read where the rule applies to the effective values, also after it
            `sets` what they stand for; `moe_config.*` are all of a section.
        equivalent: arguments and values with which training is the same, instead of the `unread` ones or of another
            spelling of the value (None: what no value means); a function where their names depend on others.
        reports_unwritten: a change of arguments that the job does not write is a finding, too.
        reports_written: False: what is set means the same as what the job writes, or what is not read is what happens
            anyway, so that it is no finding.
        message: text of the finding, with `{name}` for values; empty: made from the conditions and `doc`.
        flags: arguments that the finding concerns, which a fix may change; empty: those of the conditions.
        about: arguments that it concerns beside those.
        fields: canonical fields of the finding; empty: those of the flags.
        backends: names that it holds for; empty: all.
        since, until: versions of that backend that it holds for.
        versions: first and last version by backend, where they differ; wins over `since` and `until`.
        doc: what it demands and why, one or two sentences (of a function: its docstring).
        stricter: not enforced by the backend; `rules.strict=upstream` lowers it to a warning.
        enforced_until: last version that enforced it; only later ones are less strict than the rule.
        reason: why a stricter rule is kept.
        module: module whose table declares it, which orders `sets`.
        mandatory: `rules.disable` has no effect: without the rule a value could run as a command.
        works: of a rule in a table: overrides each of which may settle it, or several that do so together; they are
            tried before they are offered; a function where they depend on what is written.
        asks: of a rule in a table: overrides with a placeholder, for what only the user knows.
        covers: fields whose MAP-UNSUPPORTED finding reports the same arithmetic with a worse message: it is not shown
            beside an error of this rule.
    """

    id: str
    source: str
    doc: str = ""
    severity: str = "error"
    phase: str = ""
    when: str = ""
    then: str = ""
    check: Check = _nothing
    reads: str = ""
    sets: Mapping[str, Setting] = field(default_factory=dict)
    fills: Values | None = None
    unread: tuple[str, ...] = ()
    equivalent: Mapping[str, Setting] | Values = field(default_factory=dict)
    reports_unwritten: bool = False
    computes: bool = False
    reports_written: bool = True
    applies: Callable[[RuleContext], bool | str] | None = None
    message: str = ""
    flags: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    versions: Mapping[str, Range] = field(default_factory=dict)
    stricter: bool = False
    enforced_until: str | None = None
    reason: str = ""
    mandatory: bool = False
    module: str = ""
    works: Works | Callable[[RuleContext], Works] = ()
    asks: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()

    @property
    def reports(self) -> bool:
        """Whether a violation is a finding by itself: not of a rule that sets values, nor of one that only spells."""
        if self.sets or self.fills is not None:
            return False
        return self.reports_written or not (self.unread or self.equivalent)

    def is_stricter(self, version: str | None) -> bool:
        """Return whether this version of the backend accepts what the rule refuses."""
        if not self.stricter or self.enforced_until is None or version is None:
            return self.stricter
        return not in_range(version, None, self.enforced_until)

    def applies_to(self, backend: str | None, version: str | None) -> bool:
        """Return whether the rule holds for this backend and version."""
        if not self.backends:
            return True
        if backend not in self.backends:
            return False
        return version is None or in_range(version, *self.versions.get(backend or "", (self.since, self.until)))


RULES: dict[str, Rule] = {}


def register(found: Rule) -> None:
    """Add a rule whose check returns violations."""
    assert found.phase in PHASES, found.id
    known = RULES.get(found.id)
    same = known is None or (known.check.__module__, known.module) == (found.check.__module__, found.module)
    assert same, f"two rules are called {found.id}"
    RULES[found.id] = found


def rule(
    id: str,
    *,
    source: str,
    severity: str = "error",
    phase: str = "validate",
    reads: str = "",
    backends: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
    stricter: bool = False,
    enforced_until: str | None = None,
    reason: str = "",
    versions: Mapping[str, Range] | None = None,
    mandatory: bool = False,
    covers: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Declare a function that returns violations as a rule; its docstring is the explanation."""

    def declare(check: Check) -> Check:
        register(
            Rule(
                id=id,
                check=check,
                severity=severity,
                phase=phase,
                reads=reads,
                source=source,
                backends=backends,
                since=since,
                until=until,
                doc=" ".join((check.__doc__ or "").split()),
                stricter=stricter,
                enforced_until=enforced_until,
                reason=reason,
                versions=versions or {},
                mandatory=mandatory,
                covers=covers,
            )
        )
        return check

    return declare


LIFTED: dict[str, list[tuple[str, Callable[[RuleContext], bool]]]] = {}


def lift(id: str, backend: str, when: Callable[[RuleContext], bool]) -> None:
    """Lift a rule where a backend's own arguments replace what the rule assumes."""
    LIFTED.setdefault(id, []).append((backend, when))


def is_lifted(rule: Rule, context: RuleContext) -> bool:
    """Return whether the backend lifts the rule in this context."""
    return any(backend == context.backend and when(context) for backend, when in LIFTED.get(rule.id, ()))


LOWERED: dict[str, list[tuple[str, Range, str, Callable[[RuleContext], bool]]]] = {}


def lower(
    id: str,
    backend: str,
    reason: str,
    *,
    since: str | None = None,
    until: str | None = None,
    when: Callable[[RuleContext], bool] = lambda context: True,
) -> None:
    """Lower a rule to a warning for backend versions that run what it otherwise refuses; `reason` explains how.

    Args:
        when: the jobs for which it is lowered.
    """
    LOWERED.setdefault(id, []).append((backend, (since, until), reason, when))


def lowered(rule: Rule, context: RuleContext) -> str:
    """Return why the rule is a warning for this backend and version; empty where it is not lowered."""
    for backend, versions, reason, when in LOWERED.get(rule.id, ()):
        matches = backend == context.backend and context.version is not None and in_range(context.version, *versions)
        if matches and when(context):
            return reason
    return ""


def loaded_rules() -> Iterator[Rule]:
    """Yield all rules declared so far, in order of their ids."""
    return (RULES[name] for name in sorted(RULES))


def applicable_rules(context: RuleContext) -> tuple[Rule, ...]:
    """Return the rules that hold for the backend and version of this context, in order of their ids."""
    return _applicable(context.backend, context.version, len(RULES))


@cache
def _applicable(backend: str | None, version: str | None, declared: int) -> tuple[Rule, ...]:
    """Return the rules that hold; `declared` is part of the cache key, so that rules loaded later are included."""
    return tuple(rule for rule in loaded_rules() if rule.applies_to(backend, version))
