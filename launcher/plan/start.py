"""Executor settings besides the commands: machines, site settings, restarts, what to monitor."""

from dataclasses import dataclass

from launcher.job import Job
from launcher.job.pods import Pods, pods_of

# Variable with the folder of the checkpoint to resume from; looked up again at every start.
RESUME = "LAUNCH_RESUME"
_DEVICE_GRES = {"cuda": "gpu", "npu": "npu"}


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
        hosts, ssh_options: machines by rank, and options of ssh.
        batch_options: options of the queue's submit command, one word each.
        array_limit: most jobs of a sweep that run at once; None: no limit.
        container, container_mounts: image that each node's command runs in, and folders of the node in it.
        max_restarts: how often all ranks start again after a failure.
        hang_seconds: time without an iteration line that counts as a hang; None: no detection.
        pods: pod settings of Kubernetes; None: another executor.
    """

    executor: str = "local"
    name: str = "job"
    devices_per_node: int = 1
    python: str | None = None
    setup: tuple[str, ...] = ()
    address: str | None = None
    port: int | None = None
    hosts: tuple[str, ...] = ()
    ssh_options: tuple[str, ...] = ()
    batch_options: tuple[str, ...] = ()
    array_limit: int | None = None
    container: str | None = None
    container_mounts: tuple[str, ...] = ()
    max_restarts: int = 0
    hang_seconds: float | None = None
    pods: Pods | None = None


def start_of(job: Job, *, native: bool) -> Start:
    """Return the executor settings of a job's plan; only a native run requests devices."""
    cluster, faults = job.cluster, job.fault_tolerance
    return Start(
        executor=cluster.executor,
        name=job.name or "job",
        devices_per_node=cluster.devices_per_node,
        python=cluster.python,
        setup=cluster.setup,
        address=cluster.master_addr,
        port=cluster.master_port,
        hosts=cluster.hosts[: cluster.nodes] if len(cluster.hosts) >= cluster.nodes else cluster.hosts,
        ssh_options=cluster.ssh_options,
        batch_options=tuple(_batch_options(job, native)) if cluster.executor == "slurm" else (),
        array_limit=cluster.array_limit,
        container=cluster.container,
        container_mounts=cluster.container_mounts,
        max_restarts=faults.max_restarts,
        hang_seconds=None if faults.hang_minutes is None else faults.hang_minutes * 60,
        pods=pods_of(job, native=native) if cluster.executor == "kubernetes" else None,
    )


def _batch_options(job: Job, native: bool) -> list[str]:
    """Return sbatch's options; one task per node starts that node's processes."""
    cluster = job.cluster
    gres, exclusive = cluster.gres, cluster.exclusive
    kind = _DEVICE_GRES.get(job.hardware.device)
    if gres is None and native and kind is not None:
        gres = f"{kind}:{cluster.devices_per_node}"
    valued = {
        "nodes": cluster.nodes,
        "ntasks-per-node": 1,
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "time": cluster.time_limit,
        "gres": gres or None,
        "constraint": cluster.constraint,
        "reservation": cluster.reservation,
        "nodelist": cluster.nodelist,
        "exclude": cluster.exclude,
        "cpus-per-task": cluster.cpus_per_task,
        "mem": cluster.memory,
    }
    words = [f"--{name}={value}" for name, value in valued.items() if value is not None]
    if native if exclusive is None else exclusive:
        words.append("--exclusive")
    words.append("--requeue" if cluster.requeue else "--no-requeue")
    return [*words, *cluster.sbatch_options]
