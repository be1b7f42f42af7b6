"""Effective values: what the phases of a backend's validation leave of the parsed arguments, and what training reads.

Every fact is a rule record: `sets` in its phase is a value that validation leaves, `fills` are defaults that depend on
other arguments, `unread` is an argument that nothing reads then, `equivalent` are the arguments that mean the same.
`effective_values` follows the first two, as the backend's own namespace; `EffectiveValues.read` also the others: two
sets of arguments with the same `read` values train alike.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache, partial

from launcher.budgets import BeyondBudget
from launcher.catalogue.catalogue import Catalogue
from launcher.job import Value
from launcher.mapping.backend import get_backend, is_backend
from launcher.mapping.equivalence import Difference, canonical, default_of, stored
from launcher.mapping.native import value_text
from launcher.records import dataclass
from launcher.rules.registry import PHASES, RULES, Rule, RuleContext, Setting
from launcher.rules.table import TYPE_ERRORS, getter, message_of, shown_name

_SECTION = ".*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One argument that a phase of validation sets to another value.

    Attributes:
        flag: the argument, by its name in the catalogue.
        before, after: its values.
        rule: id of the record that says so.
        written: whether the job writes the argument.
        message: text of the finding; empty where the job has no finding for it.
    """

    flag: str
    before: Value
    after: Value
    rule: str
    written: bool
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveValues:
    """The values that a backend really runs with.

    Attributes:
        context: the job and the arguments after validation: those that are written, set or filled in.
        written: arguments that are written, by name.
        changes: what validation set, in its order.
    """

    context: RuleContext = field(repr=False)
    written: Mapping[str, Value]
    changes: tuple[Change, ...]

    @property
    def catalogue(self) -> Catalogue | None:
        """The arguments of the backend version; their defaults stand where nothing is written or set."""
        return self.context.catalogue

    @property
    def values(self) -> Mapping[str, Value]:
        """Arguments that are written or set."""
        return self.context.values

    def namespace(self) -> dict[str, Value]:
        """Return every argument's value by destination (`dest`), as the backend's namespace holds it."""
        if self.catalogue is None:
            return dict(self.values)
        names = (argument.dest for argument in self.catalogue.arguments)
        found = {name: default_of(name, self.catalogue, self.context.command) for name in names}
        return found | stored(self.values, self.catalogue)

    def unread(self) -> frozenset[str]:
        """Return the arguments, written or set, that training does not read."""
        rules = _reading_rules(self.context.backend, self.context.version, len(RULES))
        names = {name for rule in rules if rule.unread and _applies(rule, self.context) for name in rule.unread}
        sections = tuple(name.removesuffix("*") for name in names if name.endswith(_SECTION))
        return frozenset(flag for flag in self.values if flag in names or flag.startswith(sections or "*"))

    def read_by_name(self) -> dict[str, Value]:
        """Return the values that training reads, by name: written, set, filled in or equivalent."""
        unread = self.unread()
        found = {flag: value for flag, value in self.values.items() if flag not in unread}
        for rule in _reading_rules(self.context.backend, self.context.version, len(RULES)):
            if rule.equivalent and _applies(rule, self.context):
                same = rule.equivalent
                found.update(same(self.context) if callable(same) else _settings(same, self.context))
        return found

    def read(self) -> dict[str, Value]:
        """Return the values that training reads, by destination."""
        return _stored(self.read_by_name(), self.catalogue)

    def without_effect(self) -> frozenset[str]:
        """Return the written arguments that training does not read, or whose value means the same as none."""
        read = self.read_by_name()
        empty = (flag for flag in read if read[flag] is None and self.written.get(flag) is not None)
        return frozenset(self.written).difference(read).union(empty)

    def written_and_read(self) -> dict[str, Value]:
        """Return the values that the job writes and training reads, by destination, as they are written."""
        unread = self.unread()
        return _stored({flag: value for flag, value in self.written.items() if flag not in unread}, self.catalogue)


def _stored(values: Mapping[str, Value], catalogue: Catalogue | None) -> dict[str, Value]:
    if catalogue is None:
        return dict(values)
    return stored(values, catalogue)


def differences(before: EffectiveValues, after: EffectiveValues) -> list[Difference]:
    """Return the values that training reads and that differ: of the written arguments, else of all."""
    assert before.catalogue is not None
    default = partial(default_of, catalogue=before.catalogue, command=before.context.command)
    left, right = before.read(), after.read()
    written = [key for each in (before, after) for key in each.written_and_read()]
    return list(_differing(written, left, right, default)) or list(_differing((*left, *right), left, right, default))


