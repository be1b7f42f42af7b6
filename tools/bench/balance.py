"""How good the balanced pipelines are, and how fast they are found: Taylor's published cases against its own tool.

    python -m tools.bench.balance [NAME …] [--time-limit SECONDS]

Objectives and constants: unit tests of fast-tuner (mindspore-ai/hyper-parallel fdd0a80), with the original's quirks.
Seconds of the original tool: the same model through HiGHS 1.12 on two cores, measured once (t1–t3); t6 is documented as
about 40 minutes. The ratio is the original's time over ours.
"""

import argparse
import time

from launcher.balance.problem import Problem
from launcher.balance.solve import balance_any
from launcher.balance.taylor import Ratios, taylor_problem

_KINDS = (
    *("act_mem0", "act_mem", "select_mem0", "select_mem", "re_comp_mem0", "re_comp_mem", "layer_mem012", "layer_mem"),
    *("mem_lim_stage0", "mem_lim_others", "mem_lim_last"),
)
_LATER = Ratios(backward=1.627, dense=0.71, head=1.493, recompute=0.246)
# Name: stages, chunks, micro-batches, ratios, memory in MB, published objective, seconds of the original tool.
CASES: dict[str, tuple[int, int, int, Ratios, tuple[float, ...], float, float]] = {
    "t1": (
        *(16, 1, 64, Ratios(backward=1.839, dense=0.397, head=1.5, recompute=1.0)),
        (479, 765, 400, 765, 30, 30, 866, 10691, 51913, 52914, 46621),
        *(1132.66, 11.5),
    ),
    "t2": (
        *(6, 1, 120, _LATER),
        (494, 673, 416, 674, 46, 158, 1010, 2644, 53101, 55065, 48876),
        *(3603.39, 1.3),
    ),
    "t3": (
        *(16, 1, 960, _LATER),
        (614, 738, 480, 737, 78, 190, 130, 7230, 51555, 54134, 49405),
        *(10943.91, 17.5),
    ),
    "t6": (
        *(8, 4, 240, _LATER),
        (988, 1346, 832, 1347, 92, 316, 1109, 3670, 49858, 52632, 42894),
        *(5562.66, 2400.0),
    ),
}


def problem_of(name: str) -> Problem:
    """Return a published case."""
    stages, chunks, micro_batches, ratios, sizes, _, _ = CASES[name]
    return taylor_problem(
        stages=stages,
        chunks=chunks,
        micro_batches=micro_batches,
        dense_layers=3,
        moe_layers=59,
        ratios=ratios,
        memory=dict(zip(_KINDS, sizes, strict=True)),
        few_in_flight=chunks == 1,
        quirks=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases: {', '.join(CASES)} (default all)")
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="S", help="seconds for each (default 120)")
    options = parser.parse_args()
    print("case  objective  published      bound    gap   wall s    CPU s  original s  × original")
    for name in options.names or CASES:
        published, original = CASES[name][-2:]
        start = time.process_time()
        _, found = balance_any([problem_of(name)], seconds=options.time_limit, gap=1e-5)
        cpu = time.process_time() - start
        print(
            f"{name:4} {found.time:>10.2f} {published:>10.2f} {found.bound:>10.2f} {100 * found.gap:5.2f} %"
            f" {found.seconds:>7.1f} {cpu:>8.1f} {original:>11.1f} {original / found.seconds:>10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
