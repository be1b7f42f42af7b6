"""Names for `launch explain`: fields, rules and other findings, native arguments, launchers, environment variables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.catalogue.cli_syntax import arity, boolean_style, default_text, kind
from launcher.cli.explain_executors import explained_option, option_names, readers
from launcher.cli.explain_secrets import explained_secret
from launcher.cli.explain_variables import known_variables
from launcher.job import field_at, fields
from launcher.mapping.backend import Backend
from launcher.mapping.computation import Computation
from launcher.mapping.environment import Variable
from launcher.mapping.launchers import ENVIRONMENT, starters
from launcher.mapping.native_only_index import native_only_index_of
from launcher.mapping.renames import find_renamed, renames_of
from launcher.mapping.rows import Row, active_rows
from launcher.plan.executor import option_rules
from launcher.rules.computations import RULE as COMPUTES
from launcher.rules.computations import TOPICS, Topic
from launcher.rules.diagnostics import DIAGNOSTICS
from launcher.rules.engine import load
from launcher.rules.formula import formula, formula_text
from launcher.rules.registry import RULES, Rule
from launcher.rules.rule_index import fields_of, flags_of, rules_of

Tree = dict[str, Any]
_PASSED = ("backend.args.", "backend.env.")


def load_all(backends: Iterable[Backend]) -> None:
    """Import everything that declares rules and findings."""
    load((*option_rules(), *(module for backend in backends for module in backend.rules)))


def _of_estimate() -> dict[str, Rule]:
    """Return the rules that only an estimate applies."""
    from launcher.estimate.check import estimate_rules

    return {rule.id: rule for rule in estimate_rules()}


def explained(name: str, backends: Sequence[Backend]) -> Iterator[Tree]:
    """Yield everything of that name: a field first, unless the name is typed with dashes."""
    makers = [_field, _section, _option, _rule, _diagnostic, _computation, _argument, _started]
    plain = name.lstrip("-")
    if name.startswith("-"):
        makers = [_argument, _started, _field]
    elif plain.startswith(_PASSED):
        plain = plain.split(".", 2)[2]
        makers = [_argument, _started]
    for make in makers:
        found = make(plain, backends)
        if found is not None:
            yield found


def known_names(backends: Sequence[Backend]) -> Iterator[str]:
    """Yield every name that can be explained, for suggestions."""
    yield from fields()
    yield from option_names()
    yield from RULES
    yield from _of_estimate()
    yield from DIAGNOSTICS
    yield from (f"{COMPUTES}-{topic}" for topic in TOPICS)
    for backend in backends:
        for version in backend.versions:
            yield from backend.catalogue(version).names()
    yield from known_variables()
    for starter in starters():
        yield from starter.catalogue.names()


# -- fields


def _field(name: str, backends: Sequence[Backend]) -> Tree | None:
    if name not in fields():
        return None
    info = field_at(name)
    return {
        "field": name,
        "meaning": info.meta.doc,
        "type": getattr(info.type, "__name__", str(info.type)),
        "unit": info.meta.unit,
        "default": info.default,
        "minimum": info.meta.minimum,
        "choices": list(info.meta.choices),
        "changes training": info.meta.affects_training,
        "executors": readers(name),
        "source": info.meta.source,
        "backends": [
            _mapping(name, backend, version, backend.catalogue(version))
            for backend in backends
            for version in backend.versions
        ],
        "rules": _rule_lines(rule for rule in rules_of(name) if _concerns(rule, backends)),
    }


def _section(name: str, backends: Sequence[Backend]) -> Tree | None:
    members = [info for path, info in fields().items() if path.startswith(f"{name}.")]
    if not members:
        return None
    return {
        "section": name,
        "fields": [{"field": info.path, "default": info.default, "meaning": info.meta.doc} for info in members],
    }


def _option(name: str, backends: Sequence[Backend]) -> Tree | None:
    found = explained_option(name)
    return None if found is None else dict(found)


def _mapping(name: str, backend: Backend, version: str, catalogue: Catalogue) -> Tree:
    table = backend.table(version)
    rows = [row for row in active_rows(table, version) if name in row.fields]
    first = [row for row in rows if row.fields[0] == name] or rows
    own = _flags(first)
    feeds = [flag for flag in _flags(rows) if flag not in own]
    label = f"{backend.name} {version}"
    if own:
        known = {flag: default_text(found) for flag in own if (found := catalogue.get(flag)) is not None}
        defaults = list(known.values()) if len(own) == 1 else [f"{flag} {text}" for flag, text in known.items()]
        notes = list(dict.fromkeys(row.note for row in first if row.note))
        return {"backend": label, "says": ", ".join(own), "defaults": defaults, "read for": feeds, "notes": notes}
    if name in table.unsupported:
        return {"backend": label, "says": f"cannot: {table.unsupported[name].why}"}
    if name not in table.irrelevant:  # rows that write nothing: they only refuse unsupported values
        notes = list(dict.fromkeys(row.note for row in first if row.note))
        text = "has no argument for it: a value is accepted where it equals this backend's fixed behaviour"
        return {"backend": label, "says": text, "notes": notes}
    return {"backend": label, "says": f"not applicable: {table.irrelevant[name]}"}


def _flags(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(flag for row in rows for flag in row.flags))


def _rule_lines(rules: Iterable[Rule]) -> list[Tree]:
    return [{"rule": rule.id, "severity": rule.severity, "says": rule.doc} for rule in rules]


def _concerns(rule: Rule, backends: Sequence[Backend]) -> bool:
    return not rule.backends or bool({backend.name for backend in backends} & set(rule.backends))


# -- rules and other findings


def _rule(name: str, backends: Sequence[Backend]) -> Tree | None:
    rule = RULES.get(name.upper()) or _of_estimate().get(name.upper())
    if rule is None:
        return None
    applied = rule.id in RULES
    bounds = [f"{backend} {_range(*found)}" for backend, found in rule.versions.items()]
    if (rule.since, rule.until) != (None, None):
        bounds.append(_range(rule.since, rule.until))
    stricter = ""
    if rule.stricter:
        until = f" after {rule.enforced_until}" if rule.enforced_until else ""
        stricter = f"the backend does not refuse it itself{until}; rules.strict=upstream makes it a warning"
    return {
        "rule": rule.id,
        "meaning": " ".join(rule.doc.split()),
        "condition": formula(rule) if applied else "",
        "severity": rule.severity,
        "backends": list(rule.backends) or ["all"],
        "versions": ", ".join(bounds),
        "stricter": stricter,
        "reason": rule.reason,
        "fields": list(fields_of(rule.id)) if applied else [],
        "arguments": sorted({flag for backend in backends for flag in flags_of(rule) if _is_flag(flag, backend, rule)}),
        "source": rule.source,
        "applied by": _applied_by(rule) if applied else "launch estimate",
    }


def _applied_by(rule: Rule) -> str:
    off = "rules.disable has no effect on it" if rule.mandatory else f"rules.disable=[{rule.id}] switches it off"
    return f"launch check, dry-run, run; {off}"


def _range(since: str | None, until: str | None) -> str:
    return f"{since or '…'} to {until or '…'}"


def _is_flag(word: str, backend: Backend, rule: Rule) -> bool:
    return (not rule.backends or backend.name in rule.backends) and any(
        backend.catalogue(version).get(word) is not None for version in backend.versions
    )


def _diagnostic(name: str, backends: Sequence[Backend]) -> Tree | None:
    found = DIAGNOSTICS.get(name.upper())
    if found is None:
        return None
    return {
        "finding": found.id,
        "meaning": found.doc,
        "severity": found.severity,
        "works": found.works,
        "source": found.source,
    }


def _computation(name: str, backends: Sequence[Backend]) -> Tree | None:
    """Return what stacks compute differently, with the ways of each backend's versions."""
    prefix, _, id_ = name.upper().partition("-")
    topic = TOPICS.get(id_) if prefix == COMPUTES else None
    if topic is None:
        return None
    return {
        "finding": f"{COMPUTES}-{id_}",
        "meaning": f"Backends, or versions of one, compute {topic.quantity} differently.",
        "condition": formula_text(topic.when),
        "severity": "warning",
        "backends": [
            _way(topic, backend, row)
            for backend in backends
            for row in backend.computations()
            if row.topic == id_ and backend.name in row.versions
        ],
        "measured": topic.measured,
        "works": list(topic.works),
        "fields": list(topic.fields),
        "reported by": "launch port, launch diff",
    }


