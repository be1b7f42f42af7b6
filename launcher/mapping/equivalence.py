"""The stored value of native arguments, and when two values are equal."""

from collections.abc import Mapping

from launcher.budgets import json_value
from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.job import Value
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An argument whose value differs between two sets; None: not written, no default."""

    flag: str
    before: Value
    after: Value


def stored(values: Mapping[str, Value], catalogue: Catalogue) -> dict[str, Value]:
    """Return the value that the parser stores for each argument, by destination (`dest`)."""
    found: dict[str, Value] = {}
    for flag, value in values.items():
        argument = catalogue.get(flag)
        found[argument.dest if argument is not None else flag] = _stored(argument, value)
    return found


def _stored(argument: Argument | None, value: Value) -> Value:
    if argument is None:
        return value
    if argument.action == "store_true":
        return bool(value)
    if argument.action == "store_false":
        return not value
    if argument.action == "store_const":
        return argument.const if value else argument.default
    if argument.is_list and not isinstance(value, (tuple, list)) and value is not None:
        return (value,)
    return value


def default_of(key: str, catalogue: Catalogue, command: str = "") -> Value:
    """Return a sub-command's default for a destination (`dest`); None where it has none or computes it."""
    argument = catalogue.by_dest(key) or catalogue.get(key)
    return None if argument is None else argument.without(command)


def canonical(value: Value) -> Value:
    """Return a value in normal form, in which equal values compare equal: numbers by size, containers by content."""

    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (tuple, list)):
        items = tuple(canonical(item) for item in value)
        return items[0] if len(items) == 1 else items
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), repr(canonical(item))) for key, item in value.items()))
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in "{[" and text[-1:] in "}]":
            try:
                return canonical(json_value(text))
            except ValueError:
                return "".join(text.split())
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            return float(text)
        except ValueError:
            return text
    return value
