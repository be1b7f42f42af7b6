"""Launchers in front of a training script (torchrun, msrun …) and their cluster options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from launcher.records import dataclass
from launcher.syntax import is_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Command-line syntax of a program that starts processes.

    Attributes:
        flags: options without a value; all others take one.
        names: options that describe the cluster: `nodes`, `per_node`, `total`, `addr`, `port`, `restarts`.
        module_flags: options followed by a module instead of a script.
        per_node: processes that it starts on each node without an option; empty: it depends on the machine.
    """

    flags: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    module_flags: frozenset[str] = frozenset()
    per_node: str = ""


# torch.distributed.run and .launch (torch 2.13 run.py); - and _ are equivalent.
_TORCHRUN = Launcher(
    flags=frozenset({"standalone", "no-python", "run-path", "use-env", "h", "help", "virtual-local-rank"}),
    names={
        "nnodes": "nodes",
        "nproc-per-node": "per_node",
        "master-addr": "addr",
        "master-port": "port",
        "rdzv-endpoint": "endpoint",
        "max-restarts": "restarts",
    },
    module_flags=frozenset({"m", "module"}),
    per_node="1",
)
# mindspore.parallel.cluster.run (mindspore 2.7 run.py)
_MSRUN = Launcher(
    names={"worker-num": "total", "local-worker-num": "per_node", "master-addr": "addr", "master-port": "port"}
)
# deepspeed.launcher.runner
_DEEPSPEED = Launcher(
    flags=frozenset(
        {"no-python", "no-local-rank", "force-multi", "bind-cores-to-rank", "save-pid", "elastic-training"}
    ),
    names={"num-gpus": "per_node", "num-nodes": "nodes", "master-addr": "addr", "master-port": "port"},
    module_flags=frozenset({"module"}),
)
_ACCELERATE = Launcher(
    flags=frozenset({"multi-gpu", "cpu", "use-deepspeed", "use-fsdp", "use-megatron-lm", "same-network", "no-python"}),
    names={
        "num-processes": "total",
        "num-machines": "nodes",
        "main-process-ip": "addr",
        "main-process-port": "port",
    },
    module_flags=frozenset({"m", "module"}),
)
# ft_launcher of nvidia-resiliency-ext takes torchrun's options and its own, which all have values.
LAUNCHERS: Mapping[str, Launcher] = {
    "torchrun": _TORCHRUN,
    "ft_launcher": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "torch_npu.distributed.launch": _TORCHRUN,
    "msrun": _MSRUN,
    "deepspeed": _DEEPSPEED,
    "accelerate": _ACCELERATE,
}
# Wrappers around launchers: only their cluster options are read.
# mpirun(1) of Open MPI 4.1 and 5.0 (`--map-by ppr:8:node`), MPICH and Intel MPI (-ppn, -perhost).
_MPI = {
    **dict.fromkeys(("np", "n"), "tasks"),
    **dict.fromkeys(("npernode", "N", "ppn", "perhost", "map-by"), "tasks_per_node"),
}
_WRAPPERS: Mapping[str, Mapping[str, str]] = {"mpirun": _MPI, "mpiexec": _MPI}
_PER_NODE = re.compile(r"ppr:(\d+):node(?![a-z])")
# msrun_launcher.sh: "ORDER" [WORKER_NUM [LOCAL_WORKER ADDR PORT RANK … | PORT LOG JOIN TIMEOUT]]
_MSRUN_SCRIPT = {
    1: (),
    2: ("total",),
    6: ("total", "port"),
    9: ("total", "per_node", "addr", "port"),
}
_MSRUN_DEFAULT = "8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command line with its launcher stripped: the remaining arguments, and the cluster options (as text)."""

    argv: tuple[str, ...]
    cluster: Mapping[str, str] = field(default_factory=dict)
    module: bool = False


