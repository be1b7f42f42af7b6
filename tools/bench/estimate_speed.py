"""How many layouts `estimate_many` estimates in a second, as a ratio to a named reference measured in the same run.

    python -m tools.bench.estimate_speed [-n RUNS]

Layouts of a DeepSeek-V3-sized job: every combination of tensor, pipeline, context and expert parallelism, micro-batch
and recomputation that could run, each estimated once from cold caches. The reference is a round trip of the same jobs
through JSON (`json.loads(json.dumps(tree))`), which no estimate of a whole job can be expected to beat by much.
Processor time of one process, which other load on the machine disturbs less than wall time.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from launcher.compose import compose
from launcher.estimate import CannotEstimate, estimate_many
from launcher.job import Job, Value, as_tree, with_values

JOB = [
    "+recipe=deepseek_v3",
    "hardware=h100_80g",
    "cluster.nodes=128",
    "batch.global_batch_size=4096",
    "model.num_hidden_layers=64",
    "model.num_nextn_predict_layers=0",
    "parallel.layout=null",
    "parallel.first_stage_layers=null",
    "parallel.last_stage_layers=null",
]
RECOMPUTE: list[dict[str, Value]] = [
    {"recompute.granularity": None, "recompute.modules": (), "recompute.method": None, "recompute.num_layers": None},
    {"recompute.granularity": "selective", "recompute.modules": ("moe_act",), "recompute.method": None},
    {"recompute.granularity": "selective", "recompute.modules": ("mla_up_proj", "moe_act"), "recompute.method": None},
    {"recompute.granularity": "full", "recompute.modules": (), "recompute.method": "uniform"},
]
LAYOUTS = ((1, 2, 4, 8), (4, 8, 16), (1, 2, 4), (8, 16, 32, 64), (1, 2))
SHELL_GOAL = 0.6  # seconds


def jobs(vpp: int | None) -> Iterator[Job]:
    """Yield the layouts."""
    base = compose(JOB)
    for (tp, pp, cp, ep, mbs), kind in itertools.product(itertools.product(*LAYOUTS), RECOMPUTE):
        values: dict[str, Value] = {
            "parallel.tp": tp,
            "parallel.sequence_parallel": tp > 1,
            "parallel.pp": pp,
            "parallel.vpp": vpp,
            "parallel.cp": cp,
            "parallel.ep": ep,
            "parallel.etp": 1,
            "batch.micro_batch_size": mbs,
            "recompute.num_layers": 1 if kind["recompute.granularity"] == "full" else None,
            **{path: value for path, value in kind.items() if path != "recompute.num_layers"},
        }
        yield with_values(base, values)


def measure(vpp: int | None) -> None:
    """Print one row, measured in this process, whose caches must be cold."""
    layouts = list(jobs(vpp))
    start = time.process_time()
    answers = estimate_many(layouts)
    seconds = time.process_time() - start
    trees = [as_tree(job) for job in layouts]
    start = time.process_time()
    for tree in trees:
        json.loads(json.dumps(tree))
    reference = time.process_time() - start
    refused = sum(isinstance(answer, CannotEstimate) for answer in answers)
    print(f"{len(layouts)} {refused} {len(layouts) / seconds} {len(layouts) / reference}")


def shell() -> float:
    """Return the seconds of `launch estimate` from the shell."""
    launch = Path(sys.executable).with_name("launch")
    args = [str(launch), "estimate", "+recipe=deepseek_v3", "hardware=h100_80g", "cluster.nodes=64"]
    start = time.perf_counter()
    subprocess.run(args, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=3, help="counted runs of each kind")
    parser.add_argument("--one", choices=("1", "2", "4"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(None if options.one == "1" else int(options.one))
        return
    print(f"{'virtual stages':16} {'layouts':>8} {'refused':>8} {'estimates/s':>12} {'JSON/s':>12} {'ratio':>6}  goal")
    for vpp, goal in (("1", 2000), ("2", 200), ("4", 200)):
        command = [sys.executable, "-m", "tools.bench.estimate_speed", "--one", vpp]
        done = [
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(options.n)
        ]
        count, refused = done[0][:2]
        mine, other = (statistics.median(float(row[column]) for row in done) for column in (2, 3))
        print(f"{vpp:16} {count:>8} {refused:>8} {mine:12,.0f} {other:12,.0f} {mine / other:6.2f}  ≥ {goal:,}/s")
    print(f"launch estimate from the shell: {min(shell() for _ in range(options.n)):.2f} s, goal ≤ {SHELL_GOAL} s")


if __name__ == "__main__":
    main()
