"""Index of rules by the canonical fields and native arguments that they name."""

from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType
from typing import Any

from launcher.job import fields
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import active_rows
from launcher.rules.registry import RULES, Rule
from launcher.rules.table import FIELD, TERM, TERMS


@cache
def fields_of(rule_id: str) -> tuple[str, ...]:
    """Return the canonical fields that a rule touches, in the order of the job."""
    rule = RULES[rule_id]
    words = set(_words(rule))
    ties = [ties for backend in rule.backends or backend_names() for ties in _ties(backend)]
    found = {path for flag, paths in ties if flag in words for path in paths} | words
    return tuple(path for path in fields() if path in found)


def rules_of(path: str) -> list[Rule]:
    """Return the rules loaded so far that touch a canonical field."""
    return [RULES[rule_id] for rule_id in sorted(RULES) if path in fields_of(rule_id)]


def flags_of(rule: Rule) -> set[str]:
    """Return the strings in a rule that may be native arguments."""
    return set(_words(rule))


def reads_of(rule: Rule) -> set[str]:
    """Return the arguments and `job.` fields that a rule declares to read, those of its terms included."""
    found: set[str] = set()
    waiting = list(rule.reads)
    while waiting:
        name = waiting.pop()
        if name.startswith(TERM):
            backends = rule.backends or backend_names()
            terms = (TERMS.get((backend, name.removeprefix(TERM))) for backend in backends)
            waiting += [each for found_ in terms if found_ is not None for each in found_.reads]
        else:
            found.add(name)
    return found


@cache
def _ties(backend: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, dict[str, None]] = {}
    made = get_backend(backend)
    for version in made.versions:
        for row in active_rows(made.table(version), version):
            for flag in row.flags:
                found.setdefault(flag, {}).update(dict.fromkeys(row.fields[:1]))
    return tuple((flag, tuple(paths)) for flag, paths in found.items())


def _words(rule: Rule) -> Iterator[str]:
    yield from (name.removeprefix(FIELD) for name in reads_of(rule))
    yield from (*rule.flags, *rule.about, *rule.fields)
    yield from _constants(rule.check.__code__) if hasattr(rule.check, "__code__") else ()
    for cell in getattr(rule.check, "__closure__", None) or ():
        yield from _strings(cell.cell_contents)


def _constants(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        else:
            yield from _strings(constant)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Iterable) and isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from _strings(item)
