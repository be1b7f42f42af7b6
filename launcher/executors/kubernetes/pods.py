"""Kubernetes settings of a job's pods, parsed from the section `cluster`; every mistake is reported."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from launcher.executors.kubernetes.kinds import DEVICE_RESOURCES, KINDS, RUN_LABEL
from launcher.executors.kubernetes.pod_patch import problems
from launcher.executors.time_limit import seconds_of
from launcher.job import Job
from launcher.job.cluster import Cluster
from launcher.records import dataclass
from launcher.syntax import escaped

T = TypeVar("T")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# apimachinery pkg/api/resource: a number with an SI or binary suffix.
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i?|[mk]|[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # DNS-1123 subdomain
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
VOLUME_KINDS = ("pvc", "host", "nfs", "configmap", "secret")
RESTRICTED = "restricted"
# Volumes of the restricted profile; Source: Kubernetes, Pod Security Standards, Volume Types.
_RESTRICTED_VOLUMES = ("pvc", "configmap", "secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of every pod: where it comes from, and its folder there.

    Attributes:
        source: name of the claim, ConfigMap or Secret; folder of the node; SERVER/FOLDER of an NFS export.
        folder: below the claim; "": all of it.
    """

    kind: str
    source: str
    path: str
    folder: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint that pods tolerate; "" for parts that are not given."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Settings of pods.

    Attributes:
        kind: name of the kind of object that starts them.
        resources: limits of a pod, devices first.
        deadline: seconds after which the job is ended; None: never.
        secret: name of the Secret that holds variables.
        labels, annotations, node_selector: names with values.
        security: Pod Security Standard; None: none is asked for.
        patch: merged into the pod template.
        ttl: seconds after its end at which the job is deleted; None: never.
    """

    kind: str = "job"
    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    resources: tuple[tuple[str, str], ...] = ()
    cpus: int | None = None
    memory: str | None = None
    volumes: tuple[Volume, ...] = ()
    work_dir: str | None = None
    shm_size: str | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    secret: str = "launch-secrets"
    priority_class: str | None = None
    queue: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    host_network: bool = False
    capabilities: tuple[str, ...] = ()
    rank_table: bool = False
    training_runtime: str = "torch-distributed"
    deadline: int | None = None
    pull_policy: str | None = None
    security: str | None = None
    user: int | None = None
    patch: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ttl: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """A field whose value cannot be parsed: which, why, and what would work."""

    field: str
    message: str


def pods_of(job: Job, *, native: bool) -> Pods:
    """Return the settings of a job's pods; values that cannot be parsed are omitted (`unclear` reports them)."""
    cluster = job.cluster
    device = cluster.device_resource or (DEVICE_RESOURCES.get(job.hardware.device) if native else None)
    devices = ((device, str(cluster.devices_per_node)),) if device else ()
    hosts = [f"host:{mount}" for mount in cluster.container_mounts]
    return Pods(
        kind=cluster.kind,
        context=cluster.context,
        namespace=cluster.namespace,
        image=cluster.container,
        resources=(*devices, *_understood(_pair, cluster.resources)),
        cpus=cluster.cpus_per_task,
        memory=cluster.memory,
        volumes=_understood(_volume, (*cluster.volumes, *hosts)),
        work_dir=cluster.work_dir,
        shm_size=cluster.shm_size,
        node_selector=_understood(_pair, cluster.node_selector),
        tolerations=_understood(_toleration, cluster.tolerations),
        service_account=cluster.service_account,
        image_pull_secrets=cluster.image_pull_secrets,
        secret=cluster.secret,
        priority_class=cluster.priority_class,
        queue=cluster.queue,
        labels=_understood(_pair, cluster.labels),
        annotations=_understood(_pair, cluster.annotations),
        host_network=cluster.host_network,
        capabilities=cluster.capabilities,
        rank_table=cluster.rank_table,
        training_runtime=cluster.training_runtime,
        deadline=None if cluster.time_limit is None else seconds_of(cluster.time_limit),
        pull_policy=cluster.pull_policy,
        security=cluster.pod_security,
        user=cluster.run_as_user,
        patch=cluster.pod_patch,
        ttl=None if cluster.ttl_after_finished is None else seconds_of(cluster.ttl_after_finished),
    )


