"""Submits a plan to Slurm: one task per node, static rendezvous; state from plain-text squeue and scontrol."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from launcher.executors.failure import CannotStart
from launcher.executors.forwarded_env import forwarded_names
from launcher.executors.private import PROGRAM
from launcher.executors.render import array, assignment, node_files, supervisor_file
from launcher.executors.slurm.admission import admitted
from launcher.executors.slurm.probe import answers_of
from launcher.executors.slurm.state import call, expanded, find_job, jobs_seen, words
from launcher.job import Job
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Executor, Observed, Place, Submitted, Together
from launcher.records import dataclass
from launcher.syntax import is_count, shown

if TYPE_CHECKING:
    from subprocess import CompletedProcess

SCRIPT = "job.sbatch"
_DEVICE_GRES = {"cuda": "gpu", "npu": "npu"}
# Below the time between SIGTERM and SIGKILL (KillWait, 30 s unless the site says otherwise), so that nodes
# can still write how they ended.
_GRACE_SECONDS = 20
# After the checkpoint nodes still have to end; Slurm sends a signal up to 60 s early (sbatch(1), --signal).
_END_SECONDS = 30
_JOB = re.compile(r"[0-9]+(?:_[0-9]+)?")


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
    resumes = True
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

    def stored_settings(self, tree: Any) -> Request:
        """Return sbatch's options from the data of a stored plan."""
        return Request(options=tuple(map(str, tree["options"])), array_limit=tree["array_limit"])

    def check(self, plan: LaunchPlan) -> None:
        """Check for Slurm's commands and let Slurm validate the options; nothing is submitted.

        Raises:
            CannotStart: it can never run, with Slurm's message.
        """
        self.preflight(plan)

    def preflight(self, plan: LaunchPlan) -> Sequence[str]:
        """Run the checks of `check`, and return what the job has to wait for.

        Raises:
            CannotStart: it can never run, with Slurm's message.
        """
        for name in ("sbatch", "squeue", "scancel"):
            if shutil.which(name) is None:
                raise CannotStart(
                    f"there is no {name} on the PATH: this machine does not submit to Slurm",
                    (
                        "on a login node of the cluster",
                        "launch dry-run … --format submit >job.sbatch, and sbatch there",
                    ),
                )
        _check_container(plan)
        folder = os.path.abspath(plan.output_dir)
        self.render(plan, Place(id=plan.start.name, folder=folder, launch_dir=os.getcwd()))
        return admitted(_options(plan))

    def probe(self, plan: LaunchPlan, script: str) -> list[tuple[str, "CompletedProcess[str]"]]:
        """Run a bash script on nodes that Slurm allocates for it as it would for the job.

        Raises:
            CannotStart: none are free, with Slurm's message.
        """
        return answers_of(_request(plan).options, len(plan.nodes), script)

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
            *_options(plan),
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

    def handle(self, plan: LaunchPlan) -> Mapping[str, Any]:
        """Return whether ranks save when the job is cancelled."""
        return {} if plan.start.save_seconds is None else {"saves": True}

    def submitted(self, output: str) -> Submitted:
        """Return the job's number; `--parsable` prints NUMBER or NUMBER;CLUSTER, after output of plug-ins."""
        lines = output.split()
        number, _, cluster = (lines[-1] if lines else "").partition(";")
        if not is_count(number):
            raise CannotStart(f"sbatch did not print a job id: {output.strip()!r}")
        return Submitted(handle={"job": number, **({"cluster": cluster} if cluster else {})})

    def find_submitted(self, place: Place, since: float) -> Submitted | None:
        """Return the newest job of this user that runs the run's script, as far as it was submitted since then."""
        return find_job(f"{place.folder}/run/{SCRIPT}", since)

    def together(self, runs: Sequence[tuple[LaunchPlan, Place]]) -> Together | None:
        """Return a job array with one run per task; None if the runs request different machines."""
        (first, place), request, options = runs[0], _request(runs[0][0]), _options(runs[0][0])
        if len(runs) < 2 or any(_options(plan) != options for plan, _ in runs):
            return None
        limit = "" if request.array_limit is None else f"%{request.array_limit}"
        own = [f"--array=0-{len(runs) - 1}{limit}", f"--job-name={first.start.name}", "--output=/dev/null"]
        lines = ["#!/bin/bash", *map(_header, (*own, *options))]
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
        (seen,) = self.observe_all([handle])
        return replace(seen, nodes=expanded(seen.nodes[0])) if seen.nodes else seen

    def observe_all(self, handles: Sequence[Mapping[str, Any]]) -> list[Observed]:
        """Query each of them once for all jobs of a cluster."""
        found: dict[int, Observed] = {}
        clusters: dict[tuple[str, ...], dict[int, str]] = {}
        for index, handle in enumerate(handles):
            try:
                clusters.setdefault(tuple(_cluster(handle)), {})[index] = _number(handle)
            except CannotStart as error:
                found[index] = Observed(state="", why=str(error), asked=False)
        for place, jobs in clusters.items():
            seen = jobs_seen(place, list(dict.fromkeys(jobs.values())))
            found |= {index: seen[job] for index, job in jobs.items()}
        return [found[index] for index in range(len(handles))]

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Cancel the job: its tasks get SIGTERM, and SIGKILL after the cluster's KillWait.

        Raises:
            CannotStart: with Slurm's message.
        """
        self.stop_all([handle])

    def stop_all(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """Cancel jobs by one command for each cluster.

        Raises:
            CannotStart: with Slurm's message; others of them may be cancelled.
        """
        clusters: dict[tuple[tuple[str, ...], bool], list[str]] = {}
        for handle in handles:
            clusters.setdefault((tuple(_cluster(handle)), bool(handle.get("saves"))), []).append(_number(handle))
        for (place, saves), jobs in clusters.items():
            # Slurm kills a cancelled job after KillWait; of one that saves the batch script ends the nodes.
            ways = (("--state=PENDING",), ("--batch", "--signal=TERM")) if saves else ((),)
            for words_of in ways:
                done = call(["scancel", *place, *words_of, *jobs])
                if done.returncode and not (saves and "already completing" in done.stderr):
                    raise CannotStart(f"Slurm does not cancel job {', '.join(jobs)}: {words(done)}")


def _request(plan: LaunchPlan) -> Request:
    request = plan.start.settings
    assert isinstance(request, Request), "a plan for Slurm has its options"
    return request


def _options(plan: LaunchPlan) -> tuple[str, ...]:
    """Return sbatch's options, with the signal before the time limit where ranks save on one."""
    options, save = _request(plan).options, plan.start.save_seconds
    if save is None or any(word.startswith("--signal") for word in options):
        return options
    # To the batch script only, which signals ranks before the processes that started them.
    return (*options, f"--signal=B:TERM@{round(save) + _END_SECONDS}")


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
    options = [f"--{name}={value}" for name, value in valued.items() if value is not None]
    if native if exclusive is None else exclusive:
        options.append("--exclusive")
    options.append("--requeue" if cluster.requeue else "--no-requeue")
    return [*options, *cluster.sbatch_options]


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
    if "--container-image" not in call(["srun", "--help"]).stdout:
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


EXECUTOR = Slurm()
