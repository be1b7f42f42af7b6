"""Run the table of bad inputs and print what each did: `python -m tests.hostile [--all] [-j WORKERS] [TEXT …]`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.hostile.run import run_all
from tests.hostile.table import cases, one_way_each


def main() -> int:
    """Print one line a case, and the sums; 1 where a case was not answered as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("--failing", action="store_true", help="show only what is not answered as it should be")
    parser.add_argument("--all", action="store_true", help="every file by every way to give it, not by one of them")
    parser.add_argument("text", nargs="*", help="only commands that contain one of these")
    options = parser.parse_args()
    found = cases() if options.all or options.text else one_way_each(cases())
    chosen = [case for case in found if not options.text or any(text in case.name for text in options.text)]
    began = time.monotonic()
    wrong, tracebacks, slowest = 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'input':110} code seconds traceback  first line")
        for result in run_all(chosen, Path(folder), options.workers):
            wrong += bool(result.problem)
            tracebacks += result.has_traceback
            slowest = max(slowest, result.seconds)
            if result.problem or not options.failing:
                print(result.row, flush=True)
        executed = [str(path) for path in Path(folder).rglob("EXECUTED")]
    seconds = time.monotonic() - began
    print(
        f"{len(chosen)} inputs, {tracebacks} tracebacks, {wrong} not answered as they should be, "
        f"{len(executed)} executions, slowest {slowest:.1f} s, {seconds:.0f} s in all"
    )
    return 1 if wrong or executed else 0


if __name__ == "__main__":
    sys.exit(main())
