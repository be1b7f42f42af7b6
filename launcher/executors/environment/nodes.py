"""Runs the node-local part of a job that a platform started on every node; sizes are checked, never guessed."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from launcher.executors.environment.platforms import PLATFORMS, Platform, recognised
from launcher.executors.failure import CannotStart
from launcher.executors.port import with_port
from launcher.plan import LaunchPlan, NodePlan
from launcher.records import dataclass
from launcher.syntax import is_count, is_host, shown

_ADDRESS = "${MASTER_ADDR}"
_DEFAULT_PORT = "MASTER_PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Position of this node in its job.

    Attributes:
        platform: the platform that was recognised.
        rank: rank of this node.
        master: address of node 0; "" on a single node.
        port: of the rendezvous; "": the port of the plan.
        job: the platform's job id; "": unknown.
    """

    platform: Platform
    rank: int
    master: str
    port: str
    job: str = ""

    @property
    def identity(self) -> dict[str, str]:
        """Values that are equal on all nodes and restarts of a job, and differ between jobs."""
        return {"master": self.master, "job": self.job}


def here(plan: LaunchPlan, environ: Mapping[str, str] = os.environ) -> Here:
    """Return the position of this machine in the plan.

    Raises:
        CannotStart: no platform is recognised, or its variables contradict the job.
    """
    if "LOCAL_RANK" in environ:
        raise CannotStart("LOCAL_RANK is set: this is a rank of torchrun already; start launch once on every node")
    platform = recognised(environ)
    if platform is None:
        known = " · ".join(f"{each.nodes} and {each.rank}" for each in PLATFORMS)
        raise CannotStart(f"the environment does not identify this node; works: {known}")
    count, rank = _number(environ, platform.nodes), _number(environ, platform.rank)
    nodes, devices = len(plan.nodes), plan.start.devices_per_node
    if count != nodes:
        raise CannotStart(
            f"{platform.title}: {platform.nodes}={count}, but the job has cluster.nodes={nodes} x "
            f"cluster.devices_per_node={devices}: nodes x devices must match the platform"
        )
    if platform.devices and is_count(environ.get(platform.devices, "")):
        stated = _number(environ, platform.devices)
        if stated != devices:
            raise CannotStart(
                f"{platform.title}: {platform.devices}={stated}, but the job has cluster.devices_per_node={devices}"
            )
    if not 0 <= rank < nodes:
        raise CannotStart(f"{platform.title}: {platform.rank}={rank} is not one of {nodes} nodes")
    master = plan.start.address or _master(platform, environ)
    if nodes > 1 and not master:
        wanted = platform.master or platform.hosts
        raise CannotStart(f"{platform.title}: {wanted} does not name the host of node 0; set cluster.master_addr")
    if master and not is_host(master):
        raise CannotStart(f"{platform.title}: {shown(master)} is not a host name, which node 0 needs")
    port = "" if plan.start.port is not None else environ.get(platform.port or _DEFAULT_PORT, "")
    job = environ.get(platform.job, "") if platform.job else ""
    return Here(platform=platform, rank=rank, master=master, port=port if is_count(port) else "", job=job)


def plan_of_node(plan: LaunchPlan, place: Here) -> LaunchPlan:
    """Return the plan of this node alone; node 0 runs the preparation steps."""
    node = _filled(plan.nodes[place.rank], place)
    resume = None if plan.resume is None else plan_of_node(plan.resume, place)
    prepare = plan.prepare if place.rank == 0 else ()
    return replace(plan, nodes=(node,), prepare=prepare, resume=resume)


def _filled(node: NodePlan, place: Here) -> NodePlan:
    if place.port:
        node = with_port(node, place.port)
    argv = tuple(word.replace(_ADDRESS, place.master) for word in node.argv)
    env = {key: value.replace(_ADDRESS, place.master) for key, value in node.env.items()}
    return replace(node, argv=argv, env=env)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not is_count(text.strip()):
        raise CannotStart(f"{name}={text!r} in the environment is not a number")
    return int(text)


def _master(platform: Platform, environ: Mapping[str, str]) -> str:
    if platform.master:
        return environ.get(platform.master, "")
    hosts = environ.get(platform.hosts, "")
    if platform.hosts.startswith("SLURM"):
        return _first_of_slurm(hosts)
    return hosts.split(",")[0].strip()


def _first_of_slurm(hosts: str) -> str:
    """Return the first name of Slurm's compressed host list, by scontrol if available."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", hosts], capture_output=True, text=True, timeout=30, check=False
        )
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
    except (OSError, subprocess.TimeoutExpired):
        pass  # containers often have no scontrol
    # Parse PREFIX[FIRST-LAST,…]SUFFIX, or plain names.
    prefix, bracket, rest = hosts.partition("[")
    if not bracket or "," in prefix:
        return prefix.split(",")[0]
    inner, _, suffix = rest.partition("]")
    return prefix + inner.split(",")[0].split("-")[0] + suffix.split(",")[0]
