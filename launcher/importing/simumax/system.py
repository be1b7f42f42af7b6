"""Converts SimuMax's system file to the figures of a hardware file.

Source: SimuMax 1.2 (4dcaae5) simumax/core/config.py SystemConfig.compute_op_accuracy_time, compute_net_op_time;
base_struct.py. SimuMax's `gbps` is GiB/s; of networks within a node it is one direction of one device's links.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from statistics import mean
from typing import Any

from launcher.importing.notes import Note
from launcher.importing.simumax import efficiency
from launcher.importing.simumax.rows import DROPPED, IMPLIED, MAPPED, NEAREST, Row, is_a, repr_of, unknown
from launcher.importing.simumax.table import NUMBER, SYSTEM
from launcher.job import Value

_GIB = 2**30 / 1e9
# Sections that are one value: a table of shapes or of group sizes.
_WHOLE = ("accurate_efficient_factor", "fixed_latency_us_by_comm_num", "dp_fixed_bw")
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all2all")
_NAMES = {"all2all": "all_to_all"}
_STANDARD = {"all_reduce": (2, -1), "p2p": (1, 0)}
_OPS = ("default", "matmul", "group_matmul", "sdp_fwd", "sdp_bwd", "fp8_matmul", "fp8_group_matmul")
_BANDWIDTHS = ("default", "permute_fwd", "permute_bwd", "ce", "ce_fusion")

# Fields without a figure of a hardware file, by pattern; the first that matches holds.
_REASONS: tuple[tuple[str, str, str], ...] = (
    ("accelerator.op.*", DROPPED, "an operation that the estimate does not tell from others"),
    ("accelerator.bandwidth.*.latency_us", DROPPED, "one kernel latency holds for all: that of bandwidth.default"),
    ("accelerator.bandwidth.*.fixed_latency*", IMPLIED, "SimuMax reads it for networks only"),
    ("accelerator.bandwidth.*", DROPPED, "a bandwidth that the estimate does not tell from others"),
    ("networks.low_intra_node.*", IMPLIED, "SimuMax never selects this network"),
    ("networks.*.op.*.scale", IMPLIED, "bytes that the collective moves, as in the estimate"),
    ("networks.*.op.*.offset", IMPLIED, "bytes that the collective moves, as in the estimate"),
    ("networks.*.processor_usage", IMPLIED, "SimuMax does not read it"),
    ("networks.*.fixed_latency_us_by_comm_num", DROPPED, "one latency holds for all sizes of a group"),
    ("networks.intra_node_pcie_8x.*", DROPPED, "the estimate computes it: groups across the host bridge share it"),
    ("networks.intra_node_pcie_2x.*", DROPPED, "groups within half of a node have the figures of intra_node_pcie_4x"),
    ("networks.inter_node.op.*", DROPPED, "one efficiency and latency hold for the network: those of its bandwidth"),
    ("networks.*.dp_fixed_bw", DROPPED, "the largest total of concurrent groups is hardware.shared_link_gbs"),
    ("networks.*.bandwidth.efficient_factor", IMPLIED, "every operation has its own"),
    ("networks.*.bandwidth.latency_us", IMPLIED, "every operation has its own"),
    ("networks.*.bandwidth.fixed_latency*", DROPPED, "a fixed latency of the network is read from its operations"),
    ("networks.*.op.p2p.*", DROPPED, "one latency holds for all collectives"),
)


class System:
    """A system file: its figures, and what became of each field."""

    def __init__(self, tree: Mapping[str, Any], source: str) -> None:
        """Convert a file whose values are valid (`system_mistakes`)."""
        self.tree, self.source = tree, source
        self.values: dict[str, Value] = {}
        self._said: dict[str, tuple[str, tuple[str, ...], str]] = {}
        self._header()
        self._compute()
        self._moves()
        self._links()

    @property
    def per_node(self) -> int:
        """Devices of a node."""
        return int(self.tree.get("num_per_node", 8))

    def rows(self) -> list[Row]:
        """Return what became of every field of the file."""
        made = []
        for path, value in leaves(self.tree):
            status, fields, note = self._said.get(path) or _reason(path)
            if value in ({}, None) and status == DROPPED:
                status, note = IMPLIED, "empty"
            if not status:
                made.append(unknown("system", path, value, known_paths()))
                continue
            if path.rpartition(".")[2] == "accurate_efficient_factor":
                value, note = f"{len(value)} shapes", note or "fitted"
            made.append(Row(file="system", field=path, value=value, status=status, fields=fields, note=note))
        return made

    def _put(self, name: str, value: Value, *paths: str, note: str = "", exact: bool = True) -> None:
        """Set a figure of the hardware from fields of the file, where the file has them."""
        number = round(value, 6) if isinstance(value, float) else value
        self.values[name] = number
        for path in paths:
            _, fields, before = self._said.get(path, ("", (), ""))
            text = "; ".join(dict.fromkeys(each for each in (before, note) if each))
            self._said[path] = (MAPPED if exact else NEAREST, (*fields, f"hardware.{name}"), text)

    def _share(self, name: str, value: float, *paths: str, most: float = 1.0, exact: bool = True) -> None:
        if value <= 0:
            for path in paths:
                self._said[path] = (
                    DROPPED,
                    (),
                    "0: not measured; the estimate assumes a value and lists it as missing",
                )
            return
        note = f"{value:.4g} in SimuMax: a share of the peak is at most {most:g} here" if value > most else ""
        self._put(name, min(value, most), *paths, note=note, exact=exact and not note)

    def _header(self) -> None:
        accelerator = self.tree["accelerator"]
        if self.tree.get("sys_name") is not None:
            self._put("name", str(self.tree["sys_name"]), "sys_name")
        backend = accelerator.get("backend", "cuda")
        note = "" if backend == "cuda" else "the estimate knows cuda, npu and cpu: taken as a GPU"
        self._put("device", "cuda", "accelerator.backend", note=note, exact=not note)
        self._put("memory_gib", float(accelerator["mem_gbs"]), "accelerator.mem_gbs")
        self._put("node_devices", self.per_node, "num_per_node")
        self._put("full_mesh", bool(self.tree.get("FC8", False)), "FC8")
        roofline = accelerator.get("mode", "roofline") == "roofline"
        self._said["accelerator.mode"] = (IMPLIED if roofline else DROPPED, (), SYSTEM["accelerator.mode"].reason)

    # -- kernels

    def _op(self, name: str) -> tuple[float, float, Mapping[str, float]]:
        """Return peak TFLOP/s, efficiency and table of an operation; those of `default` where it is not there."""
        ops = self.tree["accelerator"]["op"]
        found = ops.get(name) or ops.get("default") or {}
        return (
            float(found.get("tflops") or 0),
            float(found.get("efficient_factor") or 0),
            found.get("accurate_efficient_factor") or {},
        )

    def _compute(self) -> None:
        peak, plain, shapes = self._op("matmul")
        self._put("bf16_tflops", peak, *self._of("matmul", "tflops"))
        self._said["accelerator.op.default.tflops"] = (IMPLIED, (), "SimuMax's MFU counts it; here: the peak of matmul")
        self._said["accelerator.op.default.efficient_factor"] = (DROPPED, (), "every operation of the estimate has one")
        forward, weight = efficiency.products(shapes)
        table = self._of("matmul", "accurate_efficient_factor")
        default = self._of("matmul", "efficient_factor")
        line = efficiency.fit(forward) if forward else efficiency.Line(efficiency=plain, half=0.0)
        of_forward, of_weight = (table if forward else default), (table if weight else default)
        self._share("matmul_efficiency", line.efficiency, *of_forward, exact=not forward)
        self._put("small_matmul_gflop", line.half / 1e9, *of_forward, exact=not forward)
        gradient = efficiency.level(weight, line.half / line.efficiency) if weight else plain
        self._share("weight_gradient_efficiency", gradient, *of_weight, exact=not weight)
        if forward and weight:
            self._said[default[0]] = (IMPLIED, (), "mean of the shapes, which are fitted")
        self._grouped(peak)
        self._attention(peak)
        self._fp8(peak)

    def _of(self, op: str, name: str) -> tuple[str, ...]:
        return (f"accelerator.op.{op}.{name}",)

    def _peak(self, op: str, peak: float) -> float:
        """Return the peak of an operation relative to that of products."""
        own = self._op(op)[0]
        for path in self._of(op, "tflops"):
            same = own == peak
            note = "the same peak as matmul" if same else f"the efficiencies are scaled to the peak {peak:g} of matmul"
            self._said[path] = (IMPLIED if same else NEAREST, (), note)
        return own / peak if peak else 1.0

    def _grouped(self, peak: float) -> None:
        scale = self._peak("group_matmul", peak)
        _, plain, shapes = self._op("group_matmul")
        points = efficiency.grouped(shapes)
        line = efficiency.fit(points) if points else efficiency.Line(efficiency=plain, half=0.0)
        paths = self._of("group_matmul", "accurate_efficient_factor" if points else "efficient_factor")
        self._share("grouped_matmul_efficiency", line.efficiency * scale, *paths, exact=not points)
        self._put("grouped_matmul_tokens", line.half, *paths, exact=not points)
        if points:
            self._said[self._of("group_matmul", "efficient_factor")[0]] = (IMPLIED, (), "mean of the shapes")

    def _attention(self, peak: float) -> None:
        slope, flops = 0.0, {"sdp_fwd": 1.0, "sdp_bwd": 2.5}
        names = {"sdp_fwd": "attention_efficiency", "sdp_bwd": "attention_backward_efficiency"}
        for op, name in names.items():
            scale = self._peak(op, peak)
            _, plain, shapes = self._op(op)
            points = [(work * flops[op], e) for work, e in efficiency.attention(shapes, latent=False)]
            path = self._of(op, "accurate_efficient_factor" if points else "efficient_factor")
            if op == "sdp_fwd":
                line = efficiency.fit(points) if points else efficiency.Line(efficiency=plain, half=0.0)
                slope, value = line.half / line.efficiency if line.efficiency else 0.0, line.efficiency
                seconds = slope / (peak * scale * 1e12) if peak else 0.0
                self._put("attention_overhead_us", seconds * 1e6, *path, exact=not points)
                latent = efficiency.attention(shapes, latent=True)
                share = efficiency.level(latent, slope) / value if latent and value else 1.0
                self._share("latent_attention_share", share, *path, exact=not latent)
            else:
                value = efficiency.level(points, slope) if points else plain
            self._share(name, value * scale, *path, most=2.0, exact=not points)
            if points:
                self._said[self._of(op, "efficient_factor")[0]] = (IMPLIED, (), "mean of the shapes, which are fitted")

    def _fp8(self, peak: float) -> None:
        for op, name in (
            ("fp8_matmul", "fp8_matmul_efficiency"),
            ("fp8_group_matmul", "fp8_grouped_matmul_efficiency"),
        ):
            if op not in self.tree["accelerator"]["op"]:
                continue
            tflops, plain, _ = self._op(op)
            whole = [*self._of(op, "tflops"), *self._of(op, "efficient_factor")]
            if not plain or not tflops:
                for path in (*whole, *self._of(op, "accurate_efficient_factor")):
                    self._said[path] = (DROPPED, (), "efficiency 0: not measured, SimuMax cannot divide by it")
                continue
            if op == "fp8_matmul":
                self._put("fp8_tflops", tflops, whole[0])
            else:
                self._said[whole[0]] = (IMPLIED, (), "the peak of fp8_matmul")
            self._share(name, plain, whole[1])

    # -- memory and links

    def _moves(self) -> None:
        found = self.tree["accelerator"]["bandwidth"]
        plain = found["default"]
        where = "accelerator.bandwidth."
        gbs = float(plain["gbps"])
        self._put("memory_bandwidth_gbs", gbs * _GIB, f"{where}default.gbps", note="GiB/s")
        self._share("memory_efficiency", float(plain["efficient_factor"]), f"{where}default.efficient_factor")
        self._put("kernel_latency_us", float(plain.get("latency_us", 0)), f"{where}default.latency_us")
        for figure, names in (
            ("permute_efficiency", ("permute_fwd", "permute_bwd")),
            ("cross_entropy_efficiency", ("ce", "ce_fusion")),
        ):
            there = [name for name in names if name in found]
            shares = [float(found[name]["efficient_factor"]) * float(found[name]["gbps"]) / gbs for name in there]
            paths = [f"{where}{name}.{leaf}" for name in there for leaf in ("efficient_factor", "gbps")]
            value = mean(shares) if shares else float(plain["efficient_factor"])
            self._share(figure, value, *paths, exact=len(set(shares)) < 2)

    def _links(self) -> None:
        networks = self.tree["networks"]
        pcie = bool(networks.get("intra_with_pcie", False))
        self._said["networks.intra_with_pcie"] = (IMPLIED, (), "the names of the networks say it")
        wanted = ("intra_node_pcie_4x", "intra_node_pcie_8x", "intra_node_pcie_2x") if pcie else ("high_intra_node",)
        name = next(each for each in wanted if each in networks)
        inside, where = networks[name], f"networks.{name}."
        plain, ops = inside["bandwidth"], inside.get("op") or {}
        gbs = float(plain["gbps"]) * _GIB
        self._put("intra_node_gbs", 2 * gbs, f"{where}bandwidth.gbps", note="GiB/s of one direction; here both")
        own = {op: ops.get(op) or {} for op in (*_COLLECTIVES, "p2p")}
        for op, said in own.items():
            path = (
                f"{where}op.{op}.efficient_factor"
                if "efficient_factor" in said
                else f"{where}bandwidth.efficient_factor"
            )
            value = float(said.get("efficient_factor", plain["efficient_factor"]))
            self._share(f"{_NAMES.get(op, op)}_efficiency", value, path)
            scale = (said.get("scale", 1), said.get("offset", -1))
            if said and scale != _STANDARD.get(op, (1, -1)):
                for leaf in ("scale", "offset"):
                    self._said[f"{where}op.{op}.{leaf}"] = (DROPPED, (), "the estimate moves the standard's bytes")
        latencies = [float(own[op].get("latency_us", plain["latency_us"])) for op in _COLLECTIVES]
        paths = [f"{where}op.{op}.latency_us" for op in _COLLECTIVES if "latency_us" in own[op]]
        paths += [] if len(paths) == len(_COLLECTIVES) else [f"{where}bandwidth.latency_us"]
        one = len(set(latencies)) == 1
        self._put(
            "intra_node_latency_us", mean(latencies), *paths, note="" if one else "mean of collectives", exact=one
        )
        fixed = [float(own[op].get("fixed_latency_us") or 0) for op in _COLLECTIVES]
        paths = [f"{where}op.{op}.fixed_latency_us" for op in _COLLECTIVES if "fixed_latency_us" in own[op]]
        one = len(set(fixed)) == 1
        self._put("collective_latency_us", mean(fixed), *paths, note=_of_mean(one), exact=one)
        if pcie:
            self._shared(networks)
        self._between(networks["inter_node"])

    def _shared(self, networks: Mapping[str, Any]) -> None:
        """Set what concurrent groups of a node share from SimuMax's bandwidths by size of the group."""
        totals: list[float] = []
        paths: list[str] = []
        for name, network in networks.items():
            for op, said in (network.get("op") or {}).items() if isinstance(network, dict) else ():
                for size, gbs in (said.get("dp_fixed_bw") or {}).items():
                    totals.append(float(gbs) * _GIB * self.per_node / int(size))
                    paths.append(f"networks.{name}.op.{op}.dp_fixed_bw")
        if totals:
            self._put("shared_link_gbs", max(totals), *dict.fromkeys(paths), note="largest total", exact=False)

    def _between(self, network: Mapping[str, Any]) -> None:
        plain, where = network["bandwidth"], "networks.inter_node.bandwidth."
        each = float(plain["gbps"]) * _GIB / self.per_node
        self._put("inter_node_gbs", each, f"{where}gbps", note="GiB/s of a node; here of each of its devices")
        self._share("inter_node_efficiency", float(plain["efficient_factor"]), f"{where}efficient_factor")
        self._put("inter_node_latency_us", float(plain["latency_us"]), f"{where}latency_us")


