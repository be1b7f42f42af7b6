"""Finds `cluster` values that Kubernetes would reject, before anything is sent to it."""

from collections.abc import Iterator

from launcher.executors.kubernetes.executor import EXECUTOR
from launcher.executors.kubernetes.pods import unclear
from launcher.rules.registry import RuleContext, Violation, rule


@rule(
    "K8S-FIELD",
    source="Kubernetes API conventions: names, labels, quantities; Pod v1, Job v1",
    reads="job.fault_tolerance.max_restarts job.cluster.*",
)
def cluster_s_words_are_understood(context: RuleContext) -> Iterator[Violation]:
    """Values for a Kubernetes cluster must be valid names, labels, quantities and volumes."""
    if context.job.cluster.executor != EXECUTOR.name:
        return
    for each in unclear(context.job):
        yield Violation(message=f"cluster.{each.field} {each.message}", fields=(f"cluster.{each.field}",))
