"""`launch stop`: ends runs of the user, through their executors; nothing else is affected."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from launcher.cli.options import add_run, parse, parser, print_json
from launcher.cli.ps import print_runs, tree
from launcher.cli.refusal import NotDone, WrongUse
from launcher.executors.record import Record
from launcher.observe.find import all_runs, find_run
from launcher.observe.owner import ownership_problem
from launcher.observe.state import State, state_of, states_of
from launcher.observe.stop import CannotStop, stop_runs

_ASK_SECONDS = 1.0
# Ranks have a minute to save, queues take a little longer.
_WAIT_SECONDS = 100.0


def main(words: list[str]) -> int:
    """Stop runs and wait for their ends; exit 1 if one of them cannot be stopped, or does not end."""
    made = parser("stop", "End runs cleanly: their ranks get time to save.", "launch stop qwen3_8b-2", overrides=False)
    add_run(made, several=True)
    made.add_argument("--all", action="store_true", help="all runs of yours that have not ended; lists them and asks")
    made.add_argument(
        "--sweep", action="store_true", help="also the other runs of the same sweep (run -m), waiting ones too"
    )
    made.add_argument("-y", "--yes", action="store_true", help="with --all: do not ask")
    made.add_argument("--no-wait", action="store_true", help="request the stop and do not wait for the end")
    options = parse(made, words)
    if not options.ids and not options.all:
        raise WrongUse("name the runs to stop", "launch stop ID …", "launch stop --all")
    if options.all and (options.ids or options.sweep):
        raise WrongUse("--all stops all of your runs: it takes neither an ID nor --sweep", "launch stop --all")
    several = options.all or options.sweep or len(options.ids) > 1
    records = _all(options) if options.all else _named(options)
    problems = stop_runs(records, sweep=options.sweep)
    if not several and problems[0]:
        raise CannotStop(problems[0])
    states = _wait(records, problems, 0 if options.no_wait else _WAIT_SECONDS, deep=not several)
    trees = []
    for record, state, problem in zip(records, states, problems, strict=True):
        ok = not problem and (state.ended or options.no_wait)
        trees.append({"ok": ok, **({"message": problem} if problem else {}), **tree(record, state)})
        if problem and not options.json:
            print(f"launch stop: {problem}", file=sys.stderr)
        elif not options.json:
            print(f"{record.id}: {state.state}" + ("" if state.ended else " (stop requested)"))
    if options.json:
        print_json(trees if several else trees[0])
    elif not trees:
        print("no run is active")
    return 0 if all(each["ok"] for each in trees) else 1


def _named(options: Namespace) -> list[Record]:
    """Return the runs of the command line, each once, with --sweep also those of their sweeps that have not ended.

    Raises:
        UnknownRun: there is no run of one of the names; nothing is stopped then.
    """
    named = {record.key: record for record in map(find_run, options.ids)}
    if not options.sweep:
        return list(named.values())
    sweeps = {record.sweep for record in named.values() if record.sweep and not ownership_problem(record)}
    runs = [record for record in all_runs()[0] if record.sweep in sweeps]
    others = [record for record in runs if record.key not in named]
    every = [*named.values(), *others]
    found = [record for record, state in zip(every, states_of(every), strict=True) if not state.ended]
    if not found:
        raise CannotStop(f"no run of the sweep of {', '.join(options.ids)} is active")
    return found


def _all(options: Namespace) -> list[Record]:
    """Return this user's runs that have not ended, once they are confirmed.

    Raises:
        NotDone: they are not.
    """
    records = [record for record in all_runs()[0] if not ownership_problem(record)]
    rows = [(record, state) for record, state in zip(records, states_of(records), strict=True) if not state.ended]
    found = [record for record, _ in rows]
    if not found or options.yes:
        return found
    count = f"{len(found)} run{'s' if len(found) > 1 else ''}"
    if not options.json:
        print_runs(rows, sys.stderr)
    if options.json or not sys.stdin.isatty():
        names = ", ".join(record.id for record in found)
        raise NotDone(f"{count} would be stopped: {names}; nothing was", "launch stop --all --yes", rule="RUN-STATE")
    print(f"stop {'these ' if len(found) > 1 else 'this '}{count}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotDone("nothing was stopped", rule="RUN-STATE")
    return found


def _wait(records: Sequence[Record], problems: Sequence[str], seconds: float, *, deep: bool) -> Sequence[State]:
    """Wait until the runs that were asked have ended, and return the states of all."""
    deadline = time.monotonic() + seconds

    def states() -> list[State]:
        return [state_of(record) for record in records] if deep else states_of(records)

    found = states()
    while time.monotonic() < deadline and any(
        not state.ended and not problem for problem, state in zip(problems, found, strict=True)
    ):
        time.sleep(_ASK_SECONDS)
        found = states()
    return found
