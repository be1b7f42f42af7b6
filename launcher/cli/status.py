"""`launch status`: shows one run, its nodes, its progress, and why it failed."""

import dataclasses

from launcher.cli.options import parse, parser, print_json
from launcher.cli.ps import tree
from launcher.executors.record import Record
from launcher.observe.failure import Failure, first_failure
from launcher.observe.find import find_run
from launcher.observe.state import State, state_of
from launcher.syntax import escaped


def main(words: list[str]) -> int:
    """Show one run; exit 1 for an unknown id."""
    made = parser("status", "Show the state of a run.", "launch status qwen3_8b-2", overrides=False)
    made.add_argument("id", metavar="ID", help="id of a run (launch ps), or its folder")
    options = parse(made, words)
    record = find_run(options.id)
    state = state_of(record)
    failure = first_failure(record, state.why) if state.state == "failed" else None
    if options.json:
        exits = [dataclasses.asdict(end) for end in state.exits]
        failure_tree = None if failure is None else dataclasses.asdict(failure)
        more = {"exits": exits, "iteration": state.iteration, "failure": failure_tree, "machines": list(state.nodes)}
        print_json({**tree(record, state), **more})
    else:
        _show(record, state, failure)
    return 0


def _show(record: Record, state: State, failure: Failure | None) -> None:
    code = f", exit code {state.code}" if state.code else ""
    since = f", since {state.at}" if state.at else ""
    rows = [
        ("run", f"{record.id}: {record.what}"),
        ("state", f"{state.state}{code}{f' ({state.why})' if state.why else ''}{since}"),
        ("restarts", str(state.restarts) if state.restarts else ""),
        ("by", " ".join([record.executor, *(f"{name} {value}" for name, value in record.handle.items())])),
        ("size", f"{record.nodes} nodes x {record.devices_per_node} devices"),
        ("machines", ", ".join(state.nodes)),
        ("iteration", state.iteration[:200]),
        ("checkpoints", record.checkpoints or ""),
        ("folder", record.folder),
        ("submitted", f"{record.submitted} by {record.user} on {record.host} (process {record.pid})"),
    ]
    for name, text in rows:
        if text:
            print(escaped(f"{name:12}{text}"))
    for end in state.exits:
        how = f" ({end.how})" if end.how else ""
        print(escaped(f"{'exit':12}attempt {end.attempt}, node {end.node} on {end.host}: {end.code}{how}"))
    if failure is not None:
        print("\n".join(failure.lines()))
