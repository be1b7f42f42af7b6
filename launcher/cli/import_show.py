"""Output of `launch import`: how each argument was mapped."""

import sys
from collections.abc import Iterator
from pathlib import Path

from launcher.cli.notes import MOST_NOTES, print_note, printable, shortened
from launcher.cli.options import print_json, write_file
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import refuse
from launcher.job import fields
from launcher.job.cluster import Cluster
from launcher.mapping.backend import get_backend
from launcher.outputs.files import check_output
from launcher.outputs.kinds import JOB
from launcher.plan.shell import quote
from launcher.report.text_page import Page, page_of
from launcher.report.text_table import table
from launcher.terminal import counted, machines

_LONGEST = 400  # characters of a value before its middle is omitted


def show(jobs: list[Imported], source: str, output: str | None, *, as_json: bool) -> int:
    """Write and report imported jobs; return the exit code: 1 if something was dropped because of a problem."""
    paths = paths_of(output, len(jobs))
    for imported, path in zip(jobs, paths, strict=True):
        if path is not None:
            newest = get_backend(imported.backend).default_version
            write(path, job_yaml(imported, source, with_version=imported.version != newest))
    if as_json:
        trees = [dict(imported.as_tree()) for imported in jobs]
        print_json(trees[0] if len(trees) == 1 else {"jobs": trees})
    else:
        for imported, path in zip(jobs, paths, strict=True):
            _report(imported, source, path)
    return 1 if any(imported.problems for imported in jobs) else 0


def paths_of(output: str | None, count: int) -> list[str | None]:
    """Return the file of each of `count` jobs; none is written if one of them would replace something else.

    Raises:
        OutputRefused: with another name that is free.
    """
    paths = [numbered(output, number, count) for number in range(count)]
    for path in paths:
        if path is not None:
            check_output(path, JOB)
    return paths


def numbered(output: str | None, number: int, count: int) -> str | None:
    """Return the file of one of several jobs."""
    if output is None or count == 1:
        return output
    path = Path(output)
    return str(path.with_name(f"{path.stem}_{number + 1}{path.suffix}"))


def write(path: str, text: str) -> None:
    """Write a job file; an earlier one of that name, which may have been edited, is kept beside it."""
    try:
        write_file(path, text, JOB)
    except OSError as error:
        raise refuse(f"the file cannot be written: {error.strerror}", path) from None


def _report(imported: Imported, source: str, output: str | None) -> None:
    """Print what became of the arguments, first in numbers, then of each; remarks go to stderr."""
    page = page_of(sys.stdout)
    for line in _head(imported, source, output, page):
        print(line)
    sys.stdout.flush()
    for kind, notes in (("error", imported.problems), ("warning", imported.warnings)):
        for note in notes[:MOST_NOTES]:
            print_note(kind, note)
        if len(notes) > MOST_NOTES:
            print(f"{kind}  and {len(notes) - MOST_NOTES} more; --json lists all", file=sys.stderr)
    sys.stderr.flush()
    rows = [*_arguments(imported), *_variables(imported)]
    if not rows:
        return
    print()
    for line in table(page, [[printable(shortened(cell, _LONGEST)) for cell in row] for row in rows]):
        print(line)
    if any(len(cell) > _LONGEST for row in rows for cell in row):
        print("… stands for the middle of a long value (--json has it)")


def _head(imported: Imported, source: str, output: str | None, page: Page) -> Iterator[str]:
    title, cluster = get_backend(imported.backend).title, imported.job.cluster
    size = machines(cluster.nodes, cluster.devices_per_node)
    program = imported.program or "arguments"
    yield from page.wrap(printable(f"{source}: {program}, {title} {imported.version}, {size}"), "", "  ")
    mapped = sum(bool(each.fields) for each in imported.mapped_args)
    implied = sum(each.implied for each in imported.mapped_args)
    rest = len(imported.mapped_args) - mapped - implied
    counts = [f"{mapped} became fields"]
    counts += [f"{implied} implied"] if implied else []
    counts += [f"{rest} passed through"] if rest else []
    problems = page.paint(f", {counted(len(imported.problems), 'problem')}", "error") if imported.problems else ""
    yield f"{counted(len(imported.mapped_args), 'argument')}: {', '.join(counts)}{problems}"
    if imported.exact:
        names = map(printable, imported.exact)
        yield from page.join(names, "also passed through, to reproduce the exact command: ", "  ", sign=", ")
    shown = ("nodes", "devices_per_node")
    asked = [name for name in cluster.__dataclass_fields__ if name not in shown and _is_set(cluster, name)]
    if asked:
        values = [printable(f"{name}={_value(getattr(cluster, name))}") for name in asked]
        yield from page.join(values, "cluster: ", "  ", sign=", ")
    if output is not None:
        yield from written(output, page)


def written(output: str, page: Page) -> list[str]:
    """Return which job file was written, and what to do with it."""
    return page.join([f"written: {output}", f"next: launch dry-run {quote(f'+job={output}')}"], "", "  ", sign="   ")


def _is_set(cluster: Cluster, name: str) -> bool:
    return bool(getattr(cluster, name) != fields()[f"cluster.{name}"].default)


def _arguments(imported: Imported) -> Iterator[tuple[str, str, str]]:
    for each in imported.mapped_args:
        rest_of = "(the launcher writes it)" if each.implied else f"backend.args.{each.flag}"
        yield each.flag, _value(each.value), ", ".join(_set_fields(imported, each.fields)) or rest_of


def _variables(imported: Imported) -> Iterator[tuple[str, str, str]]:
    for name, value in imported.job.backend.env.items():
        yield name, value, f"backend.env.{name}"


def _set_fields(imported: Imported, paths: tuple[str, ...]) -> list[str]:
    from launcher.job import fields, value_at

    changed = [path for path in paths if value_at(imported.job, path) != fields()[path].default]
    return changed or list(paths[:1])


def _value(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return " ".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
