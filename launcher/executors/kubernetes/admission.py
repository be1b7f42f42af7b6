"""What the cluster's admission says of a pod before the job is created: controllers create pods out of sight."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.executors.kubernetes.kubectl import Refused, ask, mapping, mappings

# The user may create jobs and not pods; or a policy is about pods that no controller made.
_NOT_ASKED = re.compile(r"cannot create resource|admission webhook|ValidatingAdmissionPolicy|unable to parse")
_LATER = re.compile(r"exceeded quota")


def rejected_pod(where: Mapping[str, Any], job: Mapping[str, Any]) -> Sequence[str]:
    """Let the cluster admit one pod of a job by a dry run, and return its warnings.

    Quotas, PodSecurity, limit ranges, priority classes and service accounts are checked for pods only; the job
    itself is created, and its pods are not.

    Raises:
        Refused: no pod of this kind will ever be admitted, with the cluster's message.
    """
    template = template_of(job)
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


def template_of(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first pod template of a job object; None: the cluster's runtime has it."""
    spec = job["spec"]
    if "tasks" in spec:
        spec = spec["tasks"][0]
    elif "replicatedJobs" in spec:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    elif "pytorchReplicaSpecs" in spec:
        spec = spec["pytorchReplicaSpecs"]["Master"]
    template: Mapping[str, Any] | None = spec.get("template")
    return template


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
