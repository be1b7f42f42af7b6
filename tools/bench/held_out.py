"""Which measured runs the estimate's figures were fitted to or chosen on: what is left is the test of the estimate.

A figure is fitted where its value was set so that runs come out right, and chosen where alternatives were compared on
runs. Sources of the entries: comments of `conf/hardware/*.yaml`, docs/estimate.md, git history. Kernel benchmarks
(`kernels.jsonl`, SimuMax's system files) are measurements of kernels, not of these runs, and do not count.
`launcher/estimate/kin.json` holds the errors of all runs: it gives an answer's range, never its value.

What is quantised by kernels of its own is no choice between alternatives on runs: `launcher/job/quantisation.py` was
written down from Transformer Engine's and megatron-core's sources, then counted for all layers, then the errors were
computed (2026-11-29), and the result was kept though dense runs miss their goal with it. The two figures of those
kernels (`python -m tools.bench.quantisation --fit`) are the least squares of Transformer Engine's benchmark, not of
runs; that both are fitted together, instead of one beside an assumed bandwidth, was decided after the first result.
Until then quantisation counted for experts and latent attention alone, which was kept after a look at these runs.

Products below 16 bits on Blackwell (2026-11-29, b799819b) were decided and committed before an error of a kept-out run
was computed; the means of their groups were known from docs/estimate.md. From the source: gradients of weights have
their own share in each format, and one scale a tensor is as much faster than MXFP8 on a B200 as on the B300 that
Transformer Engine measured (until then as fast as MXFP8, while NVFP4 had its ratio). From runs that were used before
(the 53 dense ones in these formats on GB200 and GB300, and 17 of GB200 with experts): such products are not set 5 %
below the benchmarks of kernels. Root of the mean squared error of the 70: 9.5 % before, 9.0 with the two from the
source, 8.4 with all; the best factor was that of the benchmarks, which was also the limit.

MindFormers (2026-11-29): counted from the sources, with reasons in the commits: full recomputation without a layer's
last product; experts of its older classes as ordinary products of whole capacities; rotary positions of those classes
with a BatchMatMul and casts. The last was chosen on the 19 used runs (4.8 % before, 4.3 with it; 4.3 with the casts of
norms to fp32 instead, which the source has as well, 4.9 with both, 5.4 with transpositions besides).

Rejected on used runs: a start of 5.2 us for every kernel of a B200 instead of 30 (SimuMax's 18 runs: 3.4 % instead of
2.4, also where bandwidth and products are fitted again); collectives of column products hidden behind the backward's
products, as Transformer Engine starts them (layernorm_linear.py:669, 746; SimuMax with tp 8: 15 and 31 % fast); a start
by the host for the product of each expert (its pull request 3134; Moonlight 9 % slow instead of 4, GB200 unchanged).

Tried and withdrawn (2026-11-29, 68037ee7): 76 us for a Grace host to start a kernel, twice the 38 fitted on H100.
Transformer Engine's issue 2053 measures 37 us for a product of torch on a GB200 and 13 on a DGX H100, and twice was the
least squares of the 21 used runs of GB200 with experts (11.9 % to 9.4). It was committed, then kept-out runs were
computed: GB200 with experts 15.6 % instead of 6.5, all 71 8.7 instead of 7.3. The same source has 100 us for a product
of Transformer Engine on a GB200, which counts as three starts: 33 us each, no more than 38. That was noticed after the
errors were seen. Whoever takes the withdrawal for a choice made on the runs of GB200 and GB300 with experts leaves them
out: H100 and B200 alone are 6.9 % off over 32.

Constants of the estimate without a record of how they were set count as assumptions: `_WITH_TP_OVERLAP` (stored.py),
`_EXPOSED_SHARE` (experts.py), `_SHOWN` and `_BACKWARD_LAUNCHES` (operation.py), the least share of a reduction that
stays exposed (timing.py).
"""

from dataclasses import dataclass
from typing import Literal

Quantity = Literal["time", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One figure or formula, and the runs that decided it.

    Attributes:
        what: the figure.
        how: fitted (its value) or chosen (between alternatives).
        quantity: what of the runs decided: their time or memory.
        source: start of the runs' source, as the table names it.
        hardware: name of the device; empty: all.
        experts: whether the runs have experts; None: both.
        kind: what the table distinguishes of models; empty: all.
        names: parts of the runs' names, one of which must occur; empty: all.
        seen: only runs that were known when it was decided (`seen` in measured_bridge.jsonl).
    """

    what: str
    how: Literal["fitted", "chosen"]
    quantity: Quantity
    source: str
    hardware: str = ""
    experts: bool | None = None
    kind: str = ""
    names: tuple[str, ...] = ()
    seen: bool = False


USES: tuple[Use, ...] = (
    Use(
        what="hardware.matmul_efficiency and weight_gradient_efficiency, B200: 0.95 of kernel benchmarks",
        how="fitted",
        quantity="time",
        source="SimuMax",
        hardware="B200",
    ),
    Use(
        what="hardware.matmul_efficiency and weight_gradient_efficiency, A100 PCIe: 0.98 of kernel benchmarks",
        how="fitted",
        quantity="time",
        source="SimuMax",
        hardware="A100-PCIe-80GB",
    ),
    Use(what="40 MiB of small buffers", how="fitted", quantity="memory", source="SimuMax"),
    Use(what="host_launch_us", how="fitted", quantity="time", source="Megatron-Bridge guides", experts=True),
    Use(
        what="host_launch_us",
        how="fitted",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="H100-SXM5-80GB",
        names=("Qwen3_30B",),
        seen=True,
    ),
    Use(
        what="products of B300 instead of B200 in the hardware files of GB300",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB300-NVL72",
        names=("LLAMA3.1_405B",),
        seen=True,
    ),
    Use(
        what="products of B200 instead of B300 in the hardware file of GB200",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB200-NVL72",
        names=("LLAMA",),
    ),
    Use(
        what="products below 16 bits at the shares of kernel benchmarks (B200, GB200, B300, GB300)",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB200-NVL72",
        seen=True,
        experts=True,
    ),
    Use(
        what="the same",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB200-NVL72",
        names=("LLAMA",),
    ),
    Use(
        what="the same",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB300-NVL72",
        names=("LLAMA3.1_405B",),
        seen=True,
    ),
    Use(
        what="the same",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB300-NVL72",
        kind="dense, FSDP",
    ),
    Use(
        what="gradients are copied into the bucket with FSDP",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        kind="dense, FSDP",
    ),
    Use(
        what="latency of an exchange inside a domain: that of eight devices",
        how="chosen",
        quantity="time",
        source="Megatron-Bridge tables",
        hardware="GB200-NVL72",
        experts=True,
        seen=True,
    ),
    Use(
        what="share that fine_grain_interleave leaves exposed",
        how="fitted",
        quantity="time",
        source="MindFormers tables, not held out",
    ),
    Use(
        what="kernels of rotary positions in MindFormers' older classes, without the casts of their norms",
        how="chosen",
        quantity="time",
        source="MindFormers tables, not held out",
    ),
)


def used(*, source: str, hardware: str, experts: bool, kind: str, name: str, seen: bool, quantity: Quantity) -> str:
    """Return whether a run's figure was used: `fitted`, `chosen`, or empty where no figure depends on it."""
    found = {
        use.how
        for use in USES
        if use.quantity == quantity
        and source.startswith(use.source)
        and use.hardware in ("", hardware)
        and use.experts in (None, experts)
        and use.kind in ("", kind)
        and (not use.names or any(part in name for part in use.names))
        and (seen or not use.seen)
    }
    return "fitted" if "fitted" in found else "chosen" if found else ""
