"""`launch clean`: removes what one of the user's runs left in a cluster or on other machines; its folder is kept."""

import sys

from launcher.cli.options import add_run, parse, parser, print_json
from launcher.cli.ps import tree
from launcher.observe.clean import clean_run
from launcher.observe.find import find_run
from launcher.observe.state import state_of
from launcher.report.text_page import print_lines


def main(words: list[str]) -> int:
    """Clean up after a run that has ended; exit 1 if it still runs, is unknown, or not all could be removed."""
    made = parser(
        "clean",
        "Remove what an ended run left outside its folder: objects in Kubernetes, processes on ssh hosts. "
        "Its folder, with logs and checkpoints, stays; a second time there is nothing to remove.",
        "launch clean qwen3_8b-2",
        overrides=False,
    )
    add_run(made)
    options = parse(made, words)
    record = find_run(options.id)
    removed = clean_run(record)
    if options.json:
        state = state_of(record, deep=False)
        print_json({"ok": True, "removed": list(removed), **tree(record, state)})
        return 0
    done = f"removed {', '.join(removed)}" if removed else "nothing to remove outside its folder"
    print_lines([f"{record.id}: {done}", f"folder kept: {record.folder}"], sys.stdout)
    return 0
