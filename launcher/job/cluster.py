"""The machines of a job, and settings of the executor that starts processes on them."""

from collections.abc import Mapping
from typing import Any

from launcher.job.option import option
from launcher.records import dataclass

_SBATCH = "Slurm sbatch(1)"
_CONTAINER = "Pod resources.limits"
# Fields that every executor reads, or that a rule of their own refuses.
OF_ALL = (
    *("nodes", "devices_per_node", "executor", "master_addr", "master_port", "python", "setup", "options"),
    *("container", "container_mounts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machines and executor."""

    nodes: int = option(1, "Nodes.", unit="nodes", minimum=1)
    devices_per_node: int = option(8, "Devices (processes) per node.", unit="devices", minimum=1)
    executor: str = option(
        "local",
        "What starts the processes: this machine, the environment of a platform's job, ssh, Slurm or Kubernetes, or "
        "an executor that is installed.",
    )
    master_addr: str | None = option(None, "Address of node 0; none: loopback on one node.")
    master_port: int | None = option(None, "Port of the rendezvous; none: chosen by the launcher.", minimum=1024)
    python: str | None = option(None, "Python that runs the job; none: `python` on the PATH.")
    setup: tuple[str, ...] = option(
        (), "Bash commands that every node runs first, such as `source /usr/local/Ascend/ascend-toolkit/set_env.sh`."
    )
    options: Mapping[str, Any] = option(
        {}, "Options of an executor that is installed separately, by the names that it declares."
    )
    # -- ssh
    hosts: tuple[str, ...] = option((), "ssh: hosts, by rank; the first one is the master.")
    host_file: str | None = option(
        None, "ssh: file with one host a line (`slots=N` may follow); read into cluster.hosts."
    )
    ssh_options: tuple[str, ...] = option((), "ssh: options of ssh itself, such as [-p,2222].", source="ssh(1)")
    ssh_fanout: int = option(
        100,
        "ssh: with more hosts than that each connects to a part of the others, so that no machine has many more "
        "connections; hosts must then reach each other. 0: all from here.",
        minimum=0,
    )
    # -- Slurm
    partition: str | None = option(None, "Slurm: partition.", source=f"{_SBATCH} --partition")
    account: str | None = option(None, "Slurm: account that is charged.", source=f"{_SBATCH} --account")
    qos: str | None = option(None, "Slurm: quality of service.", source=f"{_SBATCH} --qos")
    time_limit: str | None = option(
        None,
        "Slurm, Kubernetes: wall-clock limit, such as 2-12:00:00; none: the partition's, or none.",
        source=f"{_SBATCH} --time; Job activeDeadlineSeconds",
    )
    gres: str | None = option(
        None,
        "Slurm: devices of a node; none: gpu:N or npu:N for a native run, nothing for a rehearsal; '': never.",
        source=f"{_SBATCH} --gres",
    )
    constraint: str | None = option(None, "Slurm: features that nodes must have.", source=f"{_SBATCH} --constraint")
    reservation: str | None = option(None, "Slurm: reservation.", source=f"{_SBATCH} --reservation")
    nodelist: str | None = option(None, "Slurm: nodes that must be in the job.", source=f"{_SBATCH} --nodelist")
    exclude: str | None = option(None, "Slurm: nodes that must not be in the job.", source=f"{_SBATCH} --exclude")
    cpus_per_task: int | None = option(
        None,
        "Slurm: CPUs of each node's task; Kubernetes: CPUs of a pod.",
        source=f"{_SBATCH} --cpus-per-task; resources.requests.cpu",
        minimum=1,
    )
    memory: str | None = option(
        None,
        "Memory of a node; Slurm: such as 0 (all) or 500G; Kubernetes: such as 500Gi.",
        source=f"{_SBATCH} --mem; resources.limits.memory",
    )
    exclusive: bool | None = option(
        None, "Slurm: exclusive nodes; none: true for a native run.", source=f"{_SBATCH} --exclusive"
    )
    requeue: bool = option(
        True, "Slurm: requeue, from the last checkpoint, after a node fails.", source=f"{_SBATCH} --requeue"
    )
    array_limit: int | None = option(
        None, "Slurm: most jobs of a sweep that run at once.", source=f"{_SBATCH} --array=…%N", minimum=1
    )
    sbatch_options: tuple[str, ...] = option((), "Slurm: further #SBATCH options, such as --switches=1.")
    container: str | None = option(
        None,
        "Image that each node's command runs in; Kubernetes always needs one.",
        source="Pyxis srun --container-image; Pod image",
    )
    container_mounts: tuple[str, ...] = option(
        (),
        "Folders of the node inside the container, SOURCE:TARGET.",
        source="Pyxis srun --container-mounts; Pod hostPath",
    )
    # -- Kubernetes
    kind: str = option(
        "job",
        "Kubernetes: object that starts the pods: an Indexed Job, a JobSet (restarts), Kubeflow's TrainJob or "
        "PyTorchJob, or Volcano's Job (all at once, restarts).",
        source="batch/v1 Job; jobset.x-k8s.io/v1alpha2 JobSet; trainer.kubeflow.org/v1alpha1 TrainJob; "
        "kubeflow.org/v1 PyTorchJob; batch.volcano.sh/v1alpha1 Job",
        choices=("job", "jobset", "trainjob", "volcano", "pytorchjob"),
    )
    context: str | None = option(
        None, "Kubernetes: entry of the user's kubeconfig; none: the current one.", source="kubectl --context"
    )
    namespace: str | None = option(
        None, "Kubernetes: namespace; none: that of the kubeconfig.", source="kubectl --namespace"
    )
    device_resource: str | None = option(
        None,
        "Kubernetes: resource name of a device; none: nvidia.com/gpu or huawei.com/Ascend910, nothing for a rehearsal.",
        source="device plug-ins of NVIDIA and Ascend",
    )
    resources: tuple[str, ...] = option(
        (), "Kubernetes: further resources of a pod, NAME=QUANTITY, such as rdma/hca_shared=1.", source=_CONTAINER
    )
    volumes: tuple[str, ...] = option(
        (),
        "Kubernetes: volumes, KIND:NAME:PATH[:ro]; KIND is pvc (NAME may be CLAIM/FOLDER), host, nfs "
        "(NAME is SERVER/FOLDER), configmap, secret.",
        source="Pod spec.volumes",
    )
    work_dir: str | None = option(
        None, "Kubernetes: folder in the pods that relative paths refer to; none: that of the launch command."
    )
    shm_size: str | None = option(
        None, "Kubernetes: size of /dev/shm, such as 64Gi; none: the pod's memory is its limit.", source="Pod emptyDir"
    )
    node_selector: tuple[str, ...] = option(
        (), "Kubernetes: labels that nodes must have, LABEL=VALUE.", source="Pod spec.nodeSelector"
    )
    tolerations: tuple[str, ...] = option(
        (), "Kubernetes: taints that are tolerated, KEY[=VALUE][:EFFECT].", source="Pod spec.tolerations"
    )
    service_account: str | None = option(None, "Kubernetes: service account.", source="Pod spec.serviceAccountName")
    image_pull_secrets: tuple[str, ...] = option(
        (), "Kubernetes: Secrets for pulling the image.", source="Pod spec.imagePullSecrets"
    )
    pull_policy: str | None = option(
        None,
        "Kubernetes: when the image is pulled; none: always for the tag latest, else if it is not there.",
        source="Pod imagePullPolicy",
        choices=("Always", "IfNotPresent", "Never"),
    )
    pod_security: str | None = option(
        None,
        "Kubernetes: Pod Security Standard that pods comply with: no root, no capabilities, the runtime's seccomp.",
        source="Pod Security Standards; Pod securityContext",
        choices=("restricted",),
    )
    run_as_user: int | None = option(
        None,
        "Kubernetes: number of the user that runs the pods' processes; none: the image's.",
        source="Pod securityContext.runAsUser",
        minimum=0,
    )
    pod_patch: Mapping[str, Any] = option(
        {},
        "Kubernetes: strategic merge patch of the pod template, such as {spec: {affinity: …}}; the ranks' container is "
        "`node`.",
        source="PodTemplateSpec",
    )
    ttl_after_finished: str | None = option(
        None,
        "Kubernetes: time after the end of a run at which the cluster deletes its objects; none: launch clean does.",
        source="Job ttlSecondsAfterFinished",
    )
    secret: str = option(
        "launch-secrets",
        "Kubernetes: Secret whose keys are variables such as HF_TOKEN; pods refer to it, no file holds a value.",
        source="Pod env.valueFrom.secretKeyRef",
    )
    priority_class: str | None = option(None, "Kubernetes: priority class.", source="Pod spec.priorityClassName")
    queue: str | None = option(
        None,
        "Kubernetes: Volcano's queue, or Kueue's for the other kinds: all pods start at once, when there is quota.",
        source="Volcano spec.queue; Kueue label kueue.x-k8s.io/queue-name",
    )
    labels: tuple[str, ...] = option((), "Kubernetes: further labels of job and pods, LABEL=VALUE.", source="metadata")
    annotations: tuple[str, ...] = option(
        (), "Kubernetes: further annotations of job and pods, NAME=VALUE.", source="metadata"
    )
    host_network: bool = option(
        False, "Kubernetes: pods use their node's network (RoCE without a plug-in).", source="Pod spec.hostNetwork"
    )
    capabilities: tuple[str, ...] = option(
        (), "Kubernetes: capabilities, such as IPC_LOCK for RDMA.", source="Pod securityContext.capabilities"
    )
    rank_table: bool = option(
        False,
        "Kubernetes, Volcano on Ascend: HCCL reads the rank table that the cluster's controller writes.",
        source="Ascend HCCL-Controller: label ring-controller.atlas, ConfigMap rings-config-JOB",
    )
    training_runtime: str = option(
        "torch-distributed",
        "Kubernetes, TrainJob: the cluster's ClusterTrainingRuntime.",
        source="TrainJob spec.runtimeRef",
    )

    @property
    def world_size(self) -> int:
        """Number of devices of the whole job."""
        return self.nodes * self.devices_per_node
