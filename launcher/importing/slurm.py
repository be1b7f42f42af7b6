"""Slurm requests (`#SBATCH` lines, options of sbatch, salloc and srun) as fields of the cluster, or as notes."""

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.executors.slurm.executor import EXECUTOR
from launcher.importing.notes import Note
from launcher.importing.shell.placeholders import is_open, shown
from launcher.job import Value
from launcher.job.cluster import Cluster
from launcher.syntax import is_count

# Programs that allocate machines; srun allocates them itself if not run inside one of the first two.
_ALLOCATING = ("sbatch", "salloc")
PROGRAMS = (*_ALLOCATING, "srun")
# Short options of sbatch(1) and srun(1), Slurm 24.11.
_LETTER_NAMES = """
A account C constraint D chdir G gpus J job-name L licenses M clusters N nodes S core-spec B extra-node-info F nodefile
a array b begin c cpus-per-task d dependency e error i input k no-kill m distribution n ntasks o output p partition
q qos t time w nodelist x exclude H hold K kill-on-bad-exit O overcommit Q quiet s oversubscribe u unbuffered
v verbose l label X disable-status E preserve-env I immediate T threads W wait
"""
_LETTERS = dict(zip(_LETTER_NAMES.split()[::2], _LETTER_NAMES.split()[1::2], strict=True))
# Options without a value, or with one only after an equals sign.
_FLAGS = frozenset(
    {
        *("exclusive", "requeue", "no-requeue", "hold", "no-kill", "overcommit", "oversubscribe", "verbose", "quiet"),
        *("label", "unbuffered", "kill-on-bad-exit", "disable-status", "preserve-env", "overlap", "exact", "pty"),
        *("parsable", "test-only", "contiguous", "reboot", "spread-job", "use-min-nodes", "multi-prog", "immediate"),
        *("get-user-env", "whole", "container-writable", "container-readonly", "container-remap-root"),
        *("no-container-remap-root", "container-mount-home", "no-container-mount-home", "container-entrypoint"),
        *("no-container-entrypoint", "wait-all-nodes", "nice", "propagate", "ignore-pbs", "external-launcher"),
    }
)
# `-W` is --wait: a flag of sbatch, seconds for srun.
_WAIT = {"srun": False, "sbatch": True, "salloc": True}
_SAME_NAME = ("partition", "account", "qos", "gres", "constraint", "reservation", "nodelist", "exclude")
_FIELDS: Mapping[str, str] = {
    **{name: name for name in _SAME_NAME},
    "time": "time_limit",
    "mem": "memory",
    "container-image": "container",
}
_COUNTS = {"nodes": "nodes", "ntasks": "tasks", "ntasks-per-node": "tasks_per_node", "gpus": "total"}
# Options that launch sets itself or that configure a separate program, with the reason.
_LAUNCH_LOGS = "launch keeps the logs below output_dir"
_LAUNCHER_STEP = "launch starts the processes of each node with a separate srun"
_DROPPED: Mapping[str, str] = {
    **dict.fromkeys(("output", "error", "open-mode", "input"), _LAUNCH_LOGS),
    "chdir": "the job starts where launch is called",
    "array": "a sweep replaces it: launch -m",
    "signal": "launch requests the end itself, and saves",
    "wrap": "",  # imported as a script
    "comment": "launch sets its own, to find the job",
    **dict.fromkeys(("parsable", "test-only", "quiet", "verbose", "wait", "hold"), "it only concerns the submission"),
    "export": "launch forwards its environment",
}
# Resources counted as GPUs or NPUs.
_DEVICES = re.compile(r"(?:gpu|npu):(?:[A-Za-z][\w.-]*:)?(\d+)(?:\(.*\))?")
_PLAIN_DEVICES = re.compile(r"(?:gpu|npu):\d+")
_SET = re.compile(r"[A-Za-z_]\w*=[^$]*")  # with a known value
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "per_node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "tasks_per_node": ("SLURM_NTASKS_PER_NODE",),
    "per_each_node": ("SLURM_TASKS_PER_NODE",),
    "tasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "cpus_per_task": ("SLURM_CPUS_PER_TASK",),
    "partition": ("SLURM_JOB_PARTITION",),
    "account": ("SLURM_JOB_ACCOUNT",),
    "name": ("SLURM_JOB_NAME",),
}


