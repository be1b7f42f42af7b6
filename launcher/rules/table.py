"""Rules as data: most state that one native argument needs, or excludes, another."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from launcher.job import Value
from launcher.rules.registry import Range, RuleContext, Violation, rule

Test = Callable[[RuleContext], bool]
_SYNTAX = re.compile(
    r"(?P<no>!?)(?P<flag>[a-z0-9][a-z0-9-]*)(?P<given>\??)(?:(?P<sign>>=|<=|!=|=|>|<|~)(?P<value>.+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagConstraint:
    """One rule as a row of data.

    Conditions are written `flag` (on), `!flag` (off), `flag?` (written), `flag=a|b`, `flag!=a`, `flag>1`, `flag~a|b` (a
    list that holds one of them), joined by ` & `; those of `then` may be alternatives, joined by ` or `. Values are
    what the backend's parser would see.

    Attributes:
        id: of the rule.
        when: conditions under which the rule applies.
        then: what must hold then; empty: nothing can, `when` itself is the violation.
        why: what it demands and why, in one sentence.
        source: upstream file:line.
        message: text of the finding, with `{flag}` for values; empty: made from the conditions and `why`.
        stricter, enforced_until, reason: see `Rule`.
        about: further flags that the finding concerns, which a fix may change.
        fields: canonical fields of the finding; empty: those of the flags.
    """

    id: str
    when: str
    then: str = ""
    why: str
    source: str
    message: str = ""
    severity: str = "error"
    stricter: bool = False
    enforced_until: str | None = None
    reason: str = ""
    about: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Condition:
    text: str
    flag: str
    test: Test
    shown: str


def declare(
    rows: Iterable[FlagConstraint],
    *,
    backends: tuple[str, ...],
    since: str | None = None,
    until: str | None = None,
    versions: Mapping[str, Range] | None = None,
) -> None:
    """Declare the rules of a table for these backends and versions."""
    for row in rows:
        check = _check(row)
        check.__doc__ = row.why
        rule(
            row.id,
            source=row.source,
            severity=row.severity,
            backends=backends,
            since=since,
            until=until,
            versions=versions,
            stricter=row.stricter,
            enforced_until=row.enforced_until,
            reason=row.reason,
        )(check)


def _check(row: FlagConstraint) -> Callable[[RuleContext], Iterator[Violation]]:
    when = [_condition(part) for part in row.when.split(" & ")]
    then = [[_condition(part) for part in option.split(" & ")] for option in row.then.split(" or ")] if row.then else []
    flags = tuple(dict.fromkeys([c.flag for c in when] + [c.flag for option in then for c in option] + [*row.about]))
    tests = tuple(condition.test for condition in when)

    def check(facts: RuleContext) -> Iterator[Violation]:
        if not all(test(facts) for test in tests):
            return
        if any(all(condition.test(facts) for condition in option) for option in then):
            return
        yield Violation(message=_message(row, when, then, facts), fields=row.fields, flags=flags)

    return check


def _message(row: FlagConstraint, when: list[_Condition], then: list[list[_Condition]], facts: RuleContext) -> str:
    if row.message:
        return row.message.format_map(_Values(facts=facts))
    cause = " with ".join(_named(condition, facts) for condition in when)
    if not then:
        return f"{cause}: {_lower(row.why)}"
    wanted = " or ".join(" and ".join(condition.shown for condition in option) for option in then)
    return f"{cause} needs {wanted}: {_lower(row.why)}"


def _named(condition: _Condition, facts: RuleContext) -> str:
    """Return a condition that holds, with the value that it has."""
    value = facts.flag(condition.flag)
    if isinstance(value, bool) or value is None:
        return condition.shown
    shown = " ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value
    return f"--{condition.flag} {shown}"


def _lower(text: str) -> str:
    text = text.removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values(Mapping[str, Value]):
    facts: RuleContext
    names: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> Value:
        return self.facts.flag(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _condition(text: str) -> _Condition:
    match = _SYNTAX.fullmatch(text.strip())
    assert match is not None, f"not a condition: {text}"
    flag, no, sign, value = match["flag"], bool(match["no"]), match["sign"], match["value"]
    if match["given"]:
        return _Condition(text, flag, _is_given(flag, no), f"no --{flag}" if no else f"--{flag}")
    if sign is None:
        return _Condition(text, flag, _is_on(flag, no), f"no --{flag}" if no else f"--{flag}")
    if sign in ("=", "!="):
        values = frozenset(value.split("|"))
        shown = f"--{flag} {'' if sign == '=' else 'other than '}{' or '.join(value.split('|'))}"
        return _Condition(text, flag, _is_one_of(flag, values, sign == "="), shown)
    if sign == "~":
        items = frozenset(value.split("|"))
        return _Condition(text, flag, _holds_one_of(flag, items), f"--{flag} {' or '.join(value.split('|'))}")
    words = {">": "above", "<": "below", ">=": "of at least", "<=": "of at most"}
    return _Condition(text, flag, _compares(flag, sign, float(value)), f"--{flag} {words[sign]} {value}")


def _is_given(flag: str, no: bool) -> Test:
    return lambda facts: (flag in facts.values) is not no


def _is_on(flag: str, no: bool) -> Test:
    return lambda facts: bool(facts.flag(flag)) is not no


def _is_one_of(flag: str, values: frozenset[str], wanted: bool) -> Test:
    def test(facts: RuleContext) -> bool:
        value = facts.flag(flag)
        if isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        return (str(value) in values) is wanted

    return test


def _holds_one_of(flag: str, wanted: frozenset[str]) -> Test:
    def test(facts: RuleContext) -> bool:
        value = facts.flag(flag)
        return not wanted.isdisjoint(value if isinstance(value, (list, tuple)) else str(value).split(","))

    return test


_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda one, two: one > two,
    "<": lambda one, two: one < two,
    ">=": lambda one, two: one >= two,
    "<=": lambda one, two: one <= two,
}


def _compares(flag: str, sign: str, bound: float) -> Test:
    compare = _SIGNS[sign]

    def test(facts: RuleContext) -> bool:
        value = facts.flag(flag)
        if isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        try:
            return value is not None and compare(float(value), bound)
        except (TypeError, ValueError):
            return False

    return test
