"""Where and by what the job runs: hardware, cluster, backend, and what the launcher itself does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.job.option import option

_MEASURED = "measured; see hardware.measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator and its links: peaks from data sheets, and the shares of them that were measured.

    Efficiencies are shares of the peak that is named beside them; attention counts every query-key pair, also those
    that a causal mask skips, so that its efficiency may exceed one.
    """

    name: str | None = option(None, "Name of the accelerator.")
    device: str = option("cuda", "Kind of device.", choices=("cuda", "npu", "cpu"))
    memory_gib: float | None = option(None, "Memory per device.", unit="GiB", source="data sheet", minimum=0)
    bf16_tflops: float | None = option(None, "Peak bf16, dense.", unit="TFLOP/s", source="data sheet", minimum=0)
    fp8_tflops: float | None = option(
        None, "Peak FP8, dense; none: no FP8.", unit="TFLOP/s", source="data sheet", minimum=0
    )
    fp32_tflops: float | None = option(
        None, "Peak fp32 (TF32 where there is one), dense.", unit="TFLOP/s", source="data sheet", minimum=0
    )
    memory_bandwidth_gbs: float | None = option(None, "Memory bandwidth.", unit="GB/s", source="data sheet", minimum=0)
    intra_node_gbs: float | None = option(
        None, "Link bandwidth within a node, per device, both directions.", unit="GB/s", source="data sheet", minimum=0
    )
    inter_node_gbs: float | None = option(
        None, "Network bandwidth per device, one direction.", unit="GB/s", source="data sheet", minimum=0
    )
    intra_node_latency_us: float | None = option(
        None, "Latency of a collective's step within a node.", unit="us", source=_MEASURED, minimum=0
    )
    inter_node_latency_us: float | None = option(
        None, "Latency of a collective's step between nodes.", unit="us", source=_MEASURED, minimum=0
    )
    collective_latency_us: float | None = option(
        None, "Time until any collective starts to move data.", unit="us", source=_MEASURED, minimum=0
    )
    shared_link_gbs: float | None = option(
        None,
        "Bandwidth of the host bridges that concurrent groups of a node share (PCIe); none: links do not interfere.",
        unit="GB/s",
        source=_MEASURED,
        minimum=0,
    )
    node_devices: int | None = option(
        None, "Devices that the links within a node join.", unit="devices", source="data sheet", minimum=1
    )
    full_mesh: bool = option(
        False,
        "The links of a node are a mesh: a group of k devices uses k - 1 of each device's links.",
        source="data sheet",
    )
    matmul_efficiency: float | None = option(
        None, "Matrix products, forward and input gradient.", source=_MEASURED, minimum=0
    )
    weight_gradient_efficiency: float | None = option(
        None, "Matrix products of weight gradients, accumulated in fp32.", source=_MEASURED, minimum=0
    )
    small_matmul_gflop: float | None = option(
        None,
        "Size at which a matrix product reaches half of its efficiency.",
        unit="GFLOP",
        source=_MEASURED,
        minimum=0,
    )
    grouped_matmul_efficiency: float | None = option(
        None, "Grouped matrix products of experts with many tokens each.", source=_MEASURED, minimum=0
    )
    grouped_matmul_tokens: float | None = option(
        None,
        "Tokens per expert at which grouped products reach half of their efficiency.",
        unit="tokens",
        source=_MEASURED,
        minimum=0,
    )
    attention_efficiency: float | None = option(None, "Attention, forward.", source=_MEASURED, minimum=0)
    attention_backward_efficiency: float | None = option(None, "Attention, backward.", source=_MEASURED, minimum=0)
    attention_overhead_us: float | None = option(
        None,
        "Time of attention beyond its arithmetic: start, first and last blocks.",
        unit="us",
        source=_MEASURED,
        minimum=0,
    )
    latent_attention_share: float | None = option(
        None,
        "Efficiency of attention whose query and value heads differ in size (MLA), of the other.",
        source=_MEASURED,
        minimum=0,
    )
    memory_efficiency: float | None = option(
        None, "Memory bandwidth of element-wise kernels.", source=_MEASURED, minimum=0
    )
    permute_efficiency: float | None = option(
        None, "Memory bandwidth of the permutation of tokens.", source=_MEASURED, minimum=0
    )
    cross_entropy_efficiency: float | None = option(
        None, "Memory bandwidth of the cross entropy.", source=_MEASURED, minimum=0
    )
    kernel_latency_us: float | None = option(
        None, "Time of the shortest kernel, with its start.", unit="us", source=_MEASURED, minimum=0
    )
    host_launch_us: float | None = option(
        None,
        "Time of the host for one kernel, framework included; binds small kernels without CUDA graphs.",
        unit="us",
        source=_MEASURED,
        minimum=0,
    )
    all_reduce_efficiency: float | None = option(
        None, "Links during all-reduce, of one direction.", source=_MEASURED, minimum=0
    )
    all_gather_efficiency: float | None = option(
        None, "Links during all-gather, of one direction.", source=_MEASURED, minimum=0
    )
    reduce_scatter_efficiency: float | None = option(
        None, "Links during reduce-scatter, of one direction.", source=_MEASURED, minimum=0
    )
    all_to_all_efficiency: float | None = option(
        None, "Links during all-to-all, of one direction.", source=_MEASURED, minimum=0
    )
    p2p_efficiency: float | None = option(
        None, "Links between two devices, of one direction.", source=_MEASURED, minimum=0
    )
    inter_node_efficiency: float | None = option(None, "Network between nodes.", source=_MEASURED, minimum=0)
    workspace_gib: float | None = option(
        None,
        "Workspace of one library of matrix products, inside the framework's allocator.",
        unit="GiB",
        source=_MEASURED,
        minimum=0,
    )
    reserved_gib: float | None = option(
        None,
        "Memory outside the framework's allocator: context, communication buffers.",
        unit="GiB",
        source=_MEASURED,
        minimum=0,
    )
    host_link_gbs: float | None = option(
        None, "Bandwidth to host memory, one direction.", unit="GB/s", source="data sheet", minimum=0
    )
    price: float | None = option(
        None, "Price of one device for one hour; gives the cost of a billion tokens.", minimum=0
    )
    source: str | None = option(None, "Where the figures of the data sheet come from.")
    measured: str | None = option(None, "Who measured the efficiencies, where; none: nobody did, they are assumed.")
    unverified: tuple[str, ...] = option(
        (), "Figures of this file that differ between variants or have no source; the estimate lists them as missing."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions:
    """How `launch estimate` judges, and what it cannot read from the rest of the job."""

    enforce: bool = option(True, "`run` refuses a job that cannot fit by more than the estimate's own error.")
    mem_factor: float = option(
        0.94, "Share of the reserved memory that tensors fill; reserved = allocated / mem_factor.", minimum=0.1
    )
    attention_sparsity: float = option(
        0.0, "Share of attention that a sparse mask skips beyond the causal half; changes time alone.", minimum=0
    )
    dispatch_probs: bool = option(
        True, "Router probabilities travel with the tokens (Megatron-core from 0.14): the combine keeps no input."
    )
    discard_last_output: bool = option(
        False, "A recomputed module's last product is not run again (recompute_variance): time alone."
    )


# What `launch search` varies. Each axis stands for one field, but recompute (granularity, method, layers) and stages
# (uneven splits, where layers do not divide).
SEARCH_AXES = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "micro_batch_size",
    "sequence_parallel",
    "distributed_optimizer",
    "recompute",
    "stages",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What `launch search` varies, and how far."""

    axes: tuple[str, ...] = option((), "Axes that are searched; none: all.", choices=SEARCH_AXES)
    fix: tuple[str, ...] = option((), "Axes that keep the job's value.", choices=SEARCH_AXES)
    max_tp: int | None = option(None, "Largest tensor parallel size; none: devices per node.", minimum=1)
    max_pp: int = option(64, "Largest pipeline parallel size.", minimum=1)
    max_vpp: int = option(8, "Most chunks per stage.", minimum=1)
    max_cp: int = option(16, "Largest context parallel size.", minimum=1)
    max_ep: int | None = option(None, "Largest expert parallel size; none: the number of experts.", minimum=1)
    max_etp: int | None = option(None, "Largest expert tensor parallel size; none: devices per node.", minimum=1)
    max_micro_batch_size: int = option(8, "Largest micro batch.", unit="samples", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The training stack that runs the job."""

    name: str | None = option(None, "Backend.")
    version: str | None = option(None, "Version whose arguments are written; none: the backend's newest known.")
    args: Mapping[str, Any] = option({}, "Native arguments passed through as they are, checked against the catalogue.")
    env: Mapping[str, str] = option({}, "Environment variables for every node.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """How a rehearsal runs the job where there is no accelerator or no native stack."""

    entry: str = option(
        "core",
        "What runs: our trainer on the real megatron-core, or the backend's own entry point on CPU.",
        choices=("core", "native"),
    )
    shrink: bool = option(False, "Scale the model down to this machine, keeping topology and switches.")
    fake_world: bool = option(False, "Play ranks of the full world size in one process, one iteration.")
    ranks: tuple[int, ...] = option((), "fake_world: ranks to play; none: first and last rank of every pipeline stage.")
    max_processes: int | None = option(
        None, "shrink: most processes on this machine; none: one per core, at least 2.", minimum=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How strictly the job is judged."""

    strict: str = option(
        "all",
        "all: our own stricter rules are errors; upstream: they are warnings.",
        choices=("all", "upstream"),
    )
    disable: tuple[str, ...] = option((), "Rule ids that are not applied; named in the findings.")
