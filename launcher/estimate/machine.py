"""Speed of one device and its links: data-sheet peaks times measured efficiencies, and the assumptions made."""

from functools import lru_cache

from launcher.estimate.profile import profile_of
from launcher.estimate.topology import Level, levels_of
from launcher.job import Job
from launcher.job.hardware import Hardware, linked_devices
from launcher.job.number_formats import BF16, FP32, NumberFormat, format_of
from launcher.records import record

# Defaults for unmeasured values: efficiencies of well-tuned machines, always listed under `missing`.
ASSUMED: dict[str, float] = {
    "matmul_efficiency": 0.65,
    "weight_gradient_efficiency": 0.62,
    "small_matmul_gflop": 3.0,
    "grouped_matmul_efficiency": 0.55,
    "grouped_matmul_tokens": 300.0,
    "attention_efficiency": 0.8,
    "attention_backward_efficiency": 0.7,
    "attention_overhead_us": 30.0,
    "latent_attention_share": 0.8,
    "memory_efficiency": 0.75,
    "permute_efficiency": 0.4,
    "cross_entropy_efficiency": 0.4,
    "kernel_latency_us": 15.0,
    "host_launch_us": 38.0,
    "all_reduce_efficiency": 0.75,
    "all_gather_efficiency": 0.7,
    "reduce_scatter_efficiency": 0.7,
    "all_to_all_efficiency": 0.6,
    "p2p_efficiency": 0.8,
    "inter_node_efficiency": 0.8,
    "intra_node_latency_us": 8.0,
    "inter_node_latency_us": 15.0,
    "collective_latency_us": 25.0,
    "inter_node_gbs": 25.0,
    "host_link_gbs": 25.0,
    "workspace_gib": 0.03125,
    "reserved_gib": 1.5,
    "memory_bandwidth_gbs": 1600.0,
    "intra_node_gbs": 392.0,
}
_LINKS = ("inter_node_gbs", "inter_node_efficiency", "inter_node_latency_us")
_EXPERTS = ("grouped_matmul_efficiency", "grouped_matmul_tokens", "permute_efficiency", "all_to_all_efficiency")


@record(eq=False)
class Machine:
    """Figures of one device in SI units (FLOP/s, bytes/s, seconds); times are meaningless unless `known`.

    Attributes:
        levels: what joins the devices, inside first; the last one joins all.
        linked: devices that the accelerators' own links join (NVLink or HCCS domain).
    """

    known: bool
    peak: float
    peak_bf16: float
    matmul: float
    matmul_plain: float
    weight_gradient: float
    weight_gradient_plain: float
    small: float
    grouped: float
    grouped_tokens: float
    attention: float
    attention_backward: float
    attention_overhead: float
    latent_share: float
    memory: float
    optimizer: float
    permute: float
    cross_entropy: float
    latency: float
    launch: float
    levels: tuple[Level, ...]
    linked: int
    start: float
    shared: float | None
    host: float
    mesh: bool

    def linear(self, flops: float, size: float, *, gradient: bool = False, plain: bool = False) -> float:
        """Return the seconds of a matrix product of `flops` that moves `size` bytes.

        Args:
            gradient: it is that of a weight's gradient.
            plain: in 16 bits, also where the job's other products take fewer.
        """
        if plain:
            peak, efficiency = self.peak_bf16, self.weight_gradient_plain if gradient else self.matmul_plain
        else:
            peak, efficiency = self.peak, self.weight_gradient if gradient else self.matmul
        compute = (flops + self.small) / (peak * efficiency)
        return max(compute, size / self.memory, self.latency)

    def experts(self, flops: float, size: float, tokens: float, *, gradient: bool = False) -> float:
        """Return the seconds of a grouped product whose experts get `tokens` tokens each."""
        # Never above that of one product: B200's benchmark has 0.46 to 0.48 at 9,832 tokens (SimuMax 1.2).
        efficiency = min(self.grouped * tokens / (tokens + self.grouped_tokens), self.matmul)
        if gradient:
            efficiency *= 0.8
        return max(flops / (self.peak * efficiency), size / self.memory, self.latency) if flops else 0.0

    def moved(self, size: float) -> float:
        """Return the seconds of an element-wise kernel that moves `size` bytes."""
        return size / self.memory + self.latency if size else 0.0

    def core(self, flops: float, *, latent: bool, backward: bool) -> float:
        """Return the seconds of attention; `flops` count every pair of query and key."""
        efficiency = self.attention_backward if backward else self.attention
        if latent:
            efficiency *= self.latent_share
        return flops / (self.peak_bf16 * efficiency) + self.attention_overhead


