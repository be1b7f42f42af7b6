"""Index of rules by the canonical fields and native arguments that they declare to read."""

from functools import cache

from launcher.job import Job, fields, value_at
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.rows import active_rows
from launcher.rules.dependency_tracking import reading, tracked
from launcher.rules.registry import RULES, Rule
from launcher.rules.table import FIELD, TERM, TERMS


@cache
def fields_of(rule_id: str) -> tuple[str, ...]:
    """Return the canonical fields that a rule touches, in the order of the job; none where it reads the whole job."""
    rule = RULES[rule_id]
    if f"{FIELD}*" in rule.reads.split():
        return ()
    names = reads_of(rule)
    ties = [ties for backend in rule.backends for ties in _ties(backend)]
    found = {path for flag, paths in ties if flag in names for path in paths}
    found |= {name.removeprefix(FIELD) for name in names if name.startswith(FIELD)} | set(rule.fields)
    return tuple(path for path in fields() if path in found)


def rules_of(path: str) -> list[Rule]:
    """Return the rules loaded so far that touch a canonical field."""
    return [RULES[rule_id] for rule_id in sorted(RULES) if path in fields_of(rule_id)]


def flags_of(rule: Rule) -> set[str]:
    """Return the native arguments that a rule touches."""
    return {name for name in reads_of(rule) if not name.startswith(FIELD)}


def reads_of(rule: Rule) -> frozenset[str]:
    """Return the arguments and `job.` fields that a rule reads: those of its text and terms, and declared ones.

    `*`: all arguments. A rule of every backend reads arguments by the field that they express.
    """
    found: set[str] = set()
    waiting = [*rule.reads.split(), *rule.flags, *rule.about]
    for name in waiting:
        if name.startswith(TERM):
            terms = (TERMS.get((backend, name.removeprefix(TERM))) for backend in rule.backends)
            waiting += [each for one in terms if one is not None for each in one.reads]
        elif name.startswith(FIELD):
            found |= leaves(name.removeprefix(FIELD))
        else:
            found.add(name)
    if not rule.backends:
        paths = {name.removeprefix(FIELD) for name in found if name.startswith(FIELD)}
        found |= {flag for backend in backend_names() for flag, tied in _ties(backend) if not paths.isdisjoint(tied)}
    return frozenset(found)


@cache
def leaves(path: str) -> frozenset[str]:
    """Return the field of that path, those of a section (`cluster.*`), or those that a property of the job reads."""
    if path.endswith("*"):
        return frozenset(f"{FIELD}{each}" for each in fields() if each.startswith(path.removesuffix("*")))
    with reading() as found:
        value_at(tracked(Job()), path)
    return frozenset(f"{FIELD}{each}" for each in found)


@cache
def _ties(name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, dict[str, None]] = {}
    backend = get_backend(name)
    for version in backend.versions:
        for row in active_rows(backend.table(version), version):
            for flag in row.flags:
                found.setdefault(flag, {}).update(dict.fromkeys(row.fields[:1]))
    return tuple((flag, tuple(paths)) for flag, paths in found.items())
