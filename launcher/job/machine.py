"""Where and by what the job runs: hardware, cluster, backend, and what the launcher itself does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.job.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator and its links, from data sheets."""

    name: str | None = option(None, "Name of the accelerator.")
    device: str = option("cuda", "Kind of device.", choices=("cuda", "npu", "cpu"))
    memory_gib: float | None = option(None, "Memory per device.", unit="GiB", source="data sheet", minimum=0)
    bf16_tflops: float | None = option(None, "Peak bf16, dense.", unit="TFLOP/s", source="data sheet", minimum=0)
    fp8_tflops: float | None = option(
        None, "Peak FP8, dense; none: no FP8.", unit="TFLOP/s", source="data sheet", minimum=0
    )
    memory_bandwidth_gbs: float | None = option(None, "Memory bandwidth.", unit="GB/s", source="data sheet", minimum=0)
    intra_node_gbs: float | None = option(
        None, "Link bandwidth within a node, per device, both directions.", unit="GB/s", source="data sheet", minimum=0
    )
    inter_node_gbs: float | None = option(
        None, "Network bandwidth per device.", unit="GB/s", source="data sheet", minimum=0
    )
    source: str | None = option(None, "Where these figures come from.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The machines."""

    nodes: int = option(1, "Nodes.", unit="nodes", minimum=1)
    devices_per_node: int = option(8, "Devices (processes) per node.", unit="devices", minimum=1)
    executor: str = option("local", "What starts the processes.", choices=("local",))
    master_addr: str | None = option(None, "Address of node 0; none: loopback on one node.")
    master_port: int | None = option(None, "Port of the rendezvous; none: the launcher's choice.", minimum=1024)
    python: str | None = option(None, "Python that runs the job; none: `python` on the PATH.")

    @property
    def world_size(self) -> int:
        """Devices of the whole job."""
        return self.nodes * self.devices_per_node


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
