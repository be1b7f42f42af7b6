"""Hardware files count what the table of measured kernels says; what they take from elsewhere is not in this table."""

import statistics

import pytest

from launcher.job.hardware import Hardware
from tools.bench.kernels import SUSTAINED, counted, hardware_of, read, shares

ROWS = read()
SHARES = shares(ROWS)
# Files whose matrix products follow from the table: machine, format, kernels that one figure stands for.
PRODUCTS = [
    ("b300", "bf16", ("forward", "input gradient")),
    ("b300", "bf16", ("weight gradient",)),
    ("b300", "fp8", ("forward", "input gradient")),
    ("b300", "mxfp8", ("forward", "input gradient")),
    ("b300", "nvfp4", ("forward", "input gradient")),
    ("b200", "bf16", ("forward", "input gradient")),
    ("b200", "bf16", ("weight gradient",)),
    ("h800", "fp8_blockwise", ("forward",)),
    ("mi300x", "bf16", ("forward",)),
]


@pytest.mark.parametrize(("machine", "number_format", "kernels"), PRODUCTS, ids=str)
def test_products_are_counted_as_measured(machine: str, number_format: str, kernels: tuple[str, ...]) -> None:
    measured = [share for kernel in kernels for share in SHARES[machine, number_format, kernel]]
    assert counted(machine, number_format, kernels[0]) == pytest.approx(
        SUSTAINED * statistics.mean(measured), abs=0.015
    )


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


def test_rows_are_complete() -> None:
    for row in ROWS:
        assert row["source"]
        assert row["shape"]
        assert row["count"] >= 1
        assert hasattr(Hardware, f"{row['format']}_tflops")
        assert 0 < row["tflops"] / getattr(hardware_of(row["machine"]), f"{row['format']}_tflops") < 1
