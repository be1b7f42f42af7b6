"""Rendezvous address and port of a job's processes, shared by all torchrun-style launches."""

import zlib

from launcher.job import Job

# Placeholder for the address of node 0 if the user gave none; resolved by the shell script and the executors.
MASTER_ADDR_UNSET = "${MASTER_ADDR}"
_FIRST_PORT = 20000
_PORTS = 10000


def master_addr(job: Job) -> str:
    """Return the address of node 0: as given, loopback on one node, else a reference that must be resolved."""
    if job.cluster.master_addr is not None:
        return job.cluster.master_addr
    return "127.0.0.1" if job.cluster.nodes == 1 else MASTER_ADDR_UNSET


def master_port(job: Job) -> int:
    """Return the port of the rendezvous: as given, else one that depends on the job's name, equal on every node.

    Not torchrun's 29500, which two jobs on one machine would share. The local executor takes any free port.
    """
    if job.cluster.master_port is not None:
        return job.cluster.master_port
    return _FIRST_PORT + zlib.crc32((job.name or "launch").encode()) % _PORTS


def torchrun(job: Job, node_rank: int, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the torchrun command that starts `command` once per device of one node.

    Source: torch.distributed.run options; static rendezvous, so that every node must join. --max-restarts is not used:
    it restarts the ranks of one node only, and not from the last checkpoint.
    """
    cluster = job.cluster
    return (
        "torchrun",
        "--nproc_per_node",
        str(cluster.devices_per_node),
        "--nnodes",
        str(cluster.nodes),
        "--node_rank",
        str(node_rank),
        "--master_addr",
        master_addr(job),
        "--master_port",
        str(master_port(job)),
        *command,
    )
