"""Write a snapshot of the program's answers, or compare two snapshots.

    python -m tools.snapshot write [FILE]        recipes, corpus, 2,000 fuzzed lines a backend, surface, tables
    python -m tools.snapshot compare OLD NEW     differences by kind, each with its number of cases and one of them
    python -m tools.snapshot verdicts FILE       scripts and files that are refused while their job is not, or reverse

FILE is one JSON object a line, compressed; without it, the cache folder of the tests holds one for each commit. The
fuzzed lines are drawn by --seed, else by the seed of the commit's program: give the old commit's seed, which the old
file's first line holds, to compare two. Exit code 1 where the two differ.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.sampling import ROOT, tree_seed
from tools.snapshot.cases import Case, cases
from tools.snapshot.difference import differences, pairs
from tools.snapshot.surface import surface
from tools.snapshot.tables import tables

SECTIONS = ("recipes", "corpus", "fuzz", "surface", "tables")
_CACHE = Path(os.environ.get("LAUNCH_TEST_ENVIRONMENTS", Path.home() / ".cache" / "launch-tests")) / "snapshots"


def main() -> int:
    """Write or compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    write = verbs.add_parser("write")
    write.add_argument("file", nargs="?", type=Path, help="instead of the cache folder")
    write.add_argument(
        "--facts", type=Path, default=ROOT.parent / "shared" / "facts", help="folder with corpus_*.jsonl"
    )
    write.add_argument("--count", type=int, default=2000, metavar="N", help="fuzzed lines a backend")
    write.add_argument("--seed", type=int, metavar="N")
    write.add_argument("--section", choices=SECTIONS, action="append", help="only this one; may be repeated")
    compare = verbs.add_parser("compare")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.add_argument("--all", action="store_true", help="every case of a difference, not one")
    verdicts = verbs.add_parser("verdicts")
    verdicts.add_argument("file", type=Path)
    options = parser.parse_args()
    return {"write": _write, "compare": _compare, "verdicts": _verdicts}[options.verb](options)


def _write(options: argparse.Namespace) -> int:
    seed = tree_seed() if options.seed is None else options.seed
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout.strip()
    file = options.file or _CACHE / f"{commit}.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    sections = options.section or SECTIONS
    asked = list(cases(options.facts, options.count, sections, seed))
    asked += surface() if "surface" in sections else ()
    asked += tables() if "tables" in sections else ()
    began = shown = time.monotonic()
    partial = file.with_suffix(".partial")
    with gzip.open(partial, "wt", encoding="utf-8", compresslevel=3) as out:
        out.write(json.dumps({"commit": commit, "seed": seed, "count": options.count, "sections": sections}) + "\n")
        for number, case in enumerate(asked):
            out.write(json.dumps([case.name, _answer(case)], default=str, sort_keys=True) + "\n")
            if time.monotonic() > shown + 10:
                shown = time.monotonic()
                rate = (number + 1) / (shown - began)
                left = (len(asked) - number) / rate
                print(f"{number + 1} of {len(asked)} cases, {rate:.0f}/s, {left:.0f} s left", file=sys.stderr)
    partial.replace(file)
    print(f"{file}: {len(asked)} cases, seed {seed}, {time.monotonic() - began:.0f} s")
    return 0


def _answer(case: Case) -> Any:
    try:
        return case.answer()
    except Exception as error:  # a crash is an answer, too: the other commit may have another
        return {"crashed": f"{type(error).__name__}: {error}", "at": traceback.format_exc().splitlines()[-3:-1]}


def _compare(options: argparse.Namespace) -> int:
    (old_head, old), (new_head, new) = _read(options.old), _read(options.new)
    if old_head["seed"] != new_head["seed"]:
        print(f"the seeds differ: {old_head['seed']} and {new_head['seed']}", file=sys.stderr)
        return 2
    found = differences(old, new)
    for kind, names in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):6}  {kind}")
        for name in names if options.all else names[:1]:
            print(f"        {name[:200]}")
    print(f"{old_head['commit']} and {new_head['commit']}: {len(old)} cases, {len(found)} kinds of differences")
    return 1 if found else 0


def _verdicts(options: argparse.Namespace) -> int:
    head, answers = _read(options.file)
    found = list(pairs(answers))
    for each in found:
        if each.differs:
            print(f"{each.name[:120]}: file {', '.join(each.of_file) or 'ok'}; job {', '.join(each.of_job) or 'ok'}")
    print(f"{head['commit']}, seed {head['seed']}: cases, another verdict, same verdict with other rules")
    for backend in sorted({each.backend for each in found}):
        own = [each for each in found if each.backend == backend]
        verdicts = sum(each.differs for each in own)
        rules = sum(each.of_file != each.of_job for each in own)
        print(f"{backend:12} {len(own):6} {verdicts:6} {rules - verdicts:6}")
    return 0


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        head = json.loads(next(lines))
        return head, dict(json.loads(line) for line in lines)


if __name__ == "__main__":
    sys.exit(main())
