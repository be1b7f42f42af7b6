"""`launch explain --trace`: traces a name through the program: field, rows, arguments, rules, findings."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any, get_type_hints

import launcher
from launcher.catalogue.catalogue import Argument
from launcher.catalogue.cli_syntax import default_text, kind
from launcher.cli.explain_names import Tree, matching
from launcher.compose import compose
from launcher.declared import declared_at, shown
from launcher.job import Job, field_at
from launcher.job import fields as job_fields
from launcher.job.secret import without_secrets
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.rows import Row, active_rows
from launcher.pipeline import Outcome, judge
from launcher.records import dataclass
from launcher.report.findings import format_finding
from launcher.report.origins import origin_words
from launcher.report.text_page import print_lines
from launcher.rules.registry import RULES, Rule
from launcher.rules.rule_index import fields_of, flags_of, rules_of

_PASSED = "backend.args."


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a word names.

    Attributes:
        typed: the word.
        field: canonical field; "": it is none.
        argument: native argument in any spelling; "": it is none.
        rule: id; "": it is none.
        override: the word as an override; "": it has no value.
    """

    typed: str
    field: str = ""
    argument: str = ""
    rule: str = ""
    override: str = ""

    @property
    def known(self) -> bool:
        """Whether it names anything."""
        return bool(self.field or self.argument or self.rule)


def word_of(typed: str, backends: Sequence[Backend]) -> Word:
    """Return what a word names: an override, a field, a rule or a native argument."""
    name, equals, _ = typed.partition("=")
    name = name.lstrip("+~")
    override = typed if equals and not typed.startswith("-") else ""
    plain = name.lstrip("-")
    if plain in job_fields() and not name.startswith("-"):
        return Word(typed=typed, field=plain, override=override)
    if plain.upper() in RULES:
        return Word(typed=typed, rule=plain.upper())
    if not override or plain.startswith(_PASSED):
        plain = plain.removeprefix(_PASSED)
        if any(matching(plain, backend.catalogue(version)) for backend in backends for version in backend.versions):
            return Word(typed=typed, argument=plain, override=override)
    return Word(typed=typed)


def trace(word: Word, backends: Sequence[Backend], overrides: Sequence[str], config_dirs: Sequence[str]) -> Tree:
    """Return the trace of a name; with further overrides also its result in that job.

    Raises:
        ComposeError: the overrides do not describe a job.
        Refused: there is no such backend or version.
    """
    outcome = None
    if overrides:
        outcome = judge(compose([*overrides, *([word.override] if word.override else [])], config_dirs))
        backends = sorted(backends, key=lambda backend: backend is not outcome.backend)
    walks = [_walk(word, backend, outcome if outcome and outcome.backend is backend else None) for backend in backends]
    walks = [walk for walk in walks if walk]
    paths = [path for walk in walks for path in walk.pop("fields")]
    found: Tree = {
        "word": without_secrets([word.typed])[0],
        **({"rule": _rule(RULES[word.rule], long=True)} if word.rule else {}),
        "fields": [_field(path) for path in dict.fromkeys([*([word.field] if word.field else []), *paths])],
        "backends": walks,
    }
    if outcome is not None:
        concerned = _concerning(word, found, outcome)
        found["ok"] = outcome.ok
        found["findings"] = [finding.as_tree() for finding in concerned]
        found["texts"] = [format_finding(finding, outcome.job) for finding in concerned]
    return found


def _concerning(word: Word, found: Tree, outcome: Outcome) -> list[Any]:
    flags = {argument["name"] for walk in found["backends"][:1] for argument in walk["arguments"]}
    paths = {word.field} if word.field else set() if word.rule else {each["field"] for each in found["fields"]}
    paths |= {f"{_PASSED}{flag}" for flag in flags}
    return [
        each
        for each in outcome.findings
        if each.rule == word.rule or (not word.rule and (paths & set(each.fields) or flags & set(each.flags)))
    ]


# -- one backend


