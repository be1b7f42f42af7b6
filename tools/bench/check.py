"""How fast jobs, variants of a job and command lines are judged, in one process.

    python -m tools.bench.check [--count 60]

Prints, for each backend, milliseconds of processor time: of one whole check, of a check with fixes of a broken job, of
one of many variants; and command lines imported and checked in a second. Goals: a check within 10 ms, 100 command lines
a second, 1000 variants a second. Exit code 1 if one is missed.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

from launcher import api
from launcher.compose import compose
from launcher.job import Job, Value
from launcher.mapping.backend import backend_names, get_backend
from launcher.pipeline import judge, variants_of

_RECIPE = "+recipe=qwen3_moe"
_BROKEN = ("parallel.tp=3", "recompute.granularity=selective")
_GOALS = {"check": 10.0, "variant": 1.0, "command": 10.0}


def main() -> int:
    """Print the table; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, metavar="N", help="repetitions of each measurement")
    count = parser.parse_args().count
    print("| backend | check, ms | with fixes, ms | variant, ms | command lines a second |\n|---|---|---|---|---|")
    reached = True
    for backend in backend_names():
        found = figures(backend, count)
        print(
            f"| {get_backend(backend).title} | {found['check']:.1f} | {found['fixes']:.0f} | {found['variant']:.2f} "
            f"| {1000 / found['command']:.0f} |"
        )
        reached &= all(found[name] <= goal for name, goal in _GOALS.items())
    return 0 if reached else 1


def figures(backend: str, count: int) -> dict[str, float]:
    """Return milliseconds of processor time of each kind of judgement on one backend."""
    job = compose([_RECIPE, f"backend={backend}"])
    broken = compose([_RECIPE, f"backend={backend}", *_BROKEN])
    variants = variants_of(job)
    layouts = itertools.cycle(_layouts(job))
    made = get_backend(backend)
    native = judge(job, fixes=False).native
    found = {
        "check": _each(lambda: judge(job), count),
        "fixes": _each(lambda: judge(broken), max(1, count // 10)),
        "variant": _each(lambda: variants.errors(next(layouts)), 20 * count),
    }
    if made.catalogue(made.version(None)).style == "yaml":
        found["command"] = found["check"]
    else:
        args, devices = made.argv(native), job.cluster.world_size
        found["command"] = _each(
            lambda: api.check(api.import_argv(args, backend=backend, world_size=devices)), max(1, count // 2)
        )
    return found


def _layouts(job: Job) -> Iterator[dict[str, Value]]:
    sizes = itertools.product((1, 2, 4, 8), (1, 2, 4), (1, 2), (1, 2, 4, 8), (1, 2), (None, "full"))
    for tp, pp, cp, ep, micro, granularity in sizes:
        yield {
            "parallel.tp": tp,
            "parallel.pp": pp,
            "parallel.cp": cp,
            "parallel.ep": ep,
            "parallel.sequence_parallel": tp > 1,
            "batch.micro_batch_size": micro,
            "recompute.granularity": granularity,
        }


def _each(action: Callable[[], object], count: int) -> float:
    action()
    start = time.process_time()
    for _ in range(count):
        action()
    return (time.process_time() - start) / count * 1000


if __name__ == "__main__":
    raise SystemExit(main())
