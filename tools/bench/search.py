"""How long `launch search` takes over its full axes, how many points it settles, and how much memory it needs.

    python -m tools.bench.search [-n RUNS]

Each search runs in a process of its own, caches cold, from the composed job to the ranking; bytecode is compiled by a
first run that does not count, and kept, as an installed package has it. Rates are compared with
the 6 to 14 candidates a second that this project's requirements give for SimuMax's strategy search, over tensor, expert
and pipeline parallelism only; it is not run here. Points settled are those of the full
space, most of them by a rule's refusal or a bound that holds for many at once; points estimated went through memory and
time one by one, as SimuMax's do.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from launcher.compose import compose

# Name: overrides, goal in seconds of processor time.
CASES: dict[str, tuple[list[str], float]] = {
    "llama3-8b on 64": (["+recipe=llama3_8b", "backend=megatron", "hardware=h100_80g", "cluster.nodes=8"], 1.5),
    "deepseek-v3 on 1,024": (
        ["+recipe=deepseek_v3", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=128"],
        15.0,
    ),
}
REFERENCE = 14.0  # candidates/s, the upper end of SimuMax's
RATIO_GOAL, MEMORY_GOAL = 200.0, 500.0  # times the reference, MB


def measure(name: str) -> None:
    """Print one search as JSON, measured in this process."""
    from launcher.search.begin import begin

    job = compose([*CASES[name][0], "cluster.devices_per_node=8"])
    wall, start = time.perf_counter(), time.process_time()
    search = begin(job)
    for _ in search.run():
        pass
    found = search.found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "seconds": time.process_time() - start,
                "wall": time.perf_counter() - wall,
                "points": found.points,
                "estimates": found.estimates,
                "megabytes": peak,
                "best": found.best[0].step_s,
            }
        )
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=3, help="counted runs of each search")
    parser.add_argument("--one", choices=tuple(CASES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one)
        return
    print(
        "search                     points  estimated   CPU s  wall s   goal    points/s  × SimuMax  estimates/s     MB"
    )
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        _table(options.n, environment)
    print(f"goals: {RATIO_GOAL:g} × SimuMax's {REFERENCE:g} candidates/s, {MEMORY_GOAL:g} MB")


def _table(count: int, environment: dict[str, str]) -> None:
    for name, (_, goal) in CASES.items():
        command = [sys.executable, "-m", "tools.bench.search", "--one", name]
        runs = [
            json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(1 + count)
        ][1:]
        seconds, wall, peak = (statistics.median(run[key] for run in runs) for key in ("seconds", "wall", "megabytes"))
        points, estimates = runs[0]["points"], runs[0]["estimates"]
        print(
            f"{name:22} {points:>10,} {estimates:>10,} {seconds:7.2f} {wall:7.2f}  ≤ {goal:>3g}"
            f" {points / seconds:>11,.0f} {points / seconds / REFERENCE:>10,.0f} {estimates / seconds:>12,.0f}"
            f" {peak:>6.0f}"
        )


if __name__ == "__main__":
    main()
