"""The cluster section of a job, from launcher options and environment variables of a command."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from launcher.budgets import spend
from launcher.importing.notes import Note
from launcher.importing.shell.placeholders import is_open, names, shown
from launcher.job import Job
from launcher.job.cluster import Cluster
from launcher.job.secret import Variables, by_reference, find, is_secret, variable_of
from launcher.syntax import is_count

# Variables that launchers set for their processes or read in place of options: the plan sets them, not the job.
_OF_LAUNCHERS = {
    "NPROC_PER_NODE": "per_node",
    "NNODES": "nodes",
    "MASTER_ADDR": "addr",
    "MASTER_PORT": "port",
    "NODE_RANK": "",
    "RANK": "",
    "LOCAL_RANK": "",
    "WORLD_SIZE": "",
    "LOCAL_WORLD_SIZE": "",
}
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")
_DEFAULT_PER_NODE = 8


@dataclass(slots=True)
class Found:
    """The cluster of a command, with warnings.

    Attributes:
        is_specified: the number of devices is given.
        has_launcher: a launcher's options are given, or environment variables in their place.
    """

    cluster: Cluster
    warnings: list[Note] = field(default_factory=list)
    is_specified: bool = True
    has_launcher: bool = False


def environment_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command that belong to the job: those that no launcher sets.

    Secrets become references to the submitter's environment: no file and no screen shows them.
    """
    job_variables = {name: value for name, value in env.items() if name not in _OF_LAUNCHERS}
    variables = Variables()
    return {name: _as_reference(name, value, variables) for name, value in job_variables.items()}


def _as_reference(name: str, value: str, variables: Variables) -> str:
    if is_open(value):
        return f"${{{variable_of(name)}}}" if is_secret(name) else _referring(value)
    return str(by_reference(name, shown(value), variables, is_variable=True))


def secrets_of(env: Mapping[str, str], where: Callable[[str], str]) -> list[Note]:
    """Return a note for each secret whose value the input holds; the job only references it.

    Args:
        where: returns the place at which a variable is set.
    """
    return [
        Note(
            message=f"{name} is a secret: the job refers to it, its value is dropped",
            where=where(name),
            works=(works,),
        )
        for name, value in env.items()
        if not is_open(value) and find(value, name)
        for works in (f"export {variable_of(name)} where the job starts",)
    ]


def _referring(value: str) -> str:
    """Return a value with its unset variables as references that the plan resolves: `$PATH` becomes `${PATH}`."""
    if not is_open(value):
        return value
    typed = shown(value)
    for name in names(value):
        if name.isidentifier():
            typed = typed.replace(f"${{{name}}}", f"${name}").replace(f"${name}", f"${{{name}}}")
    return typed


def cluster_of(
    options: Mapping[str, str],
    env: Mapping[str, str],
    *,
    from_environment: bool,
    where: str,
    world_size: int | None = None,
) -> Found:
    """Return the cluster that launcher options and environment describe.

    Args:
        options: options of launchers, as text (see `Invocation.cluster`).
        from_environment: the backend's own launcher reads NNODES and NPROC_PER_NODE, and defaults to one process.
        world_size: number of devices, if known from another source; takes precedence.
    """
    if from_environment and not options:
        options = {key: env[name] for name, key in _OF_LAUNCHERS.items() if key and name in env}
        if not {"per_node", "nodes"} & set(options) and world_size is None:
            options = {**options, "per_node": "1"}
    found = Found(cluster=Cluster(), has_launcher=bool(options))
    numbers = dict(_numbers(options, where, found.warnings))
    # `--nnodes $WORLD_SIZE` does not give the number of nodes, `mpirun -np $N` no number of processes.
    given = {"nodes", "total"} & set(options)
    found.is_specified = world_size is not None or (bool(options) and (not given or bool(given & set(numbers))))
    nodes, per_node = _node_counts(numbers, world_size, found.warnings, where, bool(options))
    spend("nodes", nodes, where)
    spend("devices", per_node, where)
    addr = options.get("addr", "")
    port = numbers.get("port")
    found.cluster = dataclasses.replace(
        found.cluster,
        nodes=nodes,
        devices_per_node=per_node,
        master_addr=addr if nodes > 1 and _is_address(addr) else None,
        master_port=port if port is not None and 1024 <= port < 65536 else None,
    )
    return found


