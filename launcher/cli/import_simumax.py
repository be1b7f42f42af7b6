"""`launch import strategy.json model.json system.json`: SimuMax's input files to a job and its hardware."""

import argparse
from collections.abc import Iterator, Sequence

from launcher.cli.notes import printable, shortened
from launcher.cli.options import print_json, writable, write_file
from launcher.cli.refusal import WrongUse
from launcher.importing.simumax.files import Described, describe, hardware_text, job_text, simumax_files
from launcher.importing.simumax.rows import DROPPED, IMPLIED, MAPPED, NEAREST, UNKNOWN, Row, repr_of
from launcher.mapping.backend import get_backend
from launcher.outputs.kinds import HARDWARE, JOB

# Options of `launch import` that need a command line or a script.
_OTHERS = ("backend_version", "to", "accept", "set", "all_commands", "partial")
_FIELDS = 2


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
            write_file(options.output, hardware_text(described), HARDWARE)
    if options.json:
        print_json(described.as_tree())
    else:
        print("\n".join(map(printable, _lines(described, options.output))))
    return 0


def _lines(described: Described, output: str | None) -> Iterator[str]:
    names = ", ".join(f"{file.path} ({file.kind})" for file in described.files)
    cluster = described.job.cluster
    devices = f", {cluster.nodes} node(s) x {cluster.devices_per_node} device(s)" if described.has_job else ""
    yield f"# SimuMax: {names}{devices}"
    shown = [row for row in described.rows if row.given or row.status != IMPLIED]
    names_of = [_name(row) for row in shown]
    width = max(map(len, names_of), default=0)
    values = [repr_of(row.value) for row in shown]
    of_values = min(24, max(map(len, values), default=0))
    for row, name, value in zip(shown, names_of, values, strict=True):
        yield f"{name.ljust(width)}  {shortened(value, 24).ljust(of_values)}  {_meaning(row)}"
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


def _name(row: Row) -> str:
    return row.field if row.given else f"({row.field})"


def _meaning(row: Row) -> str:
    more = [f"and {len(row.fields) - _FIELDS} more"] if len(row.fields) > _FIELDS + 1 else []
    fields = ", ".join([*row.fields[:_FIELDS], *(more or row.fields[_FIELDS:])])
    if row.status == MAPPED:
        return f"{fields} ({row.note})" if row.note else fields
    if row.status == NEAREST and fields:
        return f"{fields} (nearest{': ' + row.note if row.note else ''})"
    return f"{row.status}: {row.note}"
