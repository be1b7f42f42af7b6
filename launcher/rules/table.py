"""Rules as data: most state that one value needs, or excludes, another.

Conditions are written `name` (on), `!name` (off), `name?` (written), `!name?` (not written), `name=a|b`, `name!=a`,
`name>1`, `name~a|b` (a list that contains one of them), `name%2` (leaves a remainder), joined by ` & `; those of `then`
may be alternatives, joined by ` or `. A name is a native argument (`moe-grouped-gemm`), a canonical field
(`job.parallel.tp`), or a term that the backend derives (`@dialect`). What a number is compared with may be another
one, `name>={other}`, or a product, `name%{one}*{other}`. `None` is the value of what is neither written nor has a
default. A comparison with a value that is not set or not a number does not hold; divisors are not 0.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypedDict, TypeVar, Unpack

from launcher.job import Value
from launcher.mapping.rows import UnreadArgs
from launcher.records import dataclass, record
from launcher.rules.registry import Check, Range, Rule, RuleContext, Setting, Values, Violation, Works, register

Test = Callable[[RuleContext], bool]
Getter = Callable[[RuleContext], Any]
_Term = TypeVar("_Term", bound=Getter)
FIELD, TERM = "job.", "@"
_SYNTAX = re.compile(
    r"(?P<no>!?)(?P<name>@?[a-z0-9][a-z0-9._-]*)(?:(?P<given>\?)|(?P<sign>>=|<=|!=|=|>|<|~|%)(?P<value>.+))?",
    re.IGNORECASE,
)
_PLACEHOLDERS = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
# Names that begin a sentence and keep their capital letter; those with further capitals, such as LoRA, do anyway.
_NAMES = frozenset({"Megatron", "Muon", "Ray", "Sinkhorn", "Torch", "Transformer", "Ulysses"})
_NO_FUNCTION = Rule.__dataclass_fields__["check"].default
# What a function raises that meets a value of another type: ARG-VALUE reports the value, the rule finds nothing.
TYPE_ERRORS = (TypeError, AttributeError, IndexError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A value that rules of a backend derive from others.

    Attributes:
        value: its function.
        reads: names that the function reads.
    """

    value: Getter
    reads: tuple[str, ...]


