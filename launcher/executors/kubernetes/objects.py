"""Kubernetes objects of a plan as plain data: scripts in a ConfigMap, and the objects that start the pods."""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.forwarded_env import ASSIGNED, forwarded_names
from launcher.executors.kubernetes.kinds import FILES, KINDS, KUEUE, NODE, RUN_LABEL, TASK
from launcher.executors.kubernetes.pod_patch import merged
from launcher.executors.kubernetes.pods import RESTRICTED, Pods, Volume
from launcher.executors.render import GRACE_SECONDS
from launcher.job.secret import find, is_secret
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Place
from launcher.plan.shell import OPTIONAL, references
from launcher.syntax import is_text

Object = dict[str, Any]

FOLDER, CONTEXT, RUN_ID, ATTEMPT = "launch/folder", "launch/context", "launch/id", "launch/attempt"
# A ConfigMap holds 1 MiB at most (Kubernetes, ConfigMap v1).
MOST_BYTES = 1_000_000
# Pod names are the job's name, a number and more: at most 63 characters altogether (DNS-1123 label).
_NAME_LENGTH = 45
_FIRST_PORT, _PORTS = 20000, 10000
# hccl-controller, README: label, ConfigMap, and path at which its hccl.json is read.
_RING = ("ring-controller.atlas", "ascend-910")
_RING_FOLDER = "/user/serverid/devindex/config"


def name_of(place: Place, attempt: int = 0) -> str:
    """Return the name of a run's objects: its id in characters valid in Kubernetes, and a hash of its folder.

    Runs of two users may have the same id; their folders differ.

    Args:
        attempt: first attempt of these objects. Those of a run that is resumed have a name of their own: the ones
            before may still be being deleted.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", place.id.lower()).strip("-") or "run"
    again = f" {attempt}" if attempt else ""
    mark = f"{zlib.crc32(f'{place.id} {place.folder}{again}'.encode()):08x}"[-6:]
    return f"{'r-' if plain[0].isdigit() else ''}{plain}"[: _NAME_LENGTH - 7].rstrip("-") + f"-{mark}"


def master_address(pods: Pods, name: str) -> str:
    """Return the host name of the first pod; "" if the pod's environment provides it."""
    return KINDS[pods.kind].master.format(name=name)


def master_port(plan: LaunchPlan, place: Place) -> int:
    """Return the port of the rendezvous: the user's, else one derived from the run's id."""
    return plan.start.port or _FIRST_PORT + zlib.crc32(place.id.encode()) % _PORTS


def objects(
    plan: LaunchPlan,
    place: Place,
    pods: Pods,
    files: Sequence[PlanFile],
    environ: Mapping[str, str],
    attempt: int = 0,
) -> list[Object]:
    """Return the objects of a run: first those that the pods read, then those that start the pods.

    Args:
        files: scripts; mounted at `FILES` in every pod.
        environ: environment of the submitter, for variables that the plan references and that are no secrets.
        attempt: number of the first attempt.
    """
    name = name_of(place, attempt)
    scripts = {file.path.rpartition("/")[2]: file.content for file in files}
    made = [_object(pods, name, place, "v1", "ConfigMap", {"data": scripts})]
    if pods.kind == "job":
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {RUN_LABEL: name}}
        made.append(_object(pods, name, place, "v1", "Service", {"spec": service}))
    if pods.rank_table:
        made.append(_ring(pods, name, place))
    started = _STARTED[pods.kind](plan, pods, name, place, variables(plan, pods, environ))
    if attempt:
        started["metadata"]["annotations"][ATTEMPT] = str(attempt)
    return [*made, started]


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
    spec = _indexed(plan, pods, name, env, {"subdomain": name}) | _ttl(pods)
    return _queued(pods, _job(pods, name, place, spec))


