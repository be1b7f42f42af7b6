"""Executor settings besides the commands: machines, site settings, restarts, what to monitor."""

from typing import Any

from launcher.job import field_at
from launcher.job.fault_tolerance import FaultTolerance
from launcher.records import dataclass

# Variable with the folder of the checkpoint to resume from; looked up again at every start.
RESUME = "LAUNCH_RESUME"
# Seconds before a restart, at most.
LONGEST_WAIT = 360
# A start takes longer than a step: weights are read, caches and kernels are built.
_STARTUP_FACTOR, _STARTUP_SECONDS = 3, 1800
_SAVE_SECONDS = 300.0
# A number in a log line, for the patterns of `Watch.figures`.
NUMBER = r"[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?|nan|inf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Where a run reports its progress.

    Attributes:
        checkpoints: folder that the job saves to; None: it saves nothing.
        trackers: each a pattern of folders below `checkpoints` ("" for itself) that can be loaded, and the file in them
            that is written when a checkpoint is complete; the newest such file counts.
        iteration_line: extended regular expression of the log line that follows every iteration; "": not known.
        rank_log: files of one rank's own output below the output folder, with `{rank}`; "": it is in the node's log.
        figures: numbers that the log prints: name in `launcher.observe.training.Figures`, a regular expression whose
            group is the number, and the factor to the name's unit.
        saves_on_signal: with `fault_tolerance.exit_on_signal` ranks write a checkpoint on SIGTERM, and end.
    """

    checkpoints: str | None = None
    trackers: tuple[tuple[str, str], ...] = ()
    iteration_line: str = ""
    rank_log: str = ""
    figures: tuple[tuple[str, str, float], ...] = ()
    saves_on_signal: bool = False


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
        restart_seconds: wait before the first restart; it doubles with each, up to `LONGEST_WAIT`.
        hang_seconds: time without an iteration line that counts as a hang; None: no detection.
        startup_seconds: time without a first one; None: no detection.
        save_seconds: time that ranks have to save after a signal, before the processes that started them get it; None:
            they do not save on a signal.
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
    restart_seconds: float = 0.0
    hang_seconds: float | None = None
    startup_seconds: float | None = None
    save_seconds: float | None = None
    settings: Any = None


def startup_seconds(faults: FaultTolerance) -> float | None:
    """Return the time without a first iteration that counts as a hang; None: no detection."""
    if faults.startup_minutes is not None:
        return faults.startup_minutes * 60
    if faults.hang_minutes is None:
        return None
    return max(_STARTUP_FACTOR * faults.hang_minutes * 60, _STARTUP_SECONDS)


def save_seconds(faults: FaultTolerance) -> float | None:
    """Return the time that ranks have to save after a signal; None: they are not asked to."""
    if not faults.exit_on_signal:
        return None
    return _SAVE_SECONDS if faults.save_seconds is None else faults.save_seconds
