"""Hardware files count what the table of measured kernels says; what they take from elsewhere is not in this table."""

import functools
import statistics
from typing import Any

import numpy as np
import pytest

from launcher.job.hardware import Hardware
from tools.bench.kernels import SUSTAINED, counted, hardware_of, read, shares

ROWS = read()
measured_shares = functools.cache(lambda: shares(ROWS))
# Files whose matrix products follow from the table: machine, format, kernels that one figure stands for.
PRODUCTS = [
    ("b300", "bf16", ("forward", "input gradient")),
    ("b300", "bf16", ("weight gradient",)),
    ("b300", "fp8", ("forward", "input gradient")),
    ("b300", "fp8", ("weight gradient",)),
    ("b300", "mxfp8", ("forward", "input gradient")),
    ("b300", "mxfp8", ("weight gradient",)),
    ("b300", "nvfp4", ("forward", "input gradient")),
    ("b300", "nvfp4", ("weight gradient",)),
    ("b200", "bf16", ("forward", "input gradient")),
    ("b200", "bf16", ("weight gradient",)),
    ("h200", "bf16", ("forward", "input gradient")),
    ("h200", "bf16", ("weight gradient",)),
    ("h200", "fp8", ("forward", "input gradient")),
    ("h800", "fp8_blockwise", ("forward",)),
    ("mi300x", "bf16", ("forward",)),
]

WHOLE = {("b300", "fp8"), ("b300", "mxfp8"), ("b300", "nvfp4")}


@pytest.mark.parametrize(("machine", "number_format", "kernels"), PRODUCTS, ids=str)
def test_products_are_counted_as_measured(machine: str, number_format: str, kernels: tuple[str, ...]) -> None:
    measured = [share for kernel in kernels for share in measured_shares()[machine, number_format, kernel]]
    # Below 16 bits a step on Blackwell sustains what kernels reach (chosen on runs, tools/bench/held_out.py).
    sustained = 1.0 if (machine, number_format) in WHOLE else SUSTAINED
    assert counted(machine, number_format, kernels[0]) == pytest.approx(
        sustained * statistics.mean(measured), abs=0.015
    )


# Means over all products that a B200 measured in BF16 (SimuMax), and the seconds of each format of those in MXFP8 on a
# B300 (Transformer Engine, inputs quantised beforehand): forward and input gradient, weight gradient.
OVER_MXFP8 = {"fp8": (4.762 / 4.487, 2.400 / 2.325), "mxfp8": (1.0, 1.0), "nvfp4": (4.762 / 2.559, 2.400 / 1.205)}


@pytest.mark.parametrize("machine", ["b200", "gb200"])
@pytest.mark.parametrize("number_format", OVER_MXFP8)
def test_small_formats_of_a_b200_are_as_much_faster_than_mxfp8_as_on_a_b300(machine: str, number_format: str) -> None:
    hardware = hardware_of(machine)
    faster = getattr(hardware, f"{number_format}_tflops") / hardware.mxfp8_tflops
    product, gradient = OVER_MXFP8[number_format]
    assert counted(machine, number_format, "forward") == pytest.approx(0.495 * product / faster, abs=0.005)
    assert counted(machine, number_format, "weight gradient") == pytest.approx(0.475 * gradient / faster, abs=0.005)


# Grouped products: efficiency x tokens / (tokens + half), not below SUSTAINED x what was measured by more than this.
@pytest.mark.parametrize(("machine", "number_format"), [("mi300x", "bf16"), ("h800", "fp8_blockwise")])
def test_grouped_products_follow_the_tokens_of_an_expert(machine: str, number_format: str) -> None:
    hardware = hardware_of(machine)
    most = counted(machine, number_format, "grouped")
    half = hardware.grouped_matmul_tokens or 300.0
    rows = [row for row in ROWS if row["machine"] == machine and row["kernel"] == "grouped"]
    peak = getattr(hardware, f"{number_format}_tflops")
    assert most is not None
    errors = [most * row["tokens"] / (row["tokens"] + half) / (SUSTAINED * row["tflops"] / peak) - 1 for row in rows]
    assert abs(statistics.mean(errors)) < 0.1


def lines(rows: list[dict[str, Any]], peak: float) -> tuple[float, float, float]:
    """Return the shares in forward and backward, and the microseconds that both take beyond: least relative squares."""
    lhs = []
    for row in rows:
        ideal = row["gflop"] / peak / row["ms"]
        backward = row["kernel"] == "attention backward"
        lhs.append([0.0 if backward else ideal, ideal if backward else 0.0, 1e-3 / row["ms"]])
    forward, back, start = np.linalg.lstsq(np.array(lhs), np.ones(len(lhs)), rcond=None)[0]
    return 1 / forward, 1 / back, start


@pytest.mark.parametrize("machine", ["gb200", "gb300", "h200"])
def test_attention_is_a_line_through_its_shapes(machine: str) -> None:
    hardware = hardware_of(machine)
    rows = [row for row in ROWS if row["machine"] == machine and row["kernel"].startswith("attention")]
    peak = hardware.bf16_tflops or 0.0
    forward, backward, start = lines([row for row in rows if not row["latent"]], peak)
    assert hardware.attention_efficiency == pytest.approx(forward, abs=0.01)
    assert hardware.attention_backward_efficiency == pytest.approx(backward, abs=0.01)
    assert hardware.attention_overhead_us == pytest.approx(start, abs=1)
    errors = []
    for row in rows:
        share = hardware.latent_attention_share if row["latent"] else 1.0
        efficiency = backward if row["kernel"] == "attention backward" else forward
        errors.append((row["gflop"] / peak / efficiency / (share or 1.0) + 1e-3 * start) / row["ms"] - 1)
    assert statistics.mean(map(abs, errors)) < 0.1


@pytest.mark.parametrize(("machine", "of"), [("h100_80g", "h200"), ("h800", "h200"), ("b300", "gb300")])
def test_machines_of_one_die_have_one_attention(machine: str, of: str) -> None:
    figures = (
        "attention_efficiency",
        "attention_backward_efficiency",
        "attention_overhead_us",
        "latent_attention_share",
    )
    own, other = hardware_of(machine), hardware_of(of)
    assert [getattr(own, name) for name in figures] == [getattr(other, name) for name in figures]


def test_rows_are_complete() -> None:
    for row in ROWS:
        assert row["source"]
        assert row["shape"]
        assert row["count"] >= 1
        assert hasattr(Hardware, f"{row['format']}_tflops")
        # Attention counts every pair of query and key, of which a causal mask leaves half.
        most = 2 if row["kernel"].startswith("attention") else 1
        assert 0 < row["tflops"] / getattr(hardware_of(row["machine"]), f"{row['format']}_tflops") < most
