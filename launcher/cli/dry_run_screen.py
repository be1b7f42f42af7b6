"""`launch dry-run` for people: the answer first, then what differs from the recipe and the backend's defaults."""

import sys
from collections.abc import Iterator, Sequence

from launcher.cli.device_layout import device_layout
from launcher.convert.offer import Offer
from launcher.mapping.backend import Backend
from launcher.mapping.environment import Explained
from launcher.mapping.native import NativeArg, value_text
from launcher.pipeline import Outcome
from launcher.plan import LaunchPlan, NodePlan
from launcher.plan.shell import one_line, settled
from launcher.report.findings import headline, print_findings
from launcher.report.origins import origin_words
from launcher.report.text_page import Page, page_of
from launcher.report.text_table import table
from launcher.syntax import escaped
from launcher.terminal import counted

_OTHER = "without a field"


def show(
    outcome: Outcome,
    plan: LaunchPlan,
    *,
    here: str,
    estimate: str | None,
    convert: Offer | None,
    environment: Sequence[Explained],
    every: bool,
) -> None:
    """Print a job: verdict, estimate, findings, layout, arguments, and the command.

    Args:
        here: what `run` would do on this machine.
        estimate: memory and time; None: not known.
        convert: conversion that the weights need first.
        environment: variables of the first node.
        every: every argument, with its field and origin.
    """
    page = page_of(sys.stdout)
    for line in _head(outcome, plan, page, here, estimate, convert):
        print(line)
    sys.stdout.flush()
    print_findings(outcome.findings, outcome.job)
    sys.stderr.flush()
    layout = device_layout(outcome)
    for line in page.join(layout, "layout: ", "  ", sign="; ") if layout else ():
        print(line)
    print()
    for line in _every(outcome, environment, page) if every else _differing(outcome, page):
        print(line)
    if outcome.ok:
        print()
        for line in command_lines(plan, page):
            print(line)


def _head(
    outcome: Outcome, plan: LaunchPlan, page: Page, here: str, estimate: str | None, convert: Offer | None
) -> Iterator[str]:
    job, backend = outcome.job, outcome.backend
    yield from headline(escaped(job.name or "job"), f" on {backend.title} {outcome.version}", outcome.findings, page)
    yield from page.wrap(escaped(plan.what), "", "  ")
    yield from page.wrap(f"here: {here}", "", "  ")
    if estimate:
        yield from page.wrap(f"estimate: {estimate}", "", "  ")
    if convert is not None:
        yield from page.wrap(f"first ({convert.why}): {convert.text}", "", "  ")


# -- arguments


def differs(arg: NativeArg, outcome: Outcome) -> bool:
    """Return whether an argument is neither the recipe's nor what the backend does by default."""
    if arg.origin in ("override", "pass-through") or arg.origin.startswith("rule:"):
        return True
    if arg.origin == "recipe":
        return False
    argument = outcome.backend.catalogue(outcome.version).get(arg.flag)
    return argument is None or value_text(argument.default) != value_text(arg.value)


def _differing(outcome: Outcome, page: Page) -> Iterator[str]:
    shown = [arg for arg in outcome.native if differs(arg, outcome)]
    total = len(outcome.native.args)
    title = f"{len(shown)} of {counted(total, 'argument')} differ from the recipe and the backend's defaults"
    yield from page.wrap(f"{title} (--all: every one; --why NAME: where it comes from)", "", "  ")
    for section, args in _by_section(shown):
        yield page.paint(section, "bold")
        yield from page.pairs([(escaped(arg.flag), escaped(value_text(arg.value))) for arg in args])
    changes = outcome.effective.changes
    if changes:
        names = ", ".join(each.flag for each in changes[:3]) + (", …" if len(changes) > 3 else "")
        yield from page.wrap(f"{outcome.backend.title} itself sets {len(changes)} more: {names} (--all)", "", "  ")