def _of_mean(one: bool) -> str:
    return "" if one else "mean of the collectives"


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every field of a system file with its path; a table of shapes is one field."""
    for name, value in tree.items():
        if isinstance(value, dict) and name not in _WHOLE:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _reason(path: str) -> tuple[str, tuple[str, ...], str]:
    if not _is_known(path):
        return "", (), ""
    found = next(((status, (), text) for pattern, status, text in _REASONS if fnmatchcase(path, pattern)), None)
    return found or (DROPPED, (), "no figure of a hardware file")


_LEAVES = {
    "op": ("tflops", "efficient_factor", "accurate_efficient_factor"),
    "bandwidth": ("gbps", "efficient_factor", "latency_us", "fixed_latency", "fixed_latency_us_by_comm_num"),
}
_OF_COLLECTIVE = (
    *("scale", "offset", "efficient_factor", "latency_us", "fixed_latency_us"),
    *("fixed_latency_us_by_comm_num", "dp_fixed_bw"),
)


def known_paths() -> list[str]:
    """Return the paths of SimuMax's system file that do not depend on names of networks."""
    return [*SYSTEM, *(f"accelerator.{group}.default.{leaf}" for group, names in _LEAVES.items() for leaf in names)]


def _is_known(path: str) -> bool:
    parts = path.split(".")
    match parts:
        case [*_] if path in SYSTEM:
            return True
        case ["accelerator", group, _, leaf]:
            return leaf in _LEAVES.get(group, ())
        case ["networks", _, "processor_usage"]:
            return True
        case ["networks", _, "bandwidth", leaf]:
            return leaf in _LEAVES["bandwidth"]
        case ["networks", _, "op", _, leaf]:
            return leaf in _OF_COLLECTIVE
    return False


