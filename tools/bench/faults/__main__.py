"""Does the faults of the list to running jobs and prints what followed: the table of docs/running.md.

    python -m tools.bench.faults [--only WORD …] [--state FILE] [--markdown | --write]

`--write` replaces the lines of the executors whose cases are all chosen (`--only kubernetes:`), and keeps the others'.

Executors run beside each other, ssh and Slurm on two clusters each; each starts a job of two nodes with a stub trainer.
Needs root (namespaces), ssh and Slurm for their cases, and KUBE_APISERVER_BIN (tests/executors/api_server.py) for those
of Kubernetes; what cannot run here is named. Goes on where it was stopped, as long as the sources are the same.
"""

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bench.faults.case import Case, Result
from tools.bench.faults.cases import CASES
from tools.bench.faults.lanes import LANES, STOPPING, Keep, lacking
from tools.bench.faults.table import tables, write
from tools.resumable import digest, load, save, state_file

STATE = state_file("faults")


def main() -> int:
    """Run the cases and print the table; return 1 if one is wrong."""
    options = _options()
    # With a handler none is ignored in the commands of the cases, as it would be under nohup.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: STOPPING.set())
    sources = digest()
    known = load(options.state, sources, lambda tree: Result(**tree))
    chosen = [case for case in CASES if all(word in f"{case.group} {case.key}" for word in options.only)]
    why = {executor: lacking(executor) for executor in {case.executor for case in chosen}}
    todo = [case for case in chosen if case.key not in known and not why[case.executor]]
    lock = threading.Lock()

    def keep(case: Case, found: Result) -> None:
        with lock:
            known[case.key] = found
            save(options.state, sources, known)
            print(
                f"{'right' if found.right else 'WRONG'}  {found.seconds:6.1f} s  {case.key}",
                *found.wrong,
                sep=" · ",
                flush=True,
                file=sys.stderr,
            )

    _all(todo, keep)
    if options.write:
        write(CASES, _complete(known))
    print("\n".join(tables(chosen, known)) if options.markdown else _summary(chosen, known, why))
    return int(any(not known[case.key].right for case in chosen if case.key in known))


def _complete(known: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results of executors all of whose cases were measured."""
    lacking_of = {case.executor for case in CASES if case.key not in known}
    return {case.key: known[case.key] for case in CASES if case.executor not in lacking_of}


def _all(todo: Sequence[Case], keep: Keep) -> None:
    """Run cases, those of one executor one after another."""
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        threads: list[threading.Thread] = []
        for name, (lane, count) in LANES.items():
            for first in range(count):
                if own := [case for case in todo if case.executor == name][first::count]:
                    args = (Path(root) / f"{name}{first}", own, keep)
                    threads.append(threading.Thread(target=lane, args=args))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _summary(cases: Sequence[Case], known: Mapping[str, Result], why: Mapping[str, str]) -> str:
    done = [known[case.key] for case in cases if case.key in known]
    right, left = sum(each.right for each in done), sum(each.left > 0 for each in done)
    lines = [f"{len(done)} cases, {right} right, {left} left processes"]
    lines += [f"not run: {executor}: {text}" for executor, text in why.items() if text]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=(), metavar="WORD", help="cases whose name has all the words")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/running.md")
    parser.add_argument("--write", action="store_true", help="write it there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
