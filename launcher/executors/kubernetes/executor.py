"""Submits a plan to Kubernetes by `kubectl apply`; reads state and logs by `kubectl get` and `kubectl logs`."""

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.failure import CannotStart
from launcher.executors.kubernetes.kubectl import Refused, documents, flags, kubectl
from launcher.executors.kubernetes.objects import (
    CONTEXT,
    FILES,
    FOLDER,
    MOST_BYTES,
    RANK_FROM,
    RESOURCES,
    RUN_LABEL,
    Object,
    master_address,
    master_port,
    name_of,
    objects,
)
from launcher.executors.kubernetes.pods import Pods, pods_of
from launcher.executors.record import RUN, read_record, read_status, write_status
from launcher.executors.render import (
    GRACE_SECONDS,
    assignment,
    checkpoint_head,
    head_of,
    node_files,
    rendered_file,
)
from launcher.job import Job
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import ENDED, Executor, Observed, Place, Submitted

MANIFEST = "job.yaml"
_STOPPED = 143
# Pods are deleted shortly after their containers have ended.
_GONE_SECONDS = 20
_KINDS = {
    ("Job", "batch"): "job",
    ("JobSet", "jobset.x-k8s.io"): "jobset",
    ("TrainJob", "trainer.kubeflow.org"): "trainjob",
    ("Job", "batch.volcano.sh"): "volcano",
}
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
        *("time_limit", "cpus_per_task", "memory"),
    )
    rules = ("launcher.executors.kubernetes.rules",)
    containers = True
    image_forms = "REGISTRY/IMAGE:TAG without spaces"
    own_environment = True  # that of the image
    secrets = (
        "from the key {name} of the Secret {secret} (cluster.secret): kubectl create secret generic {secret} "
        "--from-env-file=FILE",
        "from the key {name} of the Secret {secret} (cluster.secret), if the job refers to it: {refer}",
    )

    def settings(self, job: Job, *, native: bool) -> Pods:
        """Return the settings of the job's pods."""
        return pods_of(job, native=native)

    def check(self, plan: LaunchPlan) -> None:
        """Let the cluster validate the objects by a dry run; nothing is created.

        Raises:
            CannotStart: there is no kubectl, or the cluster rejects the objects, with its message.
        """
        if shutil.which("kubectl") is None:
            raise CannotStart("there is no kubectl on the PATH: https://kubernetes.io/docs/tasks/tools")
        place = Place(id=plan.start.name, folder=os.path.abspath(plan.output_dir), launch_dir=os.getcwd())
        manifest = self.render(plan, place)[-1].content
        try:
            kubectl(_where(_pods(plan)), *_APPLY, "--dry-run=server", "-f", "-", "-o", "name", text=manifest)
        except Refused as error:
            raise CannotStart(f"the cluster rejects the job: {error}") from None

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return the scripts and, last, the manifest that contains them: `kubectl apply -f` starts the job.

        Raises:
            CannotStart: the scripts are too large for a ConfigMap.
        """
        pods = _pods(plan)
        inside = _inside(plan, place, pods)
        rank_from = RANK_FROM[pods.kind]
        watch, hang = plan.watch, plan.start.hang_seconds
        head = [
            *head_of(plan, inside, GRACE_SECONDS),
            *checkpoint_head(plan, inside),
            assignment("files", FILES),
            assignment("rank_from", rank_from),
            assignment("master_addr", plan.start.address or master_address(pods, name_of(place))),
            assignment("master_port", master_port(plan, place)),
            assignment("hang_seconds", "" if hang is None else round(hang)),
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
        made = objects(plan, place, pods, files, os.environ)
        here = [replace(file, path=f"{place.folder}/run/{file.path.rpartition('/')[2]}") for file in files]
        return [*here, PlanFile(path=f"{place.folder}/run/{MANIFEST}", content=as_yaml(made))]

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that submits the job."""
        where = flags(_where(_pods(plan)))
        return ("kubectl", *where, *_APPLY, "-f", f"{place.folder}/run/{MANIFEST}", "-o", "json")

    def submitted(self, output: str) -> Submitted:
        """Return the handle of the created job, parsed from kubectl's output."""
        for made in _documents(output):
            kind = _KINDS.get((made.get("kind", ""), made.get("apiVersion", "").partition("/")[0]))
            if kind is None:
                continue
            metadata = made["metadata"]
            notes = metadata.get("annotations", {})
            handle = {
                "kind": kind,
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "context": notes.get(CONTEXT, ""),
                "folder": notes.get(FOLDER, ""),
            }
            return Submitted(handle={key: value for key, value in handle.items() if value})
        raise CannotStart(f"unexpected output of kubectl: {output.strip()[:300]!r}")

    def observe(self, handle: Mapping[str, Any]) -> Observed:
        """Query the job and its pods; once it has ended, its logs and exit codes are saved in the run directory."""
        from launcher.executors.kubernetes.state import pods_seen, state_seen

        try:
            pods = pods_seen(handle)
            seen = state_seen(handle, pods)
        except Refused as error:
            return self._unasked(handle, error)
        if seen.state in ("done", "failed"):
            folder = Path(handle["folder"])
            if _is_of(folder, handle) and not read_status(folder):
                self.fetch(handle)
                code = self._exit_code(handle, folder)
                write_status(folder, seen.state, 0 if seen.state == "done" else code or 1, why=seen.why)
        return seen

    def _exit_code(self, handle: Mapping[str, Any], folder: Path) -> int | None:
        """Return the code of the first failure; pods are queried again, as they may have ended in between."""
        from launcher.executors.kubernetes.state import keep_exits, pods_seen

        try:
            return keep_exits(folder, pods_seen(handle))
        except Refused:
            return None

    def _unasked(self, handle: Mapping[str, Any], error: Refused) -> Observed:
        """Return the state of a job that is missing or whose cluster does not answer; neither counts as its end."""
        if error.is_missing or read_status(Path(handle["folder"])).get("state") in ENDED:
            return Observed(state="")
        return Observed(state="running", why=f"last known state; the cluster cannot be reached: {error}")

    def fetch(self, handle: Mapping[str, Any]) -> None:
        """Append the output of the pods since the last call to the run directory."""
        from launcher.executors.kubernetes.state import fetch_logs, pods_seen

        try:
            fetch_logs(handle, pods_seen(handle))
        except Refused:
            return  # its state has the reason

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Delete the job's objects; pods get their grace period to save, and their output meanwhile is kept.

        Raises:
            CannotStart: with kubectl's message.
        """
        from launcher.executors.kubernetes.state import following_logs, keep_exits, pods_seen

        folder = Path(handle["folder"])
        try:
            pods = pods_seen(handle)
            with following_logs(handle, pods, GRACE_SECONDS + 20):
                named = f"{RESOURCES[handle['kind']]}/{handle['name']}"
                kubectl(handle, "delete", named, "--wait=false", "--ignore-not-found")
        except Refused as error:
            raise CannotStart(f"the cluster cannot end job {handle['name']}: {error}") from None
        deadline = time.monotonic() + _GONE_SECONDS
        try:
            while time.monotonic() < deadline and (pods := pods_seen(handle)):
                keep_exits(folder, pods)
                time.sleep(1)
            self._remove(handle)
        except Refused:
            pass  # the job itself is deleted; the remaining objects use no resources
        write_status(folder, "stopped", _STOPPED)

    def clean(self, handle: Mapping[str, Any], folder: Path) -> Sequence[str]:
        """Delete the job's objects, whose logs and exit codes are in the run directory since its end was seen.

        Raises:
            CannotStart: with kubectl's message.
        """
        try:
            return self._remove(handle)
        except Refused as error:
            raise CannotStart(f"the objects of job {handle['name']} are not all deleted: {error}") from None

    def _remove(self, handle: Mapping[str, Any]) -> Sequence[str]:
        """Delete the objects of a run and return their names; volumes and Secrets are the user's."""
        words = ("--wait=false", "--ignore-not-found", "-o", "name")
        job = kubectl(handle, "delete", f"{RESOURCES[handle['kind']]}/{handle['name']}", *words)
        selector = f"{RUN_LABEL}={handle['name']}"
        return (job + kubectl(handle, "delete", "service,configmap", "-l", selector, *words)).split()


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


def _is_of(folder: Path, handle: Mapping[str, Any]) -> bool:
    """Return whether a folder is this user's and still of the run with this handle: another run may have taken it."""
    record = read_record(folder)
    return record is not None and record.handle.get("name") == handle["name"] and private.is_own(folder / RUN)


def _documents(output: str) -> list[Object]:
    try:
        return documents(output)
    except ValueError:
        raise CannotStart(f"unexpected output of kubectl: {output.strip()[:300]!r}") from None


def _pods(plan: LaunchPlan) -> Pods:
    pods = plan.start.settings
    assert isinstance(pods, Pods), "a plan for Kubernetes says how pods are made"
    return pods


def _where(pods: Pods) -> dict[str, Any]:
    return {"context": pods.context, "namespace": pods.namespace}


def _inside(plan: LaunchPlan, place: Place, pods: Pods) -> Place:
    """Return the run's place as seen by the pods; its id, which marks their processes, is unique to the run."""
    if pods.work_dir is None:
        return replace(place, id=name_of(place))
    folder = os.path.join(pods.work_dir, plan.output_dir)
    return Place(id=name_of(place), folder=folder, launch_dir=pods.work_dir)


EXECUTOR = Kubernetes()