@record()
class Condition:
    """One condition of a rule's text.

    Attributes:
        name: argument, `job.` and a field, or `@` and a term.
        sign: what is compared: "", "?", "=", "!=", ">", "<", ">=", "<=", "~" or "%".
        values: what it is compared with.
        expected: False: the condition holds where the comparison does not.
        test: the condition as a function.
    """

    name: str
    sign: str
    values: tuple[str, ...]
    expected: bool
    test: Test

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that are compared: its own, and those of the number that it is compared with."""
        return (self.name, *(name for name in _PLACEHOLDERS.findall("".join(self.values)) if name))

    @property
    def is_absence(self) -> bool:
        """Whether the condition is that a name is off or not written."""
        return not self.expected and self.sign in ("", "?")

    @property
    def shown(self) -> str:
        """The condition as a part of a sentence."""
        name, either = shown_name(self.name), shown_amount(" or ".join(self.values))
        if self.sign in ("", "?"):
            return name
        if self.sign in ("=", "~"):
            return f"{name} {either}" if self.expected else f"{name} other than {either}"
        comparisons = {">": "above", "<": "below", ">=": "of at least", "<=": "of at most", "%": "not a multiple of"}
        return f"{name} {comparisons[self.sign] if self.expected else 'a multiple of'} {either}"


@record()
class Conditions:
    """The text of a rule as a tree: all of `when` hold, and none of the alternatives `then` holds as a whole."""

    when: tuple[Condition, ...]
    then: tuple[tuple[Condition, ...], ...]

    def names(self) -> tuple[str, ...]:
        """Return the names that are compared, in the order of the text."""
        all_ = (*self.when, *(condition for option in self.then for condition in option))
        return tuple(dict.fromkeys(name for condition in all_ for name in condition.names))

    def are_broken(self, context: RuleContext) -> bool:
        """Return whether the rule applies and does not hold."""
        for condition in self.when:
            if not condition.test(context):
                return False
        return not any(all(condition.test(context) for condition in option) for option in self.then)


TERMS: dict[tuple[str, str], Term] = {}


def term(backend: str, name: str, *reads: str) -> Callable[[_Term], _Term]:
    """Declare a term of a backend, and the names that its function reads."""

    def declared(value: _Term) -> _Term:
        TERMS[backend, name] = Term(value=value, reads=reads)
        return value

    return declared


class _Scope(TypedDict, total=False):
    phase: str
    reads: str
    since: str | None
    until: str | None
    versions: Mapping[str, Range]


class RuleOptions(_Scope, total=False):
    """Further values of a rule in a table of `needs`, `never` and `checked`."""

    message: str
    flags: tuple[str, ...]
    about: tuple[str, ...]
    fields: tuple[str, ...]
    severity: str
    works: Works | Callable[[RuleContext], Works]
    asks: tuple[str, ...]


def needs(id: str, when: str, then: str, doc: str, source: str, **options: Unpack[RuleOptions]) -> Rule:
    """Return an error: where `when` holds and `then` does not."""
    return Rule(id=id, when=when, then=then, doc=doc, source=source, **options)


def never(id: str, when: str, doc: str, source: str, **options: Unpack[RuleOptions]) -> Rule:
    """Return an error: where `when` holds."""
    return Rule(id=id, when=when, doc=doc, source=source, **options)


def checked(
    id: str, check: Check, doc: str, source: str, *, when: str = "", then: str = "", **options: Unpack[RuleOptions]
) -> Rule:
    """Return an error: where the function `check` finds one, `when` holds and `then` does not."""
    return Rule(id=id, check=check, doc=doc, source=source, when=when, then=then, **options)


def unread(
    id: str,
    when: str,
    flags: str | Iterable[str],
    doc: str,
    source: str,
    *,
    equivalent: Mapping[str, Setting] | Values | None = None,
    check: Check | None = None,
    **options: Unpack[_Scope],
) -> Rule:
    """Return a change: arguments that training does not read. No finding, as the job runs as it would without them."""
    found = Rule(
        id=id,
        when=when,
        unread=tuple(flags.split() if isinstance(flags, str) else flags),
        equivalent=equivalent or {},
        doc=doc,
        source=source,
        severity="change",
        reports_written=False,
        **options,
    )
    return found if check is None else replace(found, check=check)


def sets(
    id: str,
    when: str,
    values: Mapping[str, Setting],
    doc: str,
    source: str,
    *,
    unread: tuple[str, ...] = (),
    check: Check | None = None,
    reports_written: bool = True,
    **options: Unpack[_Scope],
) -> Rule:
    """Return a change: arguments that the backend sets; its finding is made of their values and `doc`.

    Args:
        values: what each argument is set to; a bare switch that stores false is set to True to store it.
        unread: arguments that only stand for what is set.
        reports_written: False: no finding, as the values mean what is written.
    """
    found = Rule(
        id=id,
        when=when,
        sets=values,
        unread=unread,
        doc=doc,
        source=source,
        severity="change",
        flags=tuple(values),
        reports_written=reports_written,
        **options,
    )
    return found if check is None else replace(found, check=check)


def unread_args(id: str, args: UnreadArgs, versions: Mapping[str, Range] | None = None) -> Rule:
    """Return a change: arguments that the mapping reads and training does not."""
    scope = _Scope(phase="launch", since=args.since, until=args.until, versions=versions or {})
    return unread(id, args.when, args.flags, args.why, args.source, **scope)


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
        of_function = row.check if row.check is not _NO_FUNCTION else None
        combined = " & ".join(filter(None, (when, row.when)))
        conditions = _tree(combined, row.then)
        rule = replace(
            row,
            module=module,
            when=combined,
            backends=row.backends or backends,
            phase=row.phase or phase,
            since=row.since or since,
            until=row.until or until,
            versions=row.versions or versions or {},
            computes=of_function is not None,
            applies=_compiled(conditions, of_function),
            reads=" ".join(dict.fromkeys((*conditions.names(), *_named(row), *row.reads.split()))),
        )
        # The check refers to its rule.
        object.__setattr__(rule, "check", _checking(rule))
        register(rule)


def holds(text: str, context: RuleContext) -> bool:
    """Return whether all conditions of a text, or of one of several that are joined by ` or `, hold."""
    return any(all(each.test(context) for each in option) for option in options_of(text)) if text else True


def options_of(text: str) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions of a text: in each of the tuples, those that hold together."""
    return _tree("", text).then


