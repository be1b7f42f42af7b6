"""Executor settings besides the commands: machines, site settings, restarts, what to monitor."""

from dataclasses import dataclass
from typing import Any

from launcher.job import field_at

# Variable with the folder of the checkpoint to resume from; looked up again at every start.
RESUME = "LAUNCH_RESUME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Where a run reports its progress.

    Attributes:
        checkpoints: folder that the job saves to; None: it saves nothing.
        trackers: each a pattern of folders below `checkpoints` ("" for itself) that can be loaded, and the file in them
            that is written when a checkpoint is complete; the newest such file counts.
        iteration_line: extended regular expression of the log line that follows every iteration; "": not known.
        rank_log: files of one rank's own output below the output folder, with `{rank}`; "": it is in the node's log.
    """

    checkpoints: str | None = None
    trackers: tuple[tuple[str, str], ...] = ()
    iteration_line: str = ""
    rank_log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Executor of the nodes, and its settings.

    Attributes:
        executor: name in the table of executors.
        name: the job's name, for people and queues.
        devices_per_node: processes that every node starts.
        python: Python that runs the job; None: the one that runs the launcher.
        setup: lines of bash that every node runs first.
        address, port: fixed rendezvous address and port; None: node 0, and any free port there.
        container, container_mounts: image that each node's command runs in, and folders of the node in it.
        max_restarts: how often all ranks start again after a failure.
        hang_seconds: time without an iteration line that counts as a hang; None: no detection.
        settings: what the executor itself keeps: a dataclass of plain data; None: nothing.
    """

    executor: str = field_at("cluster.executor").default
    name: str = "job"
    devices_per_node: int = 1
    python: str | None = None
    setup: tuple[str, ...] = ()
    address: str | None = None
    port: int | None = None
    container: str | None = None
    container_mounts: tuple[str, ...] = ()
    max_restarts: int = 0
    hang_seconds: float | None = None
    settings: Any = None
