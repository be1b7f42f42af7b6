"""Pods as the cluster reports them: their node's rank, phase, why they wait, and how they ended."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from launcher.executors.kubernetes.kinds import KINDS
from launcher.executors.kubernetes.kubectl import tidy
from launcher.records import dataclass

# Containers with the ranks.
_RANKS = {kind.container for kind in KINDS.values()}
# A pod's name is part of a file name here.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NUMBER = re.compile(r"-(\d{1,7})(?:-[a-z0-9]{5})?$")
_MOST = 10_000_000
# Labels with a pod's attempt of the whole job; Source: JobSet pkg/constants, Volcano batch/v1alpha1 labels.go.
_ATTEMPT = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count")
_REPLICA = "training.kubeflow.org/replica-index"
_INDEX = ("batch.kubernetes.io/job-completion-index", "volcano.sh/task-index", _REPLICA)
# Workers of a PyTorchJob are counted from 0; their ranks follow that of the master.
_ROLE = "training.kubeflow.org/replica-type"
# Reasons of containers that are being started; Source: kubelet pkg/kubelet/kubelet_pods.go.
_STARTS = (None, "", "ContainerCreating", "PodInitializing")
# An error as Go prints it with %+v and %#v: Volcano pkg/controllers/job/job_controller_actions.go.
_STATUS_ERROR, _MESSAGE, _LONGEST = "&errors.StatusError{", re.compile(r'\bMessage:"((?:[^"\\]|\\.)*)"'), 10_000
# Exit code of a pod that the cluster ended before its container could: that of SIGKILL.
_KILLED = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod.

    Attributes:
        node: rank of its node.
        attempt: number of earlier starts: of all pods, and of its container, which some runtimes start again alone.
        phase: as in Kubernetes: Pending, Running, Succeeded, Failed, Unknown.
        why: reason for waiting, or for its end.
        code: exit code of its container; None while it runs.
        ended: what the cluster says of its end: OOMKilled, Evicted, DeadlineExceeded, PreemptionByScheduler, Error …
        disrupted: who ends it, also while it still runs.
        at: end time, in seconds since 1970.
        machine: name of the cluster node.
        grace: seconds that it has to end once it was asked to.
        before: end of its container before that was started again.
        due: when it must be gone, since it was deleted; 0: it was not.
    """

    name: str
    node: int
    phase: str
    attempt: int = 0
    why: str = ""
    code: int | None = None
    ended: tuple[str, ...] = ()
    disrupted: tuple[str, ...] = ()
    at: float = 0.0
    machine: str = ""
    grace: float = 0.0
    before: "Pod | None" = None
    due: float = 0.0


def earlier(pods: Sequence[Pod]) -> list[Pod]:
    """Return the ends of containers that the cluster has started again in the same pods."""
    return [pod.before for pod in pods if pod.before is not None]


def pods_in(trees: Sequence[Mapping[str, Any]]) -> list[Pod]:
    """Return the pods among objects of the cluster, by node; objects without the fields of a pod are left out."""
    found = []
    for tree in trees:
        try:
            if tree.get("kind") == "Pod" and _NAME.fullmatch(tree["metadata"]["name"]):
                found.append(_pod(tree))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue
    return sorted(found, key=lambda pod: (pod.node, pod.at))


def _pod(tree: Mapping[str, Any]) -> Pod:
    metadata, status = tree["metadata"], tree.get("status", {})
    labels = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    end = _end(status)
    ranks: Mapping[str, Any] = next(iter(_statuses(status)), {})
    attempt = _number(next((text for name in _ATTEMPT if (text := labels.get(name, ""))), ""))
    attempt += _number(str(ranks.get("restartCount") or 0))
    name, node = metadata["name"], _node(metadata["name"], labels)
    before = None
    if last := (ranks.get("lastState") or {}).get("terminated"):
        # A container that waits to be started again has not been counted yet.
        waits = bool((ranks.get("state") or {}).get("waiting"))
        before = Pod(
            name=name,
            node=node,
            phase="Failed",
            attempt=max(0, attempt - (not waits)),
            code=int(last["exitCode"]),
            ended=tuple(_ended(last, {})),
            at=_seconds(last.get("finishedAt")),
            machine=_machine(tree),
        )
    return Pod(
        name=name,
        node=node,
        attempt=attempt,
        phase=tidy(status.get("phase", "Unknown"), 20),
        why=_why(status),
        code=None if end is None else int(end["exitCode"]),
        ended=() if end is None else tuple(dict.fromkeys(_ended(end, status))),
        disrupted=tuple(_words(each) for each in _disruptions(status)),
        at=0.0 if end is None else _seconds(end.get("finishedAt")),
        machine=_machine(tree),
        grace=_number(str((tree.get("spec") or {}).get("terminationGracePeriodSeconds", ""))),
        before=before,
        due=_seconds(metadata.get("deletionTimestamp")),
    )


