"""Effective values: what the phases of a backend's validation leave of the parsed arguments."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from launcher.budgets import BeyondBudget
from launcher.catalogue.catalogue import Catalogue
from launcher.job import Value
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.equivalence import Difference, canonical, default_of, normal_form, stored
from launcher.rules.registry import PHASES, RULES, Rule, RuleContext
from launcher.rules.table import OF_ANOTHER_TYPE, getter, message_of, shown_name


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
        catalogue: the arguments of the backend version; their defaults stand where nothing is written or set.
        written: arguments that are written, by name.
        values: arguments that are written or set.
        changes: what validation set, in its order.
    """

    catalogue: Catalogue | None
    written: Mapping[str, Value]
    values: Mapping[str, Value]
    changes: tuple[Change, ...]

    def namespace(self) -> dict[str, Value]:
        """Return every argument's value by destination (`dest`), as the backend's namespace holds it."""
        if self.catalogue is None:
            return dict(self.values)
        found = {argument.dest: default_of(argument.dest, self.catalogue) for argument in self.catalogue.arguments}
        return found | stored(self.values, self.catalogue)


def differences(before: EffectiveValues, after: EffectiveValues) -> list[Difference]:
    """Return the arguments whose value differs after validation: the written ones, else those that it sets."""
    assert before.catalogue is not None
    catalogue = before.catalogue
    left, right = (normal_form(each.values, catalogue) for each in (before, after))
    written = [key for each in (before, after) for key in normal_form(each.written, catalogue)]
    return list(_differing(written, left, right, catalogue)) or list(
        _differing((*left, *right), left, right, catalogue)
    )


def _differing(
    keys: Iterable[str], left: Mapping[str, Value], right: Mapping[str, Value], catalogue: Catalogue
) -> Iterator[Difference]:
    for key in dict.fromkeys(keys):
        default = default_of(key, catalogue)
        values = left.get(key, default), right.get(key, default)
        if canonical(values[0]) != canonical(values[1]):
            yield Difference(flag=key, before=values[0], after=values[1])


def effective_values(facts: RuleContext) -> EffectiveValues:
    """Return the values after every phase: the `sets` of the `change` rules that apply, phase by phase.

    A rule sees what the rules before it left. A rule that the job disables applies, too: it describes the backend.
    """
    values = dict(facts.values)
    current = replace(facts, values=values)
    changes: list[Change] = []
    for rule in setting_rules(facts.backend, facts.version, len(RULES)):
        applies = _applies(rule, current)
        new = list(_changes(rule, applies, facts, current)) if applies else []
        changes.extend(new)
        values.update({change.flag: change.after for change in new})
    return EffectiveValues(catalogue=facts.catalogue, written=facts.values, values=values, changes=tuple(changes))


def _changes(rule: Rule, applies: bool | str, facts: RuleContext, current: RuleContext) -> Iterator[Change]:
    """Yield what a rule that applies changes; all before any is set."""
    pairs = [(flag, value, current.flag(flag)) for flag, value in _settings(rule, current)]
    pairs = [pair for pair in pairs if _differs(pair[2], pair[1])]
    is_told = rule.tells_unwritten or (rule.tells_written and any(facts.given(flag) for flag, _, _ in pairs))
    message = _message(rule, applies, pairs, current) if is_told and pairs else ""
    for flag, after, before in pairs:
        yield Change(flag=flag, before=before, after=after, rule=rule.id, written=facts.given(flag), message=message)


def _message(rule: Rule, applies: bool | str, pairs: list[tuple[str, Value, Value]], current: RuleContext) -> str:
    if isinstance(applies, str):
        return applies
    if rule.message:
        return message_of(rule, current)
    shown = ", ".join(f"{shown_name(flag)} {_shown(before)} → {_shown(after)}" for flag, after, before in pairs)
    return f"{shown}: {rule.doc.removesuffix('.')}"


def _shown(value: Value) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@cache
def setting_rules(backend: str | None, version: str | None, declared: int) -> tuple[Rule, ...]:
    """Return the rules with `sets`, in their order: by phase, by the backend's list of modules, then as declared.

    The order does not depend on which backends were loaded before. `declared` is a part of the cache key.
    """
    modules = get_backend(backend).rules if backend in backend_names() else ()
    places = {module: number for number, module in enumerate(modules)}
    found = [rule for rule in RULES.values() if rule.sets and rule.holds_for(backend, version)]
    return tuple(sorted(found, key=lambda rule: (PHASES.index(rule.phase), places.get(rule.module, -1))))


def _applies(rule: Rule, facts: RuleContext) -> bool | str:
    assert rule.applies is not None, rule.id
    try:
        return rule.applies(facts)
    except BeyondBudget:
        return False  # a rule on the value itself refuses it


def _settings(rule: Rule, facts: RuleContext) -> Iterator[tuple[str, Value]]:
    for flag, setting in rule.sets.items():
        if facts.catalogue is not None and not facts.knows(flag) and flag not in facts.values:
            continue
        try:
            yield flag, value_of(setting, facts)
        except (BeyondBudget, *OF_ANOTHER_TYPE):
            continue


def value_of(setting: Value, facts: RuleContext) -> Value:
    """Return the value of a setting: of another argument (`{name}`), of a function, or itself."""
    if callable(setting):
        return setting(facts)
    if isinstance(setting, str) and setting.startswith("{") and setting.endswith("}"):
        return getter(setting[1:-1])(facts)
    return setting


def _differs(before: Value, after: Value) -> bool:
    return bool(canonical(before) != canonical(after))