def conditions_of(rule: Rule) -> Conditions:
    """Return the text of a rule as a tree."""
    return _tree(rule.when, rule.then)


@cache
def _tree(when: str, then: str) -> Conditions:
    return Conditions(when=_joined(when), then=tuple(_joined(option) for option in then.split(" or ")) if then else ())


def _joined(text: str) -> tuple[Condition, ...]:
    return tuple(_condition(part) for part in text.split(" & ")) if text else ()


def _named(row: Rule) -> Iterator[str]:
    """Yield the names in the values and in the message of a rule."""
    yield from row.sets
    yield from row.unread
    equivalent = {} if callable(row.equivalent) else row.equivalent
    yield from equivalent
    settings = (*row.sets.values(), *equivalent.values())
    yield from (name for value in settings if isinstance(value, str) for name in _PLACEHOLDERS.findall(value))
    yield from (name for name in _PLACEHOLDERS.findall(row.message) if name)


def _compiled(conditions: Conditions, of_function: Check | None) -> Callable[[RuleContext], bool | str]:
    """Return the function that says whether a rule applies and is broken, or the message of its own function."""

    def applies(context: RuleContext) -> bool | str:
        if not conditions.are_broken(context):
            return False
        if of_function is None:
            return True
        try:
            found = of_function(context)
        except TYPE_ERRORS:
            return False
        return found if isinstance(found, str) else bool(found)

    return applies


def _checking(row: Rule) -> Callable[[RuleContext], Iterator[Violation]]:
    applies = row.applies
    assert applies is not None

    def check(context: RuleContext) -> Iterator[Violation]:
        found = applies(context)
        if found:
            text = found if isinstance(found, str) else message_of(row, context)
            works = row.works(context) if callable(row.works) else row.works
            yield Violation(message=text, fields=row.fields, flags=flags_of(row), works=works, asks=row.asks)

    return check


def flags_of(row: Rule) -> tuple[str, ...]:
    """Return the arguments that the findings of a rule concern."""
    named = tuple(name for name in conditions_of(row).names() if not name.startswith((FIELD, TERM)))
    return tuple(dict.fromkeys((*(row.flags or named), *row.about)))


def message_of(row: Rule, context: RuleContext) -> str:
    """Return the text of a finding: the rule's own, else one made from its conditions."""
    conditions = conditions_of(row)
    if row.message:
        return _PLACEHOLDERS.sub(lambda found: _filled(found[0], found[1], context), row.message)
    cause = _cause(conditions, context)
    if not conditions.then:
        return f"{cause}: {_lower(row.doc)}"
    if len(conditions.then) == 1 and all(each.is_absence for each in conditions.then[0]):
        excluded = " or ".join(shown_name(each.name) for each in conditions.then[0])
        return f"{cause} cannot be combined with {excluded}: {_lower(row.doc)}"
    expected = " or ".join(_needed(option) for option in conditions.then)
    return f"{cause} needs {expected}: {_lower(row.doc)}"


def _cause(conditions: Conditions, context: RuleContext) -> str:
    """Return the conditions under which a rule applies as a part of a sentence, each once."""
    needed = {condition.name for option in conditions.then for condition in option}
    first, *rest = dict.fromkeys(_as_it_is(each, context) for each in conditions.when if not each.is_absence) or ("",)
    absent = tuple(each for each in conditions.when if each.name not in needed)
    return _without(f"{first} with {' and '.join(rest)}" if rest else first, absent)


def _needed(option: tuple[Condition, ...]) -> str:
    """Return an alternative of `then` as a part of a sentence."""
    return _without(" and ".join(each.shown for each in option if not each.is_absence), option)


def _without(text: str, conditions: tuple[Condition, ...]) -> str:
    """Return a text on conditions that hold, followed by the names that must be absent."""
    absent = " or ".join(shown_name(each.name) for each in conditions if each.is_absence)
    return " ".join(filter(None, (text, f"without {absent}" if absent else "")))


