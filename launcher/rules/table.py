"""Rules as data: most state that one value needs, or excludes, another.

Conditions are written `name` (on), `!name` (off), `name?` (written), `!name?` (not written), `name=a|b`, `name!=a`,
`name>1`, `name~a|b` (a list that holds one of them), joined by ` & `; those of `then` may be alternatives, joined by
` or `. A name is a native argument (`moe-grouped-gemm`), a canonical field (`job.parallel.tp`), or a term that the
backend derives (`@dialect`). `None` is the value of what is neither written nor has a default. A comparison with a
value that is not set or not a number does not hold.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from launcher.job import Value
from launcher.rules.registry import Range, Rule, RuleContext, Violation, register

Test = Callable[[RuleContext], bool]
Getter = Callable[[RuleContext], Any]
_Term = TypeVar("_Term", bound=Getter)
FIELD, TERM = "job.", "@"
_SYNTAX = re.compile(
    r"(?P<no>!?)(?P<name>@?[a-z0-9][a-z0-9._-]*)(?:(?P<given>\?)|(?P<sign>>=|<=|!=|=|>|<|~)(?P<value>.+))?",
    re.IGNORECASE,
)
_PLACES = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
_NO_FUNCTION = Rule.__dataclass_fields__["check"].default
# What a function raises that meets a value of another type: ARG-VALUE reports the value, the rule finds nothing.
OF_ANOTHER_TYPE = (TypeError, AttributeError, IndexError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A value that rules of a backend derive from others.

    Attributes:
        value: its function.
        reads: names that the function reads.
    """

    value: Getter
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a rule's text.

    Attributes:
        name: argument, `job.` and a field, or `@` and a term.
        sign: what is compared: "", "?", "=", "!=", ">", "<", ">=", "<=" or "~".
        values: what it is compared with.
        wanted: False: the condition holds where the comparison does not.
        test: the condition as a function.
    """

    name: str
    sign: str
    values: tuple[str, ...]
    wanted: bool
    test: Test

    @property
    def shown(self) -> str:
        """The condition as a part of a sentence."""
        name, either = shown_name(self.name), " or ".join(self.values)
        if self.sign in ("", "?"):
            return name if self.wanted else f"no {name}"
        if self.sign in ("=", "~"):
            return f"{name} {either}" if self.wanted else f"{name} other than {either}"
        words = {">": "above", "<": "below", ">=": "of at least", "<=": "of at most"}
        return f"{name} {words[self.sign]} {either}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The text of a rule as a tree: all of `when` hold, and none of the alternatives `then` holds as a whole."""

    when: tuple[Condition, ...]
    then: tuple[tuple[Condition, ...], ...]

    def names(self) -> tuple[str, ...]:
        """Return the names that are compared, in the order of the text."""
        all_ = (*self.when, *(condition for option in self.then for condition in option))
        return tuple(dict.fromkeys(condition.name for condition in all_))

    def are_broken(self, facts: RuleContext) -> bool:
        """Return whether the rule applies and does not hold."""
        if not all(condition.test(facts) for condition in self.when):
            return False
        return not any(all(condition.test(facts) for condition in option) for option in self.then)


TERMS: dict[tuple[str, str], Term] = {}


def term(backend: str, name: str, *reads: str) -> Callable[[_Term], _Term]:
    """Declare a term of a backend, and the names that its function reads."""

    def declared(value: _Term) -> _Term:
        TERMS[backend, name] = Term(value=value, reads=reads)
        return value

    return declared


def declare(
    rows: Iterable[Rule],
    *,
    backends: tuple[str, ...],
    phase: str = "validate",
    when: str = "",
    since: str | None = None,
    until: str | None = None,
    versions: Mapping[str, Range] | None = None,
) -> None:
    """Declare the rules of a table for these backends and versions, all `when` something; a row's own ones win."""
    module = sys._getframe(1).f_globals["__name__"]
    for row in rows:
        made = replace(
            row,
            module=module,
            when=" & ".join(filter(None, (when, row.when))),
            backends=row.backends or backends,
            phase=row.phase or phase,
            since=row.since or since,
            until=row.until or until,
            versions=row.versions or versions or {},
        )
        applies = _compiled(made)
        reads = " ".join(dict.fromkeys((*_named(made), *row.reads.split())))
        computes = row.check is not _NO_FUNCTION
        register(replace(made, computes=computes, applies=applies, check=_checking(made, applies), reads=reads))


def conditions_of(rule: Rule) -> Conditions:
    """Return the text of a rule as a tree."""
    return _tree(rule.when, rule.then)


@cache
def _tree(when: str, then: str) -> Conditions:
    return Conditions(when=_joined(when), then=tuple(_joined(option) for option in then.split(" or ")) if then else ())


def _joined(text: str) -> tuple[Condition, ...]:
    return tuple(_condition(part) for part in text.split(" & ")) if text else ()


def _named(row: Rule) -> Iterator[str]:
    yield from conditions_of(row).names()
    yield from row.sets
    yield from (name for value in row.sets.values() if isinstance(value, str) for name in _PLACES.findall(value))
    yield from (name for name in _PLACES.findall(row.message) if name)


