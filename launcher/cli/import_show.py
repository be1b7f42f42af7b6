"""What `launch import` prints and writes: what each argument became, and what a port leaves out."""

import sys
from pathlib import Path
from typing import TextIO

from launcher.cli.options import print_json
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import ImportRefused, Note, refuse
from launcher.importing.port import Ported
from launcher.job import as_tree
from launcher.translate.backend import Backend, get_backend
from launcher.translate.started_by import variables_of

_MOST_NOTES = 20
_LONGEST = 400
# Variables of GPUs, and what they are called on NPUs.
_NPU_TWINS = {
    "CUDA_VISIBLE_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
    "NCCL_SOCKET_IFNAME": "HCCL_SOCKET_IFNAME",
}


def show(jobs: list[Imported], source: str, output: str | None, *, as_json: bool) -> int:
    """Write and report imported jobs; return the exit code: 1 if something was left out for a problem."""
    paths = [_numbered(output, number, len(jobs)) for number in range(len(jobs))]
    for imported, path in zip(jobs, paths, strict=True):
        if path is not None:
            newest = get_backend(imported.backend).versions[0]
            _write(path, job_yaml(imported, source, with_version=imported.version != newest))
    if as_json:
        trees = [dict(imported.as_tree()) for imported in jobs]
        print_json(trees[0] if len(trees) == 1 else {"jobs": trees})
    else:
        for imported, path in zip(jobs, paths, strict=True):
            _report(imported, source, path)
    return 1 if any(imported.problems for imported in jobs) else 0


def show_port(pairs: list[tuple[Imported, Ported]], source: str, output: str | None, *, as_json: bool) -> int:
    """Write and report ported jobs; return the exit code: 1 if something stands against running them."""
    from launcher.report.findings import print_findings

    trees = []
    for number, (imported, ported) in enumerate(pairs):
        path = _numbered(output, number, len(pairs))
        left_out = [Note(message=f"--{each.flag}: {each.why}", works=each.works) for each in ported.missing]
        if path is not None:
            _write(path, _ported_yaml(imported, ported, source, left_out))
        trees.append(_port_tree(imported, ported))
        if as_json:
            continue
        backend, origin = get_backend(ported.job.backend.name or ""), get_backend(imported.backend)
        print(
            f"# {source}: {imported.program or 'arguments'}, {origin.title} {imported.version}"
            f" -> {backend.title} {ported.job.backend.version}"
        )
        for note in (*imported.problems, *imported.warnings):
            print_note("note", note, sys.stdout)
        for note in left_out:
            print_note("left out", note, sys.stdout)
        for name in ported.variables:
            print(f"left out  environment variable {name}: {backend.title} does not read it{_twin(name, backend)}")
        print_findings(ported.findings, ported.job, sys.stdout)
        errors = sum(finding.severity == "error" for finding in ported.findings)
        print(f"# {len(imported.became)} arguments read, {len(ported.missing)} left out, {errors} errors to settle")
        if path is not None:
            print(f"# written: {path}   next: launch dry-run +job={path}")
    if as_json:
        print_json(trees[0] if len(trees) == 1 else {"jobs": trees})
    return 0 if all(ported.ok for _, ported in pairs) else 1


def _twin(name: str, backend: Backend) -> str:
    """Name the variable of the backend's devices that does the same, if it reads one."""
    there, variables = _NPU_TWINS.get(name), variables_of(backend.name)
    return f" (there: backend.env.{there}=…)" if there and variables is not None and there in variables else ""


def _port_tree(imported: Imported, ported: Ported) -> dict[str, object]:
    return {
        **imported.as_tree(),
        "backend": ported.job.backend.name,
        "version": ported.job.backend.version,
        "job": as_tree(ported.job),
        "from": {"backend": imported.backend, "version": imported.version},
        "missing": [
            {"flag": each.flag, "value": each.value, "why": each.why, "works": list(each.works)}
            for each in ported.missing
        ],
        "findings": [finding.as_tree() for finding in ported.findings],
        "ok": ported.ok,
    }


def _ported_yaml(imported: Imported, ported: Ported, source: str, left_out: list[Note]) -> str:
    import dataclasses

    text = dataclasses.replace(
        imported,
        backend=ported.job.backend.name or "",
        version=ported.job.backend.version or "",
        job=ported.job,
        warnings=(*imported.warnings, *left_out),
        exact={},
    )
    origin = get_backend(imported.backend)
    is_newest = text.version == get_backend(text.backend).versions[0]
    return job_yaml(text, f"{source}, written for {origin.title} {imported.version}", with_version=not is_newest)


def _numbered(output: str | None, number: int, count: int) -> str | None:
    if output is None or count == 1:
        return output
    path = Path(output)
    return str(path.with_name(f"{path.stem}_{number + 1}{path.suffix}"))


def _write(path: str, text: str) -> None:
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
