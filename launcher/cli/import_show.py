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

_COLUMNS, _LINE = (44, 28), 100  # characters of the columns, and of a value before its middle is omitted


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
        raise refuse(f"cannot be written: {error.strerror}", path) from None


def _report(imported: Imported, source: str, output: str | None) -> None:
    """Print how each argument was mapped; remarks go to stderr."""
    title = get_backend(imported.backend).title
    mapped = sum(bool(each.fields) for each in imported.mapped_args)
    cluster = imported.job.cluster
    print(
        f"# {source}: {imported.program or 'arguments'}, {title} {imported.version}, "
        f"{cluster.nodes} node(s) x {cluster.devices_per_node} device(s)"
    )
    shown = ("nodes", "devices_per_node")
    asked = [name for name in cluster.__dataclass_fields__ if name not in shown and _is_set(cluster, name)]
    if asked:
        print(printable("# cluster: " + ", ".join(f"{name}={_value(getattr(cluster, name))}" for name in asked)))
    for line in _table([*_arguments(imported), *_variables(imported)]):
        print(printable(line))
    implied = sum(each.implied for each in imported.mapped_args)
    rest = len(imported.mapped_args) - mapped - implied
    print(
        f"# {len(imported.mapped_args)} arguments: {mapped} became fields, {implied} are implied, "
        f"{rest} are passed through"
    )
    if imported.exact:
        print(f"# also passed through, to reproduce the exact command: {', '.join(imported.exact)}")
    if output is not None:
        print(f"# written: {output}   next: launch dry-run +job={output}")
    sys.stdout.flush()
    for kind, notes in (("error", imported.problems), ("warning", imported.warnings)):
        for note in notes[:MOST_NOTES]:
            print_note(kind, note)
        if len(notes) > MOST_NOTES:
            print(f"{kind}  and {len(notes) - MOST_NOTES} more; --json lists all", file=sys.stderr)


def _is_set(cluster: Cluster, name: str) -> bool:
    return bool(getattr(cluster, name) != fields()[f"cluster.{name}"].default)


def _arguments(imported: Imported) -> Iterator[tuple[str, str, str]]:
    for each in imported.mapped_args:
        rest_of = "(the launcher writes it)" if each.implied else f"backend.args.{each.flag}"
        yield each.flag, _value(each.value), ", ".join(_set_fields(imported, each.fields)) or rest_of


def _variables(imported: Imported) -> Iterator[tuple[str, str, str]]:
    for name, value in imported.job.backend.env.items():
        yield name, value, f"backend.env.{name}"


def _table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield aligned lines; text longer than its column shifts the rest, text longer than a line is shortened."""
    names = min(_COLUMNS[0], max((len(name) for name, _, _ in rows), default=0))
    values = min(_COLUMNS[1], max((len(value) for _, value, _ in rows), default=0))
    for name, value, target in rows:
        yield f"{shortened(name, _LINE).ljust(names)}  {shortened(value, _LINE).ljust(values)}  {target}"


def _set_fields(imported: Imported, paths: tuple[str, ...]) -> list[str]:
    from launcher.job import fields, value_at

    changed = [path for path in paths if value_at(imported.job, path) != fields()[path].default]
    more = [f"and {len(changed) - 3} more"] if len(changed) > 4 else []
    return [*changed[:3], *(more or changed[3:])] or list(paths[:1])


def _value(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return " ".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