def _way(topic: Topic, backend: Backend, row: Computation) -> Tree:
    """Return what versions of a backend compute; of several, the first whose note holds for a job counts."""
    conditions = (f"{row.rule} holds" if row.rule else "", formula_text(row.when))
    return {
        "backend": f"{backend.name} {_range(*row.versions[backend.name])}",
        "says": topic.ways[row.way] if row.way else RULES[row.rule].doc.rstrip("."),
        "notes": [f"where {text}" for text in conditions if text],
        "source": row.source or RULES[row.rule].source,
    }


# -- native arguments


def _argument(name: str, backends: Sequence[Backend]) -> Tree | None:
    # If several keys match, the versions of each stay together.
    found = [
        each for backend in backends for each in sorted(_of_backend(name, backend), key=lambda each: each["argument"])
    ]
    if not found:
        return None
    paths = list(dict.fromkeys(path for each in found for path in each["fields"]))
    meanings = [f"{path}: {field_at(path).meta.doc}" for path in paths if path in fields()]
    helps, reasons = (list(dict.fromkeys(each.pop(key) for each in found)) for key in ("help", "no field"))
    names = {each["argument"] for each in found}
    rules = [rule for rule in map(RULES.__getitem__, sorted(RULES)) if _concerns(rule, backends)]
    return {
        "argument": name,
        "meaning": meanings + [text for text in helps if text],
        "backends": found,
        "no field": [text for text in reasons if text],
        "renamed": [line for backend in backends for line in _renamed(name, backend)],
        "rules": _rule_lines(rule for rule in rules if names & flags_of(rule)),
    }


