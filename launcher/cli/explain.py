"""`launch explain`: what a canonical field, a native argument or a rule means, and what it ties to."""

import sys
from collections.abc import Iterator

from launcher.cli.options import guarded, parse, parser, print_json
from launcher.job import field_at, fields, suggest_field
from launcher.rules.engine import load
from launcher.rules.mentions import fields_of, rules_of
from launcher.rules.registry import RULES, Rule
from launcher.translate.backend import Backend, backend_names, get_backend
from launcher.translate.engine import active_rows


def main(words: list[str]) -> int:
    """Explain a name; exit 2 if nothing is called so."""
    made = parser(
        "explain", "Explain a field, a native argument or a rule.", "launch explain parallel.tp", overrides=False
    )
    made.add_argument("name", metavar="NAME")
    made.add_argument("--backend", metavar="B", help="only this backend")
    # Native arguments may be given as they are typed: --tensor-model-parallel-size.
    own = ("--json", "--backend", "--help")
    options = parse(made, [word.lstrip("-") if word.startswith("--") and word not in own else word for word in words])

    def body() -> int:
        backends = [get_backend(name) for name in backend_names() if options.backend in (None, name)]
        if not backends:
            print(
                f"launch explain: no backend {options.backend!r}; works: {' · '.join(backend_names())}", file=sys.stderr
            )
            return 2
        load(module for backend in backends for module in backend.rules)
        found = _field(options.name, backends) or _rule(options.name) or _flag(options.name, backends)
        if found is None:
            near = suggest_field(options.name) or tuple(RULES)[:3]
            print(f"launch explain: nothing is called {options.name!r}; works: {' · '.join(near)}", file=sys.stderr)
            return 2
        if options.json:
            print_json(found)
        else:
            _show(found)
        return 0

    return guarded(body, as_json=options.json)


def _show(tree: dict[str, object]) -> None:
    for key, value in tree.items():
        if isinstance(value, list):
            print(f"{key}:")
            for item in value:
                print(
                    "  "
                    + ("  ".join(str(part) for part in item.values() if part) if isinstance(item, dict) else str(item))
                )
        elif value not in (None, ""):
            print(f"{key}: {value}")


def _field(name: str, backends: list[Backend]) -> dict[str, object] | None:
    if name not in fields():
        return None
    info = field_at(name)
    return {
        "field": name,
        "meaning": info.meta.doc,
        "type": getattr(info.type, "__name__", str(info.type)),
        "unit": info.meta.unit,
        "default": info.default,
        "choices": list(info.meta.choices),
        "changes training": info.meta.trains,
        "source": info.meta.source,
        "backends": [
            each for backend in backends for version in backend.versions for each in _mapping(name, backend, version)
        ],
        "rules": [{"rule": rule.id, "severity": rule.severity, "says": rule.doc} for rule in _rules(name, backends)],
    }


def _rules(name: str, backends: list[Backend]) -> list[Rule]:
    wanted = {backend.name for backend in backends}
    return [rule for rule in rules_of(name) if not rule.backends or wanted & set(rule.backends)]


def _mapping(name: str, backend: Backend, version: str) -> Iterator[dict[str, str]]:
    table = backend.table(version)
    flags = [flag for row in active_rows(table, version) if name in row.fields for flag in row.flags]
    if flags:
        yield {"backend": f"{backend.name} {version}", "says": ", ".join(dict.fromkeys(flags))}
    elif name in table.unsupported:
        yield {"backend": f"{backend.name} {version}", "says": f"cannot: {table.unsupported[name].why}"}
    else:
        yield {"backend": f"{backend.name} {version}", "says": f"does not concern it: {table.irrelevant.get(name, '')}"}


def _rule(name: str) -> dict[str, object] | None:
    rule = RULES.get(name.upper())
    if rule is None:
        return None
    return {
        "rule": rule.id,
        "meaning": rule.doc,
        "severity": rule.severity,
        "backends": list(rule.backends) or ["all"],
        "versions": " to ".join(version or "…" for version in (rule.since, rule.until)) if _is_bounded(rule) else "",
        "fields": list(fields_of(rule.id)),
        "source": rule.source,
    }


def _is_bounded(rule: Rule) -> bool:
    return rule.since is not None or rule.until is not None


def _flag(name: str, backends: list[Backend]) -> dict[str, object] | None:
    plain = name.lstrip("-")
    found: list[dict[str, object]] = []
    for backend in backends:
        for version in backend.versions:
            argument = backend.catalogue(version).get(plain)
            if argument is None:
                continue
            rows = [row for row in active_rows(backend.table(version), version) if argument.name in row.flags]
            paths = dict.fromkeys(path for row in rows for path in row.fields)
            kind = argument.action if argument.is_flag else argument.type
            default = f"default {argument.default}" if argument.default is not None else ""
            found.append(
                {
                    "backend": f"{backend.name} {version}",
                    "type": kind,
                    "default": default,
                    "field": ", ".join(paths) or "pass-through: backend.args",
                    "source": argument.source,
                }
            )
    return {"argument": plain, "backends": found} if found else None