def _compiled(row: Rule) -> Callable[[RuleContext], bool | str]:
    """Return the function that says whether a rule applies and is broken, or the message of its own function."""
    conditions = conditions_of(row)
    of_function = row.check if row.check is not _NO_FUNCTION else None

    def applies(facts: RuleContext) -> bool | str:
        if not conditions.are_broken(facts):
            return False
        if of_function is None:
            return True
        try:
            found = of_function(facts)
        except OF_ANOTHER_TYPE:
            return False
        return found if isinstance(found, str) else bool(found)

    return applies


def _checking(row: Rule, applies: Callable[[RuleContext], bool | str]) -> Callable[[RuleContext], Iterator[Violation]]:
    flags = flags_of(row)

    def check(facts: RuleContext) -> Iterator[Violation]:
        found = applies(facts)
        if found:
            text = found if isinstance(found, str) else message_of(row, facts)
            yield Violation(message=text, fields=row.fields, flags=flags)

    return check


def flags_of(row: Rule) -> tuple[str, ...]:
    """Return the arguments that the findings of a rule concern."""
    named = tuple(name for name in conditions_of(row).names() if not name.startswith((FIELD, TERM)))
    return tuple(dict.fromkeys((*(row.flags or named), *row.about)))


def message_of(row: Rule, facts: RuleContext) -> str:
    """Return the text of a finding: the rule's own, else one made from its conditions."""
    conditions = conditions_of(row)
    if row.message:
        return _PLACES.sub(lambda found: _filled(found[0], found[1], facts), row.message)
    cause = " with ".join(_as_it_is(condition, facts) for condition in conditions.when)
    if not conditions.then:
        return f"{cause}: {_lower(row.doc)}"
    wanted = " or ".join(" and ".join(condition.shown for condition in option) for option in conditions.then)
    return f"{cause} needs {wanted}: {_lower(row.doc)}"


def _filled(text: str, name: str | None, facts: RuleContext) -> str:
    if name is None:
        return text[0]
    value = getter(name)(facts)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_it_is(condition: Condition, facts: RuleContext) -> str:
    """Return a condition that holds, with the value that it has."""
    value = getter(condition.name)(facts)
    if isinstance(value, bool) or value is None:
        return condition.shown
    shown = " ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value
    return f"{shown_name(condition.name)} {shown}"


def _lower(text: str) -> str:
    text = text.removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def shown_name(name: str) -> str:
    """Return a name of a condition as people write it."""
    return name.removeprefix(FIELD).removeprefix(TERM) if name.startswith((FIELD, TERM)) else f"--{name}"


@cache
def getter(name: str) -> Getter:
    """Return the function that gives the value of a name in a condition."""
    if name.startswith(TERM):
        key = name.removeprefix(TERM)
        return lambda facts: TERMS[facts.backend or "", key].value(facts)
    if name.startswith(FIELD):
        section, _, leaf = name.removeprefix(FIELD).rpartition(".")
        if not section:
            return lambda facts: getattr(facts.job, leaf)
        return lambda facts: getattr(getattr(facts.job, section), leaf)
    return lambda facts: facts.flag(name)


def _condition(text: str) -> Condition:
    match = _SYNTAX.fullmatch(text.strip())
    assert match is not None, f"not a condition: {text}"
    name, wanted, sign = match["name"], not match["no"], match["given"] or match["sign"] or ""
    values = tuple(match["value"].split("|")) if match["value"] else ()
    if sign == "!=":
        sign, wanted = "=", not wanted
    assert wanted or sign in ("", "?", "=", "~"), f"not a condition: {text}"
    return Condition(name=name, sign=sign, values=values, wanted=wanted, test=_test(name, sign, values, wanted))


def _test(name: str, sign: str, values: tuple[str, ...], wanted: bool) -> Test:
    get = getter(name)
    if sign == "?":
        if name.startswith((FIELD, TERM)):
            return lambda facts: (get(facts) is not None) is wanted
        return lambda facts: facts.given(name) is wanted
    if sign == "":
        return lambda facts: bool(get(facts)) is wanted
    if sign == "=":
        return _is_one_of(get, frozenset(values), wanted)
    if sign == "~":
        return _holds_one_of(get, frozenset(values), wanted)
    return _compares(get, sign, float(values[0]))


def _is_one_of(get: Getter, values: frozenset[str], wanted: bool) -> Test:
    def test(facts: RuleContext) -> bool:
        return (str(_single(get(facts))) in values) is wanted

    return test


def _holds_one_of(get: Getter, values: frozenset[str], wanted: bool) -> Test:
    def test(facts: RuleContext) -> bool:
        value = get(facts)
        held = value if isinstance(value, (list, tuple)) else str(value).split(",")
        return (not values.isdisjoint(held)) is wanted

    return test


_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda one, two: one > two,
    "<": lambda one, two: one < two,
    ">=": lambda one, two: one >= two,
    "<=": lambda one, two: one <= two,
}


def _compares(get: Getter, sign: str, bound: float) -> Test:
    compare = _SIGNS[sign]

    def test(facts: RuleContext) -> bool:
        value = _single(get(facts))
        try:
            return value is not None and compare(float(value), bound)
        except (TypeError, ValueError):
            return False

    return test


def _single(value: Value) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
