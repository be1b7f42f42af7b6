"""State of a run in a cluster: of its job object and its pods, whose exit codes are kept as files."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.kubernetes.admission import wanted_pods
from launcher.executors.kubernetes.events import failed_for, waiting_in, waits_for
from launcher.executors.kubernetes.kinds import KINDS, RUN_LABEL, kind_of
from launcher.executors.kubernetes.kubectl import items, mapping, mappings, resource_of
from launcher.executors.kubernetes.pods_seen import Pod, earlier, joined, pods_in
from launcher.executors.record import (
    CAUSES,
    EXITS,
    RUN,
    causes_file,
    read_causes,
    read_exits,
    read_record,
    write_causes,
)
from launcher.plan.executor import Observed
from launcher.records import dataclass

_MOST_ATTEMPTS = 1_000_000
_KILLED = 137
# Exit codes of SIGTERM and SIGKILL: those of pods that are ended after a failure.
_ENDED_BY_OTHERS = (143, 137)
# Reasons of pods that the cluster itself ended: their end is not the consequence of another pod's failure.
_BY_CLUSTER = ("OOMKilled", "Evicted", "DeadlineExceeded", "Preemption", "EvictionBy", "DeletionBy", "TerminationBy")
# Condition of a Job that has failed and whose pods still end. Source: batch/v1 JobConditionType FailureTarget.
_FAILS = "FailureTarget"
# Pods that were to be gone so long ago will not end by themselves; clocks differ less.
_LATE_SECONDS = 60
# Volcano's JobPhase (batch/v1alpha1 job.go).
_PHASES = {
    "Pending": "queued",
    "Completed": "done",
    "Failed": "failed",
    "Terminated": "failed",
    "Aborted": "stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the cluster has of a run: its job object (None: it is deleted) and its pods by node."""

    job: Mapping[str, Any] | None
    pods: Sequence[Pod]


def seen(handle: Mapping[str, Any]) -> Seen:
    """Return a run's job object and all its pods, by one call of kubectl.

    Raises:
        Refused: with kubectl's message.
    """
    found = items(handle, f"{resource_of(handle)},pods", "-l", f"{RUN_LABEL}={handle['name']}")
    jobs = [tree for tree in found if _is_job(tree, handle)]
    first = first_attempt(handle)
    pods = [_counted_from(pod, first) for pod in pods_in(found)]
    return Seen(job=jobs[0] if jobs else None, pods=pods)


def _counted_from(pod: Pod, first: int) -> Pod:
    before = pod.before and replace(pod.before, attempt=pod.before.attempt + first)
    return replace(pod, attempt=pod.attempt + first, before=before)


def first_attempt(handle: Mapping[str, Any]) -> int:
    """Return the number of the first attempt of a run's objects, which themselves count from 0."""
    first = handle.get("attempt", 0)
    return first if isinstance(first, int) and 0 <= first < _MOST_ATTEMPTS else 0


def _is_job(tree: Mapping[str, Any], handle: Mapping[str, Any]) -> bool:
    kind = kind_of(tree.get("apiVersion"), tree.get("kind"))
    return (
        kind is not None and kind.name == handle["kind"] and mapping(tree.get("metadata")).get("name") == handle["name"]
    )


def state_of(handle: Mapping[str, Any], seen: Seen) -> Observed:
    """Return the state of a run; "" where the cluster has no such job (any more)."""
    if seen.job is None:
        ending = any(pod.code is None for pod in seen.pods)
        why = f"its job was deleted, its pods end{_overdue(seen.pods)}"
        return Observed(state="running", why=why) if ending else Observed(state="")
    status = mapping(seen.job.get("status"))
    machines = tuple(dict.fromkeys(pod.machine for pod in seen.pods if pod.machine))
    state, why = _of_phase(status) if KINDS[handle["kind"]].has_phase else _of_conditions(status)
    if not state or state == "queued":
        running = not state and any(pod.phase == "Running" for pod in seen.pods)
        state = "running" if running else "queued"
        why = _unfinished(handle, seen.job, seen.pods) if running else waits_for(handle, seen.job, seen.pods) or why
    elif state == "failed" and not any(pod.code for pod in seen.pods):
        why = "; ".join(filter(None, (failed_for(handle, seen.job), why)))
    return Observed(state=state, why=why, nodes=machines)


def _unfinished(handle: Mapping[str, Any], job: Mapping[str, Any], pods: Sequence[Pod]) -> str:
    """Return what keeps a run from having all its pods, or none any more; "" if nothing does."""
    failed = [each for each in mappings(mapping(job.get("status")).get("conditions")) if each.get("type") == _FAILS]
    if failed and failed[0].get("status") == "True":
        return f"{joined(failed[0])}; its pods end{_overdue(pods)}"
    if waiting := waiting_in(pods):
        return f"{len(waiting)} of {len(pods)} pods wait: {waiting[0].why}"
    wanted = wanted_pods(job)
    missing = wanted - len({pod.node for pod in pods})
    why = failed_for(handle, job) if missing > 0 else ""
    return f"{missing} of {wanted} pods are not made: {why}" if why else ""


