"""`launch ps`: lists every run that this user started, and its state."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from launcher.cli.options import parse, parser, print_json
from launcher.executors.record import Record
from launcher.observe.find import all_runs, ended_and_gone
from launcher.observe.state import State, states_of
from launcher.report.text_page import Page, page_of
from launcher.report.text_table import table
from launcher.syntax import escaped

_SHOWN = 20
_HEADING = ("ID", "STATE", "BY", "SIZE", "SUBMITTED (UTC)", "FOLDER")


def main(words: list[str]) -> int:
    """List runs, newest last."""
    made = parser("ps", "List the runs that you started, newest last.", "launch ps", overrides=False)
    made.add_argument("-a", "--all", action="store_true", help=f"all runs, not only the last {_SHOWN}")
    made.add_argument("--running", action="store_true", help="only runs that have not ended")
    options = parse(made, words)
    records, problems = all_runs()
    for problem in problems:
        print(f"launch ps: {problem}", file=sys.stderr)
    if not options.all and not options.running:
        records = records[-_SHOWN:]
    rows = list(zip(records, states_of(records), strict=True))
    rows = [(record, state) for record, state in rows if not (state.ended and (options.running or record.gone))]
    if options.json:
        print_json([tree(record, state) for record, state in rows])
    elif not rows:
        print("no run is active" if options.running else _none())
    else:
        print_runs(rows, sys.stdout)
    return 0


def _none() -> str:
    """Return why no run is listed."""
    gone = ended_and_gone()
    if not gone:
        return "no runs yet: launch +recipe=NAME starts one"
    several = (
        f"all {len(gone)} runs have ended and their folders are"
        if len(gone) > 1
        else f"{gone[0]} has ended and its folder is"
    )
    return f"{several} gone: launch status {gone[-1]} shows how it ended"


def tree(record: Record, state: State) -> dict[str, Any]:
    """Return a run as plain data."""
    return {
        "id": record.id,
        "state": state.state,
        "code": state.code,
        "why": state.why,
        "executor": record.executor,
        "nodes": record.nodes,
        "devices_per_node": record.devices_per_node,
        "submitted": record.submitted,
        "at": state.at,
        "restarts": state.restarts,
        "handle": dict(record.handle),
        "sweep": record.sweep,
        "host": record.host,
        "folder": record.folder,
        "what": record.what,
    }


def _row(record: Record, state: State) -> tuple[str, ...]:
    code = "" if state.code in (None, 0) else f" ({state.code})"
    size = f"{record.nodes}x{record.devices_per_node}"
    submitted = record.submitted.replace("T", " ").rstrip("Z")
    return tuple(map(escaped, (record.id, state.state + code, record.executor, size, submitted, record.folder)))


def print_runs(runs: Sequence[tuple[Record, State]], stream: TextIO) -> None:
    """Print runs as a table; whole lines in a pipe, whatever COLUMNS says: programs read them one by one."""
    page = page_of(stream) if stream.isatty() else Page()
    rows = [_row(record, state) for record, state in runs]
    lines = table(page, rows, _HEADING)
    if len(lines) > len(rows) + 1:
        lines = _with_folders_below(page, rows) or lines
    print("\n".join(lines), file=stream)


def _with_folders_below(page: Page, rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the table with each folder in a line of its own; nothing, where the other columns do not fit either."""
    lines = table(page, [row[:-1] for row in rows], _HEADING[:-1])
    if len(lines) != len(rows) + 1:
        return []
    heading, *rest = lines
    pairs = zip(rest, rows, strict=True)
    return [heading, *(line for text, row in pairs for line in (text, *page.wrap(row[-1], "  ")))]
