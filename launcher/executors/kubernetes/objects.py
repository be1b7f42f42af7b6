"""Kubernetes objects of a plan as plain data: scripts in a ConfigMap, and the objects that start the pods."""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.forwarded_env import ASSIGNED, forwarded_names
from launcher.executors.kubernetes.pods import Pods, Volume
from launcher.executors.render import GRACE_SECONDS
from launcher.job.secret import find, is_secret
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Place
from launcher.plan.shell import OPTIONAL, references
from launcher.syntax import is_text

Object = dict[str, Any]

# Folder of the scripts in a pod.
FILES = "/run/launch"
RUN_LABEL, FOLDER, CONTEXT, RUN_ID = "launch-run", "launch/folder", "launch/context", "launch/id"
# A ConfigMap holds 1 MiB at most (Kubernetes, ConfigMap v1).
MOST_BYTES = 1_000_000
# Pod names are the job's name, a number and more: at most 63 characters altogether (DNS-1123 label).
_NAME_LENGTH = 45
_FIRST_PORT, _PORTS = 20000, 10000
# hccl-controller, README: label, ConfigMap, and path at which its hccl.json is read.
_RING = ("ring-controller.atlas", "ascend-910")
_RING_FOLDER = "/user/serverid/devindex/config"
# Label of Kueue for jobs without a queue field.
_KUEUE = "kueue.x-k8s.io/queue-name"
# Volcano: name of the task, as in the platform's variables (VC_WORKER_HOSTS).
_TASK = "worker"
# Kubeflow Trainer: name of the runtime's replicated job and container; the same in a JobSet.
_NODE = "node"

RANK_FROM = {
    "job": "JOB_COMPLETION_INDEX",
    "jobset": "JOB_COMPLETION_INDEX",
    "trainjob": "PET_NODE_RANK",
    "volcano": "VC_TASK_INDEX",
}
RESOURCES = {
    "job": "job.batch",
    "jobset": "jobset.jobset.x-k8s.io",
    "trainjob": "trainjob.trainer.kubeflow.org",
    "volcano": "job.batch.volcano.sh",
}


def name_of(place: Place) -> str:
    """Return the name of a run's objects: its id in characters valid in Kubernetes, and a hash of its folder.

    Runs of two users may have the same id; their folders differ.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", place.id.lower()).strip("-") or "run"
    mark = f"{zlib.crc32(f'{place.id} {place.folder}'.encode()):08x}"[-6:]
    return f"{'r-' if plain[0].isdigit() else ''}{plain}"[: _NAME_LENGTH - 7].rstrip("-") + f"-{mark}"


def master_address(pods: Pods, name: str) -> str:
    """Return the host name of the first pod; "" if the pod's environment provides it.

    Source: Job v1, Indexed completion (JOB-INDEX.SUBDOMAIN); JobSet v1alpha2, network.enableDNSHostnames
    (JOBSET-REPLICATED-JOB-POD.JOBSET); Volcano pkg/controllers/job/plugins/svc (JOB-TASK-INDEX.JOB).
    """
    return {
        "job": f"{name}-0.{name}",
        "jobset": f"{name}-{_NODE}-0-0.{name}",
        "volcano": f"{name}-{_TASK}-0.{name}",
        "trainjob": "",
    }[pods.kind]


def master_port(plan: LaunchPlan, place: Place) -> int:
    """Return the port of the rendezvous: the user's, else one derived from the run's id."""
    return plan.start.port or _FIRST_PORT + zlib.crc32(place.id.encode()) % _PORTS


def objects(
    plan: LaunchPlan, place: Place, pods: Pods, files: Sequence[PlanFile], environ: Mapping[str, str]
) -> list[Object]:
    """Return the objects of a run: first those that the pods read, then those that start the pods.

    Args:
        files: scripts; mounted at `FILES` in every pod.
        environ: environment of the submitter, for variables that the plan references and that are no secrets.
    """
    name = name_of(place)
    scripts = {file.path.rpartition("/")[2]: file.content for file in files}
    made = [_object(pods, name, place, "v1", "ConfigMap", {"data": scripts})]
    if pods.kind == "job":
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {RUN_LABEL: name}}
        made.append(_object(pods, name, place, "v1", "Service", {"spec": service}))
    if pods.rank_table:
        made.append(_ring(pods, name, place))
    return [*made, _STARTED[pods.kind](plan, pods, name, place, variables(plan, pods, environ))]


def variables(plan: LaunchPlan, pods: Pods, environ: Mapping[str, str]) -> list[Object]:
    """Return the environment of the container: secrets by reference, others by the submitter's value, if set."""
    named = [*references(plan), *(references(plan.resume) if plan.resume else ())]
    forwarded = [name for name in forwarded_names(plan) if name not in OPTIONAL]
    found: list[Object] = []
    for name in dict.fromkeys([*named, *forwarded]):
        if name in ASSIGNED:
            continue
        if is_secret(name) or find(environ.get(name, ""), name):
            reference = {"name": pods.secret, "key": name, "optional": name not in named}
            found.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
        elif name in named and name in environ:
            if not is_text(environ[name]):
                raise CannotStart(f"{name} in the environment is not UTF-8 text, which a manifest needs")
            # The kubelet expands $(NAME), and replaces $$ by $.
            found.append({"name": name, "value": environ[name].replace("$", "$$")})
    return found