@dataclass(slots=True)
class Request:
    """A request of a command line to Slurm.

    Attributes:
        counts: nodes, per_node, total, tasks, tasks_per_node, cpus_per_task, as text.
        fields: fields of the cluster.
        options: options without a field, in sbatch syntax.
        dropped: dropped options as written, with the reason.
        name: the job's name.
        exported: variables that `--export=NAME=VALUE` sets.
    """

    counts: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Value] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    name: str = ""
    exported: dict[str, str] = field(default_factory=dict)
    is_allocated: bool = False
    is_asked: bool = False

    def cluster(self) -> dict[str, str]:
        """Return the number of processes as launcher options (see `Invocation.cluster`)."""
        counts = self.counts
        options: dict[str, str] = {key: counts[key] for key in ("nodes", "per_node") if key in counts}
        tasks, per_node = counts.get("tasks", ""), counts.get("tasks_per_node", "")
        if "per_node" not in options and is_count(per_node) and int(per_node) > 1:
            options["per_node"] = per_node
        nodes = options.get("nodes", "")
        if is_count(tasks) and is_count(nodes) and int(tasks) > int(nodes) > 0 and "per_node" not in options:
            options["per_node"] = str(int(tasks) // int(nodes))
        elif is_count(tasks) and not nodes and int(tasks) > 1:
            options["total"] = tasks
        if "per_node" not in options and "total" in counts:
            options["total"] = counts["total"]
        return options

    def variables(self) -> dict[str, str]:
        """Return the variables that are set for what it starts."""
        return {**self.exported, **self.own_variables()}

    def own_variables(self) -> dict[str, str]:
        """Return the variables by which Slurm describes it."""
        counts = dict(self.counts)
        nodes, per_node = counts.get("nodes", ""), counts.get("tasks_per_node", "")
        if "tasks" not in counts and is_count(nodes) and is_count(per_node):
            counts["tasks"] = str(int(nodes) * int(per_node))
        if per_node:
            counts["per_each_node"] = per_node + (f"(x{nodes})" if nodes not in ("", "1") else "")
        given = counts | {key: str(self.fields[key]) for key in ("partition", "account") if key in self.fields}
        if self.name:
            given["name"] = self.name
        return {variable: value for key, value in given.items() for variable in _VARIABLES.get(key, ())}

    def put(self, cluster: Cluster) -> Cluster:
        """Return a cluster with the fields of the request and Slurm as executor."""
        if not self.is_asked:
            return cluster
        fields: dict[str, Any] = dict(self.fields)
        gres = fields.get("gres")
        if isinstance(gres, str) and _PLAIN_DEVICES.fullmatch(gres) and gres.endswith(f":{cluster.devices_per_node}"):
            del fields["gres"]  # requested by default
        cpus = self.counts.get("cpus_per_task", "")
        if is_count(cpus) and int(cpus):
            # One task per node starts all of its processes.
            tasks = self.counts.get("tasks_per_node", "")
            fields["cpus_per_task"] = int(cpus) * (int(tasks) if is_count(tasks) and int(tasks) else 1)
        if self.options:
            fields["sbatch_options"] = tuple(self.options)
        return dataclasses.replace(cluster, executor=EXECUTOR.name, **fields)

    def notes(self, where: str) -> list[Note]:
        """Return a note for each reason for which options are dropped."""
        reasons: dict[str, list[str]] = {}
        for option, reason in self.dropped.items():
            if reason:
                reasons.setdefault(reason, []).append(option)
        return [
            Note(message=f"Slurm: {', '.join(options)}: dropped: {reason}", where=where)
            for reason, options in reasons.items()
        ]


def batch_options(text: str) -> tuple[str, ...]:
    """Return the `#SBATCH` lines of a script as a command line; empty if it has none.

    Lines after the first command are comments to sbatch(1).
    """
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            argv, at = _split(line.removeprefix("#SBATCH")), 0
            while at < len(argv):
                at, options = _options(argv, at, "sbatch")
                found += [typed for _, _, typed in options]
                at += 1  # an argument that is not an option
        elif line.strip() and not line.startswith("#"):
            break
    return ("sbatch", *found) if found else ()


def ignored(text: str, file: str) -> list[Note]:
    """Return a note for `#SBATCH` lines after the first command of a script that has some before it."""
    is_late, notes = not batch_options(text), []
    if is_late or "<<" in text:  # a here-document holds lines of another script
        return []
    for number, line in enumerate(text.splitlines(), 1):
        if is_late and line.startswith("#SBATCH"):
            message = f"{line.strip()} follows the first command: sbatch reads it as a comment"
            notes.append(Note(message=message, where=f"{file}:{number}"))
        is_late = is_late or (bool(line.strip()) and not line.startswith("#"))
    return notes


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.partition(" #")[0].split()


def with_header(argv: Sequence[str], script: str) -> tuple[str, ...]:
    """Return a command line that starts a script, with the script's `#SBATCH` lines inserted if sbatch reads them."""
    head, *rest = (shown(arg) for arg in argv)
    header = batch_options(script) if head.rpartition("/")[2] == "sbatch" else ()
    return (head, *header[1:], *rest)


def request_of(argv: Sequence[str]) -> Request:
    """Return the request to programs of Slurm in these arguments; later options take precedence, as in Slurm."""
    request = Request()
    at = 0
    while at < len(argv):
        program = argv[at].rpartition("/")[2]
        at += 1
        if program not in PROGRAMS:
            continue
        request.is_asked = True
        is_step = program == "srun" and request.is_allocated
        request.is_allocated = request.is_allocated or program in _ALLOCATING
        at, options = _options(argv, at, program)
        for name, value, typed in options:
            _take(request, name, value, f"srun {typed}" if program == "srun" else typed, is_step=is_step)
    return request


def _options(argv: Sequence[str], at: int, program: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the index of the first argument after the options, and their (name, value, as written)."""
    found: list[tuple[str, str, str]] = []
    while at < len(argv) and (argv[at].startswith("-") or argv[at].startswith("$")):
        arg = argv[at]
        at += 1
        if arg == "--":
            break
        if not arg.startswith("-"):
            continue
        name, equals, value = arg.lstrip("-").partition("=")
        if not arg.startswith("--"):
            letters = list(_letters(arg[1:], program))
            found += letters[:-1]
            name, value, _ = letters[-1]
            equals = value
        if not equals and not _is_standalone(name, program) and at < len(argv):
            value = argv[at]
            at += 1
        found.append((name, value, f"--{name}" + (f"={value}" if value else "")))
    return at, found


def _letters(text: str, program: str) -> Iterator[tuple[str, str, str]]:
    """Yield the options of `-lN4`, `-lu` or `-N4`: the rest after a letter that takes a value is its value."""
    for index, letter in enumerate(text):
        name = _LETTERS.get(letter, letter)
        if not _is_standalone(name, program):
            yield name, text[index + 1 :].removeprefix("="), ""
            return
        yield name, "", f"--{name}"


def _is_standalone(name: str, program: str) -> bool:
    return _WAIT[program] if name == "wait" else name in _FLAGS


def _take(request: Request, name: str, value: str, typed: str, *, is_step: bool) -> None:
    """Store one option in the matching part of the request."""
    if name in _COUNTS or name in ("gpus-per-node", "cpus-per-task", "gpus-per-task"):
        _count(request, name, value)
        if name == "gpus-per-node" and not is_step and ":" in value:
            request.fields["gres"] = f"gpu:{value}"
    elif name == "container-mounts":
        request.fields["container_mounts"] = tuple(each for each in value.split(",") if each)
    elif name == "container-image":
        request.fields["container"] = value
    elif name == "export" and _export(request, value):
        pass
    elif is_step:
        request.dropped[typed] = _LAUNCHER_STEP
    elif is_open(value) or "$" in value:
        request.dropped[f"--{name}={shown(value)}"] = "its value is unknown"
    elif name == "job-name":
        request.name = _UNNAMEABLE.sub("_", value).strip("._-")
    elif name in _FIELDS:
        request.fields[_FIELDS[name]] = value
        devices = _DEVICES.search(value) if name == "gres" else None
        if devices is not None:
            request.counts["per_node"] = devices.group(1)
    elif name in ("requeue", "no-requeue"):
        request.fields["requeue"] = name == "requeue"
    elif name == "exclusive" and not value:
        request.fields["exclusive"] = True
    elif name in _DROPPED or name.startswith(("container-", "no-container-")) or not request.is_allocated:
        request.dropped[typed] = _DROPPED.get(name, _LAUNCHER_STEP)
    else:
        request.options.append(typed)


def _export(request: Request, value: str) -> bool:
    """Store the variables of `--export`; return whether it has no effect but theirs."""
    items = [each for each in value.split(",") if each]
    known = {each for each in items if _SET.fullmatch(each)}
    for name, _, text in (each.partition("=") for each in items if each in known):
        request.exported[name] = text
    return "ALL" in items and {*items} == {"ALL", *known}


def _count(request: Request, name: str, value: str) -> None:
    number = value.rpartition(":")[2] if name.startswith("gpus") else value.partition("-")[0]
    if name == "gpus-per-node":
        request.counts["per_node"] = number
    elif name == "cpus-per-task":
        request.counts["cpus_per_task"] = number
    elif name == "gpus-per-task":
        tasks = request.counts.get("tasks_per_node", "1")
        if "per_node" not in request.counts and is_count(number) and is_count(tasks):
            request.counts["per_node"] = str(int(number) * int(tasks))
    else:
        request.counts[_COUNTS[name]] = number