def _jobset(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a JobSet of one Indexed Job: a failure restarts all pods, except when the deadline is exceeded."""
    overdue = {"name": "overdue", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    policy: Object = {"maxRestarts": plan.start.max_restarts, **({"rules": [overdue]} if pods.deadline else {})}
    spec: Object = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": policy,
        "replicatedJobs": [
            {"name": NODE, "replicas": 1, "template": {"spec": _indexed(plan, pods, name, env, {})}},
        ],
        **_ttl(pods),
    }
    return _queued(pods, _job(pods, name, place, spec))


def _indexed(plan: LaunchPlan, pods: Pods, name: str, env: list[Object], network: Object) -> Object:
    count = len(plan.nodes)
    return {
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        **({"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}),
        "template": _template(plan, pods, name, env, {**network, "restartPolicy": "Never"}),
    }


def _ttl(pods: Pods) -> Object:
    return {"ttlSecondsAfterFinished": pods.ttl} if pods.ttl is not None else {}


def _queued(pods: Pods, job: Object) -> Object:
    """Return the job in the form that Kueue requires, if a queue is named."""
    if pods.queue:
        job["metadata"]["labels"][KUEUE] = pods.queue
    return job


def _volcano(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a Volcano Job: gang-scheduled; a failure ends all pods, or restarts all."""
    count, again = len(plan.nodes), plan.start.max_restarts
    action = "RestartJob" if again else "TerminateJob"
    # A Volcano Job has no deadline field; a pod that exceeds it fails, and so ends all.
    deadline = {"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}
    task = {
        "name": TASK,
        "replicas": count,
        "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
        "template": _template(plan, pods, name, env, {"restartPolicy": "Never", **deadline}),
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
        **_ttl(pods),
    }
    return _job(pods, name, place, spec)


def _trainjob(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a TrainJob: the cluster's runtime starts the pods and sets their rank and rendezvous (PET_*)."""
    template = _template(plan, pods, name, env, {})
    pod = template["spec"]
    container, *_ = pod["containers"]
    kept = ("name", "securityContext", "volumeMounts")  # image, command, resources and variables are the trainer's
    patched = {key: container[key] for key in kept if key in container}
    fields = {key: pod[key] for key in KINDS[pods.kind].pod_fields if key in pod}
    template = {**template, "spec": {**fields, "containers": [patched]}}
    replicated = [{"name": NODE, "template": {"spec": {"template": template}}}]
    spec: Object = {
        "runtimeRef": {"name": pods.training_runtime},
        **({"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}),
        "trainer": {
            "image": container["image"],
            "command": container["command"],
            "numNodes": len(plan.nodes),
            "numProcPerNode": plan.start.devices_per_node,
            **({"env": container["env"]} if container.get("env") else {}),
            **({"resourcesPerNode": container["resources"]} if container["resources"] else {}),
        },
        "runtimePatches": [
            {"manager": "launch", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}}}
        ],
    }
    return _queued(pods, _job(pods, name, place, spec))


def _pytorchjob(plan: LaunchPlan, pods: Pods, name: str, place: Place, env: list[Object]) -> Object:
    """Return a PyTorchJob: the operator sets the pods' rank and gives each an address."""
    kind, count = KINDS[pods.kind], len(plan.nodes)
    template = _template(plan, pods, name, env, {})
    ranks, *others = template["spec"]["containers"]
    # The operator adds its port and variables to the container of this name.
    template["spec"]["containers"] = [{**ranks, "name": kind.container}, *others]
    numbers = {"Master": 1, "Worker": count - 1}
    replicas = {
        role: {"replicas": number, "restartPolicy": "Never", "template": template}
        for role, number in numbers.items()
        if number
    }
    policy: Object = {
        # Without a backoffLimit: with one the operator deletes the failed pod, too, and with it its log and exit code.
        "cleanPodPolicy": "Running",
        **({"activeDeadlineSeconds": pods.deadline} if pods.deadline else {}),
        **_ttl(pods),
    }
    spec: Object = {"runPolicy": policy, "pytorchReplicaSpecs": replicas}
    return _queued(pods, _job(pods, name, place, spec))


_STARTED: Mapping[str, Callable[[LaunchPlan, Pods, str, Place, list[Object]], Object]] = {
    "job": _indexed_job,
    "jobset": _jobset,
    "volcano": _volcano,
    "trainjob": _trainjob,
    "pytorchjob": _pytorchjob,
}


# -- parts of a pod


def _template(plan: LaunchPlan, pods: Pods, name: str, env: list[Object], more: Object) -> Object:
    """Return the pod template: what the job needs, with the user's patch merged into it."""
    template = {"metadata": _metadata(pods, name), "spec": {**more, **_pod(plan, pods, name, env)}}
    return merged(template, pods.patch) if pods.patch else template


def _pod(plan: LaunchPlan, pods: Pods, name: str, env: list[Object]) -> Object:
    volumes, mounts = _volumes(pods, name)
    container: Object = {
        "name": NODE,
        "image": pods.image,
        "command": ["bash", f"{FILES}/pod.sh"],
        **({"env": [*env, *_ring_variables(pods)]} if env or pods.rank_table else {}),
        **({"imagePullPolicy": pods.pull_policy} if pods.pull_policy else {}),
        "resources": _resources(pods),
        "volumeMounts": mounts,
    }
    if security := _security(pods):
        container["securityContext"] = security
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
        "securityContext": _pod_security(pods),
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
        "terminationGracePeriodSeconds": round(plan.start.save_seconds or 0) + GRACE_SECONDS + 15,
        **{key: value for key, value in wanted.items() if value},
        "containers": [container],
        "volumes": volumes,
    }


def _security(pods: Pods) -> Object:
    """Return the security context of the container; Source: Pod Security Standards, Restricted."""
    restricted = pods.security == RESTRICTED
    capabilities: Object = {
        **({"add": list(pods.capabilities)} if pods.capabilities else {}),
        **({"drop": ["ALL"]} if restricted else {}),
    }
    return {
        **({"allowPrivilegeEscalation": False} if restricted else {}),
        **({"capabilities": capabilities} if capabilities else {}),
    }


def _pod_security(pods: Pods) -> Object:
    """Return the security context of the pod, which holds for all its containers."""
    restricted: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        **(restricted if pods.security == RESTRICTED else {}),
        **({"runAsUser": pods.user} if pods.user is not None else {}),
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
            {
                "name": sources[key],
                "mountPath": volume.path,
                **({"subPath": volume.folder} if volume.folder else {}),
                **({"readOnly": True} if volume.read_only else {}),
            }
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


def _job(pods: Pods, name: str, place: Place, spec: Object) -> Object:
    """Return the object that starts the pods."""
    kind = KINDS[pods.kind]
    return _object(pods, name, place, kind.version, kind.object, {"spec": spec})


def _object(pods: Pods, name: str, place: Place, version: str, kind: str, rest: Object) -> Object:
    metadata = _metadata(pods, name)
    notes = {RUN_ID: place.id, FOLDER: place.folder, **({CONTEXT: pods.context} if pods.context else {})}
    metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
    namespace = {"namespace": pods.namespace} if pods.namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespace, **metadata}, **rest}