def unclear(job: Job) -> Iterator[Unclear]:
    """Yield every value of `cluster` that Kubernetes would reject or that cannot be parsed."""
    cluster = job.cluster
    if not cluster.container:
        yield Unclear(field="container", message="names no image: cluster.container=REGISTRY/IMAGE:TAG")
    yield from _words(cluster)
    yield from _names(cluster)
    for field in ("memory", "shm_size"):
        text = getattr(cluster, field)
        if text is not None and not _QUANTITY.fullmatch(text):
            yield Unclear(field=field, message=f"{text!r} is not a quantity of Kubernetes; works: 500Gi · 64000M")
    for field in ("time_limit", "ttl_after_finished"):
        text = getattr(cluster, field)
        if text is not None and seconds_of(text) is None:
            yield Unclear(field=field, message=f"{text!r} is not a time; works: 90 (minutes) · 2-12:00:00")
    if cluster.work_dir is not None and not cluster.work_dir.startswith("/"):
        yield Unclear(field="work_dir", message=f"{cluster.work_dir!r} is not an absolute folder of the pods")
    if cluster.rank_table and cluster.kind != "volcano":
        yield Unclear(field="rank_table", message="is made for Volcano's jobs only: cluster.kind=volcano")
    yield from _of_kind(job)
    if cluster.pod_security == RESTRICTED:
        yield from _not_restricted(cluster)
    for each in problems(cluster.pod_patch, KINDS[cluster.kind]):
        yield Unclear(field="pod_patch", message=f"{escaped(each.path)} {each.message}")


def _of_kind(job: Job) -> Iterator[Unclear]:
    """Yield the fields that objects of this kind cannot set."""
    cluster, kind = job.cluster, KINDS[job.cluster.kind]
    for name, why in kind.refuses.items():
        if getattr(cluster, name):
            yield Unclear(field=name, message=f"cannot be set with cluster.kind={kind.name}: {why}")
    if job.fault_tolerance.max_restarts and kind.no_restarts:
        able = " · ".join(f"cluster.kind={each.name}" for each in KINDS.values() if not each.no_restarts)
        yield Unclear(
            field="kind",
            message=f"{cluster.kind!r} cannot start all pods again together (fault_tolerance.max_restarts="
            f"{job.fault_tolerance.max_restarts}): {kind.no_restarts}; works: {able} · "
            "fault_tolerance.max_restarts=0",
        )


def _not_restricted(cluster: Cluster) -> Iterator[Unclear]:
    """Yield what the restricted profile forbids; Source: Kubernetes, Pod Security Standards, Restricted."""
    words = f"is forbidden by cluster.pod_security={RESTRICTED}"
    if cluster.host_network:
        yield Unclear(field="host_network", message=words)
    if cluster.run_as_user == 0:
        yield Unclear(field="run_as_user", message=f"0 is root, which {words}")
    for name in cluster.capabilities:
        if name != "NET_BIND_SERVICE":
            yield Unclear(field="capabilities", message=f"{name!r} {words}")
    for name, found in (("volumes", cluster.volumes), ("container_mounts", cluster.container_mounts)):
        for word in found:
            kind = word.partition(":")[0] if name == "volumes" else "host"
            if kind not in _RESTRICTED_VOLUMES:
                yield Unclear(field=name, message=f"{word!r} {words}; works: {' · '.join(_RESTRICTED_VOLUMES)}")


def _words(cluster: Cluster) -> Iterator[Unclear]:
    readers: dict[str, Callable[[str], object]] = {
        "volumes": _volume,
        "tolerations": _toleration,
        "node_selector": _label,
        "labels": _further_label,
        "annotations": _annotation,
        "resources": _resource,
    }
    for field, read in readers.items():
        for word in getattr(cluster, field):
            try:
                read(word)
            except ValueError as error:
                yield Unclear(field=field, message=f"{word!r}: {error}")
    for mount in cluster.container_mounts:
        try:
            _volume(f"host:{mount}")
        except ValueError as error:
            yield Unclear(field="container_mounts", message=f"{mount!r}: {error}")


