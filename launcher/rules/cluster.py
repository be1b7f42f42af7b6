"""Reports `cluster` fields that the chosen executor does not read."""

from collections.abc import Iterator

from launcher.job.cluster import Cluster
from launcher.rules.registry import RuleContext, Violation, rule

_QUEUES = ("slurm", "kubernetes")
# Executors that read a field; fields that are not listed are read by all.
_READ_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("hosts", "host_file", "ssh_options"), ("ssh",)),
    **dict.fromkeys(
        (
            *("partition", "account", "qos", "gres", "constraint", "reservation", "nodelist", "exclude", "exclusive"),
            *("requeue", "array_limit", "sbatch_options"),
        ),
        ("slurm",),
    ),
    **dict.fromkeys(("time_limit", "cpus_per_task", "memory"), _QUEUES),
    **dict.fromkeys(
        (
            *("kind", "context", "namespace", "device_resource", "resources", "volumes", "work_dir", "shm_size"),
            *("node_selector", "tolerations", "service_account", "image_pull_secrets", "secret", "priority_class"),
            *("queue", "labels", "annotations", "host_network", "capabilities", "rank_table", "training_runtime"),
        ),
        ("kubernetes",),
    ),
}
_DEFAULTS = Cluster()


@rule("CLUSTER-FIELD", source="launch: nothing that is asked for is dropped without a word", severity="warning")
def machines_wishes_are_read(facts: RuleContext) -> Iterator[Violation]:
    """A field of `cluster` that only another executor reads has no effect."""
    cluster = facts.job.cluster
    for name, readers in _READ_BY.items():
        if cluster.executor not in readers and getattr(cluster, name) != getattr(_DEFAULTS, name):
            yield Violation(
                message=f"cluster.{name} is read by cluster={'|'.join(readers)}, and this is {cluster.executor}: "
                "it changes nothing",
                fields=(f"cluster.{name}", "cluster.executor"),
            )


@rule("CLUSTER-CONTAINER", source="launch: Pyxis srun --container-image; Pod image")
def a_container_is_used_or_refused(facts: RuleContext) -> Iterator[Violation]:
    """Only Slurm (with Pyxis) and Kubernetes start a job in a container image; others would use the host's software."""
    cluster = facts.job.cluster
    if cluster.container is not None and cluster.executor not in _QUEUES:
        yield Violation(
            message=f"cluster={cluster.executor} starts no containers: the job would run with the software of the "
            "machine itself. Start it inside the container (cluster=environment for several nodes), or leave out "
            "cluster.container",
            fields=("cluster.container", "cluster.executor"),
        )
    if cluster.executor != "slurm" or cluster.container is None:
        return
    for mount in cluster.container_mounts:
        source, _, rest = mount.partition(":")
        target = rest.partition(":")[0] or source
        if " " in mount or "," in mount or not source.startswith(("/", ".")) or not target.startswith(("/", ".")):
            yield Violation(
                message=f"cluster.container_mounts {mount!r} is not SOURCE:TARGET[:FLAG+FLAG] of folders, without "
                "spaces and commas",
                fields=("cluster.container_mounts",),
            )
