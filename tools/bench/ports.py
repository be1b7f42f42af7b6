"""Ports every command line of the corpus to every other backend, and prints what became of the arguments.

    python -m tools.bench.ports --facts DIR [--megatron-lm CHECKOUT] [--backend B] [--left-out N] [--both-ways] [--json]

DIR and CHECKOUT are those of tools.bench.corpus. Exit code 1 if an argument of some script is not accounted for exactly
once, or is left out without what it does, why, what comes nearest and what is lost; with --both-ways, if the job file
of `import --to`, or that of `import` with `backend=`, tells something else when it is checked (some minutes).
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from launcher.cli.port_show import ported_yaml
from launcher.compose import compose
from launcher.importing.accounts import DROPPED, PASSED_THROUGH, TRANSLATED, Account, counted
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.port import Ported, ported
from launcher.mapping.backend import backend_names
from launcher.mapping.native_only import EFFECTS, NOTHING
from launcher.pipeline import judge
from tools.bench.corpus import CORPORA, Outcome, of_checkout, outcomes

Read = Callable[[], Iterator[Outcome]]


def gaps(imported: Imported, found: Ported) -> list[str]:
    """Return what a port does not account for."""
    read, messages = [each.flag for each in imported.mapped_args], [each.flag for each in found.accounts]
    wrong = [] if read == messages else [f"{len(read)} arguments read, {len(messages)} accounted for"]
    return [*wrong, *(f"{each.flag}: {each.status} without reason" for each in found.accounts if not _is_told(each))]


def _is_told(account: Account) -> bool:
    if account.status == PASSED_THROUGH:
        return bool(account.target_flags)
    if account.status == TRANSLATED:
        return bool(account.fields)
    reported = account.missing
    return reported is not None and bool(
        reported.effect in EFFECTS and reported.does and reported.why and (reported.works or reported.without)
    )


def counts(imported: Iterable[Imported], target: str) -> tuple[dict[str, int], Counter[str], list[str]]:
    """Return the figures of one pair, the arguments that are left out and change training, and what is wrong."""
    figures: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    wrong: list[str] = []
    for each in imported:
        found = ported(each, target, fixes=False)
        figures.update(dict(counted(found.accounts)))
        figures["scripts"] += 1
        figures["arguments"] += len(found.accounts)
        figures["nothing"] += sum(one.missing is not None and one.missing.effect == NOTHING for one in found.accounts)
        refused = {
            flag
            for finding in found.findings
            if finding.rule == "PORT-LEFT-OUT" and finding.severity == "error"
            for flag in finding.flags
        }
        figures["refused"] += sum(one.flag in refused and one.status == DROPPED for one in found.accounts)
        losses.update(one.flag for one in found.accounts if one.missing is not None and one.missing.changes_training)
        wrong += [f"{each.where or each.program}: {gap}" for gap in gaps(each, found)]
    return dict(figures), losses, wrong


def strays(imported: Imported, target: str, folder: Path) -> list[str]:
    """Return where a port and the job files that it makes, or goes without, tell different things."""
    found = ported(imported, target, fixes=False)
    ways = {
        "--to": (ported_yaml(imported, found, "x"), []),
        "backend=": (job_yaml(imported, "x", with_version=True), [f"backend={target}"]),
    }
    messages = {(each.severity, each.rule, each.flags, each.fields, each.message) for each in found.findings}
    wrong = []
    for name, (text, args) in ways.items():
        file = folder / "job.yaml"
        file.write_text(text, encoding="utf-8")
        later = judge(compose([f"+job={file}", *args]), fixes=False)
        again = {(each.severity, each.rule, each.flags, each.fields, each.message) for each in later.findings}
        wrong += [f"{name} {target}: {each}" for each in sorted(messages ^ again)]
    return wrong


def main() -> int:
    """Port the corpus and print the figures; return the exit code."""
    options = _options()
    start = time.process_time()
    report: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    wrong: list[str] = []
    for source, read in _sources(options).items():
        imported = [each.imported for each in read() if each.imported is not None]
        for target in backend_names():
            if target == source or not imported:
                continue
            figures, losses, more = counts(imported, target)
            report[source][target] = {**figures, "losses": dict(losses.most_common(options.left_out))}
            wrong += more
            if options.both_ways:
                with tempfile.TemporaryDirectory(prefix="ports-") as folder:
                    for one in imported:
                        wrong += [f"{one.where or one.program}: {gap}" for gap in strays(one, target, Path(folder))]
    seconds = time.process_time() - start
    if options.json:
        print(json.dumps({"ports": report, "wrong": wrong, "seconds": round(seconds, 1)}, indent=2))
    else:
        print(markdown(report, seconds))
        _print_losses(report)
    for each in wrong[:20]:
        print(f"wrong  {each}", file=sys.stderr)
    return int(bool(wrong))


def _sources(options: argparse.Namespace) -> dict[str, Read]:
    sources: dict[str, Read] = {
        backend: partial(outcomes, options.facts / name, backend, versions)
        for name, (backend, versions) in CORPORA.items()
    }
    if options.megatron_lm is not None:
        sources["megatron_lm"] = partial(of_checkout, options.megatron_lm)
    return {name: read for name, read in sources.items() if options.backend in (None, name)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.ports", description=__doc__.split("\n")[0])
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR", help="folder with corpus_*.jsonl")
    parser.add_argument("--megatron-lm", type=Path, metavar="CHECKOUT", help="also the configurations of its tests")
    parser.add_argument("--backend", help="only from this one")
    parser.add_argument("--left-out", type=int, default=0, metavar="N", help="the N most frequent losses of each pair")
    parser.add_argument("--both-ways", action="store_true", help="also check the job files of every port")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/import.md (as without it)")
    return parser.parse_args()


def markdown(report: Mapping[str, Mapping[str, Mapping[str, Any]]], seconds: float) -> str:
    """Return the figures as a table."""
    lines = [
        "| from | to | scripts | arguments | translated | passed through | dropped | of these change nothing "
        "| change training | of these without a substitute |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for source, targets in report.items():
        for target, each in targets.items():
            lines.append(
                f"| {source} | {target} | {each['scripts']} | {each['arguments']} | {each[TRANSLATED]} "
                f"| {each[PASSED_THROUGH]} | {each[DROPPED]} | {each['nothing']} "
                f"| {each['training']} | {each['refused']} |"
            )
    total = sum(each["scripts"] for targets in report.values() for each in targets.values())
    return "\n".join([*lines, "", f"{total} ports take {seconds:.0f} s in one process, reading included."])


def _print_losses(report: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    for source, targets in report.items():
        for target, each in targets.items():
            if each["losses"]:
                print(f"{source} -> {target}: " + ", ".join(f"{flag} {n}" for flag, n in each["losses"].items()))


if __name__ == "__main__":
    sys.exit(main())