def _names(cluster: Cluster) -> Iterator[Unclear]:
    names = {
        "namespace": cluster.namespace,
        "service_account": cluster.service_account,
        "secret": cluster.secret,
        "priority_class": cluster.priority_class,
        "queue": cluster.queue,
        "training_runtime": cluster.training_runtime,
    }
    many = [("image_pull_secrets", name) for name in cluster.image_pull_secrets]
    for field, name in (*names.items(), *many):
        if name is not None and not _NAME.fullmatch(name):
            yield Unclear(field=field, message=f"{name!r} is not a name in Kubernetes: a-z, 0-9, - and . only")
    if cluster.device_resource and not _LABEL_KEY.fullmatch(cluster.device_resource):
        yield Unclear(
            field="device_resource", message=f"{cluster.device_resource!r} is not a resource; works: nvidia.com/gpu"
        )


# -- parsing


def _understood(read: Callable[[str], T], words: tuple[str, ...] | list[str]) -> tuple[T, ...]:
    found = []
    for word in words:
        try:
            found.append(read(word))
        except ValueError:
            continue  # `unclear` reports it, and the job is refused
    return tuple(found)


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise ValueError("is not NAME=VALUE")
    return key, value


def _label(word: str) -> tuple[str, str]:
    key, value = _pair(word)
    if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
        raise ValueError("is not a label of Kubernetes: [DOMAIN/]NAME=VALUE of letters, digits, - _ .")
    return key, value


def _further_label(word: str) -> tuple[str, str]:
    key, value = _label(word)
    if key == RUN_LABEL:
        raise ValueError("is set by launch: it finds the pods of a run")
    return key, value


def _annotation(word: str) -> tuple[str, str]:
    key, value = _pair(word)
    if not _LABEL_KEY.fullmatch(key):
        raise ValueError("is not an annotation of Kubernetes: [DOMAIN/]NAME=VALUE")
    return key, value


def _resource(word: str) -> tuple[str, str]:
    key, value = _pair(word)
    if not _LABEL_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a resource; works: DOMAIN/NAME=QUANTITY")
    if not _QUANTITY.fullmatch(value):
        raise ValueError(f"{value!r} is not a quantity")
    return key, value


def _toleration(word: str) -> Toleration:
    rest, _, effect = word.rpartition(":") if ":" in word else (word, "", "")
    key, _, value = rest.partition("=")
    if effect and effect not in EFFECTS:
        raise ValueError(f"effect {effect!r} is unknown; works: {' · '.join(EFFECTS)}")
    if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
        raise ValueError("is not KEY[=VALUE][:EFFECT]")
    return Toleration(key=key, value=value, effect=effect)


def _volume(word: str) -> Volume:
    kind, _, rest = word.partition(":")
    if kind not in VOLUME_KINDS:
        raise ValueError(f"{kind!r} is not a kind of volume; works: {' · '.join(VOLUME_KINDS)}, as in pvc:data:/data")
    read_only = rest.endswith(":ro")
    source, colon, path = rest.removesuffix(":ro").partition(":")
    if not colon or not source or not path.startswith("/") or ":" in path:
        raise ValueError("is not KIND:NAME:PATH[:ro] with an absolute path")
    if kind == "host" and not source.startswith("/"):
        raise ValueError("a folder of the node begins with /")
    if kind == "nfs" and "/" not in source:
        raise ValueError("an NFS volume is nfs:SERVER/FOLDER:PATH")
    folder = ""
    if kind == "pvc":
        source, _, folder = source.partition("/")
        if folder.startswith("/") or ".." in folder.split("/"):
            raise ValueError("a folder of a claim is relative to it, without ..")
    if kind in ("pvc", "configmap", "secret") and not _NAME.fullmatch(source):
        raise ValueError(f"{source!r} is not a name in Kubernetes")
    return Volume(kind=kind, source=source, path=path, folder=folder, read_only=read_only)
