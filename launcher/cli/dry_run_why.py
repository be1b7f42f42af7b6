"""`launch dry-run --why NAME`: where one argument or variable of a job comes from."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from launcher.catalogue.catalogue import plain, suggest
from launcher.cli.dry_run_screen import default_of
from launcher.cli.refusal import WrongUse
from launcher.job import field_at, fields, value_at
from launcher.mapping.environment import Explained
from launcher.mapping.native import value_text
from launcher.pipeline import Outcome
from launcher.report.findings import print_findings
from launcher.report.origins import BACKEND_DEFAULT, origin_sentence
from launcher.report.text_page import page_of
from launcher.rules.registry import RULES
from launcher.syntax import escaped


def show_why(name: str, outcome: Outcome, environment: Sequence[Explained]) -> None:
    """Print value, origin, default and findings of a native argument, a field or a variable.

    Raises:
        WrongUse: the job has none of that name.
    """
    page = page_of(sys.stdout)
    wanted = plain(name.partition("=")[0])
    found = [*_arguments(wanted, outcome), *_changes(wanted, outcome), *_variables(wanted, environment)]
    if not found and wanted in fields():
        found = [_unwritten(wanted, outcome)]
    if not found:
        known = [*(arg.flag for arg in outcome.native), *(each.name for each in environment), *fields()]
        raise WrongUse(
            f"--why {name}: this job writes no such argument, and no field has the name", *suggest(name, known)
        )
    for number, rows in enumerate(found):
        if number:
            print()
        head, *rest = rows
        print(page.paint(escaped(f"{head[0]} {head[1]}"), "bold"))
        for line in page.pairs([(key, escaped(value)) for key, value in rest if value]):
            print(line)
    concerned = [each for each in outcome.findings if wanted in {*map(plain, each.flags), *map(plain, each.fields)}]
    sys.stdout.flush()
    print_findings(concerned, outcome.job)


def _arguments(wanted: str, outcome: Outcome) -> Iterator[list[tuple[str, str]]]:
    for arg in outcome.native:
        if wanted not in (plain(arg.flag), plain(arg.flag.rpartition(".")[2]), arg.field):
            continue
        origin = origin_sentence(arg.origin, arg.where)
        rule = arg.origin.partition(":")[2]
        if rule in RULES:
            origin += f" {rule}: {RULES[rule].doc}"
        default = default_of(outcome.backend, outcome.version, arg.flag)
        rows = [(arg.flag, value_text(arg.value)), ("origin", origin), ("where", arg.where)]
        if arg.field in fields() and arg.field is not None:
            rows += [("field", arg.field), ("meaning", field_at(arg.field).meta.doc)]
        rows.append((f"{outcome.backend.title}'s default", default or ""))
        for each in outcome.effective.changes:
            if each.flag == arg.flag:
                rows.append((f"{outcome.backend.title} uses", f"{value_text(each.after)} (rule {each.rule})"))
        yield [*rows, ("more", f"launch explain {arg.flag}")]


def _changes(wanted: str, outcome: Outcome) -> Iterator[list[tuple[str, str]]]:
    """Yield arguments that only the backend sets."""
    written = {arg.flag for arg in outcome.native}
    for each in outcome.effective.changes:
        if plain(each.flag) == wanted and each.flag not in written:
            doc = " ".join(RULES[each.rule].doc.split()) if each.rule in RULES else ""
            yield [
                (each.flag, value_text(each.after)),
                ("origin", f"{outcome.backend.title} sets it itself; it was {value_text(each.before)}"),
                ("rule", f"{each.rule}: {doc}"),
            ]


def _variables(wanted: str, environment: Sequence[Explained]) -> Iterator[list[tuple[str, str]]]:
    for each in environment:
        if plain(each.name) == wanted:
            rows = [(each.name, each.value), ("origin", each.origin), ("where", each.where), ("source", each.source)]
            yield [(key, str(value or "")) for key, value in rows]


def _unwritten(path: str, outcome: Outcome) -> list[tuple[str, Any]]:
    value = value_at(outcome.job, path)
    origin = outcome.job.origin(path)
    return [
        (path, value_text(value)),
        ("origin", BACKEND_DEFAULT if value is None else origin_sentence(origin.kind, origin.where)),
        ("where", origin.where),
        ("meaning", field_at(path).meta.doc),
        ("written", f"no argument of {outcome.backend.title} {outcome.version} (launch explain {path} says why)"),
    ]
