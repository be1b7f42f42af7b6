"""The whole test suite, nothing sampled: every case, every example, the slow tests too.

    python -m tools.exhaustive [--fresh] [--only TEXT] [--jobs N] [--write]

Goes on where it was stopped: a file that passed at this state of the sources is not run again (--fresh: all again).
--write puts the result into docs/exhaustive.md. Exit code 1 if a test failed. Run it before and after a large step.
"""

import argparse
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date

from tests.conftest import GROUPS
from tools.docs.written import marked
from tools.resumable import ROOT, digest, load, save, state_file

PAGE = ROOT / "docs" / "exhaustive.md"
STATE = state_file("exhaustive")
KINDS = ("passed", "failed", "errors", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one test file: counts, wall seconds, the tests that failed, and why tests were skipped."""

    passed: int
    failed: int
    errors: int
    skipped: int
    seconds: float
    names: list[str]
    reasons: list[str]

    @property
    def fine(self) -> bool:
        """Whether nothing failed."""
        return not self.failed and not self.errors


def main() -> int:
    """Run what is left and print a line a file; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="forget what passed before")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path holds this")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="test files at a time")
    parser.add_argument("--write", action="store_true", help="write docs/exhaustive.md")
    options = parser.parse_args()
    sources = digest()
    known = {} if options.fresh else load(STATE, sources, lambda values: Result(**values))
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    chosen = [file for file in files if options.only in file]
    left = [file for file in chosen if file not in known or not known[file].fine]
    writing = threading.Lock()

    def run_all(members: list[str]) -> None:
        for file in members:
            found = run(file)
            with writing:
                known[file] = found
                save(STATE, sources, known)
                count = sum(file in known for file in chosen)
                print(f"{count}/{len(chosen)} {file}: {summary([found])}, {found.seconds:.0f} s", flush=True)
                for name in found.names:
                    print(f"  FAILED {name}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run_all, by_group(left)))
    results = [known[file] for file in chosen]
    print(f"{len(results)} files: {summary(results)}, {sum(result.seconds for result in results) / 60:.0f} min")
    if options.write and not options.only:
        PAGE.write_text(page({file: known[file] for file in files}), encoding="utf-8")
    return 0 if all(result.fine for result in results) else 1


def by_group(files: list[str]) -> list[list[str]]:
    """Return files in lists to be run one after another: those of a list share a machine or an environment."""
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(next((group for start, group in GROUPS.items() if file.startswith(start)), file), []).append(
            file
        )
    return sorted(found.values(), key=len, reverse=True)


def run(file: str) -> Result:
    """Run one test file whole."""
    args = [sys.executable, "-m", "pytest", "--all-cases", "-rfEs", "--tb=short", "-p", "no:cacheprovider", file]
    start = time.monotonic()
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    tail = done.stdout.strip().splitlines()[-1:] or [""]
    counts = dict.fromkeys(KINDS, 0)
    for count, kind in re.findall(r"(\d+) (passed|failed|errors?|skipped)", tail[0]):
        counts["errors" if kind.startswith("error") else kind] += int(count)
    if done.returncode not in (0, 1, 5):
        counts["errors"] += 1
    if done.returncode not in (0, 5):
        print("\n".join(done.stdout.splitlines()[-60:]), file=sys.stderr)
    names = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    reasons = sorted(set(re.findall(r"^SKIPPED \[\d+\] [^:]+:\d+: (.*)$", done.stdout, flags=re.MULTILINE)))
    return Result(**counts, seconds=round(seconds, 1), names=names, reasons=reasons)


def summary(results: list[Result]) -> str:
    """Return the counts of results in words, such as ``12 passed, 1 skipped``."""
    counts = {kind: sum(getattr(result, kind) for result in results) for kind in KINDS}
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count or kind == "passed")


def page(known: dict[str, Result]) -> str:
    """Return docs/exhaustive.md."""
    results = list(known.values())
    rows = "".join(
        f"| {file} | {result.passed} | {result.failed + result.errors} | {result.skipped} | {result.seconds:.0f} |\n"
        for file, result in known.items()
    )
    reasons = "".join(f"- {reason}\n" for reason in sorted({reason for result in results for reason in result.reasons}))
    today = date.today()
    text = (
        "# The whole suite, nothing sampled\n\n"
        "Written by `python -m tools.exhaustive --write`: every case and example, slow tests too.\n\n"
        f"{today}, {commit()}: {len(results)} files, {summary(results)}, "
        f"{sum(result.seconds for result in results) / 60:.0f} minutes.\n\n"
        f"| tests | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n{rows}\n"
        f"Reasons for skipping on that machine:\n\n{reasons}"
    )
    return marked(text, {"result": f"{today}, ", "files": "| tests |", "skipped": "- "})


def commit() -> str:
    """Return the commit that was tested, and whether files were changed since."""
    args = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=, files changed"]
    return f"commit {subprocess.run(args, capture_output=True, text=True, check=True).stdout.strip()}"


if __name__ == "__main__":
    raise SystemExit(main())
