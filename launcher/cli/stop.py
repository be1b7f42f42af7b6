"""`launch stop`: ends one of the user's runs, through its executor; nothing else is affected."""

import time

from launcher.cli.options import parse, parser, print_json
from launcher.cli.ps import tree
from launcher.observe.find import find_run
from launcher.observe.state import state_of
from launcher.observe.stop import stop_run

_ASK_SECONDS = 1.0
# Ranks have a minute to save, queues take a little longer.
_WAIT_SECONDS = 100.0


def main(words: list[str]) -> int:
    """Stop a run and wait for its end; exit 1 if the user has no such run to stop, or it does not end."""
    made = parser("stop", "End a run cleanly: its ranks get time to save.", "launch stop qwen3_8b-2", overrides=False)
    made.add_argument("id", metavar="ID", help="id of a run (launch ps), or its folder")
    made.add_argument("--no-wait", action="store_true", help="request the stop and do not wait for the end")
    options = parse(made, words)
    record = find_run(options.id)
    stop_run(record)
    deadline = time.monotonic() + (0 if options.no_wait else _WAIT_SECONDS)
    state = state_of(record)
    while not state.ended and time.monotonic() < deadline:
        time.sleep(_ASK_SECONDS)
        state = state_of(record)
    if options.json:
        print_json({"ok": state.ended or options.no_wait, **tree(record, state)})
    else:
        print(f"{record.id}: {state.state}" + ("" if state.ended else " (stop requested)"))
    return 0 if state.ended or options.no_wait else 1
