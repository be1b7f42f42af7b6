"""`launch ps`: lists every run that this user started, and its state."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from launcher.cli.options import parse, parser, print_json
from launcher.executors.record import Record
from launcher.observe.find import all_runs
from launcher.observe.state import State, states_of
from launcher.syntax import escaped

_SHOWN = 20


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
        print("no run is active" if options.running else "no runs yet: launch +recipe=NAME starts one")
    else:
        table(rows, sys.stdout)
    return 0


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
    return (record.id, state.state + code, record.executor, size, submitted, record.folder)


def table(runs: Sequence[tuple[Record, State]], stream: TextIO) -> None:
    """Print runs as a table."""
    rows = [_row(record, state) for record, state in runs]
    head = ("ID", "STATE", "BY", "SIZE", "SUBMITTED (UTC)", "FOLDER")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print(
            escaped("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()), file=stream
        )
