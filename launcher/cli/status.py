"""`launch status`: shows one run, its nodes, its progress, and why it failed; -w until it ends."""

import dataclasses
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from launcher.cli.expected import expected_of
from launcher.cli.options import add_run, parse, parser, print_json, writable
from launcher.cli.ps import tree
from launcher.cli.refusal import WrongUse
from launcher.cli.watch import training_rows, training_tree, watch
from launcher.executors.record import Exit, Record
from launcher.observe.failure import Failure, first_failure
from launcher.observe.find import find_run
from launcher.observe.notice import SCHEMES, is_url
from launcher.observe.prometheus import write_textfile
from launcher.observe.reason import Kind, Reason
from launcher.observe.reasons import reason_of
from launcher.observe.state import State, state_of
from launcher.observe.training import Expected, Training, training_of
from launcher.outputs.kinds import METRICS
from launcher.report.text_page import page_of, print_lines
from launcher.syntax import escaped

_WEBHOOK = "LAUNCH_WEBHOOK"
_LONGEST = 86_400
# Nodes that ended in the same way, one after another: more are one line. Machines: more are counted.
_SHOWN, _NAMED = 8, 64


def main(words: list[str]) -> int:
    """Show one run; exit 1 for an unknown id."""
    made = parser("status", "Show the state of a run.", "launch status qwen3_8b-2", overrides=False)
    add_run(made)
    made.add_argument("-w", "--watch", action="store_true", help="show it until the run ends; --json: a line each time")
    made.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="between two looks of -w (5)")
    made.add_argument(
        "--textfile", type=Path, metavar="FILE.prom", help="write state and figures for Prometheus' textfile collector"
    )
    made.add_argument(
        "--webhook",
        metavar="URL",
        help=f"with -w: POST a notice as JSON when the run ends or hangs (or in the environment: {_WEBHOOK})",
    )
    options = parse(made, words)
    webhook = options.webhook or (os.environ.get(_WEBHOOK) if options.watch else None)
    _check(options, webhook)
    record = find_run(options.id)
    if options.watch:
        return watch(record, every=options.every, as_json=options.json, textfile=options.textfile, webhook=webhook)
    state = state_of(record)
    # Of a run that failed the reason is asked; what it would have taken costs more than all the rest.
    expected = Expected() if state.state == "failed" else None
    training = training_of(record, lambda: expected or expected_of(Path(record.folder)), ended=state.ended)
    if options.textfile is not None:
        write_textfile(options.textfile, record, state, training)
    failure = first_failure(record, state.why, state.exits) if state.state == "failed" else None
    if options.json:
        exits = [end.as_tree() for end in state.exits]
        failure_tree = None if failure is None else dataclasses.asdict(failure)
        more = {
            "exits": exits,
            "iteration": state.iteration,
            "training": training_tree(training),
            "failure": failure_tree,
            "machines": list(state.nodes),
        }
        waits = _waits(state)
        waits_tree = waits and {"reason": waits.name, "meaning": waits.meaning, "fields": list(waits.fields)}
        print_json({**tree(record, state), **more, "waits": waits_tree})
    else:
        show(record, state, training, failure)
    return 0


def _waits(state: State) -> Reason | None:
    """Return the reason for which a run, or a part of it, waits, if the queue's words name one."""
    return reason_of(state.why, Kind.QUEUE) if not state.ended and state.why else None


def _check(options: Namespace, webhook: str | None) -> None:
    """Refuse options that would fail later, or that would be ignored.

    Raises:
        WrongUse: one of them.
    """
    if not 0 < options.every <= _LONGEST:
        raise WrongUse(
            f"--every is a number of seconds above 0 and up to {_LONGEST}, not {options.every:g}; works: --every 5"
        )
    if options.webhook and not options.watch:
        raise WrongUse("--webhook needs a run that is watched until it ends: add -w")
    if webhook is not None and not is_url(webhook):
        raise WrongUse(f"--webhook (or {_WEBHOOK}) takes a URL that begins with {' or '.join(SCHEMES)}://")
    writable("--textfile", None if options.textfile is None else str(options.textfile), METRICS, ".prom")


def show(record: Record, state: State, training: Training | None, failure: Failure | None) -> None:
    """Print what is known of a run."""
    code = f", exit code {state.code}" if state.code else ""
    since = f", since {state.at}" if state.at else ""
    waits = _waits(state)
    rows = [
        ("run", f"{record.id}: {record.what}"),
        ("state", f"{state.state}{code}{f' ({state.why})' if state.why else ''}{since}"),
        ("waits", f"{waits.meaning} [{waits.name}]" if waits else ""),
        ("change", " · ".join(waits.fields) if waits else ""),
        ("restarts", str(state.restarts) if state.restarts else ""),
        ("by", " ".join([record.executor, *(f"{name} {value}" for name, value in record.handle.items())])),
        ("size", f"{record.nodes} nodes x {record.devices_per_node} devices"),
        ("machines", _few(state.nodes)),
        *(training_rows(training) if training is not None else [("iteration", state.iteration[:200])]),
        ("checkpoints", record.checkpoints or ""),
        ("folder", record.folder),
        ("submitted", f"{record.submitted} by {record.user} on {record.host} (process {record.pid})"),
    ]
    page = page_of(sys.stdout)
    for name, text in rows:
        if text:
            print("\n".join(page.wrap(escaped(text), f"{name:12}")))
    for line in _exit_lines(state.exits):
        print("\n".join(page.wrap(escaped(line), f"{'exit':12}")))
    if failure is not None:
        print_lines(failure.lines(), sys.stdout)


def _exit_lines(exits: Sequence[Exit]) -> Iterator[str]:
    """Yield how nodes ended: one line each, the first of many that ended in the same way and how many others did."""
    for _, group in groupby(exits, key=lambda end: (end.attempt, end.code, end.how)):
        ends = list(group)
        for end in ends if len(ends) <= _SHOWN else ends[:1]:
            how = f" ({end.how})" if end.how else ""
            others = f", and so did {len(ends) - 1} other nodes after it" if len(ends) > _SHOWN else ""
            yield f"attempt {end.attempt}, node {end.node} on {end.host}: {end.code}{how}{others}"


def _few(names: Sequence[str]) -> str:
    """Return names as text; of many the first ones, and how many there are."""
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} … ({len(names)})"
