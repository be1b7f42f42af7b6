"""`launch report`: one self-contained page about one or more jobs."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from launcher.cli.multirun import through
from launcher.cli.options import composed_of, parse, parser, print_json, readable, writable, write_file
from launcher.cli.refusal import NotDone, WrongUse
from launcher.compose import sweep
from launcher.job import Job
from launcher.job.secret import without_secrets
from launcher.mapping.backend import UnknownBackend, backend_names, get_backend
from launcher.outputs.kinds import REPORT
from launcher.report.content import Entry, entry_of
from launcher.report.findings import print_findings
from launcher.report.page import EXTRA, Missing, Searched, page, require
from launcher.report.text_page import redraw
from launcher.terminal import can_redraw

# More jobs are no comparison that a person reads.
_MOST = 24


def main(words: list[str]) -> int:
    """Write the page; exit 1 if a job of it would be refused (it is drawn, with the findings), 2 for usage."""
    made = parser(
        "report",
        "One self-contained HTML page: what trains where, memory, the pipeline, arguments, findings, commands.",
        "launch report +recipe=qwen3_moe backend={cuda} hardware=h100_80g cluster.nodes=4 -o report.html",
    )
    made.add_argument(
        "-o", "--output", metavar="FILE.html", required=True, help="page to write; replaces only a report"
    )
    made.add_argument("--backends", metavar="A,B", help="the job on each of these backends, side by side")
    made.add_argument(
        "--with",
        action="append",
        default=[],
        dest="other",
        metavar="'OVERRIDES'",
        help="also the job with these changes",
    )
    made.add_argument("-m", "--multirun", action="store_true", help="a job for each combination (a=1,2 b=3,4)")
    made.add_argument("--search", action="store_true", help="search the first job's layout; takes seconds to minutes")
    made.add_argument("--search-state", metavar="FILE.json", help="what `launch search --resume FILE.json` has found")
    options = parse(made, words)
    writable("-o", options.output, REPORT, ".html", ".htm")
    readable("--search-state", options.search_state)
    try:
        require()
    except Missing as error:
        raise NotDone(str(error), EXTRA) from None
    entries: list[Entry] = []
    for label, job, overrides in _jobs(options):
        entries.append(entry_of(job, label, overrides, len(entries) + 1))
    text = page(entries, _searched(entries[0].job, options))
    write_file(options.output, text, REPORT)
    refused = [entry for entry in entries if entry.refused]
    if options.json:
        jobs = [
            {"label": entry.label, "refused": entry.refused, "findings": [each.as_tree() for each in entry.findings]}
            for entry in entries
        ]
        print_json({"ok": not refused, "written": options.output, "bytes": len(text.encode()), "jobs": jobs})
    else:
        for entry in refused:
            print_findings([each for each in entry.findings if each.severity == "error"], entry.job)
        print(f"written: {options.output} ({len(text.encode()) / 1e6:.1f} MB)")
    return 1 if refused else 0


def _jobs(options: argparse.Namespace) -> Iterator[tuple[str, Job, list[str]]]:
    """Yield the label, the job and the words of each job of the page."""
    base = list(options.overrides)
    each = sweep(through(base)[0], options.config_dir) if options.multirun else [base]
    combined = [*each, *([*base, *_words(text)] for text in options.other)]
    backends = _backends(options.backends)
    lists = [[*words, *added] for words in combined for added in ([[f"backend={name}"] for name in backends] or [[]])]
    if len(lists) > _MOST:
        raise WrongUse(f"{len(lists)} jobs: at most {_MOST} in one report", "fewer values in -m, --with or --backends")
    # What all have in common names none of them.
    common = set(lists[0]).intersection(*lists[1:])
    for number, words in enumerate(lists, start=1):
        job = composed_of(words, options.config_dir)
        own = " ".join(without_secrets([word for word in words if word not in common]))
        name = job.name or "job"
        yield own or (name if number == 1 else f"{name} {number}"), job, words


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise WrongUse(f"--with {text!r}: {error}", "--with 'parallel.tp=4 parallel.pp=2'") from None


def _backends(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        try:
            get_backend(name)
        except UnknownBackend:
            raise WrongUse(f"no backend {name!r}", *backend_names()) from None
    return names


def _searched(job: Job, options: argparse.Namespace) -> Searched | None:
    """Return what a search of the first job found, begun now or taken from a file.

    Raises:
        NotDone: the job cannot be searched, or the file has another search.
    """
    if not options.search and options.search_state is None:
        return None
    from launcher.search.begin import CannotSearch, begin
    from launcher.search.state import OtherSearch, digest, load

    if options.search_state is not None:
        try:
            before = load(Path(options.search_state), digest(job, ("all",)))
        except OtherSearch as error:
            raise NotDone(str(error), "--search (searches now)") from None
        if before is not None:
            return Searched(job=job, found=before[1])
    try:
        search = begin(job)
    except CannotSearch as error:
        from launcher.cli.not_estimated import with_offers

        raise NotDone(findings=with_offers(error.findings, job), job=job) from None
    drawn = not options.json and can_redraw(sys.stderr)
    for number in search.run():
        if drawn:
            redraw(f"searching: {number:,} of {len(search.layouts):,} layouts", sys.stderr)
    if drawn:
        redraw("", sys.stderr)
    return Searched(job=job, found=search.found)
