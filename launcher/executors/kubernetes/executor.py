"""Submits a plan to Kubernetes by `kubectl apply`; reads state and logs by `kubectl get` and `kubectl logs`."""

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes.kinds import FILES, KINDS, RUN_LABEL, kind_of
from launcher.executors.kubernetes.kubectl import Refused, ask, documents, flags, kubectl, resource_of, tidy
from launcher.executors.kubernetes.objects import (
    ATTEMPT,
    CONTEXT,
    FOLDER,
    MOST_BYTES,
    Object,
    master_address,
    master_port,
    name_of,
    objects,
)
from launcher.executors.kubernetes.owner import adopt
from launcher.executors.kubernetes.pods import Pods, pods_of
from launcher.executors.record import read_status, write_status
from launcher.executors.refusal import refused
from launcher.executors.render import (
    GRACE_SECONDS,
    assignment,
    checkpoint_head,
    hang_head,
    head_of,
    node_files,
    rendered_file,
)
from launcher.job import Job
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import ENDED, Executor, Observed, Place, Submitted

if TYPE_CHECKING:
    from launcher.executors.kubernetes.state import Seen

MANIFEST = "job.yaml"
_STOPPED = 143
# The state of a run and its output, which are asked for one after the other, are of one list of its pods.
_FRESH_SECONDS = 2.0
# Pods are deleted shortly after their containers have ended.
_GONE_SECONDS = 20.0
# Plain scalars that every YAML parser reads as strings. That of kubectl (sigs.k8s.io/yaml) reads y and n as booleans,
# and 1e3, 0o7 and 0b1 as numbers, where PyYAML reads strings.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_APPLY = ("apply", "--server-side", "--field-manager=launch")