def _differing(
    keys: Iterable[str], left: Mapping[str, Value], right: Mapping[str, Value], default: Callable[[str], Value]
) -> Iterator[Difference]:
    for key in dict.fromkeys(keys):
        values = [each[key] if key in each else default(key) for each in (left, right)]
        if _differs(*values):
            yield Difference(flag=key, before=values[0], after=values[1])


def effective_values(context: RuleContext) -> EffectiveValues:
    """Return the values after every phase: the `sets` of the `change` rules that apply, phase by phase.

    A rule sees what the rules before it left. A rule that the job disables applies, too: it describes the backend.
    """
    values = dict(context.values)
    current = replace(context, values=values)
    changes: list[Change] = []
    for rule in setting_rules(context.backend, context.version, len(RULES)):
        applies = _applies(rule, current)
        if rule.fills is not None and applies:
            values.update({flag: value for flag, value in rule.fills(current).items() if flag not in values})
        new = list(_changes(rule, applies, context, current)) if applies else []
        changes.extend(new)
        values.update({change.flag: change.after for change in new})
    return EffectiveValues(context=current, written=context.values, changes=tuple(changes))


def _changes(rule: Rule, applies: bool | str, context: RuleContext, current: RuleContext) -> Iterator[Change]:
    """Yield what a rule that applies changes; all before any is set."""
    known = {flag: setting for flag, setting in rule.sets.items() if _is_argument(flag, current)}
    pairs = [(flag, value, current.flag(flag)) for flag, value in _settings(known, current)]
    pairs = [pair for pair in pairs if _differs(pair[2], pair[1])]
    if not pairs:
        return
    is_reported = rule.reports_unwritten or (rule.reports_written and any(context.given(flag) for flag, _, _ in pairs))
    message = _message(rule, applies, pairs, current) if is_reported else ""
    for flag, after, before in pairs:
        yield Change(flag=flag, before=before, after=after, rule=rule.id, written=context.given(flag), message=message)


def _message(rule: Rule, applies: bool | str, pairs: list[tuple[str, Value, Value]], current: RuleContext) -> str:
    if isinstance(applies, str):
        return applies
    if rule.message:
        return message_of(rule, current)
    shown = ", ".join(f"{shown_name(flag)} {value_text(before)} → {value_text(after)}" for flag, after, before in pairs)
    return f"{shown}: {rule.doc.removesuffix('.')}"


@cache
def setting_rules(backend: str | None, version: str | None, declared: int) -> tuple[Rule, ...]:
    """Return the rules with `sets` or `fills`, in order: by phase, by the backend's list of modules, then as declared.

    The order does not depend on which backends were loaded before. `declared` is a part of the cache key.
    """
    modules = get_backend(backend).rules if backend is not None and is_backend(backend) else ()
    positions = {module: number for number, module in enumerate(modules)}
    found = [rule for rule in RULES.values() if (rule.sets or rule.fills) and rule.applies_to(backend, version)]
    return tuple(sorted(found, key=lambda rule: (PHASES.index(rule.phase), positions.get(rule.module, -1))))


@cache
def _reading_rules(backend: str | None, version: str | None, declared: int) -> tuple[Rule, ...]:
    """Return the rules with `unread` or `equivalent`. `declared` is a part of the cache key."""
    return tuple(
        rule for rule in RULES.values() if (rule.unread or rule.equivalent) and rule.applies_to(backend, version)
    )


def _applies(rule: Rule, context: RuleContext) -> bool | str:
    assert rule.applies is not None, rule.id
    try:
        return rule.applies(context)
    except (ArithmeticError, BeyondBudget):
        return False  # a rule on the value itself refuses it


def _is_argument(flag: str, context: RuleContext) -> bool:
    return flag in context.values or context.catalogue is None or context.has_argument(flag)


def _settings(settings: Mapping[str, Setting], context: RuleContext) -> Iterator[tuple[str, Value]]:
    for flag, setting in settings.items():
        try:
            yield flag, value_of(setting, context)
        except (ArithmeticError, BeyondBudget, *TYPE_ERRORS):
            continue  # a rule on the value itself refuses it


def value_of(setting: Value, context: RuleContext) -> Value:
    """Return the value of a setting: of another argument (`{name}`), of a function, or itself."""
    if callable(setting):
        return setting(context)
    if isinstance(setting, str) and setting.startswith("{") and setting.endswith("}"):
        return getter(setting[1:-1])(context)
    return setting


def _differs(before: Value, after: Value) -> bool:
    if type(before) is type(after) and before == after and not isinstance(before, (tuple, list, Mapping)):
        return False
    return bool(canonical(before) != canonical(after))