def _walk(word: Word, backend: Backend, outcome: Outcome | None) -> Tree:
    """Return fields, rows, arguments and rules of a word on one backend; empty: unknown to this backend."""
    version = outcome.version if outcome else _version(word, backend)
    if not version or (word.rule and not RULES[word.rule].applies_to(backend.name, version)):
        return {}
    catalogue, table = backend.catalogue(version), backend.table(version)
    named = matching(word.argument, catalogue) if word.argument else []
    paths = [word.field] if word.field else list(fields_of(word.rule)) if word.rule else []
    flags = {argument.name for argument in named}
    if word.rule:
        flags = {flag for flag in flags_of(RULES[word.rule]) if catalogue.get(flag) is not None}
    rows = [
        row
        for row in active_rows(table, version)
        if flags & set(row.flags) or (not word.argument and set(paths) & set(row.fields[: 1 if word.rule else None]))
    ]
    rows.sort(key=lambda row: row.fields[:1] != (word.field,) if word.field else False)
    paths = list(dict.fromkeys([*paths, *(path for row in rows for path in row.fields[:1])]))
    written = dict.fromkeys([*sorted(flags), *(flag for row in rows for flag in row.flags)])
    arguments = [found for flag in written if (found := catalogue.get(flag)) is not None]
    rules = [RULES[word.rule]] if word.rule else _rules(word, named, backend, version)
    return {
        "backend": backend.name,
        "version": version,
        "fields": paths if not word.field else [],
        "rows": [_row(row, backend) for row in rows],
        "arguments": [_argument(argument, backend) for argument in arguments],
        "cannot": table.unsupported[word.field].why if word.field in table.unsupported else "",
        "irrelevant": table.irrelevant.get(word.field, ""),
        "passed through": sorted(argument.name for argument in named if not rows),
        "rules": [] if word.rule else [_rule(rule) for rule in rules],
        **({"written": _written(outcome, set(written))} if outcome else {}),
    }


def _version(word: Word, backend: Backend) -> str:
    """Return the default version; for an argument or a rule that it lacks, the newest that has it; "": none."""
    has = [
        version
        for version in backend.versions
        if word.field
        or (word.rule and RULES[word.rule].applies_to(backend.name, version))
        or (word.argument and matching(word.argument, backend.catalogue(version)))
    ]
    return has[0] if has else ""


def _rules(word: Word, named: Sequence[Argument], backend: Backend, version: str) -> list[Rule]:
    if word.field:
        found: Iterable[Rule] = rules_of(word.field)
    else:
        names = {argument.name for argument in named}
        found = (RULES[id] for id in sorted(RULES) if names & flags_of(RULES[id]))
    return [rule for rule in found if rule.applies_to(backend.name, version)]


def _row(row: Row, backend: Backend) -> Tree:
    place = declared_row(row, backend)
    return {"fields": list(row.fields), "arguments": list(row.flags), "declared": place, "note": row.note}


def declared_row(row: Row, backend: Backend) -> str:
    """Return file and line at which a row is declared: by the backend, or by one whose table it extends."""
    others = (get_backend(name) for name in backend_names() if name != backend.name)
    folders = [folder / "mapping" for each in (backend, *others) for folder in _folders(each)]
    path = next(iter((*row.fields, *row.flags)), "")
    names = [path, *(path.split(".", number)[-1] for number in range(1, path.count(".") + 1))]
    return declared_at(names, folders, (*row.flags, *row.fields[1:]))


def declared_rule(rule: Rule) -> str:
    """Return file and line at which a rule is declared; of several that differ in one word, the table that has them."""
    here = Path(launcher.__file__).parent
    packages = [folder for name in backend_names() for folder in _folders(get_backend(name))]
    # Rules on models that a backend cannot build are declared beside its families.
    folders = [here / "rules", here / "executors", *(folder / "rules" for folder in packages), *packages]
    parts = rule.id.split("-")
    starts = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(filter(None, (declared_at((start, f"{start}-"), folders) for start in starts)), "")


def _folders(backend: Backend) -> list[Path]:
    """Return the folder of a backend's package, that of its rules' modules without their last two names."""
    packages = dict.fromkeys(module.rsplit(".", 2)[0] for module in backend.rules if module.count(".") > 1)
    specs = (find_spec(package) for package in packages)
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]


