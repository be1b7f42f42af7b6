"""Events of a run's objects: why the cluster makes no pods, or cannot start them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from launcher.executors.kubernetes.kinds import KINDS, KUEUE
from launcher.executors.kubernetes.kubectl import Refused, items, mapping, mappings
from launcher.executors.kubernetes.pods_seen import Pod, joined

# Events of a whole namespace may be many thousands; those of one object are few.
_MOST_EVENTS = 500
_KUEUE_JOB = "kueue.x-k8s.io/job-uid"
# Reasons of a waiting container that repeat less than its event: the event has the registry's or the volume's answer.
_SHORT = re.compile(r"^(ImagePullBackOff|CrashLoopBackOff|$)")
# What an operator reports of every job that fails, and says nothing.
_GENERAL = ("BackoffLimitExceeded", "JobFailed", "FailedJobs", "PyTorchJobFailed", "UnexpectedJob")


# Reason of a container that failed and will be started again; its pod still counts as running.
_AGAIN = "CrashLoopBackOff"


def waiting_in(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that wait and say for what: to be placed and started, or to be started again."""
    return [
        pod
        for pod in pods
        if (pod.phase == "Pending" and not _SHORT.match(pod.why))
        or (pod.phase == "Running" and pod.why.startswith(_AGAIN))
    ]


def waits_for(handle: Mapping[str, Any], job: Mapping[str, Any], pods: Sequence[Pod]) -> str:
    """Return why a run has no running pod, by its pods, else by events of what makes them; "": nothing says it."""
    if waiting := waiting_in(pods):
        return waiting[0].why
    stuck = [pod.name for pod in pods if pod.phase == "Pending"][:1]
    names = [*stuck, *_makers(handle, job)]
    said = _of_kueue(handle, job) or next(iter(_newest(handle, names)), "")
    return said or next((pod.why for pod in pods if pod.why), "")


def failed_for(handle: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Return why a job failed that has no pods which could say it; "": no event does."""
    found = _newest(handle, _makers(handle, job), ended=True)
    return next((text for text in found if not text.startswith(_GENERAL)), "")


def _makers(handle: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    uid = str(mapping(job.get("metadata")).get("uid") or "")
    return [each.format(name=handle["name"], uid=uid) for each in KINDS[handle["kind"]].makes]


def _newest(handle: Mapping[str, Any], names: Sequence[str], *, ended: bool = False) -> Iterator[str]:
    """Yield the warnings about some objects, of each the newest first.

    Args:
        ended: omit those after which the object made its pods: that it could not before did not end it.
    """
    with ThreadPoolExecutor(len(names)) as pool:
        for found in list(pool.map(lambda name: _events(handle, name), names)):
            made = max((_time(each) for each in found if ended and _is_success(each)), default="")
            warnings = [each for each in found if each.get("type") == "Warning" and _time(each) >= made]
            yield from map(joined, sorted(warnings, key=_time, reverse=True))


def _is_success(event: Mapping[str, Any]) -> bool:
    """Return whether a controller made what it had to: SuccessfulCreate (Job), SuccessfulCreatePod (PyTorchJob)."""
    return event.get("type") == "Normal" and str(event.get("reason") or "").startswith("SuccessfulCreate")


def _events(handle: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the events of one object; none where the user may not read them."""
    try:
        return list(items(handle, "events", "--field-selector", f"involvedObject.name={name}"))[-_MOST_EVENTS:]
    except Refused:
        return []


def _time(event: Mapping[str, Any]) -> str:
    """Return the time of an event's last occurrence; RFC 3339 texts in UTC sort by time."""
    series, metadata = mapping(event.get("series")), mapping(event.get("metadata"))
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((time for time in (*times, metadata.get("creationTimestamp")) if time), ""))


def _of_kueue(handle: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Return why Kueue does not admit a job: the condition of its Workload.

    Source: Kueue v1beta1 Workload, condition QuotaReserved; label kueue.x-k8s.io/job-uid.
    """
    metadata = mapping(job.get("metadata"))
    if KUEUE not in mapping(metadata.get("labels")):
        return ""
    try:
        found = items(handle, "workloads.kueue.x-k8s.io", "-l", f"{_KUEUE_JOB}={metadata.get('uid', '')}")
    except Refused:
        return ""
    for workload in found:
        for condition in mappings(mapping(workload.get("status")).get("conditions")):
            if condition.get("type") in ("QuotaReserved", "Evicted") and _is_bad(condition):
                return f"Kueue: {joined(condition)}"
    return ""


def _is_bad(condition: Mapping[str, Any]) -> bool:
    """Return whether a condition keeps a job waiting: no quota is reserved, or it was evicted."""
    return bool((condition.get("status") == "True") == (condition.get("type") == "Evicted"))
