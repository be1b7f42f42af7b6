"""Table of the kinds of objects that start pods: what each is called, and what it can do."""

from collections.abc import Mapping
from dataclasses import field

from launcher.records import dataclass

# Label of all objects of a run, and folder of its scripts in a pod.
RUN_LABEL, FILES = "launch-run", "/run/launch"
# Extended resources of the vendors' device plug-ins, by kind of device.
DEVICE_RESOURCES = {"cuda": "nvidia.com/gpu", "npu": "huawei.com/Ascend910"}
# Label of Kueue for jobs without a queue field.
KUEUE = "kueue.x-k8s.io/queue-name"
# Container of the ranks; Kubeflow Trainer's runtimes name it and their replicated job so, and the others follow.
NODE = "node"
# Volcano: name of the task, as in the platform's variables (VC_WORKER_HOSTS).
TASK = "worker"
_OF_RUNTIME = "it belongs in the cluster's training runtime, and a TrainJob cannot set it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object that starts the pods of a run.

    Attributes:
        name: value of `cluster.kind`.
        title: what users call it.
        version, object: `apiVersion` and `kind`.
        resource: name for kubectl.
        container: name of the container with the ranks.
        rank_from: variable with the rank of a pod.
        master: host name of the first pod, of {name}; "": the pod's environment has it.
        has_phase: its status has a phase, not conditions.
        makes: objects that it creates and whose events say why there are no pods, of {name} and {uid}.
        no_restarts: why it cannot start all pods again together; "": it can.
        gang: what starts all pods at once, or none.
        refuses: fields of `cluster` that it cannot set, with the reason.
        pod_fields, container_fields: fields of a pod and of a container that it can pass on; none: all.
        source: where these facts are from.
    """

    name: str
    title: str
    version: str
    object: str
    resource: str
    container: str = NODE
    rank_from: str
    master: str = ""
    has_phase: bool = False
    makes: tuple[str, ...] = ("{name}",)
    no_restarts: str = ""
    gang: str = "Kueue (`cluster.queue`)"
    refuses: Mapping[str, str] = field(default_factory=dict)
    pod_fields: tuple[str, ...] = ()
    container_fields: tuple[str, ...] = ()
    source: str

    @property
    def group(self) -> str:
        """API group."""
        return self.version.partition("/")[0]


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="job",
            title="Indexed Job",
            version="batch/v1",
            object="Job",
            resource="job.batch",
            rank_from="JOB_COMPLETION_INDEX",
            master="{name}-0.{name}",
            no_restarts="an Indexed Job replaces the pod that failed, alone",
            source="Kubernetes 1.37 Job v1: completionMode Indexed (pods JOB-INDEX in the subdomain of a Service)",
        ),
        Kind(
            name="jobset",
            title="JobSet",
            version="jobset.x-k8s.io/v1alpha2",
            object="JobSet",
            resource="jobset.jobset.x-k8s.io",
            rank_from="JOB_COMPLETION_INDEX",
            master=f"{{name}}-{NODE}-0-0.{{name}}",
            makes=("{name}", f"{{name}}-{NODE}-0"),
            source="JobSet 0.12 api/jobset/v1alpha2: network.enableDNSHostnames, failurePolicy, "
            "ttlSecondsAfterFinished",
        ),
        Kind(
            name="trainjob",
            title="Kubeflow TrainJob",
            version="trainer.kubeflow.org/v1alpha1",
            object="TrainJob",
            resource="trainjob.trainer.kubeflow.org",
            rank_from="PET_NODE_RANK",
            makes=("{name}", f"{{name}}-{NODE}-0"),
            no_restarts="failurePolicy belongs to the cluster's training runtime, and a TrainJob cannot set it",
            gang="Kueue (`cluster.queue`), or the runtime's podGroupPolicy",
            refuses={
                "host_network": _OF_RUNTIME,
                "priority_class": _OF_RUNTIME,
                "pull_policy": _OF_RUNTIME,
                "ttl_after_finished": _OF_RUNTIME,
            },
            pod_fields=(
                *("affinity", "containers", "imagePullSecrets", "initContainers", "nodeSelector", "schedulingGates"),
                *("securityContext", "serviceAccountName", "terminationGracePeriodSeconds", "tolerations", "volumes"),
            ),
            container_fields=("name", "env", "securityContext", "volumeMounts", "resources"),
            source="Kubeflow Trainer 2.3 trainer.kubeflow.org_trainjobs.yaml: runtimePatches",
        ),
        Kind(
            name="volcano",
            title="Volcano Job",
            version="batch.volcano.sh/v1alpha1",
            object="Job",
            resource="job.batch.volcano.sh",
            rank_from="VC_TASK_INDEX",
            master=f"{{name}}-{TASK}-0.{{name}}",
            has_phase=True,
            makes=("{name}", "{name}-{uid}"),
            gang="always (minAvailable is the number of nodes)",
            source="Volcano batch/v1alpha1 Job; pkg/controllers/job/plugins/svc, env; PodGroup JOB-UID",
        ),
        Kind(
            name="pytorchjob",
            title="Kubeflow PyTorchJob",
            version="kubeflow.org/v1",
            object="PyTorchJob",
            resource="pytorchjob.kubeflow.org",
            container="pytorch",
            rank_from="PET_NODE_RANK",
            master="{name}-master-0",
            no_restarts="a PyTorchJob replaces the pod that failed, alone",
            gang="Kueue (`cluster.queue`), or the scheduler that the operator names for groups",
            source="Kubeflow training-operator 1.9 kubeflow.org_pytorchjobs.yaml; pkg/controller.v1/pytorch/envvar.go",
        ),
    )
}


def kind_of(version: object, name: object) -> Kind | None:
    """Return the kind of an object by the group of its apiVersion, in whatever version, and its kind."""
    group = str(version).partition("/")[0]
    return next((kind for kind in KINDS.values() if kind.group == group and kind.object == name), None)


def kinds_table() -> str:
    """Return the table of kinds for the documentation, in Markdown."""
    heads = ("`cluster.kind`", "object", "rank from", "all pods at once", "starts all again", "deleted after a time")
    rows = [f"| {' | '.join([*heads, '`pod_patch`'])} |", "|---|---|---|---|---|---|---|"]
    for kind in KINDS.values():
        refused = "ttl_after_finished" in kind.refuses
        patch = "some fields" if kind.pod_fields else "all fields"
        cells = (
            f"`{kind.name}`",
            f"{kind.title} (`{kind.version}`)",
            f"`{kind.rank_from}`",
            kind.gang,
            f"no: {kind.no_restarts}" if kind.no_restarts else "yes (`fault_tolerance.max_restarts`)",
            "no: of its training runtime" if refused else "yes",
            patch,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)