def _filled(text: str, name: str | None, context: RuleContext) -> str:
    if name is None:
        return text[0]
    value = getter(name)(context)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_it_is(condition: Condition, context: RuleContext) -> str:
    """Return a condition that holds, with the value that it has."""
    value = getter(condition.name)(context)
    if isinstance(value, bool) or value is None:
        return condition.shown
    shown = " ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value
    return f"{shown_name(condition.name)} {shown}"


def _lower(text: str) -> str:
    text, first = text.removesuffix("."), text.partition(" ")[0]
    is_name = not first[1:].islower() and len(first) > 1
    return text if is_name or first.removesuffix("'s") in _NAMES else text[:1].lower() + text[1:]


def shown_name(name: str) -> str:
    """Return a name of a condition as people write it."""
    return name.removeprefix(FIELD).removeprefix(TERM) if name.startswith((FIELD, TERM)) else f"--{name}"


def shown_amount(text: str) -> str:
    """Return a value with what it names as people write it: `{tp}*{job.parallel.cp}` as `tp * parallel.cp`."""
    if "{" not in text:
        return text
    return text.replace("*", " * ").replace("{", "").replace("}", "").replace(FIELD, "").replace(TERM, "")


@cache
def getter(name: str) -> Getter:
    """Return the function that gives the value of a name in a condition."""
    if name.startswith(TERM):
        key = name.removeprefix(TERM)
        return lambda context: TERMS[context.backend or "", key].value(context)
    if name.startswith(FIELD):
        section, _, leaf = name.removeprefix(FIELD).rpartition(".")
        if not section:
            return lambda context: getattr(context.job, leaf)
        return lambda context: getattr(getattr(context.job, section), leaf)
    return lambda context: context.flag(name)


@cache
def _condition(text: str) -> Condition:
    match = _SYNTAX.fullmatch(text.strip())
    assert match is not None, f"not a condition: {text}"
    name, expected, sign = match["name"], not match["no"], match["given"] or match["sign"] or ""
    values = tuple(match["value"].split("|")) if match["value"] else ()
    if sign == "!=":
        sign, expected = "=", not expected
    assert expected or sign in ("", "?", "=", "~", "%"), f"not a condition: {text}"
    return Condition(name=name, sign=sign, values=values, expected=expected, test=_test(name, sign, values, expected))


def _test(name: str, sign: str, values: tuple[str, ...], expected: bool) -> Test:
    get = getter(name)
    if sign == "?":
        if name.startswith((FIELD, TERM)):
            return lambda context: (get(context) is not None) is expected
        return lambda context: context.given(name) is expected
    if sign == "":
        return lambda context: bool(get(context)) is expected
    if sign == "=" and "{" not in values[0]:
        return _is_one_of(get, frozenset(values), expected)
    if sign == "~":
        return _contains_one_of(get, frozenset(values), expected)
    return _compares(get, _SIGNS[sign], tuple(_factor(part) for part in values[0].split("*")), expected)


def _factor(text: str) -> float | Getter:
    """Return a number, or the function that gives the value of a `{name}`."""
    return getter(text[1:-1]) if text.startswith("{") else float(text)


def _is_one_of(get: Getter, values: frozenset[str], expected: bool) -> Test:
    def test(context: RuleContext) -> bool:
        return (str(_single(get(context))) in values) is expected

    return test


def _contains_one_of(get: Getter, values: frozenset[str], expected: bool) -> Test:
    def test(context: RuleContext) -> bool:
        value = get(context)
        items = value if isinstance(value, (list, tuple)) else str(value).split(",")
        return (not values.isdisjoint(items)) is expected

    return test


_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda one, two: one > two,
    "<": lambda one, two: one < two,
    ">=": lambda one, two: one >= two,
    "<=": lambda one, two: one <= two,
    "=": lambda one, two: one == two,
    "%": lambda one, two: one % two != 0,
}


def _compares(
    get: Getter, compare: Callable[[float, float], bool], factors: tuple[float | Getter, ...], expected: bool
) -> Test:
    def test(context: RuleContext) -> bool:
        value, bound = _single(get(context)), 1.0
        try:
            for factor in factors:
                bound *= float(_single(factor(context)) if callable(factor) else factor)
            return compare(float(value), bound) is expected
        except (TypeError, ValueError):
            return False

    return test


def _single(value: Value) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
