"""Checks devices, ports, addresses and disk of this machine against what a job needs."""

import os
import shutil
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from launcher.doctor.check import ERROR, OK, SKIPPED, WARNING, Check
from launcher.job import Job
from launcher.job.shipped import hardware_for
from launcher.plan.executor import get_executor
from launcher.runtime import VISIBLE, devices_seen

_LOOPBACK = ("localhost", "127.0.0.1", "127.0.1.1", "::1")


def devices(job: Job, *, supported: Collection[str] = tuple(VISIBLE), forced: bool = False) -> Check:
    """Return whether this machine has the devices of one node.

    Args:
        supported: kinds of devices that the backend runs on.
        forced: a machine without devices is only a warning: the driver's files may be hidden here.
    """
    kind, wanted = job.hardware.device, job.cluster.devices_per_node
    if kind not in VISIBLE or not VISIBLE.keys() & set(supported):
        counted = kind if kind not in VISIBLE else ", ".join(supported)
        return Check(what="devices", verdict=SKIPPED, found=f"{counted}: no devices to count")
    if kind not in supported:
        names = hardware_for(supported, wanted)
        return Check(
            what="devices",
            verdict=ERROR,
            found=f"the backend runs on {', '.join(supported)}, and {job.hardware.name or 'the hardware'} is {kind}",
            works=" · ".join(f"hardware={name}" for name in names) or "another backend=",
        )
    seen = devices_seen(kind)
    if seen >= wanted:
        return Check(what="devices", verdict=OK, found=f"{seen} {kind}")
    limited = f" ({VISIBLE[kind]} is set)" if kind in VISIBLE and VISIBLE[kind] in os.environ else ""
    return Check(
        what="devices",
        verdict=WARNING if forced and not seen else ERROR,
        found=f"{seen} {kind} devices{limited}, the job starts {wanted} processes on a node",
        works=f"cluster.devices_per_node={seen}" if seen else f"a machine with {kind} devices and their driver",
    )


def rendezvous(job: Job) -> Iterator[Check]:
    """Check the rendezvous: an address that other nodes can reach, and a free port."""
    cluster = job.cluster
    if cluster.nodes > 1 and cluster.master_addr in _LOOPBACK:
        yield Check(
            what="master address",
            verdict=ERROR,
            found=f"{cluster.master_addr} is this machine only, and there are {cluster.nodes} nodes",
            works="cluster.master_addr=NAME of node 0, as the other nodes reach it",
            source="ms-swift#4897: nodes that each train alone",
        )
    port = cluster.master_port
    if port is None or not get_executor(cluster.executor).one_machine or cluster.nodes > 1:
        return
    if port_is_free(port):
        yield Check(what="port", verdict=OK, found=f"{port} is free")
    else:
        yield Check(
            what="port",
            verdict=WARNING,
            found=f"{port} is in use",
            works="a free one is chosen at the start; or another port",
        )


def port_is_free(port: int) -> bool:
    """Return whether nothing on this machine listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError):
            return False
    return True


def disk(job: Job, *, here: bool) -> Iterator[Check]:
    """Check that the checkpoint folder has space for the checkpoints that are kept.

    Args:
        here: the job writes on this machine's disks.
    """
    save = job.checkpoint.save
    if save is None or "${" in save:
        return
    if not here:
        yield Check(what="disk", verdict=SKIPPED, found=f"{save} is written by other machines")
        return
    if job.lora.rank is not None:
        yield Check(what="disk", verdict=SKIPPED, found="adapters are small")
        return
    size = checkpoint_bytes(job)
    if size is None:
        yield Check(
            what="disk", verdict=SKIPPED, found="the size of a checkpoint is not known: the model's sizes are not"
        )
        return
    place = Path(save).absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    kept = job.checkpoint.save_total_limit
    needed = size * (kept or 1)
    text = f"{_gib(free)} free on {place}, a checkpoint takes {_gib(size)}"
    if free < size:
        works = "checkpoint.save=FOLDER of a larger disk · checkpoint.no_save_optim=true · estimate.enforce=false"
        yield Check(what="disk", verdict=ERROR if job.estimate.enforce else WARNING, found=text, works=works)
    elif free < needed:
        works = f"checkpoint.save_total_limit={free // size}"
        yield Check(what="disk", verdict=WARNING, found=f"{text}, {kept} are kept", works=works)
    else:
        yield Check(what="disk", verdict=OK, found=text)


def checkpoint_bytes(job: Job) -> int | None:
    """Return the bytes of one checkpoint; None where sizes are unknown.

    With the optimizer it has the main weights in fp32, also of a job in fp32, and the optimizer's states. Source:
    Megatron-LM's distributed optimizer; measured: 16.3 bytes per parameter of tiny_qwen3 in fp32, Adam.
    """
    from launcher.estimate import CannotEstimate, estimate
    from launcher.estimate.profile import profile_of
    from launcher.estimate.stored import BYTES, optimizer_bytes

    try:
        parameters = estimate(job, changes=False).parameters
    except CannotEstimate:
        return None
    weights = BYTES[job.precision.dtype]
    optimizer = 0 if job.checkpoint.no_save_optim else 4 + optimizer_bytes(job, weights, profile_of(job))[1]
    return int(parameters["total"]) * (weights + optimizer)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