def strip_options(argv: Sequence[str], launcher: Launcher) -> Started:
    """Return the arguments that a launcher starts, from the script on.

    Args:
        argv: everything after the launcher's name.
    """
    cluster: dict[str, str] = {}
    is_module = is_open = False
    at = 0
    while at < len(argv) and (argv[at].startswith("-") or _is_open_option(argv, at)):
        name, equals, value = argv[at].lstrip("-").partition("=")
        name = name.replace("_", "-")
        at += 1
        if name.startswith("$"):
            is_open = True
            continue
        if name in launcher.module_flags and not equals:
            is_module = True
            break
        if name in launcher.flags:
            continue
        if not equals and at < len(argv):
            value = argv[at]
            at += 1
            # An unquoted placeholder of several words such as `master node ip`: the script comes later.
            while at < len(argv) and not argv[at].startswith("-") and _has_script_after(argv, at):
                if not argv[at].startswith("$"):  # `4 $EXTRA`: unset variable for options
                    value = f"{value} {argv[at]}"
                at += 1
        known = launcher.names.get(name)
        if known == "endpoint":
            cluster["addr"], _, cluster["port"] = value.rpartition(":")
        elif known is not None:
            cluster[known] = value
    # `torchrun $ARGS script.py` may have the option in what is not set.
    if launcher.per_node and not is_open and "per_node" not in cluster:
        cluster["per_node"] = launcher.per_node
    return Started(argv=tuple(argv[at:]), cluster=cluster, module=is_module)


def _is_open_option(argv: Sequence[str], at: int) -> bool:
    """Return whether an argument is an unset variable in place of launcher options."""
    return argv[at].startswith("$") and "/" not in argv[at] and _has_script_after(argv, at)


def _has_script_after(argv: Sequence[str], at: int) -> bool:
    return not argv[at].endswith(".py") and any(arg.endswith(".py") for arg in argv[at + 1 :])


def msrun_script(argv: Sequence[str]) -> Started:
    """Return the command that msrun_launcher.sh starts: its first argument is a whole command line."""
    import shlex

    arguments = list(argv)
    try:
        inner = shlex.split(arguments[0]) if arguments else []
    except ValueError:
        inner = arguments[0].split()
    if any(word.startswith("--") for word in arguments[1:]):  # msrun's own options
        cluster = dict(strip_options(arguments[1:], _MSRUN).cluster)
        return Started(argv=tuple(inner), cluster={"total": _MSRUN_DEFAULT, **cluster})
    names = _MSRUN_SCRIPT[max(count for count in _MSRUN_SCRIPT if count <= max(1, len(arguments)))]
    cluster = dict(zip(names, arguments[1:], strict=False)) or {"total": _MSRUN_DEFAULT}
    cluster.setdefault("per_node", cluster["total"])
    return Started(argv=tuple(inner), cluster=cluster)


def wrapper_cluster(argv: Sequence[str]) -> dict[str, str]:
    """Return the cluster options of wrappers before a launcher (mpirun; for srun see `slurm`)."""
    cluster: dict[str, str] = {}
    names: Mapping[str, str] = {}
    for index, arg in enumerate(argv):
        names = _WRAPPERS.get(arg.rpartition("/")[2], names)
        if not names or not arg.startswith("-"):
            continue
        name, equals, value = arg.lstrip("-").partition("=")
        if name[:1] in names and not equals and name not in names and is_count(name[1:]):
            name, value = name[:1], name[1:]  # -N4
        elif not equals and index + 1 < len(argv):
            value = argv[index + 1]
        if name == "map-by":
            ppr = _PER_NODE.match(value)
            if ppr is None:
                continue
            value = ppr.group(1)
        if name in names:
            cluster[names[name]] = value
    tasks, per_node, nodes = (cluster.pop(key, "") for key in ("tasks", "tasks_per_node", "nodes"))
    if nodes:
        cluster["nodes"] = nodes
    if is_count(per_node) and int(per_node) > 1:
        cluster["per_node"] = per_node
    if is_count(tasks) and is_count(nodes) and int(tasks) > int(nodes) > 0 and "per_node" not in cluster:
        cluster["per_node"] = str(int(tasks) // int(nodes))
    elif is_count(tasks) and not nodes and int(tasks) > 1:
        cluster["total"] = tasks
    elif tasks.startswith("$"):
        cluster |= {"total": tasks, **({"per_node": per_node} if per_node.startswith("$") else {})}
    return cluster
