"""`launch search`: finds the parallel strategy of a job with its rules and its estimate."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.balance.profile import BadTable
from launcher.cli import search_profile
from launcher.cli.notes import print_remark
from launcher.cli.options import composed, parse, parser, print_json, readable, writable, write_file
from launcher.cli.plot import drawable, plotted
from launcher.cli.refusal import NotDone, WrongUse
from launcher.cli.taylor_job import job_of_yaml
from launcher.cli.taylor_words import translated
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.job.secret import without_secrets
from launcher.outputs.kinds import JOB, PICTURE
from launcher.report.findings import print_findings
from launcher.report.text_page import page_of, redraw
from launcher.terminal import can_redraw

if TYPE_CHECKING:
    from launcher.balance.profile import Table
    from launcher.search.compare import Comparison
    from launcher.search.found import Found
    from launcher.search.rerank import Ranking
    from launcher.search.search import Search

# Seconds between progress lines in a log, updates on a terminal, and writes of the state.
_LINES, _DRAWINGS, _WRITINGS = 10.0, 0.1, 1.0
# Most candidates to show: the more there are, the fewer layouts the search can prune.
_MOST = 1000


def main(words: list[str]) -> int:
    """Search; exit 0 with candidates, 1 where none fits or the job cannot run, 2 for usage."""
    made = parser(
        "search",
        "Parallel sizes, micro batch and recomputation for the least step time, legal by every rule and within memory.",
        "launch search +recipe=deepseek_v3 backend={npu} hardware=ascend_910c cluster.nodes=64 -o best.yaml",
    )
    made.add_argument("--top", type=int, default=10, metavar="N", help="candidates to show (default 10)")
    made.add_argument("--backends", metavar="A,B", help="backends whose rules must all accept a candidate")
    made.add_argument("-o", "--output", metavar="FILE.yaml", help="write the best as an override file (+strategy=FILE)")
    made.add_argument("--csv", metavar="FILE.csv", help="write every candidate that fits")
    made.add_argument("--plot", metavar="FILE", help="memory against step time: .html, .svg or .png")
    made.add_argument(
        "--space", choices=("all", "taylor"), default="all", help="taylor: only layouts that pass Taylor's rules"
    )
    made.add_argument(
        "--compare", action="store_true", help="rank the job's own layout (+strategy=FILE) and say what separates it"
    )
    made.add_argument("--resume", metavar="FILE.json", help="save the search state to this file, and resume from it")
    made.add_argument("--yaml", metavar="FILE", help="instead of +job=: a configuration such as MindFormers' YAML")
    search_profile.add_options(made)
    taylor = translated("search", words)
    options = parse(made, taylor.words)
    for note in taylor.notes:
        print_remark("search", note)
    readable("--yaml", options.yaml)
    from launcher.search.output import CANDIDATES
    from launcher.search.state import STATE

    if options.top < 1:
        raise WrongUse(f"--top {options.top}: at least 1", "--top 10")
    if options.top > _MOST:  # a search for so many prunes nothing
        raise WrongUse(f"--top {options.top}: at most {_MOST}", f"--top {_MOST}", "--csv FILE.csv")
    for flag, file, kind, endings in (
        ("--plot", options.plot, PICTURE, (".html", ".svg", ".png")),
        ("--csv", options.csv, CANDIDATES, (".csv",)),
        ("--resume", options.resume, STATE, (".json",)),
        ("-o", options.output, JOB, (".yaml", ".yml")),
    ):
        writable(flag, file, kind, *endings)
    drawable(options.plot)
    search_profile.refuse_wrong(options)
    if options.yaml is None:
        return _search(composed(options), options)
    note = f"{options.yaml}: the model, batch and devices are read from it; recomputation and data are not"
    print_remark("search", note)
    return _search(job_of_yaml(options.yaml, options.overrides, options.config_dir, search=True), options)


def _search(job: Job, options: argparse.Namespace) -> int:
    from launcher.search.begin import CannotSearch, begin, varied
    from launcher.search.found import Found
    from launcher.search.remedies import remedies
    from launcher.search.state import OtherSearch, digest, load

    names = tuple(filter(None, (options.backends or "").split(",")))
    try:
        table = search_profile.read(job, options)
        search = begin(job, names, top=options.top)
        notes = _like_taylor(search) if options.space == "taylor" else []
        if options.compare:
            _keep_own(search, job)
        mark = digest(job, (*names, options.space, *(("compare",) if options.compare else ())))
        before = load(Path(options.resume), mark) if options.resume else None
    except CannotSearch as error:
        from launcher.cli.not_estimated import with_offers

        raise NotDone(findings=with_offers(error.findings, job), job=job) from None
    except OtherSearch as error:
        raise NotDone(str(error)) from None
    except BadTable as error:
        raise NotDone(findings=[_unusable(mistake) for mistake in error.mistakes], job=job) from None
    if not options.json:
        print_findings(varied(job, compared=options.compare), job)
    done, found = before or (0, Found())
    progress = _Progress(len(search.layouts), quiet=options.json)
    progress.state = (Path(options.resume), mark) if options.resume else None
    try:
        for number in search.run(done, found):
            progress.tell(number, search.found)
    except KeyboardInterrupt:
        progress.end(search.found)
        search.found.best = search.found.best[: options.top]
        _show(search, options, table, notes)
        return 130
    if not search.found.best:
        search.found.works = remedies(search, names)
    progress.end(search.found)
    return _show(search, options, table, notes)


def _keep_own(search: "Search", job: Job) -> None:
    """Keep the job's own layout, so that the search ranks it; refuse one that cannot run."""
    from launcher.estimate.as_run import before_validation
    from launcher.job import with_values
    from launcher.search.begin import CannotSearch, unasked
    from launcher.search.compare import errors_of
    from launcher.search.points import own

    errors = errors_of(with_values(job, unasked(job)))
    if errors:
        raise CannotSearch(errors)
    search.rank_own(own(before_validation(job)[0]))


