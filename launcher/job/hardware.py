"""The accelerator: FLOP/s, memory, links, measured efficiencies."""

from launcher.job.option import option
from launcher.records import dataclass

_MEASURED = "measured; see hardware.measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator and its links: peaks from data sheets, and measured efficiencies.

    Efficiencies are fractions of the corresponding peak (of each number format).
    Attention counts every query-key pair, also those that a
    causal mask skips, so that its efficiency may exceed one.
    """

    name: str | None = option(None, "Name of the accelerator.")
    device: str = option("cuda", "Kind of device.", choices=("cuda", "npu", "cpu"))
    memory_gib: float | None = option(None, "Memory per device.", unit="GiB", source="data sheet", minimum=0)
    bf16_tflops: float | None = option(None, "Peak bf16, dense.", unit="TFLOP/s", source="data sheet", minimum=0)
    fp8_tflops: float | None = option(
        None,
        "Peak FP8 with one scale a tensor (recipes delayed and tensorwise), dense; none: no FP8.",
        unit="TFLOP/s",
        source="data sheet",
        minimum=0,
    )
    fp8_blockwise_tflops: float | None = option(
        None,
        "Peak FP8 with one scale a block (recipe blockwise), dense; none: the machine lacks it.",
        unit="TFLOP/s",
        source="data sheet",
        minimum=0,
    )
    mxfp8_tflops: float | None = option(
        None, "Peak MXFP8, dense; none: the machine lacks it.", unit="TFLOP/s", source="data sheet", minimum=0
    )
    nvfp4_tflops: float | None = option(
        None, "Peak NVFP4, dense; none: the machine lacks it.", unit="TFLOP/s", source="data sheet", minimum=0
    )
    fp32_tflops: float | None = option(
        None,
        "Peak fp32, dense, without TF32: torch multiplies in TF32 only where it is switched on.",
        unit="TFLOP/s",
        source="data sheet; torch.backends.cuda.matmul.allow_tf32, false since 1.12",
        minimum=0,
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
        None,
        "Devices that the links within a node join, counted up to cluster.devices_per_node; for links that span nodes "
        "see hardware.domain_devices.",
        unit="devices",
        source="data sheet",
        minimum=1,
    )
    domain_devices: int | None = option(
        None,
        "Devices that the accelerators' own links join, also across nodes (NVLink or HCCS domain, SuperPoD); none: "
        "those of a node.",
        unit="devices",
        source="data sheet",
        minimum=1,
    )
    domain_used_devices: int | None = option(
        None,
        "Devices of each domain that a job takes which is larger than one (Slurm's --segment, MindCluster's sp-block, "
        "in devices); none: all.",
        unit="devices",
        minimum=1,
    )
    domain_gbs: float | None = option(
        None,
        "Bandwidth between the nodes of a domain, per device, one direction; none: as within a node.",
        unit="GB/s",
        source="data sheet",
        minimum=0,
    )
    domain_latency_us: float | None = option(
        None,
        "Latency of a collective's step between the nodes of a domain; none: as within a node.",
        unit="us",
        source=_MEASURED,
        minimum=0,
    )
    domain_efficiency: float | None = option(
        None,
        "Links between the nodes of a domain, during any collective; none: as within a node.",
        source=_MEASURED,
        minimum=0,
    )
    domain_oversubscription: float | None = option(
        None,
        "Factor by which the devices of a node exceed the links that leave it, within a domain; none: 1.",
        source="data sheet",
        minimum=1,
    )
    rail_devices: int | None = option(
        None,
        "Devices whose network adapters meet in the first tier of switches (rails of a scalable unit); none: all.",
        unit="devices",
        minimum=1,
    )
    rail_oversubscription: float | None = option(
        None, "Factor by which adapters exceed the first tier of switches; none: 1.", minimum=1
    )
    spine_gbs: float | None = option(
        None,
        "Network bandwidth per device beyond the rail, one direction; none: hardware.inter_node_gbs.",
        unit="GB/s",
        minimum=0,
    )
    spine_latency_us: float | None = option(
        None,
        "Latency of a collective's step beyond the rail; none: hardware.inter_node_latency_us.",
        unit="us",
        source=_MEASURED,
        minimum=0,
    )
    spine_efficiency: float | None = option(
        None, "Network beyond the rail; none: hardware.inter_node_efficiency.", source=_MEASURED, minimum=0
    )
    spine_oversubscription: float | None = option(
        None, "Factor by which the first tier of switches exceeds the links of the spine; none: 1.", minimum=1
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
    fp8_matmul_efficiency: float | None = option(
        None,
        "Matrix products in FP8 (one scale a tensor), forward and input gradient; none: as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    fp8_weight_gradient_efficiency: float | None = option(
        None,
        "Weight gradients in FP8 (one scale a tensor); none: as far below the other products as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    fp8_grouped_matmul_efficiency: float | None = option(
        None,
        "Grouped matrix products in FP8 (one scale a tensor); none: as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    fp8_blockwise_matmul_efficiency: float | None = option(
        None,
        "Matrix products in FP8 (one scale a block), forward and input gradient; none: as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    fp8_blockwise_weight_gradient_efficiency: float | None = option(
        None,
        "Weight gradients in FP8 (one scale a block); none: as far below the other products as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    fp8_blockwise_grouped_matmul_efficiency: float | None = option(
        None,
        "Grouped matrix products in FP8 (one scale a block); none: as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    mxfp8_matmul_efficiency: float | None = option(
        None,
        "Matrix products in MXFP8, forward and input gradient; none: as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    mxfp8_weight_gradient_efficiency: float | None = option(
        None,
        "Weight gradients in MXFP8; none: as far below the other products as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    mxfp8_grouped_matmul_efficiency: float | None = option(
        None, "Grouped matrix products in MXFP8; none: as in BF16.", source=_MEASURED, minimum=0
    )
    nvfp4_matmul_efficiency: float | None = option(
        None,
        "Matrix products in NVFP4, forward and input gradient; none: as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    nvfp4_weight_gradient_efficiency: float | None = option(
        None,
        "Weight gradients in NVFP4; none: as far below the other products as in BF16.",
        source=_MEASURED,
        minimum=0,
    )
    nvfp4_grouped_matmul_efficiency: float | None = option(
        None, "Grouped matrix products in NVFP4; none: as in BF16.", source=_MEASURED, minimum=0
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
        "Efficiency of attention whose query and value heads differ in size (MLA), relative to other attention.",
        source=_MEASURED,
        minimum=0,
    )
    memory_efficiency: float | None = option(
        None, "Memory bandwidth of element-wise kernels.", source=_MEASURED, minimum=0
    )
    optimizer_efficiency: float | None = option(
        None,
        "Memory bandwidth of the optimizer's update, counted as one pass; none: as element-wise kernels.",
        source=_MEASURED,
        minimum=0,
    )
    permute_efficiency: float | None = option(
        None, "Memory bandwidth of the permutation of tokens.", source=_MEASURED, minimum=0
    )
    cross_entropy_efficiency: float | None = option(
        None, "Memory bandwidth of the cross entropy.", source=_MEASURED, minimum=0
    )
    kernel_latency_us: float | None = option(
        None, "Time of the shortest kernel, launch included.", unit="us", source=_MEASURED, minimum=0
    )
    host_launch_us: float | None = option(
        None,
        "Host time per kernel, framework included; limits small kernels without CUDA graphs.",
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
    reduce_scatter_copies: bool = option(
        False,
        "The library of collectives copies what it reduces and scatters (gloo): of gradients with the distributed "
        "optimizer, also on one replica.",
    )
    workspace_gib: float | None = option(
        None,
        "Workspace of one library of matrix products, inside the framework's allocator.",
        unit="GiB",
        source=_MEASURED,
        minimum=0,
    )
    small_buffers_gib: float | None = option(
        None,
        "Tokens, masks, rotary tables and other small tensors; none: 0.039 GiB (40 MiB), as on GPUs.",
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
    measured: str | None = option(None, "Who measured the efficiencies, and where; none: assumed, not measured.")
    unverified: tuple[str, ...] = option(
        (), "Figures of this file that differ between variants or have no source; the estimate lists them as missing."
    )


def host_devices(hardware: Hardware, devices_per_node: int) -> int:
    """Return the devices of a host that its links join."""
    return min(hardware.node_devices or devices_per_node, devices_per_node)


def linked_devices(hardware: Hardware, devices_per_node: int, world: int) -> int:
    """Return the devices of a job that the accelerators' own links join: of a host, or of a domain of hosts."""
    host, domain = host_devices(hardware, devices_per_node), hardware.domain_devices
    if domain is None or domain <= host:
        return host
    return domain if world <= domain else (hardware.domain_used_devices or domain)


# Devices of a domain of small nodes that count as close: those of a node of eight.
_CLOSE = 8


def close_devices(hardware: Hardware, devices_per_node: int, world: int) -> int:
    """Return the devices within which tensor parallelism is tried: a node's, or as many in a domain of small nodes."""
    return max(devices_per_node, min(linked_devices(hardware, devices_per_node, world), _CLOSE))
