"""Seconds of quantisation in a forward: as Transformer Engine's benchmark measures, as the estimate counts them.

    python -m tools.bench.quantisation [--markdown] [--fit] [--recipes]

The benchmark (Transformer Engine d0067d0 docs/examples/gemm_profiling, benchmarks/gemm/benchmark_gemm.py) runs the four
products of a layer of a 5B model through te.Linear, 15,872 tokens: with quantisation of inputs (by row and by column)
and of weights (by row: the input needs no gradient), and with both quantised beforehand. "Delayed" is compared with
tensorwise scaling quantised beforehand, for want of its own. `--fit` prints the least squares of the two figures that
are taken from it: seconds of a pass (`launcher.estimate.quantised`), and the share of an H200's bandwidth.
"""

import argparse
import itertools
from dataclasses import dataclass, replace
from functools import lru_cache

from launcher.compose import compose
from launcher.estimate import quantised as costs
from launcher.estimate.machine import Machine, read_machine
from launcher.estimate.sizes import Sizes, read_sizes
from launcher.job.number_formats import KEPT, NVFP4
from launcher.job.quantisation import RECIPES

TOKENS = 15_872
PRODUCTS = ((4096, 12_288), (4096, 4096), (4096, 16_384), (16_384, 4096))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A forward of the four products, in milliseconds."""

    machine: str
    recipe: str
    quantised: float
    beforehand: float

    @property
    def seconds(self) -> float:
        """What quantisation costs."""
        return (self.quantised - self.beforehand) / 1000


ROWS = (
    Measured(machine="b300", recipe="delayed", quantised=2.486, beforehand=2.158),
    Measured(machine="b300", recipe="tensorwise", quantised=2.879, beforehand=2.158),
    Measured(machine="b300", recipe="mxfp8", quantised=2.847, beforehand=2.365),
    Measured(machine="b300", recipe="nvfp4", quantised=1.932, beforehand=1.254),
    Measured(machine="h200", recipe="delayed", quantised=6.188, beforehand=5.577),
    Measured(machine="h200", recipe="tensorwise", quantised=6.503, beforehand=5.577),
)


@lru_cache
def job_of(row: Measured) -> tuple[Sizes, Machine]:
    """Return a job in the recipe on the machine."""
    small = ["precision.fp4_format=e2m1"] if row.recipe == "nvfp4" else ["precision.fp8_format=hybrid"]
    small += [] if row.recipe == "nvfp4" else [f"precision.fp8_recipe={row.recipe}"]
    job = compose(["model=llama3_8b", f"hardware={row.machine}", *small])
    return read_sizes(job)[0], read_machine(job, experts=False)[0]


def counted(row: Measured, *, memory: float | None = None, latency: float | None = None) -> float:
    """Return the seconds that the estimate counts.

    Args:
        memory: bytes/s of the machine's element-wise kernels; None: those of its file.
        latency: seconds of a pass; None: those of the estimate.
    """
    sizes, machine = job_of(row)
    recipe = sizes.quantisation
    assert recipe is not None
    machine = machine if memory is None else replace(machine, memory=memory)
    beside = costs.PASS if latency is None else latency
    total = 0.0
    for inner, outer in PRODUCTS:
        passes = recipe.modules["Linear"].input_reads + recipe.weight_reads
        moved = costs.moved(sizes, TOKENS * inner, recipe.modules["Linear"].input_reads, sizes.quantised_copies)
        moved += costs.moved(sizes, inner * outer, recipe.weight_reads, 1)
        total += moved / machine.memory + passes * beside
    return total


def fit() -> tuple[float, float]:
    """Return the seconds of a pass and the share of an H200's bandwidth with the least squares."""
    bandwidth = compose(["hardware=h200"]).hardware.memory_bandwidth_gbs
    assert bandwidth is not None

    def squares(latency: float, share: float) -> float:
        memory = {"h200": bandwidth * 1e9 * share}
        errors = [counted(row, memory=memory.get(row.machine), latency=latency) - row.seconds for row in ROWS]
        return sum(error * error for error in errors)

    candidates = itertools.product([n * 1e-7 for n in range(101)], [n / 100 for n in range(70, 101)])
    return min(candidates, key=lambda pair: squares(*pair))


def recipes() -> str:
    """Return a table of the recipes, for the docs: bytes kept, and the times that 16-bit tensors are read."""
    kept = {"nvfp4": NVFP4.kept_bytes, **KEPT}
    header = ["recipe", "kept", "LayerNormLinear", "Linear", "GroupedLinear", "output gradients", "weights"]
    lines = [f"| {' | '.join(header)} |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name, recipe in RECIPES.items():
        cells = [name, f"{kept[name]:g}"]
        for casts in recipe.modules.values():
            plain, cudnn = casts.input_reads, casts.input_reads_cudnn
            cells.append(str(plain) if plain == cudnn else f"{plain} (cuDNN {cudnn})")
        gradients = {casts.gradient_reads for casts in recipe.modules.values()}
        cells += ["/".join(map(str, sorted(gradients))), str(recipe.weight_reads)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--markdown", action="store_true", help="a table for the docs")
    made.add_argument("--fit", action="store_true", help="print the least squares")
    made.add_argument("--recipes", action="store_true", help="print the recipes as the estimate counts them")
    options = made.parse_args()
    if options.recipes:
        print(recipes())
        return
    if options.fit:
        latency, share = fit()
        print(f"{latency * 1e6:.1f} us a pass, {share:.2f} of an H200's bandwidth")
        return
    rows = [["ms"], ["measured"], ["counted"]]
    for row in ROWS:
        rows[0].append(f"{row.machine.upper()} {row.recipe}")
        rows[1].append(f"{row.seconds * 1000:.2f}")
        rows[2].append(f"{counted(row) * 1000:.2f}")
    if options.markdown:
        print("\n".join([f"| {' | '.join(rows[0])} |", "|---" + "|--:" * len(ROWS) + "|"]))
        print("\n".join(f"| {' | '.join(cells)} |" for cells in rows[1:]))
    else:
        print("\n".join("  ".join(cell.rjust(15) for cell in cells) for cells in rows))


if __name__ == "__main__":
    main()