def fitting(found: Found, job: Job, where: str) -> Found:
    """Return the cluster that a job's parallel layout needs, if the number of devices is not given.

    One device, where the job is not distributed and its layout needs no more.
    """
    parallel = job.parallel
    needed = (parallel.dp or 1) * parallel.tp * parallel.pp * parallel.cp
    if _is_alone(job) and not (found.is_specified or found.has_launcher):
        cluster = dataclasses.replace(found.cluster, nodes=1, devices_per_node=1)
        note = Note(message="1 device is assumed: training is not distributed", where=where)
        return Found(cluster=cluster, warnings=[note])
    if job.model.num_experts is not None or parallel.ep > 1:
        needed = math.lcm(needed, (parallel.etp or parallel.tp) * parallel.ep * parallel.pp)
    if found.is_specified or needed <= found.cluster.world_size:
        return found
    per_node = min(needed, found.cluster.devices_per_node)
    if needed % per_node:
        return found
    cluster = dataclasses.replace(found.cluster, nodes=needed // per_node, devices_per_node=per_node)
    message = f"the number of devices is not specified: {needed} are assumed (dp × tp × pp × cp, etp × ep × pp)"
    note = Note(message=message, where=where)
    return Found(cluster=cluster, warnings=[*found.warnings, note])


def _is_alone(job: Job) -> bool:
    """Return whether a job is not distributed, and no size of its parallel layout says otherwise."""
    parallel = job.parallel
    dp = 1 if job.origin("parallel.dp").kind == "derived" else parallel.dp or 1
    return job.graph.distributed is False and dp * parallel.tp * parallel.pp * parallel.cp == 1


def _is_address(text: str) -> bool:
    """Return whether a text can be the address of a host: no placeholder, no sentence, not localhost."""
    return text not in _LOOPBACK and not is_open(text) and not any(char in text for char in "$ <>")


def _numbers(options: Mapping[str, str], where: str, warnings: list[Note]) -> Iterator[tuple[str, int]]:
    counts = {"nodes": "number of nodes", "per_node": "number of devices per node", "total": "number of processes"}
    for key in ("nodes", "per_node", "total", "port"):
        if key not in options:
            continue
        text = shown(options[key]).partition(":")[0]
        if is_count(text):
            yield key, int(text)
        elif key in counts and not (key == "total" and {"nodes", "per_node"} <= set(options)):
            open_names = names(options[key]) or ((text.strip("${}"),) if text.startswith("$") else ())
            warnings.append(
                Note(
                    message=f"the {counts[key]} is unknown ({shown(options[key])})",
                    where=where,
                    works=tuple(f"--set {name}=N" for name in open_names if name.isidentifier() or name.isdigit()),
                )
            )


def _fullest_node(total: int) -> int:
    """Return the largest number of devices per node, up to the default, that divides the total evenly."""
    return next(size for size in range(min(total, _DEFAULT_PER_NODE), 0, -1) if total % size == 0)


def _node_counts(
    numbers: Mapping[str, int], world_size: int | None, warnings: list[Note], where: str, is_specified: bool
) -> tuple[int, int]:
    """Return number of nodes and devices per node."""
    nodes, per_node, total = numbers.get("nodes"), numbers.get("per_node"), numbers.get("total")
    total = world_size or total
    if world_size is not None and per_node is not None and (nodes or 1) * per_node != world_size:
        nodes = per_node = None
    if total is not None:
        if per_node is None:
            per_node = total // nodes if nodes and total % nodes == 0 else _fullest_node(total)
        nodes = nodes or max(1, total // max(1, per_node))
    if per_node is None:
        per_node = _DEFAULT_PER_NODE
        if is_specified or not numbers:
            warnings.append(
                Note(message=f"the number of devices per node is not specified: {per_node} are assumed", where=where)
            )
    return max(1, nodes or 1), max(1, per_node)
