"""`launch import strategy.json model.json system.json`: SimuMax's input files to a job and its hardware."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from launcher.cli.notes import printable, shortened
from launcher.cli.options import print_json, writable, write_file
from launcher.cli.refusal import WrongUse
from launcher.importing.simumax.files import Described, describe, job_text, simumax_files
from launcher.importing.simumax.rows import DROPPED, IMPLIED, MAPPED, NEAREST, UNKNOWN, Row, repr_of
from launcher.mapping.backend import get_backend
from launcher.outputs.kinds import HARDWARE, HARDWARE_HEAD, JOB
from launcher.plan.shell import quote
from launcher.report.text_page import Page, page_of
from launcher.report.text_table import table
from launcher.terminal import counted, machines

# Options of `launch import` that need a command line or a script.
_OTHERS = ("backend_version", "to", "accept", "set", "all_commands", "partial")
_STATUSES = (MAPPED, NEAREST, IMPLIED, DROPPED, UNKNOWN)
# Fields of a job shown for one field of SimuMax, fields of SimuMax without one that share a reason, and characters of
# a value.
_FIELDS, _MOST, _VALUE = 2, 6, 100


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
        print("\n".join(_lines(described, options.output, page_of(sys.stdout))))
    return 0


def _hardware_text(described: Described) -> str:
    """Return the text of a hardware file (`hardware=FILE`)."""
    notes = [f"# not as in SimuMax: {' '.join(line.split())}" for line in described.warnings]
    figures = [f"{name}: {json.dumps(value)}" for name, value in described.hardware.items()]
    head = [HARDWARE_HEAD, f"# Imported from {described.files[0].path} (SimuMax)."]
    return "\n".join([*head, *notes, *figures]) + "\n"


def _lines(described: Described, output: str | None, page: Page) -> Iterator[str]:
    yield from _head(described, output, page)
    shown = [row for row in described.rows if row.fields]
    if shown:
        yield ""
        cells = [[_name(row), shortened(repr_of(row.value), _VALUE), _meaning(row)] for row in shown]
        yield from table(page, [list(map(printable, row)) for row in cells])
    for status in (UNKNOWN, DROPPED, NEAREST, IMPLIED):
        for line in _without_field(status, [row for row in described.rows if row.status == status and not row.fields]):
            yield from page.wrap(printable(line), "", "  ")


def _head(described: Described, output: str | None, page: Page) -> Iterator[str]:
    names = ", ".join(f"{file.path} ({file.kind})" for file in described.files)
    cluster = described.job.cluster
    size = f", {machines(cluster.nodes, cluster.devices_per_node)}" if described.has_job else ""
    yield from page.wrap(printable(f"SimuMax: {names}{size}"), "", "  ")
    given = [row for row in described.rows if row.given]
    counts = {status: sum(row.status == status for row in given) for status in _STATUSES}
    words = {MAPPED: "became fields", NEAREST: "the nearest that there is", IMPLIED: "implied"}
    parts = [f"{count} {words.get(status, status)}" for status, count in counts.items() if count]
    yield from page.join(parts, f"{counted(len(given), 'field')}: ", "  ", sign=", ")
    if described.has_job and not described.hardware:
        yield from page.wrap("no system file: the estimate needs a device, such as hardware=h100_80g", "", "  ")
    if output is None:
        return
    if described.has_job:
        device = "" if described.hardware else " hardware=h100_80g"
        backend = get_backend(described.backend).title
        parts = [f"written: {output} ({backend})", f"next: launch estimate {quote(f'+job={output}')}{device}"]
    else:
        parts = [f"written: {output}", f"use it as {quote(f'hardware={output}')}"]
    yield from page.join(map(printable, parts), "", "  ", sign="   ")


def _without_field(status: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield fields that no field of a job takes, those of one reason on one line."""
    reasons: dict[str, list[Row]] = {}
    for row in rows:
        reasons.setdefault(row.note, []).append(row)
    for reason, same in reasons.items():
        names = [f"{row.field}={shortened(repr_of(row.value), _VALUE)}" for row in same if row.given]
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