def _like_taylor(search: "Search") -> list[str]:
    """Keep the layouts of Taylor's own space and rules; return how many remain."""
    from launcher.search.taylor import narrowed, prune, setting_of

    kept = prune(setting_of(search.job))
    search.layouts = narrowed(search.layouts, kept, search.job.cluster.world_size)
    rejected = ", ".join(f"{name}: {count:,}" for name, count in kept.rejected.items())
    return [
        f"Taylor's space: {kept.raw:,} configurations, {len(kept.points):,} after its rules ({rejected})",
        f"{len(kept.layouts)} of dp, tp, cp, pp; {len(search.layouts):,} layouts with ep and vpp are searched",
    ]


def _unusable(mistake: str) -> Finding:
    return Finding(rule="SEARCH-PROFILE", severity="error", message=mistake, fields=(), source="launch search")


def _show(search: "Search", options: argparse.Namespace, table: "Table | None", notes: Sequence[str]) -> int:
    from launcher.report.strategy import strategy_text, written_text
    from launcher.search.begin import varied
    from launcher.search.compare import comparison, comparison_tree
    from launcher.search.output import CANDIDATES, as_tree, csv_text
    from launcher.search.ranking import ranking_tree

    job, found = search.user_job, search.found
    ranked = search_profile.ranking(job, found, table)
    compared = comparison(search) if search.own is not None else None
    if not options.json:
        _print(job, found, ranked, compared, notes)
    profiles = search_profile.emit(job, found, options)
    if options.csv:
        write_file(options.csv, csv_text(job, found), CANDIDATES)
    values = search_profile.best_values(found, ranked)
    if options.output and values is not None:
        comment = f"launch search {' '.join(without_secrets(options.overrides))}"
        write_file(options.output, strategy_text(values, comment), JOB)
        if not options.json:
            print(written_text(options.output, values, job))
    if options.plot:
        from launcher.report.figures import pareto_chart

        chart = pareto_chart(job, found)
        if chart is None:
            print_remark("search", "nothing fits, so --plot has nothing to draw")
        else:
            plotted(options.plot, [chart], f"{job.name or 'job'}: search")
    if options.json:
        extra = {"profiles": profiles} if profiles else {} if ranked is None else ranking_tree(job, ranked)
        extra |= comparison_tree(compared) if compared is not None else {}
        findings = [finding.as_tree() for finding in varied(job, compared=options.compare)]
        print_json(as_tree(job, found) | extra | {"findings": findings})
    return 0 if values is not None else 1


def _print(
    job: Job, found: "Found", ranked: "Ranking | None", compared: "Comparison | None", notes: Sequence[str]
) -> None:
    from launcher.cli.search_screen import comparison_screen, ranking_screen, screen

    page = page_of(sys.stdout)
    for line in screen(job, found, page, notes) if ranked is None else ranking_screen(job, found, ranked, page):
        print(line)
    for line in ("", *comparison_screen(compared, found.limit, page)) if compared is not None else ():
        print(line)


class _Progress:
    """Progress of the search: one line on a terminal, periodic lines in a log; also saves the search state."""

    def __init__(self, layouts: int, *, quiet: bool) -> None:
        self.layouts, self.quiet = layouts, quiet
        self.terminal = can_redraw(sys.stderr)
        self.begun = self.shown = self.written = time.monotonic()
        self.first: int | None = None
        self.number = 0
        self.state: tuple[Path, str] | None = None

    def tell(self, number: int, found: "Found") -> None:
        now = time.monotonic()
        self.number = number
        self.first = number if self.first is None else self.first
        if self.state and now - self.written > _WRITINGS:
            self._write(found)
            self.written = now
        if self.quiet or now - self.shown < (_DRAWINGS if self.terminal else _LINES):
            return
        self.shown = now
        rate = (number - self.first) / max(now - self.begun, 1e-9)
        left = f", {(self.layouts - number) / rate:.0f} s left" if rate else ""
        best = f", best {found.best[0].step_s:.4g} s" if found.best else ""
        text = f"searching: {number:,} of {self.layouts:,} layouts ({rate:,.0f}/s{left}){best}"
        if self.terminal:
            redraw(text, sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self, found: "Found") -> None:
        if self.terminal and not self.quiet:
            redraw("", sys.stderr)
        if self.state:
            self._write(found)

    def _write(self, found: "Found") -> None:
        from launcher.search.state import save

        assert self.state is not None
        save(*self.state, self.number, found)
