"""Rules by id: what is demanded, how severe it is, its source, the fields it touches."""

from collections.abc import Iterable

from launcher.mapping.backend import backend_names, get_backend
from launcher.plan.executor import option_rules
from launcher.rules.engine import load
from launcher.rules.formula import formula
from launcher.rules.registry import RULES, Rule
from launcher.rules.rule_index import fields_of
from launcher.rules.table import FIELD
from tools.docs.written import code, contents, escaped

HEAD = """# Rules: every finding by its id

`launch check` applies all rules before anything starts; `launch explain RULE` shows one. The id stands in brackets
behind each finding.

- **error**: the job is refused. **warning**: reported. **change**: the backend changes a value silently; both values
  are shown.
- *Stricter*: the backend version does not refuse it itself; `rules.strict=upstream` lowers it to a warning.
- `rules.disable=[ID]` disables a rule, with a warning. *Always*: it cannot be disabled, since a value could then run as
  a command.
"""


def all_rules() -> list[Rule]:
    """Return every rule of the launcher, its executors and its backends, sorted by id."""
    backends = [get_backend(name) for name in backend_names()]
    load((*option_rules(), *(module for backend in backends for module in backend.rules)))
    return [RULES[rule_id] for rule_id in sorted(RULES)]


def pages() -> dict[str, str]:
    """Return the index, and a page for each set of backends that share rules."""
    rules = all_rules()
    titles = {name: get_backend(name).title for name in backend_names()}
    made, rows = {}, []
    for names in ((), *sorted({rule.backends for rule in rules if rule.backends})):
        members = [rule for rule in rules if rule.backends == names]
        title = " and ".join(titles.get(name, name) for name in names) or "every backend"
        path = f"rules/{'_and_'.join(names) or 'every_backend'}"
        made[f"{path}.md"] = f"# Rules of {title}\n" + "".join(map(section, members))
        rows.append((path, f"| [{title}]({path}.md) | {_count(members)} |"))
    table = "\n".join(["| rules of | number |", "|---|---|", *(row for _, row in rows)])
    made["rules.md"] = f"{HEAD}\n{_count(rules)}.\n\n{table}\n{contents(path for path, _ in rows)}"
    return made


def _count(rules: Iterable[Rule]) -> str:
    severities = [rule.severity for rule in rules]
    parts = [f"{severities.count(name)} {name}s" for name in ("error", "warning", "change")]
    return f"{len(severities)} rules: {', '.join(parts)}"


def section(rule: Rule) -> str:
    """Return what the reference says of one rule, under its id."""
    facts = [f"**{rule.severity}**"]
    facts += ["*stricter*"] if rule.stricter or rule.enforced_until else []
    facts += ["*always*"] if rule.mandatory else []
    facts += [_versions(rule)] if _versions(rule) else []
    lines = ["", f"## `{rule.id}`", "", f"{', '.join(facts)}. {escaped(rule.doc)}", ""]
    lines += [f"- Condition: `{formula(rule)}`"] if formula(rule) else []
    lines += [f"- Fields: {_fields(rule)}"] if _fields(rule) else []
    lines += [f"- Source: {escaped(rule.source)}"]
    return "\n".join(lines) + "\n"


def _fields(rule: Rule) -> str:
    """Return the fields that a rule touches; sections that it reads as a whole as `section.*`."""
    whole = [name.removeprefix(FIELD) for name in rule.reads.split() if name.startswith(FIELD) and name.endswith(".*")]
    sections = tuple(name.removesuffix("*") for name in whole)
    single = [path for path in fields_of(rule.id) if not path.startswith(sections or "*")]
    return code((*whole, *single), separator=", ")


def _versions(rule: Rule) -> str:
    if rule.versions:
        ranges = [f"{name} {_range(*bounds)}".strip() for name, bounds in rule.versions.items()]
        return "; ".join(ranges)
    return _range(rule.since, rule.until)


def _range(since: str | None, until: str | None) -> str:
    return " ".join(part for part in (f"since {since}" if since else "", f"until {until}" if until else "") if part)
