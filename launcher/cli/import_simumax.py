"""`launch import strategy.json model.json system.json`: SimuMax's input files to a job and its hardware."""

import argparse
import json
from collections.abc import Iterator, Sequence

from launcher.cli.notes import printable, shortened
from launcher.cli.options import print_json, writable, write_file
from launcher.cli.refusal import WrongUse
from launcher.importing.simumax.files import Described, describe, job_text, simumax_files
from launcher.importing.simumax.rows import DROPPED, IMPLIED, MAPPED, NEAREST, UNKNOWN, Row, repr_of
from launcher.mapping.backend import get_backend
from launcher.outputs.kinds import HARDWARE, HARDWARE_HEAD, JOB

# Options of `launch import` that need a command line or a script.
_OTHERS = ("backend_version", "to", "accept", "set", "all_commands", "partial")
_STATUSES = (MAPPED, NEAREST, IMPLIED, DROPPED, UNKNOWN)
# Fields of a job shown for one field of SimuMax, and fields of SimuMax without one that share a reason.
_FIELDS, _MOST = 2, 6


def import_simumax(options: argparse.Namespace, paths: Sequence[str]) -> int | None:
    """Import files of SimuMax and return the exit code; None: the one file is of another program.

    Raises:
        ImportRefused: a file is missing, of no known kind, or holds values that no run has.
        WrongUse: an option applies to scripts only.
    """
    files = simumax_files(paths)
    if files is None:
        return None
    for name in _OTHERS:
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            works = "launch import strategy.json model.json system.json -o job.yaml"
            raise WrongUse(f"{flag}: applies to scripts and configurations, not to the files of SimuMax", works)
    described = describe(files, options.backend)
    writable("-o", options.output, JOB if described.has_job else HARDWARE, ".yaml", ".yml")
    if options.output is not None:
        if described.has_job:
            write_file(options.output, job_text(described), JOB)
        else:
            write_file(options.output, _hardware_text(described), HARDWARE)
    if options.json:
        print_json(described.as_tree())
    else:
        print("\n".join(map(printable, _lines(described, options.output))))
    return 0


def _hardware_text(described: Described) -> str:
    """Return the text of a hardware file (`hardware=FILE`)."""
    notes = [f"# not as in SimuMax: {' '.join(line.split())}" for line in described.warnings]
    figures = [f"{name}: {json.dumps(value)}" for name, value in described.hardware.items()]
    head = [HARDWARE_HEAD, f"# Imported from {described.files[0].path} (SimuMax)."]
    return "\n".join([*head, *notes, *figures]) + "\n"


def _lines(described: Described, output: str | None) -> Iterator[str]:
    names = ", ".join(f"{file.path} ({file.kind})" for file in described.files)
    cluster = described.job.cluster
    devices = f", {cluster.nodes} node(s) x {cluster.devices_per_node} device(s)" if described.has_job else ""
    yield f"# SimuMax: {names}{devices}"
    shown = [row for row in described.rows if row.fields]
    width = max((len(_name(row)) for row in shown), default=0)
    values = [shortened(repr_of(row.value), 24) for row in shown]
    of_values = max(map(len, values), default=0)
    for row, value in zip(shown, values, strict=True):
        yield f"{_name(row).ljust(width)}  {value.ljust(of_values)}  {_meaning(row)}"
    for status in (UNKNOWN, DROPPED, NEAREST, IMPLIED):
        yield from _without_field(status, [row for row in described.rows if row.status == status and not row.fields])
    given = [row for row in described.rows if row.given]
    counts = {
        status: sum(row.status == status for row in given) for status in (MAPPED, NEAREST, IMPLIED, DROPPED, UNKNOWN)
    }
    yield (
        f"# {len(given)} fields: {counts[MAPPED]} became fields, {counts[NEAREST]} the nearest that there is, "
        f"{counts[IMPLIED]} are implied, {counts[DROPPED]} dropped, {counts[UNKNOWN]} unknown"
    )
    if described.has_job and not described.hardware:
        yield "# no system file: the estimate needs a device, such as hardware=h100_80g"
    if output is None:
        return
    if described.has_job:
        device = "" if described.hardware else " hardware=h100_80g"
        backend = get_backend(described.backend).title
        yield f"# written: {output} ({backend})   next: launch estimate +job={output}{device}"
    else:
        yield f"# written: {output}   use it as hardware={output}"


def _without_field(status: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield fields that no field of a job takes, those of one reason on one line."""
    reasons: dict[str, list[Row]] = {}
    for row in rows:
        reasons.setdefault(row.note, []).append(row)
    for reason, same in reasons.items():
        names = [f"{row.field}={shortened(repr_of(row.value), 24)}" for row in same if row.given]
        if names:
            more = f" and {len(names) - _MOST} more (--json has all)" if len(names) > _MOST else ""
            yield f"{status}  {', '.join(names[:_MOST])}{more}: {reason}"


def _name(row: Row) -> str:
    return row.field if row.given else f"({row.field})"


def _meaning(row: Row) -> str:
    more = [f"and {len(row.fields) - _FIELDS} more"] if len(row.fields) > _FIELDS + 1 else []
    fields = ", ".join([*row.fields[:_FIELDS], *(more or row.fields[_FIELDS:])])
    said = ", ".join(filter(None, ["nearest" if row.status == NEAREST else "", row.note]))
    return f"{fields}  ({said})" if said else fields
