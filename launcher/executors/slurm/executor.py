"""Submits a plan to Slurm: one task per node, static rendezvous; state from plain-text squeue and scontrol."""

import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.forwarded_env import forwarded_names
from launcher.executors.private import PROGRAM
from launcher.executors.render import array, assignment, node_files, supervisor_file
from launcher.job import Job
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Executor, Observed, Place, Submitted, Together
from launcher.syntax import shown

SCRIPT = "job.sbatch"
_DEVICE_GRES = {"cuda": "gpu", "npu": "npu"}
_SECONDS, _LOOK_SECONDS = 60, 20
# Message of squeue for a job that it has purged; other messages do not concern the job.
_FORGOTTEN = ("Invalid job id specified",)
# Below the time between SIGTERM and SIGKILL (KillWait, 30 s unless the site says otherwise), so that nodes
# can still write how they ended.
_GRACE_SECONDS = 20
# JobState of squeue(1), JOB STATE CODES. In other states the job has ended; the run directory has the result.
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD")
_GOING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_ENDED = {
    "COMPLETED": "done",
    "CANCELLED": "stopped",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "TIMEOUT": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "PREEMPTED": "failed",
    "LAUNCH_FAILED": "failed",
}
# Ends that Slurm decides; COMPLETED and FAILED only repeat the exit code of the batch script.
_ENDED_BY_SLURM = frozenset(_ENDED) - {"COMPLETED", "FAILED"}
_NO_REASON = ("", "None", "(null)")
_JOB = re.compile(r"[0-9]+(?:_[0-9]+)?")
_FIELD = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Resources and options of a Slurm request.

    Attributes:
        options: sbatch's options, one word each.
        array_limit: most jobs of a sweep that run at once; None: no limit.
    """

    options: tuple[str, ...] = ()
    array_limit: int | None = None


class Slurm(Executor):
    """Runs nodes as tasks of a batch job."""

    name = "slurm"
    title = "Slurm"
    reads = (
        *("partition", "account", "qos", "gres", "constraint", "reservation", "nodelist", "exclude", "exclusive"),
        *("requeue", "array_limit", "sbatch_options", "time_limit", "cpus_per_task", "memory"),
    )
    rules = ("launcher.executors.slurm.rules",)
    containers = True
    image_forms = "REGISTRY/IMAGE:TAG without spaces, or a .sqsh file"
    log_files = ("slurm.log", "launch.log")
    secrets = (
        "sbatch forwards the environment of the shell that calls launch (--export=ALL, its default; a site or "
        "cluster.sbatch_options may change that: then --export=ALL,{name}, without a value)",
        "sbatch forwards the environment of the shell that calls launch (--export=ALL, its default); into a container "
        "only if the job refers to it: {refer}",
    )
    launchers = MappingProxyType({"submitit_slurm": "launcher.executors.slurm.submitit"})

    def restarts(self, job: Job) -> bool:
        """Slurm starts a job again after a node fails, unless the user forbids it."""
        return job.cluster.requeue

    def settings(self, job: Job, *, native: bool) -> Request:
        """Return the options of sbatch; only a native run requests devices."""
        return Request(options=tuple(_batch_options(job, native)), array_limit=job.cluster.array_limit)

    def check(self, plan: LaunchPlan) -> None:
        """Check for Slurm's commands and let Slurm validate the options; nothing is submitted.

        Raises:
            CannotStart: with Slurm's message.
        """
        for name in ("sbatch", "squeue", "scancel"):
            if shutil.which(name) is None:
                raise CannotStart(f"there is no {name} on the PATH: this machine does not submit to Slurm")
        _check_container(plan)
        folder = os.path.abspath(plan.output_dir)
        self.render(plan, Place(id=plan.start.name, folder=folder, launch_dir=os.getcwd()))
        done = _call(["sbatch", "--test-only", *_request(plan).options, "--wrap", "true"])
        if done.returncode:
            raise CannotStart(f"Slurm refuses the job: {_words(done)}")

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return node.sh with its commands, and job.sbatch.

        Raises:
            CannotStart: an option or the run's folder cannot be written in a batch script's header.
        """
        start = plan.start
        options = [
            f"--job-name={start.name}",
            f"--comment={place.id}",
            f"--output={_pattern(place.folder)}/logs/slurm.log",
            "--open-mode=append",
            *_request(plan).options,
        ]
        first = [_header(option) for option in options]
        head = ["unset LAUNCH_ATTACHED", array("srun", ["srun", *_container(plan, place)])]
        head.append(assignment("requeue", "yes" if "--requeue" in _request(plan).options else ""))
        head.append(assignment("step_logs", f"{_pattern(place.folder)}/logs"))
        head.append(array("carry", forwarded_names(plan) if start.container else ()))
        head.append('srun+=(${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"})')
        grace = _GRACE_SECONDS
        conductor = supervisor_file(plan, place, SCRIPT, "slurm", first=first, head=head, grace=grace)
        return [*node_files(plan, place, rank_from="SLURM_NODEID", grace=grace), conductor]

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that submits the job."""
        return ("sbatch", "--parsable", f"{place.folder}/run/{SCRIPT}")

    def submitted(self, output: str) -> Submitted:
        """Return the job's number; `--parsable` prints NUMBER or NUMBER;CLUSTER, after output of plug-ins."""
        lines = output.split()
        number, _, cluster = (lines[-1] if lines else "").partition(";")
        if not number.isdigit():
            raise CannotStart(f"sbatch did not print a job id: {output.strip()!r}")
        return Submitted(handle={"job": number, **({"cluster": cluster} if cluster else {})})

    def together(self, runs: Sequence[tuple[LaunchPlan, Place]]) -> Together | None:
        """Return a job array with one run per task; None if the runs request different machines."""
        (first, place), request = runs[0], _request(runs[0][0])
        if len(runs) < 2 or any(_request(plan).options != request.options for plan, _ in runs):
            return None
        limit = "" if request.array_limit is None else f"%{request.array_limit}"
        options = [f"--array=0-{len(runs) - 1}{limit}", f"--job-name={first.start.name}", "--output=/dev/null"]
        lines = ["#!/bin/bash", *map(_header, (*options, *request.options))]
        lines.append('case "$SLURM_ARRAY_TASK_ID" in')
        for number, (_, each) in enumerate(runs):
            log, script = (shlex.quote(f"{each.folder}/{name}") for name in ("logs/slurm.log", f"run/{SCRIPT}"))
            lines.append(f"{number}) exec bash {script} >>{log} 2>&1 ;;")
        path = f"{place.folder}/run/array.sbatch"
        return Together(
            file=PlanFile(path=path, content="\n".join([*lines, "esac", ""]), mode=PROGRAM),
            command=("sbatch", "--parsable", path),
            submitted=lambda output: self._tasks(self.submitted(output), len(runs)),
        )

    def _tasks(self, array: Submitted, count: int) -> list[Submitted]:
        job = array.handle["job"]
        return [Submitted(handle={**array.handle, "job": f"{job}_{number}"}) for number in range(count)]

    def observe(self, handle: Mapping[str, Any]) -> Observed:
        """Query squeue, then scontrol, then the accounting; what none of them knows is in the run directory."""
        try:
            place, job = _cluster(handle), _number(handle)
        except CannotStart as error:
            return Observed(state="", why=str(error), asked=False)
        done = _call(["squeue", *place, "-h", "-j", job, "-t", "all", "-o", "%T|%r|%N"], _LOOK_SECONDS)
        if done.returncode and not any(sign in done.stderr for sign in _FORGOTTEN):
            return Observed(state="", why=f"Slurm cannot be queried: {_words(done)}", asked=False)
        if done.returncode == 0 and done.stdout.strip():
            state, why, nodes = (*done.stdout.strip().splitlines()[-1].split("|"), "", "")[:3]
        else:
            done = _call(["scontrol", *place, "-o", "show", "job", job], _LOOK_SECONDS)
            fields = dict(_FIELD.findall(done.stdout)) if done.returncode == 0 else {}
            state, why, nodes = (fields.get(name, "") for name in ("JobState", "Reason", "NodeList"))
        if not state or state == "CANCELLED":
            accounted = _accounted(place, job)
            # It lags behind the controller and may never learn of an end: of a job that has gone, only an end counts.
            if accounted is not None and accounted[0].partition(" by ")[0] in ((state,) if state else _ENDED):
                state, why, nodes = accounted
        # sacct(1): `CANCELLED by UID`.
        state, _, by = state.partition(" by ")
        said = [
            f"Slurm: {state}" if state else "",
            f"by {_user(by)}" if by else "",
            why if why not in _NO_REASON else "",
        ]
        known = "queued" if state in _WAITING else "running" if state in _GOING else _ENDED.get(state, "")
        why = " ".join(filter(None, said))
        return Observed(state=known, why=why, nodes=_expanded(nodes), final=state in _ENDED_BY_SLURM)

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Cancel the job: its tasks get SIGTERM, and SIGKILL after the cluster's KillWait.

        Raises:
            CannotStart: with Slurm's message.
        """
        job = _number(handle)
        done = _call(["scancel", *_cluster(handle), job])
        if done.returncode:
            raise CannotStart(f"Slurm does not cancel job {job}: {_words(done)}")


def _request(plan: LaunchPlan) -> Request:
    request = plan.start.settings
    assert isinstance(request, Request), "a plan for Slurm has its options"
    return request


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


def _header(option: str) -> str:
    """Return the `#SBATCH` line of an option.

    sbatch reads quotes as bash does, but also a backslash inside of them, and `#` begins a comment (Slurm 22.05,
    src/sbatch/opt.c, _get_argument). No quoting allows a line end.

    Raises:
        CannotStart: the option does not fit on one line.
    """
    if not option.isprintable():
        raise CannotStart(f"{shown(option)} is not a one-line option: sbatch would run what follows as commands")
    name, equals, value = option.replace("\\", "\\\\").partition("=")
    return f"#SBATCH {shlex.quote(name)}{equals}{shlex.quote(value) if equals else ''}"


def _pattern(folder: str) -> str:
    """Return a folder escaped for Slurm's file names, in which `%` begins a pattern; sbatch(1), filename pattern.

    Raises:
        CannotStart: it has a backslash, which disables patterns, and the nodes' logs need one.
    """
    if "\\" in folder:
        raise CannotStart(
            f"{shown(folder)}: Slurm reads a backslash in file names as an escape: choose another output_dir"
        )
    return folder.replace("%", "%%")


def _container(plan: LaunchPlan, place: Place) -> list[str]:
    """Return srun's options for a container; needs the Pyxis plug-in.

    The launch folder and the run's folder are mounted writable at the same paths; variables of the image must not
    override those of the launcher (`shell/slurm.sh` names these variables).

    Raises:
        CannotStart: the name of a folder is not valid in a mount.
    """
    start = plan.start
    if start.container is None:
        return []
    # A folder below a mounted one is mounted with it.
    own = [place.launch_dir] if _within(place.folder, place.launch_dir) else [place.launch_dir, place.folder]
    for folder in own:
        if any(sign in folder for sign in " ,:"):
            raise CannotStart(f"{folder} cannot be mounted into a container: its name has a space, a comma or a colon")
    mounts = dict.fromkeys([*(f"{folder}:{folder}" for folder in own), *start.container_mounts])
    return [f"--container-image={start.container}", f"--container-mounts={','.join(mounts)}"]


def _check_container(plan: LaunchPlan) -> None:
    if plan.start.container is None:
        return
    _container(plan, Place(id="", folder=os.path.abspath(plan.output_dir), launch_dir=os.getcwd()))
    if "--container-image" not in _call(["srun", "--help"]).stdout:
        raise CannotStart(
            "cluster.container needs Pyxis, and srun here has no --container-image: "
            "https://github.com/NVIDIA/pyxis/wiki/Installation, or leave out cluster.container"
        )


def _within(folder: str, parent: str) -> bool:
    return f"{folder}/".startswith(f"{parent.rstrip('/')}/")


def _number(handle: Mapping[str, Any]) -> str:
    """Return the job's number, with its index in an array.

    Raises:
        CannotStart: the run's record was changed, and holds a value that could be an option of scancel.
    """
    job = str(handle.get("job", ""))
    if not _JOB.fullmatch(job):
        raise CannotStart(f"run.json names the job {shown(job)}, which is not a Slurm job id")
    return job


def _cluster(handle: Mapping[str, Any]) -> list[str]:
    return [f"--clusters={handle['cluster']}"] if "cluster" in handle else []


def _expanded(nodes: str) -> tuple[str, ...]:
    if not nodes or nodes == "(null)":
        return ()
    done = _call(["scontrol", "show", "hostnames", nodes])
    return tuple(done.stdout.split()) if done.returncode == 0 else (nodes,)


def _call(words: Sequence[str], seconds: float = _SECONDS) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 127, "", f"{words[0]} did not respond within {seconds:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))


def _accounted(place: Sequence[str], job: str) -> tuple[str, str, str] | None:
    """Return state, reason and nodes of a job from Slurm's accounting; None: there is none, or no such job."""
    if shutil.which("sacct") is None:
        return None
    done = _call(["sacct", *place, "-X", "-n", "-P", "-D", "-j", job, "-o", "State,Reason,NodeList"], _LOOK_SECONDS)
    rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 2]
    return None if done.returncode or not rows else (rows[-1][0], rows[-1][1], rows[-1][2])


def _user(number: str) -> str:
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError):
        return f"user {number}"


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return " · ".join(lines) or f"exit code {done.returncode}"


EXECUTOR = Slurm()
