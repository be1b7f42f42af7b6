"""Reasons for which Kubernetes accepts the objects of a job, and does not make, place or start its pods."""

from launcher.observe.reason import QUEUE, Sign, row, sign


def _sign(source: str, *patterns: str) -> Sign:
    return sign(QUEUE, source, *patterns)


# The first that a text shows names it. They are rows of the one table in `reasons.py`.
# fmt: off
KUBERNETES = (
    row(
        "cluster-quota",
        "a quota of the namespace or of the queue is used up, or needs limits that the pods do not have",
        _sign("Kubernetes ResourceQuota; Kueue", r"(exceeded|failed) quota: ", r"insufficient (unused )?quota",
            r"didn't fit in the remaining quota", r"resource in cluster is overused", r"queue resource quota"),
        change=("cluster.nodes (fewer)", "cluster.memory, cluster.cpus_per_task or cluster.resources", "cluster.queue"),
    ),
    row(
        "pod-security",
        "the namespace forbids pods with these privileges",
        _sign("Kubernetes PodSecurity; OpenShift SCC", r"violates PodSecurity",
            r"unable to validate against any security context constraint"),
        change=("cluster.pod_security=restricted", "cluster.run_as_user", "cluster.volumes", "cluster.capabilities"),
    ),
    row(
        "missing-object",
        "a Secret, ConfigMap, service account or volume claim that the pods name does not exist",
        _sign("Kubernetes kubelet, scheduler, ServiceAccount admission",
            r"(secret|configmap|serviceaccount|persistentvolumeclaim)s? \"[^\"]*\" not found",
            r"couldn't find key .* in (Secret|ConfigMap)"),
        change=("cluster.secret", "cluster.volumes", "cluster.service_account", "cluster.image_pull_secrets"),
    ),
    row(
        "admission",
        "an admission plug-in or a policy of the cluster refuses the pods",
        _sign("Kubernetes admission", r"admission webhook \S+ denied", r"ValidatingAdmissionPolicy .*denied",
            r"pods \S+ is forbidden: "),
        change=("cluster.pod_patch", "cluster.memory or cluster.resources", "cluster.priority_class"),
    ),
    row(
        "queue-missing",
        "the queue does not exist or takes no jobs",
        _sign("Kueue; Volcano", r"(LocalQueue|ClusterQueue) \S+ (doesn't exist|is inactive)",
            r"[lL]ocalQueue doesn't exist or inactive", r"[qQ]ueue \S+ (is not open|not found)"),
        change=("cluster.queue",),
    ),
    row(
        "volume",
        "a volume cannot be attached or mounted",
        _sign("Kubernetes kubelet, scheduler", r"\bFailedMount\b", r"\bFailedAttachVolume\b", r"\bMountVolume",
            r"unbound immediate PersistentVolumeClaims", r"volume node affinity conflict"),
        change=("cluster.volumes",),
    ),
    row(
        "unschedulable",
        "no machine, or not enough of them, can take the pods now",
        _sign("Kubernetes scheduler; Volcano", r"\d+/\d+ nodes are available", r"\bUnschedulable\b",
            r"\bFailedScheduling\b", r"in gang unschedulable", r"\bOutOf(cpu|memory|pods|\w+\.\w+/)",
            r"Node didn't have enough resource"),
        change=("cluster.nodes (fewer)", "cluster.node_selector", "cluster.tolerations",
            "cluster.memory or cluster.resources"),
    ),
    row(
        "pod-restarts",
        "a container failed, and the cluster starts it again alone, as its training runtime says",
        _sign("Kubernetes kubelet", r"\bCrashLoopBackOff\b", r"Back-off restarting failed"),
        change=("cluster.training_runtime (one with restartPolicy: Never and backoffLimit: 0)",),
    ),
    row(
        "tainted",
        "a machine got a taint that the pod does not tolerate: it does not answer, or an administrator empties it",
        _sign("Kubernetes taint-eviction controller", r"DeletionByTaintManager", r"TaintManagerEviction"),
        change=("cluster.tolerations", "cluster.node_selector (avoid the machine)"),
    ),
    row(
        "image",
        "the image cannot be pulled",
        _sign("Kubernetes kubelet", r"ErrImage(Pull|NeverPull)", r"ImagePullBackOff", r"InvalidImageName",
            r"ImageInspectError", r"Failed to pull image", r"Back-off pulling image", r"pull access denied",
            r"manifest unknown",
            r"SignatureValidationFailed", r"RegistryUnavailable"),
        change=("cluster.container", "cluster.image_pull_secrets", "cluster.pull_policy"),
    ),
    row(
        "device-unavailable",
        "the device plug-in of a machine did not give the pod its devices",
        _sign("Kubernetes kubelet", r"UnexpectedAdmissionError", r"Allocate failed due to"),
        change=("cluster.devices_per_node", "cluster.device_resource", "cluster.pod_patch (avoid the machine)"),
    ),
)
# fmt: on