def _node(name: str, labels: Mapping[str, str]) -> int:
    text = next((labels[each] for each in _INDEX if each in labels), None)
    if text is None:
        found = _NUMBER.search(name)
        text = found[1] if found else "0"
    is_worker = _REPLICA in labels and labels.get(_ROLE, "").lower() == "worker"
    return _number(text) + is_worker


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    return number if number < _MOST else 0


def _machine(tree: Mapping[str, Any]) -> str:
    return "".join(tidy(tree.get("spec", {}).get("nodeName") or "", 253).split())


def _statuses(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statuses of a pod's containers: first that of the ranks, then those of sidecars."""
    return sorted(status.get("containerStatuses") or (), key=lambda each: each.get("name") not in _RANKS)


def _end(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how the container with the ranks ended; None: it did not.

    The container of a pod whose init container failed, or that was evicted early, has no end of its own.
    """
    for each in _statuses(status)[:1]:
        if terminated := each.get("state", {}).get("terminated"):
            return terminated  # type: ignore[no-any-return]
    if status.get("phase") != "Failed":
        return None
    for each in (*(status.get("initContainerStatuses") or ()), *_statuses(status)):
        terminated = each.get("state", {}).get("terminated")
        if terminated and terminated.get("exitCode"):
            return {**terminated, "container": each.get("name", "")}
    return {"exitCode": _KILLED}


def _ended(end: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the cluster says of a pod's end: of its container, of itself (evicted), and who disrupted it."""
    # Source: Pod v1, ContainerStateTerminated.reason, PodStatus.reason.
    for each in (end, status, *_disruptions(status)):
        if each.get("reason") not in (None, "", "Completed"):
            yield _words(each)


def _words(tree: Mapping[str, Any]) -> str:
    container = f"container {tree['container']}" if tree.get("container") else ""
    return " ".join(filter(None, (tidy(tree.get("reason") or "", 80), container, tidy(tree.get("message") or ""))))


def _disruptions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the conditions that say who ends the pod. Source: PodCondition DisruptionTarget."""
    return [
        each
        for each in status.get("conditions") or ()
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True"
    ]


def _why(status: Mapping[str, Any]) -> str:
    """Return why a pod waits: for a machine, for its image, or for its init containers."""
    states = [*_statuses(status), *(status.get("initContainerStatuses") or ())]
    if status.get("phase") == "Running":  # a sidecar that fails again and again keeps no rank from running
        states = states[:1]
    waiting = [each["state"]["waiting"] for each in states if (each.get("state") or {}).get("waiting")]
    unplaced = [each for each in status.get("conditions") or () if each.get("type") == "PodScheduled"]
    for each in (*waiting, *(each for each in unplaced if each.get("status") != "True")):
        if each.get("reason") not in _STARTS:
            return joined(each)
    return joined(status)


def joined(tree: Mapping[str, Any]) -> str:
    """Return `REASON: MESSAGE` of a condition, a state or an event."""
    return ": ".join(filter(None, (tidy(tree.get("reason") or "", 80), tidy(_said(tree.get("message") or "")))))


def _said(message: object) -> str:
    """Return a message with what an error of the API server says in place of its fields, as Volcano prints them."""
    before, mark, rest = str(message)[:_LONGEST].partition(_STATUS_ERROR)
    found = _MESSAGE.search(rest)
    return before + found[1].replace('\\"', '"') if mark and found else str(message)


def _seconds(text: str | None) -> float:
    return 0.0 if not text else datetime.fromisoformat(text).timestamp()
