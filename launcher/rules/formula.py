"""What follows from a rule's conditions: its formula for the reference, and the values with which it is not broken."""

from collections.abc import Iterator

from launcher.job import Value, field_at
from launcher.mapping.backend import Backend
from launcher.mapping.engine import read_argument
from launcher.rules.registry import Rule
from launcher.rules.table import FIELD, TERM, Condition, conditions_of, options_of, shown_amount

_SIGNS = {">": "above", "<": "below", ">=": "at least", "<=": "at most", "%": "not a multiple of"}
# Step to the nearest whole number on the other side of a bound.
_BEYOND = {">": 1, "<": -1, ">=": 0, "<=": 0}
_BROKEN = {">": 0, "<": 0, ">=": -1, "<=": 1}


def formula(rule: Rule) -> str:
    """Return the conditions of a rule as text: where it applies and what it needs; "" for a plain function."""
    conditions = conditions_of(rule)
    where = " and ".join(map(_text, conditions.when))
    needed = " or ".join(" and ".join(map(_text, option)) for option in conditions.then)
    if needed:
        return f"{where} needs {needed}" if where else f"needs {needed}"
    if not where:
        return ""
    return f"where {where}" if rule.computes or rule.severity == "change" else f"never {where}"


def formula_text(when: str) -> str:
    """Return a text of conditions, as of a topic or a row of computations, as `formula` shows those of rules."""
    return ", or ".join(" and ".join(map(_text, option)) for option in options_of(when))


def _text(condition: Condition) -> str:
    name = condition.name.removeprefix(FIELD).removeprefix(TERM)
    no = "" if condition.expected else "not "
    if condition.sign == "":
        return f"{no}{name}"
    if condition.sign == "?":
        return f"{name} {no}set"
    either = " or ".join("unset" if value == "None" else shown_amount(value) for value in condition.values)
    if condition.sign in ("=", "~"):
        verb = "is" if condition.sign == "=" else "contains" if condition.expected else "containing"
        return f"{name} {verb} {no}{either}" if condition.sign == "=" else f"{name} {no}{verb} {either}"
    sign = _SIGNS[condition.sign] if condition.expected else "a multiple of"
    return f"{name} {sign} {either}"


def settling_values(rule: Rule, path: str, backend: Backend, version: str) -> Iterator[Value]:
    """Yield the values of a canonical field with which single conditions of the rule's text no longer break it."""
    conditions = conditions_of(rule)
    for option in conditions.then:
        for condition in option:
            yield from _of_field(condition, path, _meeting(condition), backend, version)
    for condition in conditions.when:
        yield from _of_field(condition, path, _failing(condition), backend, version)


def _of_field(
    condition: Condition, path: str, values: Iterator[Value], backend: Backend, version: str
) -> Iterator[Value]:
    """Yield the values of an argument as those of the field that it alone expresses."""
    if condition.name.startswith(TERM) or len(condition.names) > 1:
        return
    if condition.name.startswith(FIELD):
        yield from values if condition.name == f"{FIELD}{path}" else ()
        return
    for value in values:
        read = read_argument(condition.name, value, backend, version)
        if set(read) == {path} and isinstance(read[path], bool) <= ("bool" in str(field_at(path).type)):
            yield read[path]


def _meeting(condition: Condition) -> Iterator[Value]:
    """Yield values with which a condition holds."""
    if condition.sign == "":
        yield condition.expected
    elif condition.sign == "=" and condition.expected:
        yield from map(_plain, condition.values)
    elif condition.sign in _BEYOND:
        yield _number(condition.values[0], _BEYOND[condition.sign])


def _failing(condition: Condition) -> Iterator[Value]:
    """Yield values with which a condition does not hold."""
    if condition.sign == "":
        yield not condition.expected
    elif condition.sign == "=" and not condition.expected:
        yield from map(_plain, condition.values)
    elif condition.sign in _BROKEN:
        yield _number(condition.values[0], _BROKEN[condition.sign])


def _plain(text: str) -> Value:
    named = {"True": True, "False": False, "None": None}
    return named[text] if text in named else _number(text, 0)


def _number(text: str, step: int) -> Value:
    try:
        return int(text) + step
    except ValueError:
        pass  # not a whole number
    try:
        return float(text)
    except ValueError:
        return text