# -- kinds of jobs


def _indexed_job(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return an Indexed Job: the first failure ends all pods."""
    spec = _indexed(plan, pods, name, env, {"subdomain": name})
    return _queued(pods, _object(pods, name, place, "batch/v1", "Job", {"spec": spec}))


def _jobset(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a JobSet of one Indexed Job: a failure restarts all pods, except when the deadline is exceeded."""
    overdue = {"name": "overdue", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    policy: Object = {"maxRestarts": plan.start.max_restarts, **({"rules": [overdue]} if pods.deadline else {})}
    spec: Object = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": policy,
        "replicatedJobs": [
            {"name": _NODE, "replicas": 1, "template": {"spec": _indexed(plan, pods, name, env, {})}},
        ],
    }
    return _queued(pods, _object(pods, name, place, "jobset.x-k8s.io/v1alpha2", "JobSet", {"spec": spec}))


def _indexed(plan: LaunchPlan, pods: Pods, name: str, env: list[Object], network: Object) -> Object:
    count = len(plan.nodes)
    return {
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        **({"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}),
        "template": {
            "metadata": _metadata(pods, name),
            "spec": {**network, "restartPolicy": "Never", **_pod(pods, name, env)},
        },
    }


def _queued(pods: Pods, job: Object) -> Object:
    """Return the job in the form that Kueue requires, if a queue is named."""
    if pods.queue:
        job["metadata"]["labels"][_KUEUE] = pods.queue
    return job


def _volcano(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a Volcano Job: gang-scheduled; a failure ends all pods, or restarts all."""
    count, again = len(plan.nodes), plan.start.max_restarts
    action = "RestartJob" if again else "TerminateJob"
    # A Volcano Job has no deadline field; a pod that exceeds it fails, and so ends all.
    deadline = {"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}
    task = {
        "name": _TASK,
        "replicas": count,
        "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
        "template": {
            "metadata": _metadata(pods, name),
            "spec": {"restartPolicy": "Never", **deadline, **_pod(pods, name, env)},
        },
    }
    spec: Object = {
        "schedulerName": "volcano",
        "minAvailable": count,
        **({"queue": pods.queue} if pods.queue else {}),
        **({"priorityClassName": pods.priority_class} if pods.priority_class else {}),
        "plugins": {"svc": ["--publish-not-ready-addresses=true"], "env": []},
        # The job fails once it was killed this often: one more than its restarts (state/restarting.go).
        "maxRetry": again + 1,
        "policies": [{"events": ["PodFailed", "PodEvicted"], "action": action}],
        "tasks": [task],
    }
    return _object(pods, name, place, "batch.volcano.sh/v1alpha1", "Job", {"spec": spec})


def _trainjob(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a TrainJob: the cluster's runtime starts the pods and sets their rank and rendezvous (PET_*)."""
    pod = _pod(pods, name, env)
    container = pod.pop("containers")[0]
    patched = {"name": _NODE, "volumeMounts": container["volumeMounts"]}
    if "securityContext" in container:
        patched["securityContext"] = container["securityContext"]
    known = (
        "nodeSelector",
        "tolerations",
        "serviceAccountName",
        "imagePullSecrets",
        "volumes",
        "terminationGracePeriodSeconds",
    )
    patch = {"containers": [patched], **{key: pod[key] for key in known if key in pod}}
    template = {"metadata": _metadata(pods, name), "spec": patch}
    replicated = [{"name": _NODE, "template": {"spec": {"template": template}}}]
    spec: Object = {
        "runtimeRef": {"name": pods.training_runtime},
        **({"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}),
        "trainer": {
            "image": container["image"],
            "command": container["command"],
            "numNodes": len(plan.nodes),
            "numProcPerNode": plan.start.devices_per_node,
            **({"env": env} if env else {}),
            **({"resourcesPerNode": container["resources"]} if container["resources"] else {}),
        },
        "runtimePatches": [
            {"manager": "launch", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}}}
        ],
    }
    return _queued(pods, _object(pods, name, place, "trainer.kubeflow.org/v1alpha1", "TrainJob", {"spec": spec}))


_STARTED: Mapping[str, Callable[[LaunchPlan, Pods, str, Place, list[Object]], Object]] = {
    "job": _indexed_job,
    "jobset": _jobset,
    "volcano": _volcano,
    "trainjob": _trainjob,
}


# -- parts of a pod


def _pod(pods: Pods, name: str, env: list[Object]) -> Object:
    volumes, mounts = _volumes(pods, name)
    container: Object = {
        "name": _NODE,
        "image": pods.image,
        "command": ["bash", f"{FILES}/pod.sh"],
        **({"env": [*env, *_ring_variables(pods)]} if env or pods.rank_table else {}),
        "resources": _resources(pods),
        "volumeMounts": mounts,
    }
    if pods.capabilities:
        container["securityContext"] = {"capabilities": {"add": list(pods.capabilities)}}
    tolerations = [
        {
            "key": each.key,
            "operator": "Equal" if each.value else "Exists",
            **({"value": each.value} if each.value else {}),
            **({"effect": each.effect} if each.effect else {}),
        }
        for each in pods.tolerations
    ]
    wanted: Object = {
        "nodeSelector": dict(pods.node_selector),
        "tolerations": tolerations,
        "serviceAccountName": pods.service_account,
        "imagePullSecrets": [{"name": each} for each in pods.image_pull_secrets],
        "priorityClassName": pods.priority_class,
        "hostNetwork": pods.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if pods.host_network else None,
    }
    return {
        # Time for ranks to save, and for the node to record its end.
        "terminationGracePeriodSeconds": GRACE_SECONDS + 15,
        **{key: value for key, value in wanted.items() if value},
        "containers": [container],
        "volumes": volumes,
    }


def _resources(pods: Pods) -> Object:
    limits = dict(pods.resources) | ({"memory": pods.memory} if pods.memory else {})
    requests = dict(limits) | ({"cpu": str(pods.cpus)} if pods.cpus else {})
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


def _volumes(pods: Pods, name: str) -> tuple[list[Object], list[Object]]:
    memory: Object = {"medium": "Memory", **({"sizeLimit": pods.shm_size} if pods.shm_size else {})}
    volumes: list[Object] = [
        {"name": "launch", "configMap": {"name": name}},
        {"name": "shm", "emptyDir": memory},
    ]
    mounts: list[Object] = [
        {"name": "launch", "mountPath": FILES, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if pods.rank_table:
        volumes.append({"name": "ascend-910-config", "configMap": {"name": f"rings-config-{name}"}})
        mounts.append({"name": "ascend-910-config", "mountPath": _RING_FOLDER})
    sources: dict[tuple[str, str], str] = {}
    for volume in pods.volumes:
        key = (volume.kind, volume.source)
        if key not in sources:
            sources[key] = f"volume-{len(sources)}"
            volumes.append({"name": sources[key], **_source(volume)})
        mounts.append(
            {"name": sources[key], "mountPath": volume.path, **({"readOnly": True} if volume.read_only else {})}
        )
    return volumes, mounts


def _source(volume: Volume) -> Object:
    server, _, folder = volume.source.partition("/")
    return {
        "pvc": {"persistentVolumeClaim": {"claimName": volume.source}},
        "host": {"hostPath": {"path": volume.source}},
        "nfs": {"nfs": {"server": server.rstrip(":"), "path": f"/{folder}"}},
        "configmap": {"configMap": {"name": volume.source}},
        "secret": {"secret": {"secretName": volume.source}},
    }[volume.kind]


def _ring(pods: Pods, name: str, place: Place) -> Object:
    """Return the ConfigMap that the cluster's controller fills with HCCL's rank table."""
    empty = {"data": {"hccl.json": '{"status":"initializing"}'}}
    made = _object(pods, f"rings-config-{name}", place, "v1", "ConfigMap", empty)
    made["metadata"]["labels"][RUN_LABEL] = name
    return made


def _ring_variables(pods: Pods) -> list[Object]:
    return [{"name": "RANK_TABLE_FILE", "value": f"{_RING_FOLDER}/hccl.json"}] if pods.rank_table else []


def _metadata(pods: Pods, name: str) -> Object:
    labels = dict(pods.labels) | ({_RING[0]: _RING[1]} if pods.rank_table else {})
    annotations = dict(pods.annotations)
    return {"labels": {RUN_LABEL: name, **labels}, **({"annotations": annotations} if annotations else {})}


def _object(pods: Pods, name: str, place: Place, version: str, kind: str, rest: Object) -> Object:
    metadata = _metadata(pods, name)
    notes = {RUN_ID: place.id, FOLDER: place.folder, **({CONTEXT: pods.context} if pods.context else {})}
    metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
    namespace = {"namespace": pods.namespace} if pods.namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespace, **metadata}, **rest}
