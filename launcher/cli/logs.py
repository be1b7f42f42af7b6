"""`launch logs`: what a run, or one of its ranks, printed; as it grows, or only some lines."""

import dataclasses
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from launcher.cli.follow import still_going
from launcher.cli.notes import print_remark
from launcher.cli.options import add_run, parse, parser, print_json
from launcher.cli.refusal import WrongUse
from launcher.executors.record import Record, read_status
from launcher.observe.failure import Failure, first_failure
from launcher.observe.find import UnknownRun, find_run
from launcher.observe.log_file import LogFile
from launcher.observe.logs import Wanted, fetch, moment, read_lines, skip_before, sources
from launcher.report.text_page import print_lines
from launcher.terminal import harmless


def main(words: list[str]) -> int:
    """Print the log of a run; exit 1 for an unknown id or rank, 2 for an invalid pattern."""
    made = parser("logs", "Show what a run printed.", "launch logs qwen3_8b-2 -f --rank 3 --tail 20", overrides=False)
    add_run(made)
    made.add_argument("-f", "--follow", action="store_true", help="follow the output until the run ends")
    made.add_argument("--rank", type=int, metavar="R", help="only this global rank")
    made.add_argument("--grep", metavar="RE", help="only lines that match this regular expression")
    made.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each log (those of --grep)")
    made.add_argument(
        "--since", metavar="TIME", help="only lines written since: 90s, 10m, 2h, 1d ago, or 2026-11-28T14:30"
    )
    options = parse(made, words)
    wanted = _wanted(options)
    record = find_run(options.id)
    if record.gone:
        raise UnknownRun(f"run {record.id}: its folder {record.folder}, which had its logs, is gone or of another run")
    files = sources(record, options.rank)
    fetch(record)
    for path in [] if wanted.since is None else skip_before(files, wanted.since):
        print_remark("logs", f"{path}: when its lines were written is not recorded; all are shown")
    lines = read_lines(files, wanted, follow=still_going(record) if options.follow else None)
    if options.json:
        shown, failure = list(lines), _failure(record)
        _remark_unread(files)
        tree = {"failure": dataclasses.asdict(failure)} if failure else {}
        print_json({"id": record.id, "rank": options.rank, "lines": shown, **tree})
        return 0
    on_terminal = sys.stdout.isatty()
    for line in lines:
        print(harmless(line) if on_terminal else line, flush=options.follow)
    _remark_unread(files)
    if failure := _failure(record):
        print_lines((f"launch: {line}" for line in failure.lines()), sys.stderr)
    return 0


def _remark_unread(files: Sequence[LogFile]) -> None:
    for why in (why for file in files for why in file.unread):
        print_remark("logs", f"not shown: {why}")


def _wanted(options: Namespace) -> Wanted:
    """Return which lines the options ask for.

    Raises:
        WrongUse: a pattern, number or time is invalid.
    """
    try:
        grep = None if options.grep is None else re.compile(options.grep)
    except re.error as error:
        raise WrongUse(f"--grep {options.grep!r} is not a valid regular expression: {error}") from None
    if options.tail is not None and options.tail < 1:
        raise WrongUse(f"--tail {options.tail}: expected a number of lines, at least 1", "--tail 100")
    try:
        since = None if options.since is None else moment(options.since)
    except (ValueError, OverflowError):
        works = ("--since 10m", "--since 2026-11-28T14:30")
        raise WrongUse(f"--since {options.since!r} is neither a time ago nor a date and time", *works) from None
    return Wanted(grep=grep, tail=options.tail, since=since)


def _failure(record: Record) -> Failure | None:
    """Return why a run failed, if its folder says that it did: the queue is not asked again."""
    status = read_status(Path(record.folder))
    return first_failure(record) if status.get("state") == "failed" else None