def _argument(argument: Argument, backend: Backend) -> Tree:
    having = [version for version in backend.versions if backend.catalogue(version).get(argument.name) is not None]
    return {
        "name": argument.name,
        "type": kind(argument),
        "default": default_text(argument),
        # Newest first: no bound where the oldest or the newest version has it.
        "since": having[-1] if having[-1] != backend.versions[-1] else None,
        "until": having[0] if having[0] != backend.versions[0] else None,
        "source": argument.source,
    }


def _rule(rule: Rule, *, long: bool = False) -> Tree:
    text = " ".join(rule.doc.split())
    head = {"rule": rule.id, "phase": rule.phase, "severity": rule.severity, "says": text}
    head["declared"] = declared_rule(rule)
    return {**head, "source": rule.source} if long else head


def _written(outcome: Outcome, flags: set[str]) -> list[Tree]:
    return [
        {"flag": arg.flag, "value": arg.value, "field": arg.field, "origin": arg.origin, "where": arg.where}
        for arg in outcome.native
        if arg.flag in flags
    ]


# -- fields


def _field(path: str) -> Tree:
    info = field_at(path)
    return {
        "field": path,
        "type": getattr(info.type, "__name__", str(info.type)),
        "default": info.default,
        "declared": declared_field(path),
        "meaning": info.meta.doc,
    }


def declared_field(path: str) -> str:
    """Return file and line at which a field of the job is declared."""
    *sections, name = path.split(".")
    section: Any = Job
    for part in sections:
        section = get_type_hints(section)[part]
    declaring = next(each for each in section.__mro__ if name in vars(each).get("__annotations__", ()))
    lines, first = inspect.getsourcelines(declaring)
    found = next(number for number, line in enumerate(lines) if line.lstrip().startswith(f"{name}:"))
    return f"{shown(inspect.getfile(declaring))}:{first + found}"


# -- text


def show(found: Tree) -> None:
    """Print the trace of a name."""
    print_lines(_lines(found), sys.stdout)


def _lines(found: Tree) -> Iterator[str]:
    if "rule" in found:
        yield from _rule_lines(found["rule"], "")
    for each in found["fields"]:
        yield f"field {each['field']}  {each['type']}, default {_plain(each['default'])}  {each['declared']}"
        yield f"  {each['meaning']}"
    for number, walk in enumerate(found["backends"]):
        yield ""
        yield f"{walk['backend']} {walk['version']}"
        yield from (f"  {line}" for line in _walk_lines(walk))
        if number == 0 and "findings" in found:
            yield f"  findings in this job: {len(found['texts']) or 'none'}"
            yield from (line for text in found["texts"] for line in indent(text, "    ").splitlines())


def _walk_lines(walk: Tree) -> Iterable[str]:
    for row in walk["rows"]:
        arguments = ", ".join(row["arguments"]) or "no argument"
        yield f"row {', '.join(row['fields']) or '-'} -> {arguments}  {row['declared']}"
        if row["note"]:
            yield f"  {row['note']}"
    if walk["cannot"]:
        yield f"cannot: {walk['cannot']}"
    if walk["irrelevant"]:
        yield f"not applicable: {walk['irrelevant']}"
    for name in walk["passed through"]:
        yield f"no field: {_PASSED}{name} passes it through"
    for argument in walk["arguments"]:
        bounds = [f"{word} {argument[word]}" for word in ("since", "until") if argument[word]]
        facts = ", ".join([argument["type"], f"default {argument['default']}", *bounds])
        yield f"argument {argument['name']}  {facts}  [{argument['source']}]"
    for arg in walk.get("written", ()):
        origin = origin_words(arg["origin"], arg["where"], arg["field"])
        yield f"writes {arg['flag']} {_plain(arg['value'])}  ({origin})"
    for rule in walk["rules"]:
        yield from _rule_lines(rule, "rule ")


def _rule_lines(rule: Tree, head: str) -> Sequence[str]:
    facts = f"{head}{rule['rule']}  {rule['phase']}, {rule['severity']}  {rule['declared']}"
    source = f"  [{rule['source']}]" if rule.get("source") else ""
    return (facts, f"  {rule['says']}{source}")


def _plain(value: object) -> str:
    if value in (None, (), {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
