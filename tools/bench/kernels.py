"""Measured kernels: the share of each machine's peak by number format and kind of kernel, beside what its file counts.

    python -m tools.bench.kernels [--rows] [--markdown]

Each line of `kernels.jsonl` is one measured shape, or the mean of several (`count`), with its source. A hardware file
counts less for matrix products in BF16, and for all of Hopper's, than these: whole training steps sustain 0.95 of what
benchmarks of single kernels reach (B200 and A100 PCIe, docs/estimate.md).
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.compose import compose
from launcher.job.hardware import Hardware

ROWS = Path(__file__).with_name("kernels.jsonl")
# What whole training steps sustain of benchmarks of single matrix products.
SUSTAINED = 0.95
_FIELDS = {
    "forward": "matmul_efficiency",
    "input gradient": "matmul_efficiency",
    "weight gradient": "weight_gradient_efficiency",
    "grouped": "grouped_matmul_efficiency",
    "attention forward": "attention_efficiency",
    "attention backward": "attention_backward_efficiency",
}

Key = tuple[str, str, str]


def read(path: Path = ROWS) -> list[dict[str, Any]]:
    """Return the measured kernels."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def hardware_of(machine: str) -> Hardware:
    """Return the hardware of an option of `conf/hardware`."""
    return compose([f"hardware={machine}"]).hardware


def shares(rows: Sequence[Mapping[str, Any]]) -> dict[Key, list[float]]:
    """Return the shares of the peak, by machine, number format and kind of kernel."""
    found: dict[Key, list[float]] = defaultdict(list)
    for row in rows:
        peak = getattr(hardware_of(row["machine"]), f"{row['format']}_tflops")
        found[row["machine"], row["format"], row["kernel"]].append(row["tflops"] / peak)
    return dict(found)


def counted(machine: str, number_format: str, kernel: str) -> float | None:
    """Return what a hardware file counts for a kind of kernel; None: derived from BF16's, or as assumed for all."""
    name = _FIELDS[kernel]
    if number_format != "bf16":
        name = f"{number_format}_{name}"
    value: float | None = getattr(hardware_of(machine), name)
    return value


def main() -> None:
    """Print the table."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--rows", action="store_true", help="also print every shape")
    made.add_argument("--markdown", action="store_true", help="a table for the docs")
    options = made.parse_args()
    rows = read()
    if options.rows:
        for row in rows:
            print(f"{row['machine']:14} {row['format']:14} {row['kernel']:18} {row['tflops']:>8} {row['shape']}")
    numbers: dict[Key, int] = defaultdict(int)
    for row in rows:
        numbers[row["machine"], row["format"], row["kernel"]] += row["count"]
    table = [["hardware", "format", "kernel", "shapes", "share of the peak", "counted"]]
    for key, values in sorted(shares(rows).items()):
        spread = f"{statistics.mean(values):.2f}"
        if len(values) > 1:
            spread += f" ({min(values):.2f} to {max(values):.2f})"
        value = counted(*key)
        table.append([*key, str(numbers[key]), spread, "–" if value is None else f"{value:g}"])
    for number, cells in enumerate(table):
        if options.markdown:
            print("| " + " | ".join(cells) + " |")
            if number == 0:
                print("|---|---|---|--:|---|--:|")
        else:
            print(
                "  ".join(cell.ljust(width) for cell, width in zip(cells, (14, 14, 19, 6, 22, 7), strict=True)).rstrip()
            )


if __name__ == "__main__":
    main()
