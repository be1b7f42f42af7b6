"""`launch resume`: starts an ended run again in its folder, from its last complete checkpoint."""

import sys
from pathlib import Path

from launcher.cli.options import add_run, parse, parser, print_json
from launcher.cli.start import after_submission, finished_here
from launcher.executors.again import run_again, submit_again
from launcher.observe.find import find_run
from launcher.observe.resume import resumption
from launcher.outputs.unnamed import written_below
from launcher.report.text_page import print_lines


def main(words: list[str]) -> int:
    """Resume a run, and wait for its end unless it is in a queue; exit 1 if it cannot be resumed, or fails again."""
    made = parser(
        "resume",
        "Start a run that has failed, was stopped or is lost again: the same job in the same folder, a new attempt, "
        "from its latest complete checkpoint.",
        "launch resume qwen3_8b-2",
        overrides=False,
    )
    add_run(made)
    made.add_argument("--wait", action="store_true", help="with a queue: show the job's output and wait for its end")
    options = parse(made, words)
    with resumption(find_run(options.id)) as found:
        record, plan = found.record, found.plan
        if not options.json:
            place = "its newest complete checkpoint in " if found.sought else ""
            print_lines(
                [f"resumes: {record.id} as attempt {found.attempt}, from {place}{found.checkpoint}"], sys.stdout
            )
        if found.executor.foreground:
            with written_below(Path(record.folder)):
                ended = run_again(record, plan, found.launch_dir, found.attempt, quiet=options.json)
            finished = finished_here(record.id, ended, Path(record.folder), options)
        else:
            record = submit_again(record, plan, found.launch_dir, found.attempt)
    if not found.executor.foreground:
        finished = after_submission(record, options)
    if options.json:
        print_json({**finished.tree, "attempt": found.attempt, "checkpoint": found.checkpoint})
    return finished.code