def system_mistakes(tree: Mapping[str, Any], where: str) -> Iterator[Note]:
    """Yield what the conversion of a system file would stumble over: missing sections, figures that are no numbers."""
    for path, value in leaves(tree):
        table = value if isinstance(value, dict) else {}
        for key, entry in table.items():
            if not is_a(entry, NUMBER) or entry < 0:
                yield Note(message=f"field {path}, {key}: {repr_of(entry)}; a number from 0 is needed", where=where)
        leaf = path.rpartition(".")[2]
        if leaf in ("gbps", "efficient_factor", "latency_us", "fixed_latency_us", "tflops", "mem_gbs"):
            needs = "above 0" if leaf in ("gbps", "mem_gbs") else "from 0"
            if not is_a(value, NUMBER) or value < 0 or (value == 0 and needs == "above 0"):
                yield Note(message=f"field {path} is {repr_of(value)}: a number {needs} is needed", where=where)
    pcie = bool(_at(tree, "networks.intra_with_pcie"))
    inside = [f"intra_node_pcie_{size}x" for size in (4, 8, 2)] if pcie else ["high_intra_node"]
    there = [name for name in inside if _at(tree, f"networks.{name}.bandwidth") is not None]
    if not there:
        yield _missing(f"networks.{inside[0]}.bandwidth", "links within a node", where)
    needed = [
        ("accelerator.op.matmul", ("tflops", "efficient_factor")),
        ("accelerator.bandwidth.default", ("gbps", "efficient_factor")),
        *((f"networks.{name}.bandwidth", ("gbps", "efficient_factor", "latency_us")) for name in there[:1]),
        ("networks.inter_node.bandwidth", ("gbps", "efficient_factor", "latency_us")),
    ]
    for section, names in needed:
        for name in names:
            if _at(tree, f"{section}.{name}") is None:
                yield _missing(f"{section}.{name}", "the estimate", where)
    if _at(tree, "accelerator.op.matmul.tflops") == 0 or _at(tree, "accelerator.op.matmul.efficient_factor") == 0:
        yield Note(message="field accelerator.op.matmul is 0: nothing can be computed", where=where)


def _missing(path: str, reader: str, where: str) -> Note:
    return Note(message=f"field {path} is missing: needed by {reader}", where=where)


def _at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree
