"""What `launch import` prints and writes: what each argument became."""

import sys
from pathlib import Path
from typing import TextIO

from launcher.cli.options import print_json
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import ImportRefused, Note, refuse
from launcher.translate.backend import get_backend

_MOST_NOTES = 20
_LONGEST = 400


def show(jobs: list[Imported], source: str, output: str | None, *, as_json: bool) -> int:
    """Write and report imported jobs; return the exit code: 1 if something was left out for a problem."""
    paths = [numbered(output, number, len(jobs)) for number in range(len(jobs))]
    for imported, path in zip(jobs, paths, strict=True):
        if path is not None:
            newest = get_backend(imported.backend).versions[0]
            write(path, job_yaml(imported, source, with_version=imported.version != newest))
    if as_json:
        trees = [dict(imported.as_tree()) for imported in jobs]
        print_json(trees[0] if len(trees) == 1 else {"jobs": trees})
    else:
        for imported, path in zip(jobs, paths, strict=True):
            _report(imported, source, path)
    return 1 if any(imported.problems for imported in jobs) else 0


def numbered(output: str | None, number: int, count: int) -> str | None:
    """Return the file of one of several jobs."""
    if output is None or count == 1:
        return output
    path = Path(output)
    return str(path.with_name(f"{path.stem}_{number + 1}{path.suffix}"))


def write(path: str, text: str) -> None:
    """Write a job file."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise refuse(f"cannot be written: {error.strerror}", path) from None


def _report(imported: Imported, source: str, output: str | None) -> None:
    """Print what each argument became; remarks go to stderr."""
    title = get_backend(imported.backend).title
    mapped = sum(bool(each.fields) for each in imported.became)
    cluster = imported.job.cluster
    print(
        f"# {source}: {imported.program or 'arguments'}, {title} {imported.version}, "
        f"{cluster.nodes} node(s) x {cluster.devices_per_node} device(s)"
    )
    width = min(44, max((len(each.flag) for each in imported.became), default=0))
    for each in imported.became:
        rest_of = "(the launcher writes it)" if each.implied else f"backend.args.{each.flag}"
        became = ", ".join(_set_fields(imported, each.fields)) or rest_of
        print(printable(f"{each.flag[:80].ljust(width)}  {_value(each.value)[:40].ljust(12)}  {became}"))
    for name, value in imported.job.backend.env.items():
        print(printable(f"{name.ljust(width)}  {value[:40].ljust(12)}  backend.env.{name}"))
    implied = sum(each.implied for each in imported.became)
    rest = len(imported.became) - mapped - implied
    print(
        f"# {len(imported.became)} arguments: {mapped} became fields, {implied} are implied, {rest} are passed through"
    )
    if imported.exact:
        print(f"# passed through beside fields, so that the same comes out again: {', '.join(imported.exact)}")
    if output is not None:
        print(f"# written: {output}   next: launch dry-run +job={output}")
    sys.stdout.flush()
    for kind, notes in (("error", imported.problems), ("warning", imported.warnings)):
        for note in notes[:_MOST_NOTES]:
            print_note(kind, note)
        if len(notes) > _MOST_NOTES:
            print(f"{kind}  and {len(notes) - _MOST_NOTES} more; --json lists all", file=sys.stderr)


def _set_fields(imported: Imported, paths: tuple[str, ...]) -> list[str]:
    from launcher.job import fields, value_at

    changed = [path for path in paths if value_at(imported.job, path) != fields()[path].default]
    return changed[:3] or list(paths[:1])


def _value(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return " ".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def print_note(kind: str, note: Note, stream: TextIO | None = None) -> None:
    """Print a remark with its place and what would work."""
    place = f"  ({note.where})" if note.where else ""
    print(printable(f"{kind}  {_shortened(note.message)}{place}"), file=stream or sys.stderr)
    if note.works:
        print(printable(f"  works: {' · '.join(note.works)}"), file=stream or sys.stderr)


def printable(text: str) -> str:
    """Return a text on one line, without the control characters that a file may smuggle into a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"


def show_refusal(error: ImportRefused, *, as_json: bool) -> int:
    """Show every reason of a refusal; return the exit code."""
    if as_json:
        mistakes = [{"what": note.message, "where": note.where, "works": list(note.works)} for note in error.notes]
        print_json({"ok": False, "mistakes": mistakes})
        return 1
    for note in error.notes[:_MOST_NOTES]:
        print_note("error", note)
    if len(error.notes) > _MOST_NOTES:
        print(f"error  and {len(error.notes) - _MOST_NOTES} more; --json lists all", file=sys.stderr)
    if error.partial:
        print("nothing is imported; --partial imports the rest", file=sys.stderr)
    return 1
