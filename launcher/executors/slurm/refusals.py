"""Why Slurm refuses a request, by its messages (slurm_errno.c, Slurm 22.05), with the values that this cluster has."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from launcher.executors.refusal import Refusal, values
from launcher.executors.slurm.state import call

Options = Sequence[str]


def _listed(*command: str) -> list[str]:
    """Return the lines that a command of Slurm prints; none where it fails."""
    done = call(command)
    return [] if done.returncode else [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _partitions(_: Options) -> Iterator[str]:
    yield from values("cluster.partition", _listed("sinfo", "-h", "-o", "%R")) or ["sinfo lists the partitions"]


def _reservations(_: Options) -> Iterator[str]:
    rows = _listed("scontrol", "show", "reservation", "-o")
    yield from values(
        "cluster.reservation", (found[1] for row in rows if (found := re.match(r"ReservationName=(\S+)", row)))
    )
    yield "cluster.reservation=null"


def _features(_: Options) -> Iterator[str]:
    rows = [line for line in _listed("sinfo", "-h", "-o", "%f") if line != "(null)"]
    yield from values("cluster.constraint", ",".join(rows).split(","))
    yield "cluster.constraint=null"


def _sizes(options: Options) -> Iterator[str]:
    """Yield the nodes of each partition: how many, and what one has."""
    for line in _listed("sinfo", "-h", "-o", "%R|%D|%c|%m|%G"):
        name, number, cpus, memory, devices = (*line.split("|"), "", "", "", "")[:5]
        gres = "no devices" if devices in ("", "(null)") else devices
        yield f"within partition {name}: {number} nodes, each {cpus} CPUs, {memory} MB, {gres}"


def _row(pattern: str, means: str, works: Callable[[Options], Iterable[str]] | str) -> Refusal[Options]:
    find = works if callable(works) else lambda _: (works,)
    return Refusal(sign=re.compile(pattern), means=means, works=find)


# fmt: off
REFUSALS = (
    _row(r"[Ii]nvalid partition|Requested partition configuration",
         "cluster.partition is not a partition of this cluster", _partitions),
    _row(r"[Rr]eservation is invalid|[Ii]nvalid reservation",
         "cluster.reservation is not a reservation of this cluster", _reservations),
    _row(r"Invalid feature specification", "cluster.constraint is not a feature of its nodes", _features),
    _row(r"Invalid account or account/partition combination",
         "cluster.account is not an account of yours for this partition",
         "an account of: sacctmgr show associations user=$USER format=account,partition,qos"),
    _row(r"[Ii]nvalid qos", "cluster.qos is not a QOS of yours",
         "a QOS of: sacctmgr show associations user=$USER format=account,partition,qos"),
    _row(r"Invalid node name specified", "cluster.nodelist or cluster.exclude names a node that does not exist",
         "a node of: sinfo -N"),
    _row(r"Requested node configuration is not available|Node count specification invalid|More processors requested",
         "no nodes of the partition can hold the job (cluster.nodes, devices_per_node, gres, cpus_per_task, memory)",
         _sizes),
    _row(r"unrecognized option|invalid option -- ", "cluster.sbatch_options has an option that sbatch does not have",
         "an option of: sbatch --help"),
    _row(r"cannot stat file|Unable to process configuration|Could not establish a configuration source",
         "Slurm's configuration is not found on this machine",
         "on a login node of the cluster · export SLURM_CONF=FILE"),
    _row(r"Unable to contact slurm controller|did not respond within",
         "Slurm's controller does not answer", "once scontrol ping says UP"),
)
