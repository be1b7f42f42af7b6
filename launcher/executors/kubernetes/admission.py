"""What the cluster's admission says of a pod before the job is created: controllers create pods out of sight."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.executors.kubernetes.kinds import KUEUE, NODE
from launcher.executors.kubernetes.kubectl import Refused, ask, mapping, mappings
from launcher.executors.kubernetes.pod_patch import merged

# The user may create jobs and not pods; or a policy is about pods that no controller made.
_NOT_ASKED = re.compile(r"cannot create resource|admission webhook|ValidatingAdmissionPolicy|unable to parse")
_RUNTIMES = "clustertrainingruntime.trainer.kubeflow.org"
_QUEUES, _NO_KIND, _NAMED = "localqueues.kueue.x-k8s.io", "have a resource type", 5
_LATER = re.compile(r"exceeded quota")


def rejected_pod(where: Mapping[str, Any], job: Mapping[str, Any]) -> Sequence[str]:
    """Let the cluster admit one pod of a job by a dry run, and return its warnings.

    Quotas, PodSecurity, limit ranges, priority classes and service accounts are checked for pods only; the job
    itself is created, and its pods are not.

    Raises:
        Refused: no pod of this kind will ever be admitted, with the cluster's message.
    """
    template = template_of(job) or _of_runtime(where, job)
    if template is None:
        return ()
    name = job["metadata"]["name"]
    metadata = {**template.get("metadata", {}), "name": f"{name}-0-check"}
    if namespace := job["metadata"].get("namespace"):
        metadata["namespace"] = namespace
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        return ask(where, "create", "--dry-run=server", "-f", "-", "-o", "name", text=json.dumps(pod)).warnings
    except Refused as error:
        text = str(error)
        if _LATER.search(text):
            return (f"its pods wait for quota: {text}",)
        if "is forbidden" not in text or _NOT_ASKED.search(text):
            return ()
        raise


def queue_warnings(where: Mapping[str, Any], job: Mapping[str, Any]) -> Sequence[str]:
    """Return a warning if nothing reads the name of Kueue's queue that a job has, or there is no such queue."""
    queue = mapping(job["metadata"].get("labels")).get(KUEUE)
    if queue is None:
        return ()
    try:
        names = [line.rpartition("/")[2] for line in ask(where, "get", _QUEUES, "-o", "name").text.splitlines()]
    except Refused as error:  # the user may not list queues, or the server gives no answer: not known
        absent = (
            f"cluster.queue={queue} has no effect: the cluster has no Kueue, so each pod starts when there is a node"
        )
        return (f"{absent} for it; works: cluster.queue=null · cluster.kind=volcano",) if _NO_KIND in str(error) else ()
    there = f"; works: {' · '.join(f'cluster.queue={name}' for name in names[:_NAMED])}" if names else ""
    return () if queue in names else (f"the job waits: Kueue has no LocalQueue {queue} in the namespace{there}",)


def template_of(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first pod template of a job object; None: the cluster's training runtime has it."""
    spec = job["spec"]
    if "tasks" in spec:
        spec = spec["tasks"][0]
    elif "replicatedJobs" in spec:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    elif "pytorchReplicaSpecs" in spec:
        spec = spec["pytorchReplicaSpecs"]["Master"]
    template: Mapping[str, Any] | None = spec.get("template")
    return template


def _of_runtime(where: Mapping[str, Any], job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the pod template of a TrainJob's ranks: the runtime's with the job's patch; None: it cannot be read.

    Source: Kubeflow Trainer 2.3 pkg/runtime/framework/plugins/jobset/builder.go: the trainer's values go to the
    container of this name.
    """
    name, trainer = job["spec"]["runtimeRef"]["name"], job["spec"]["trainer"]
    try:
        runtime = json.loads(ask(where, "get", _RUNTIMES, name, "-o", "json").data)
    except (Refused, ValueError):  # no operator, no permission, or no such runtime, which the operator says itself
        return None
    own = _ranks(mapping(runtime).get("spec"))
    patch = _ranks(job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"])
    if own is None or patch is None:
        return None
    values = {key: trainer[key] for key in ("image", "command", "env") if key in trainer}
    if resources := trainer.get("resourcesPerNode"):  # they replace all of the runtime's; without, those stay
        values["resources"] = {**resources, "$patch": "replace"}
    container = {"name": NODE, **values}
    return merged(merged(own, patch), {"spec": {"containers": [container]}})


def _ranks(spec: object) -> Mapping[str, Any] | None:
    """Return the pod template of the ranks in a training runtime's specification."""
    inside = mapping(mapping(mapping(spec).get("template")).get("spec"))
    jobs = [each for each in mappings(inside.get("replicatedJobs")) if each.get("name") == NODE]
    return next((mapping(mapping(mapping(each.get("template")).get("spec")).get("template")) for each in jobs), None)


def wanted_pods(job: Mapping[str, Any]) -> int:
    """Return how many pods a job object asks for; 0: it does not say."""
    spec = mapping(job.get("spec"))
    for each in mappings(spec.get("replicatedJobs")):
        return _count(mapping(mapping(mapping(each.get("template")).get("spec"))).get("completions"))
    roles = mapping(spec.get("pytorchReplicaSpecs"))
    counts = [each.get("replicas") for each in (*mappings(spec.get("tasks")), *map(mapping, roles.values()))]
    return (
        sum(map(_count, counts))
        or _count(spec.get("completions"))
        or _count(mapping(spec.get("trainer")).get("numNodes"))
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