class Kubernetes(Executor):
    """Runs nodes as pods."""

    name = "kubernetes"
    title = "Kubernetes"
    reads = (
        *("kind", "context", "namespace", "device_resource", "resources", "volumes", "work_dir", "shm_size"),
        *("node_selector", "tolerations", "service_account", "image_pull_secrets", "secret", "priority_class"),
        *("queue", "labels", "annotations", "host_network", "capabilities", "rank_table", "training_runtime"),
        *("time_limit", "cpus_per_task", "memory", "pull_policy", "pod_security", "run_as_user", "pod_patch"),
        "ttl_after_finished",
    )
    rules = ("launcher.executors.kubernetes.rules",)
    containers = True
    image_forms = "REGISTRY/IMAGE:TAG without spaces"
    own_environment = True  # that of the image
    resumes = True
    secrets = (
        "from the key {name} of the Secret {secret} (cluster.secret): kubectl create secret generic {secret} "
        "--from-env-file=FILE",
        "from the key {name} of the Secret {secret} (cluster.secret), if the job refers to it: {refer}",
    )

    def __init__(self) -> None:
        self._latest: tuple[Mapping[str, Any], float, Seen] | None = None

    def settings(self, job: Job, *, native: bool) -> Pods:
        """Return the settings of the job's pods."""
        return pods_of(job, native=native)

    def mounted(self, job: Job) -> tuple[str, ...]:
        """Return the folders of the pods that are volumes."""
        return tuple(volume.path for volume in pods_of(job, native=True).volumes)

    def stored_settings(self, tree: Any) -> Pods:
        """Return the settings of pods from the data of a stored plan."""
        from launcher.executors.kubernetes.again import pods_from

        return pods_from(tree)

    def check(self, plan: LaunchPlan) -> None:
        """Let the cluster validate the objects by a dry run; nothing is created.

        Raises:
            CannotStart: there is no kubectl, or the cluster rejects the objects, with its message.
        """
        self.preflight(plan)

    def preflight(self, plan: LaunchPlan) -> Sequence[str]:
        """Let the cluster validate the objects and one of their pods by dry runs, and return its warnings.

        Raises:
            CannotStart: there is no kubectl, or the cluster rejects the objects, with its message.
        """
        from launcher.executors.kubernetes.admission import queue_warnings, rejected_pod
        from launcher.executors.kubernetes.again import lost_checkpoints
        from launcher.executors.kubernetes.refusals import REFUSALS, reason_in

        if shutil.which("kubectl") is None:
            raise CannotStart(
                "there is no kubectl on the PATH", ("install it: https://kubernetes.io/docs/tasks/tools",)
            )
        place = Place(id=plan.start.name, folder=os.path.abspath(plan.output_dir), launch_dir=os.getcwd())
        pods = _pods(plan)
        where, made = _where(pods), self._objects(plan, place)[1]
        try:
            answer = ask(where, *_APPLY, "--dry-run=server", "-f", "-", "-o", "name", text=as_yaml(made))
            said = [*answer.warnings, *rejected_pod(where, made[-1]), *queue_warnings(where, made[-1])]
        except Refused as error:
            raise refused("the cluster rejects the job", reason_in(str(error)), where, REFUSALS) from None
        return list(dict.fromkeys([*said, *lost_checkpoints(plan, _inside(plan, place, pods), pods)]))

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return the scripts and, last, the manifest that contains them: `kubectl apply -f` starts the job.

        Raises:
            CannotStart: the scripts are too large for a ConfigMap.
        """
        return self._rendered(plan, place, 0)

    def _rendered(self, plan: LaunchPlan, place: Place, attempt: int) -> list[PlanFile]:
        files, made = self._objects(plan, place, attempt)
        here = [replace(file, path=f"{place.folder}/run/{file.path.rpartition('/')[2]}") for file in files]
        return [*here, PlanFile(path=f"{place.folder}/run/{MANIFEST}", content=as_yaml(made))]

    def _objects(self, plan: LaunchPlan, place: Place, attempt: int = 0) -> tuple[list[PlanFile], list[Object]]:
        """Return the scripts, and the objects of a run, last the one that starts the pods.

        Args:
            attempt: number of the first attempt; above 0 its pods end where they find no checkpoint.
        """
        pods = _pods(plan)
        inside = _inside(plan, place, pods, attempt)
        rank_from = KINDS[pods.kind].rank_from
        watch = plan.watch
        head = [
            *head_of(plan, inside, GRACE_SECONDS),
            *checkpoint_head(plan, inside),
            assignment("files", FILES),
            assignment("rank_from", rank_from),
            assignment("master_addr", plan.start.address or master_address(pods, name_of(place, attempt))),
            assignment("first_attempt", attempt),
            assignment("master_port", master_port(plan, place)),
            *hang_head(plan),
            assignment("iteration_line", watch.iteration_line),
            assignment("rank_log", watch.rank_log.replace("{rank}", "*")),
        ]
        files = node_files(plan, inside, rank_from=rank_from)
        files.append(rendered_file(inside, "pod.sh", head, ("common", "checkpoint", "pod")))
        size = sum(len(file.content.encode()) for file in files)
        if size > MOST_BYTES:
            raise CannotStart(
                f"the job's scripts have {size} bytes; a ConfigMap holds {MOST_BYTES}: put long lists into files "
                "on a volume of the pods"
            )
        return files, objects(plan, place, pods, files, os.environ, attempt)

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that submits the job."""
        where = flags(_where(_pods(plan)))
        return ("kubectl", *where, *_APPLY, "-f", f"{place.folder}/run/{MANIFEST}", "-o", "json")

    def submitted(self, output: str) -> Submitted:
        """Return the handle of the created job, parsed from kubectl's output."""
        made = _documents(output)
        for tree in made:
            kind = kind_of(tree.get("apiVersion"), tree.get("kind"))
            if kind is None:
                continue
            metadata = tree["metadata"]
            notes = metadata.get("annotations", {})
            handle = {
                "kind": kind.name,
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "context": notes.get(CONTEXT, ""),
                "folder": notes.get(FOLDER, ""),
                "attempt": int(notes[ATTEMPT]) if str(notes.get(ATTEMPT, "")).isdecimal() else 0,
            }
            handle = {key: value for key, value in handle.items() if value}
            adopt(handle, tree, made)
            return Submitted(handle=handle)
        raise CannotStart(f"unexpected output of kubectl: {output.strip()[:300]!r}")

    def observe(self, handle: Mapping[str, Any]) -> Observed:
        """Query the job and its pods; once it has ended, its logs and exit codes are saved in the run directory."""
        from launcher.executors.kubernetes.pods_seen import earlier
        from launcher.executors.kubernetes.state import (
            first_attempt,
            keep_disruptions,
            keep_exits,
            own_folder,
            seen,
            state_of,
        )

        folder = own_folder(handle)
        try:
            found = seen(handle)
            if folder is not None:
                keep_disruptions(folder, found.pods)
                keep_exits(folder, earlier(found.pods))
            self._latest = (dict(handle), time.monotonic(), found)
            observed = state_of(handle, found)
        except Refused as error:
            return _unasked(folder, error)
        if observed.state in ("done", "failed") and folder is not None and not _is_kept(folder):
            code = self._keep(handle, folder, found)
            failed = None if observed.state == "done" else code or 1
            attempt = max((pod.attempt for pod in found.pods), default=first_attempt(handle))
            write_status(folder, observed.state, failed or 0, attempt=attempt, why=observed.why)
        return observed

    def nodes_checkpoint(self, plan: LaunchPlan, place: Place) -> str:
        """Return the folder in which the pods look for their newest complete checkpoint.

        Raises:
            CannotStart: it is on no volume of theirs.
        """
        from launcher.executors.kubernetes.again import checkpoints_of_pods

        pods = _pods(plan)
        return checkpoints_of_pods(plan, _inside(plan, place, pods), pods)

    def prepare_again(
        self, plan: LaunchPlan, place: Place, handle: Mapping[str, Any], attempt: int
    ) -> Sequence[PlanFile]:
        """Delete the objects of the attempt before, once its output is kept, and return the manifest of the next one.

        Raises:
            CannotStart: pods of the attempt before still run, or with kubectl's message.
        """
        from launcher.executors.kubernetes.again import check_gone
        from launcher.executors.kubernetes.state import own_folder, seen

        files = self._rendered(plan, place, attempt)
        try:
            found = seen(handle)
            check_gone(found.pods)
            folder = own_folder(handle)
            if folder is not None:
                self._keep(handle, folder, found)
            _remove(handle)
        except Refused as error:
            raise CannotStart(f"job {handle.get('name')} of the attempt before: {error}") from None
        return files

    def _keep(self, handle: Mapping[str, Any], folder: Path, found: "Seen") -> int | None:
        """Save logs and exit codes of an ended job; return the code of the first failure."""
        from launcher.executors.kubernetes.logs import fetch_logs
        from launcher.executors.kubernetes.state import first_attempt, keep_exits, keep_vanished, seen

        fetch_logs(handle, folder, found.pods)
        if any(pod.code is None for pod in found.pods):  # it may have ended in between
            with suppress(Refused):  # those that had ended are known
                found = seen(handle)
        keep_vanished(folder, found.pods, max((pod.attempt for pod in found.pods), default=first_attempt(handle)))
        return keep_exits(folder, found.pods)

    def fetch(self, handle: Mapping[str, Any]) -> None:
        """Append the output of the pods since the last call to the run directory."""
        from launcher.executors.kubernetes.logs import fetch_logs
        from launcher.executors.kubernetes.state import own_folder, seen

        folder = own_folder(handle)
        if folder is None:
            return
        known, at, found = self._latest or ({}, 0.0, None)
        try:
            if found is None or known != handle or time.monotonic() - at > _FRESH_SECONDS:
                found = seen(handle)
            fetch_logs(handle, folder, found.pods)
        except Refused:
            return  # its state has the reason

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Delete the job's objects; pods get their grace period to save, and their output meanwhile is kept.

        Raises:
            CannotStart: with kubectl's message.
        """
        from launcher.executors.kubernetes.logs import following_logs
        from launcher.executors.kubernetes.state import keep_exits, own_folder, seen

        folder = own_folder(handle)
        try:
            pods = seen(handle).pods
            # As long as they may save: their own grace period, which pods of an earlier version or of a patch may have.
            seconds = max((pod.grace for pod in pods), default=GRACE_SECONDS) + _GONE_SECONDS
            deadline = time.monotonic() + seconds
            with nullcontext() if folder is None else following_logs(handle, folder, pods, seconds):
                named = f"{resource_of(handle)}/{handle['name']}"
                kubectl(handle, "delete", named, "--wait=false", "--ignore-not-found")
        except Refused as error:
            raise CannotStart(f"the cluster cannot end job {handle['name']}: {error}") from None
        try:
            while time.monotonic() < deadline and (pods := seen(handle).pods):
                if folder is not None:
                    keep_exits(folder, pods)
                time.sleep(1)
            _remove(handle)
        except Refused:
            pass  # the job itself is deleted; the remaining objects use no resources
        if folder is not None:
            write_status(folder, "stopped", _STOPPED)

    def clean(self, handle: Mapping[str, Any], folder: Path) -> Sequence[str]:
        """Delete the job's objects, whose logs and exit codes are in the run directory since its end was seen.

        Raises:
            CannotStart: with kubectl's message.
        """
        try:
            return _remove(handle)
        except Refused as error:
            raise CannotStart(f"the objects of job {handle['name']} are not all deleted: {error}") from None


def _remove(handle: Mapping[str, Any]) -> Sequence[str]:
    """Delete all objects of a run and return their names; volumes and Secrets are the user's.

    Also those that the job object made and the cluster has not deleted with it: pods without their controller.
    """
    kinds = f"{resource_of(handle)},service,configmap,pod"
    words = ("-l", f"{RUN_LABEL}={handle['name']}", "--wait=false", "--ignore-not-found", "-o", "name")
    # Without any it prints "No resources found".
    return [word for word in kubectl(handle, "delete", kinds, *words).split() if "/" in word]


def _unasked(folder: Path | None, error: Refused) -> Observed:
    """Return the state of a job whose cluster does not answer; that does not count as its end."""
    if error.is_missing or (folder is not None and read_status(folder).get("state") in ENDED):
        return Observed(state="")
    return Observed(state="running", why=f"last known state; the cluster cannot be reached: {error}")


def as_yaml(objects: Sequence[Object]) -> str:
    """Return objects as one YAML file, with scripts as readable block scalars."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        lines = value.split("\n")
        # A block scalar cannot hold unprintable characters.
        is_block = len(lines) > 1 and lines[0] != "" and all(line.replace("\t", "").isprintable() for line in lines)
        style = "|" if is_block else None if plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
    return yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=4096)


def _documents(output: str) -> list[Object]:
    try:
        return documents(output)
    except ValueError:
        raise CannotStart(f"unexpected output of kubectl: {tidy(output, 300)!r}") from None


def _pods(plan: LaunchPlan) -> Pods:
    pods = plan.start.settings
    assert isinstance(pods, Pods), "a plan for Kubernetes says how pods are made"
    return pods


def _where(pods: Pods) -> dict[str, Any]:
    return {"context": pods.context, "namespace": pods.namespace}


def _inside(plan: LaunchPlan, place: Place, pods: Pods, attempt: int = 0) -> Place:
    """Return the run's place as seen by the pods; its id, which marks their processes, is unique to the run."""
    if pods.work_dir is None:
        return replace(place, id=name_of(place, attempt))
    folder = os.path.join(pods.work_dir, plan.output_dir)
    return Place(id=name_of(place, attempt), folder=folder, launch_dir=pods.work_dir)


def _is_kept(folder: Path) -> bool:
    """Return whether the end of a run is written down; that it waits is, too, once it is resumed."""
    status = read_status(folder)
    return bool(status) and status.get("state") in ENDED


EXECUTOR = Kubernetes()