def read_machine(job: Job, *, experts: bool) -> tuple[Machine, tuple[str, ...]]:
    """Return the figures of a job's device, and the assumptions made for values missing from the hardware file."""
    cluster, started = job.cluster, profile_of(job).host_launch
    return _read(job.hardware, format_of(job.precision), cluster.devices_per_node, experts, cluster.nodes, started)


@lru_cache(maxsize=256)
def _read(
    hardware: Hardware, products: NumberFormat, node: int, experts: bool, nodes: int, started: float
) -> tuple[Machine, tuple[str, ...]]:
    assumed: list[str] = []
    linked = linked_devices(hardware, node, node * nodes)
    # What a job never uses is not listed as assumed: the network within one domain, the exchange of dense models.
    unused = {
        "host_link_gbs",
        *(() if started else ("host_launch_us",)),
        *(() if experts else _EXPERTS),
        *(_LINKS if node * nodes <= max(node, linked) else ()),
    }

    def figure(name: str) -> float:
        value = getattr(hardware, name)
        if value is not None:
            return float(value)
        if name not in unused:
            unused.add(name)
            assumed.append(f"hardware.{name}: {ASSUMED[name]:g} (not measured)")
        return ASSUMED[name]

    peak = getattr(hardware, products.peak)
    if peak is None:
        peak = (hardware.bf16_tflops or 0.0) / (2 if products is FP32 else 1)
        if products is FP32 and peak:
            assumed.append(f"hardware.fp32_tflops: {peak:g} (half of bf16)")
    known, peak = bool(peak), peak or 1.0
    bandwidth = figure("memory_bandwidth_gbs") * 1e9
    memory = bandwidth * figure("memory_efficiency")
    matmul, weight_gradient = figure("matmul_efficiency"), figure("weight_gradient_efficiency")
    grouped = figure("grouped_matmul_efficiency")
    matmul_plain, weight_gradient_plain = matmul, weight_gradient
    if products.settings:
        own = _of_format(hardware, products, "matmul_efficiency", matmul, assumed)
        gradient: float | None = getattr(hardware, f"{products.name}_weight_gradient_efficiency")
        weight_gradient, matmul = gradient or weight_gradient * (own / matmul), own
        if experts:
            grouped = _of_format(hardware, products, "grouped_matmul_efficiency", grouped, assumed)
    machine = Machine(
        known=known,
        peak=peak * 1e12,
        peak_bf16=peak * 1e12 if products in (BF16, FP32) else (hardware.bf16_tflops or peak) * 1e12,
        matmul=matmul,
        matmul_plain=matmul_plain,
        weight_gradient=weight_gradient,
        weight_gradient_plain=weight_gradient_plain,
        small=figure("small_matmul_gflop") * 1e9,
        grouped=grouped,
        grouped_tokens=figure("grouped_matmul_tokens"),
        attention=figure("attention_efficiency"),
        attention_backward=figure("attention_backward_efficiency"),
        attention_overhead=figure("attention_overhead_us") * 1e-6,
        latent_share=figure("latent_attention_share"),
        memory=memory,
        optimizer=memory if hardware.optimizer_efficiency is None else bandwidth * hardware.optimizer_efficiency,
        permute=bandwidth * figure("permute_efficiency"),
        cross_entropy=bandwidth * figure("cross_entropy_efficiency"),
        latency=figure("kernel_latency_us") * 1e-6,
        launch=figure("host_launch_us") * 1e-6 * started,
        levels=levels_of(hardware, node, node * nodes, figure),
        linked=linked,
        start=figure("collective_latency_us") * 1e-6,
        shared=hardware.shared_link_gbs * 1e9 if hardware.shared_link_gbs else None,
        host=figure("host_link_gbs") * 1e9,
        mesh=hardware.full_mesh,
    )
    return machine, (*hardware.unverified, *(assumed if known else ()))


def _of_format(hardware: Hardware, products: NumberFormat, kind: str, plain: float, assumed: list[str]) -> float:
    """Return the efficiency of a kind of products in a format smaller than BF16, by default that in BF16."""
    name = f"{products.name}_{kind}"
    value: float | None = getattr(hardware, name)
    if value is None:
        assumed.append(f"hardware.{name}: {plain:g} (that of BF16; not measured in {products.title})")
        return plain
    return value