def _overdue(pods: Sequence[Pod]) -> str:
    """Return which pod is still there though the time that it had to end is over, and what removes it; "": none is."""
    late = [pod for pod in pods if pod.due and pod.code is None and time.time() - pod.due > _LATE_SECONDS]
    if not late:
        return ""
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return (
        f": {late[0].name}{more} should have: where its machine ({late[0].machine}) is gone, "
        f"kubectl delete pod {late[0].name} --force"
    )


def own_folder(handle: Mapping[str, Any]) -> Path | None:
    """Return the run's directory; None if it may not be written to.

    The handle is from the cluster's answer. It counts only for the folder of this user that holds the run
    with this handle: another run, or another user, may have taken it.
    """
    folder = Path(str(handle.get("folder") or "/nowhere"))
    record = read_record(folder)
    same = record is not None and all(record.handle.get(name) == handle.get(name) for name in ("name", "kind"))
    return folder if same and all(_is_own_folder(each) for each in (folder / RUN, folder / "logs")) else None


def _is_own_folder(path: Path) -> bool:
    return private.is_own(path) and path.is_dir() and not path.is_symlink()


def keep_exits(folder: Path, pods: Sequence[Pod]) -> int | None:
    """Write the exit code of each pod to the run directory; return the code of the first failure.

    Args:
        folder: as `own_folder` returns it.
    """
    ended = sorted((pod for pod in (*earlier(pods), *pods) if pod.code is not None), key=lambda pod: pod.at)
    newest = max((pod.attempt for pod in pods), default=0)
    first = next((pod for pod in ended if pod.code and pod.attempt == newest), None)
    for pod in ended:
        file = folder / RUN / EXITS / f"{pod.attempt}.{pod.node}"
        by_cluster = any(text.startswith(_BY_CLUSTER) for text in pod.ended)
        if file.exists() and not by_cluster:  # on a volume that it shares with us, the node wrote it itself
            continue
        by_others = pod is not first and pod.code in _ENDED_BY_OTHERS and not by_cluster
        try:
            private.make_folder(file.parent)
            private.write(file, f"{pod.code} {pod.machine or pod.name} {'stopped' if by_others else ''}\n")
            os.utime(file, (pod.at, pod.at))
            known = read_causes(causes_file(folder, pod.attempt, pod.node))
            write_causes(folder, pod.attempt, pod.node, tuple(dict.fromkeys((*known, *pod.ended))))
        except OSError:
            break  # a full disk: the cluster still has the codes
    kept = read_exits(folder)
    for end in kept:
        says = read_causes(causes_file(folder, end.attempt, end.node))
        if end.how == "stopped" and any(text.startswith(_BY_CLUSTER) for text in says):
            with suppress(OSError):  # a full disk: it is written the next time
                file = folder / RUN / EXITS / f"{end.attempt}.{end.node}"
                private.write(file, f"{end.code} {end.host} \n")
                os.utime(file, (end.at, end.at))
    if first is not None:
        return first.code
    # The cluster may have deleted the pods that failed; on a volume that it shares with us, nodes wrote their ends.
    last = max((end.attempt for end in kept), default=0)
    return next((end.code for end in kept if end.attempt == last and end.code and end.how != "stopped"), None)


def keep_vanished(folder: Path, pods: Sequence[Pod], attempt: int) -> None:
    """Write an end of pods that the cluster ended and deleted unseen: the job failed because of them."""
    there = {pod.node for pod in pods}
    for causes in sorted((folder / RUN / CAUSES).glob(f"{attempt}.*")):
        node, file = causes.name.partition(".")[2], folder / RUN / EXITS / causes.name
        if not node.isdecimal() or int(node) in there or file.exists():
            continue
        if any(text.startswith(_BY_CLUSTER) for text in read_causes(causes)):
            with suppress(OSError):  # a full disk: the same
                private.make_folder(file.parent)
                private.write(file, f"{_KILLED} unknown \n")
                at = causes.stat().st_mtime
                os.utime(file, (at, at))


def keep_disruptions(folder: Path, pods: Sequence[Pod]) -> None:
    """Write down who ends a pod while it is there: once it has ended it may be deleted at once."""
    for pod in pods:
        file = causes_file(folder, pod.attempt, pod.node)
        known = read_causes(file) if pod.disrupted else []
        if not set(pod.disrupted) <= set(known):
            with suppress(OSError):  # a full disk: the same
                write_causes(folder, pod.attempt, pod.node, tuple(dict.fromkeys((*known, *pod.disrupted))))


def _of_conditions(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return state and reason of a Job, TrainJob, JobSet or PyTorchJob; "" while it is active.

    Source: batch/v1 JobConditionType; jobset v1alpha2 JobSetConditionType; kubeflow.org/v1 JobConditionType.
    """
    found = {
        each.get("type"): joined(each) for each in mappings(status.get("conditions")) if each.get("status") == "True"
    }
    if {"Complete", "Completed", "Succeeded"} & set(found):
        return "done", ""
    if "Failed" in found:
        return "failed", found["Failed"]
    if "Suspended" in found:
        return "queued", found["Suspended"] or "suspended"
    return "", ""


def _of_phase(status: Mapping[str, Any]) -> tuple[str, str]:
    state = mapping(status.get("state"))
    known = _PHASES.get(str(state.get("phase", "")), "")
    return ("" if known == "queued" else known), joined(state)