def _no_field(backend: Backend, argument: Argument) -> str:
    """Return why an argument has no field, where that is known."""
    row = native_only_index_of(backend.name).reason(argument.name, argument)
    return f"{row.no_field}  [{row.source}]" if row is not None else ""


def _of_backend(name: str, backend: Backend) -> Iterator[Tree]:
    for version in (*backend.versions, *backend.other_entries):
        catalogue = backend.catalogue(version)
        for argument in matching(name, catalogue):
            table = backend.table(version) if version in backend.versions else None
            rows = [row for row in active_rows(table, version) if argument.name in row.flags] if table else []
            paths = list(dict.fromkeys(path for row in rows for path in row.fields))
            yield {
                "backend": f"{backend.name} {version}",
                "argument": argument.name,
                "type": kind(argument),
                "arity": arity(argument),
                "boolean style": boolean_style(argument, catalogue),
                "default": default_text(argument),
                "fields": paths,
                "field": _tied(paths, rows),
                "commands": list(argument.commands),
                "help": argument.help,
                "no field": _no_field(backend, argument) if table and not paths else "",
                "source": argument.source,
            }


def _tied(paths: Sequence[str], rows: Sequence[Row]) -> str:
    if paths:
        return ", ".join(paths)
    return "the launcher writes it" if rows else "pass-through: backend.args"


def matching(name: str, catalogue: Catalogue) -> list[Argument]:
    """Return the argument of that name in any spelling; for YAML, keys with that last part."""
    for spelled in (name, name.replace("_", "-"), name.replace("-", "_")):
        argument = catalogue.get(spelled)
        if argument is not None:
            return [argument]
    by_dest = catalogue.by_dest(name.replace("-", "_"))
    if by_dest is not None:
        return [by_dest]
    if catalogue.style != "yaml":
        return []
    return [each for each in catalogue.arguments if each.name.endswith(f".{name}")][:5]


def _renamed(name: str, backend: Backend) -> Iterator[str]:
    """Yield how an argument that newer versions lack was renamed or removed, and the old names of a newer one."""
    plain = name.replace("-", "_")
    missing = [version for version in backend.versions if not matching(name, backend.catalogue(version))]
    if missing and (len(missing) < len(backend.versions) or plain in renames_of(backend.name)):
        known = find_renamed(name, backend, missing[0])
        works = f" (near: {' · '.join(known.works)})" if known.works else ""
        if known.message:
            yield f"{backend.title} {missing[0]} has no {name}: {known.message}{works}"
    for old, row in renames_of(backend.name).items():
        if row.get("new") == plain and old != plain and row.get("kind") != "model":
            note = f" ({row['note']})" if row.get("note") else ""
            until = f" until {row['until']}" if row.get("until") else ""
            yield f"{backend.title}: it was {old}{until}{note}"


# -- launchers and environment variables


def _started(name: str, backends: Sequence[Backend]) -> Tree | None:
    wanted = {backend.name for backend in backends}
    found = [
        {
            "by": f"{starter.name} {starter.catalogue.version}"
            if starter.name != ENVIRONMENT
            else f"environment of {starter.backend} {starter.catalogue.version}",
            "argument": argument.name,
            "type": kind(argument),
            "default": default_text(argument),
            "boolean style": boolean_style(argument, starter.catalogue),
            "use": argument.owner if starter.name == ENVIRONMENT else "",
            "help": argument.help if argument.help != "documented" else "",
            "source": argument.source,
        }
        for starter in starters()
        if starter.backend in wanted
        for argument in _spelled(name, starter.catalogue, is_variable=starter.name == ENVIRONMENT)
    ]
    known = known_variables().get(name) or known_variables().get(name.upper())
    own = [_set_by(backend, row) for backend in backends for row in backend.environment if row.name == name.upper()]
    secret = explained_secret(name)
    if not found and known is None and not own and secret is None:
        return None
    if secret is None and known is None and not own and not any(each["by"].startswith(ENVIRONMENT) for each in found):
        return {"launcher argument": name, "found": found}
    return {
        "environment variable": name.upper(),
        "meaning": known.meaning if known is not None else "",
        "set by": own,
        "found": found,
        **(secret or {"set": f"backend.env.{name.upper()}=VALUE"}),
        "source": known.source if known is not None else "",
    }


def _set_by(backend: Backend, row: Variable) -> Tree:
    return {"backend": backend.name, "value": row.text, "when": row.when, "meaning": row.meaning, "source": row.source}


def _spelled(name: str, catalogue: Catalogue, *, is_variable: bool) -> list[Argument]:
    if is_variable:
        argument = catalogue.get(name) or catalogue.get(name.upper())
        return [argument] if argument is not None else []
    return matching(name, catalogue)