def _by_section(args: Sequence[NativeArg]) -> list[tuple[str, list[NativeArg]]]:
    """Return arguments by the section of their field, in the order in which sections appear."""
    sections: dict[str, list[NativeArg]] = {}
    for arg in args:
        section = arg.field.partition(".")[0] if arg.field else _OTHER
        sections.setdefault(section, []).append(arg)
    return sorted(sections.items(), key=lambda item: item[0] == _OTHER)


def _every(outcome: Outcome, environment: Sequence[Explained], page: Page) -> Iterator[str]:
    """Yield every argument, what the backend sets itself, and the variables of the first node, each with its origin."""
    yield page.paint(f"{counted(len(outcome.native.args), 'argument')}", "bold")
    for section, args in _by_section(outcome.native.args):
        yield page.paint(section, "bold")
        rows = [(arg.flag, value_text(arg.value), _of(arg)) for arg in args]
        yield from _rows(rows, page)
    if outcome.effective.changes:
        yield page.paint(f"{outcome.backend.title} sets these itself", "bold")
        changes = [
            (each.flag, value_text(each.after), f"was {value_text(each.before)} rule:{each.rule}")
            for each in outcome.effective.changes
        ]
        yield from _rows(changes, page)
    if environment:
        yield page.paint("variables", "bold")
        variables = []
        for variable in environment:
            source = f"[{variable.source}]" if variable.source else ""
            origin = _words(variable.origin, variable.where, source)
            variables.append((variable.name, one_line([variable.value]), origin))
        yield from _rows(variables, page)


def _of(arg: NativeArg) -> str:
    words = origin_words(arg.origin, arg.where, arg.field)
    return f"{arg.field}: {words}" if arg.field else words


def _words(*parts: str | None) -> str:
    return " ".join(filter(None, parts))


def _rows(rows: Sequence[Sequence[str]], page: Page) -> list[str]:
    """Return names with their values, and where each comes from."""
    return table(page, [list(map(escaped, row)) for row in rows], indent="  ", dim_last=True)


# -- the command


def command_lines(plan: LaunchPlan, page: Page) -> Iterator[str]:
    """Yield the command of the first node, an option a line, to be pasted into bash."""
    for file in plan.files:
        for line in page.wrap(
            f"reads {escaped(file.path)}, which is written first (--format shell shows it)", "# ", "# "
        ):
            yield page.paint(line, "dim")
    for step in map(settled, plan.prepare):
        yield page.paint("# once, before the nodes start", "dim")
        yield from _command(step)
    first, *others = map(settled, plan.nodes[:2])
    if others:
        text = f"node 0 of {len(plan.nodes)}; the others differ in {_difference(first, others[0])}"
        yield from (page.paint(line, "dim") for line in page.wrap(text, "# ", "# "))
    yield from _command(first)


def _difference(first: NodePlan, second: NodePlan) -> str:
    names = [key for key, value in first.env.items() if second.env.get(key) != value]
    for at, (one, other) in enumerate(zip(first.argv, second.argv, strict=False)):
        if one != other:
            names.append(first.argv[at - 1] if not one.startswith("-") and at else one.partition("=")[0])
    return ", ".join(dict.fromkeys(names)) or "nothing"


def _command(node: NodePlan) -> Iterator[str]:
    parts = [f"{key}={one_line([value])}" for key, value in node.env.items()]
    groups: list[list[str]] = [[]]
    for word in node.argv:
        # After an option with its value: the program that a starter such as msrun runs.
        is_program = word.endswith(".py") and len(groups[-1]) > 1 and _is_option(groups[-1][0])
        if groups[-1] and (_is_option(word) or is_program):
            groups.append([])
        groups[-1].append(word)
    parts += [one_line(group) for group in groups if group]
    count = len(node.env) + 1
    for number, part in enumerate(parts):
        indent = "  " if number >= count else ""
        yield f"{indent}{part}" + (" \\" if number < len(parts) - 1 else "")


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and word[1] != "."


def default_of(backend: Backend, version: str, flag: str) -> str | None:
    """Return a backend's default of an argument as text; None: it has no such argument."""
    argument = backend.catalogue(version).get(flag)
    return None if argument is None else value_text(argument.default)
