"""Profile loop of `launch search`: writes jobs to measure, reads measurements, ranks candidates again."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli.notes import print_remark
from launcher.cli.options import readable
from launcher.cli.refusal import WrongUse
from launcher.job import Job, Value, with_values
from launcher.outputs.files import check_empty
from launcher.plan.shell import quote
from launcher.report.text_page import page_of
from launcher.terminal import counted

if TYPE_CHECKING:
    from launcher.balance.profile import Table
    from launcher.search.found import Found
    from launcher.search.rerank import Ranking


def add_options(made: argparse.ArgumentParser) -> None:
    """Add the options of the profile loop."""
    made.add_argument("--emit-profile", metavar="DIR", help="write short jobs that measure the candidates' layers")
    made.add_argument(
        "--profile-devices", type=int, default=64, metavar="N", help="devices available to measure on (default 64)"
    )
    made.add_argument("--profile-result", metavar="FILE.csv", help="rank the candidates by these measured times")


def refuse_wrong(options: argparse.Namespace) -> None:
    """Refuse wrong options of the profile loop."""
    if options.profile_devices < 1:
        raise WrongUse(f"--profile-devices {options.profile_devices}: at least 1", "--profile-devices 64")
    folder = options.emit_profile
    if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
        raise WrongUse(f"--emit-profile {folder}: is not a folder")
    if folder is not None:
        check_empty(folder)
    readable("--profile-result", options.profile_result)
    if options.emit_profile and options.profile_result:
        raise WrongUse("--emit-profile and --profile-result: first measure, then rank")


def read(job: Job, options: argparse.Namespace) -> "Table | None":
    """Read the measurements before the search; None: none are given, or they cannot be used (`mistakes`).

    Raises:
        BadTable: the file cannot be used.
    """
    from launcher.balance.profile import read_table, two_kinds

    return read_table(Path(options.profile_result), dense=two_kinds(job)) if options.profile_result else None


def ranking(job: Job, found: "Found", table: "Table | None") -> "Ranking | None":
    """Return the candidates ranked by the measurements; None: there are none."""
    if table is None or not found.best:
        return None
    from launcher.search.rerank import rerank

    return rerank(job, found, table)


def best_values(found: "Found", ranked: "Ranking | None") -> dict[str, Value] | None:
    """Return the values to write for the best candidate; None: none fits."""
    from launcher.search.output import strategy
    from launcher.search.rerank import strategy_of

    if ranked is None:
        return strategy(found.best[0]) if found.best else None
    first = ranked.ranked[0]
    return strategy_of(first, strategy(first.candidate)) if first.fits else None


def emit(job: Job, found: "Found", options: argparse.Namespace) -> list[dict[str, Any]]:
    """Write the jobs that measure the best candidates; return one entry for each."""
    if not options.emit_profile or not found.best:
        return []
    from launcher.search import profile

    jobs = [with_values(job, candidate.point) for candidate in found.best]
    profiles = profile.emit(jobs, Path(options.emit_profile), options.profile_devices)
    if not options.json:
        page, written = page_of(sys.stdout), Path(options.emit_profile, "profile.csv")
        print(f"\nto measure on {counted(options.profile_devices, 'device')}, in {options.emit_profile}:")
        for each in profiles:
            what = f"{each.file.name if each.file else each.name}: {'' if each.file else 'none, it '}{each.what}"
            print("\n".join(page.wrap(what, "  ", "    ")))
        print(
            "\n".join(
                page.wrap(f"fill in {written}, then: launch search … --profile-result {quote(str(written))}", "", "  ")
            )
        )
    if not any(each.file for each in profiles):
        print_remark("search", "no candidate can be measured on so few devices")
    return [{**each.sizes, "file": str(each.file) if each.file else None, "what": each.what} for each in profiles]
