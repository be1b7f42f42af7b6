"""Profiler."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """Traces of chosen steps."""

    enabled: bool = option(False, "Write traces.", source=f"{ARGUMENTS} --profile")
    start_step: int | None = option(None, "First step traced.", unit="iterations", minimum=0)
    end_step: int | None = option(None, "Step at which tracing ends.", unit="iterations", minimum=0)
    ranks: tuple[int, ...] = option((), "Ranks traced; none: rank 0.")
    path: str | None = option(None, "Directory of traces.")
    level: int | None = option(
        None,
        "What CANN's profiler collects: 0 operators, 1 also kernels and communication, 2 also the host's; -1: neither.",
        source="MindSpeed-LLM --profile-level",
        minimum=-1,
    )
    workload_inspector: bool | None = option(
        None, "Serve measurements to the workload inspector.", source=f"{ARGUMENTS} --run-workload-inspector-server"
    )
    memory: bool | None = option(None, "Trace memory too.", source="MindFormers profile_memory")
    communication: bool | None = option(None, "Trace communication too.", source="MindFormers profile_communication")
    from_start: bool | None = option(
        None, "Start the profiler before the graph is built.", source="MindFormers init_start_profile"
    )
    memory_history: bool | None = option(
        None,
        "Record every allocation of device memory, with its call stack.",
        source=f"{ARGUMENTS} --record-memory-history",
    )
    memory_snapshot_path: str | None = option(
        None, "File of the recorded allocations.", source=f"{ARGUMENTS} --memory-snapshot-path"
    )
