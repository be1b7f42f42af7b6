"""State of a run in a cluster: its job, its pods, their exit codes and their logs, saved as files."""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.kubernetes.kubectl import Refused, items, kubectl
from launcher.executors.kubernetes.objects import RESOURCES, RUN_LABEL
from launcher.executors.record import EXITS, RUN, write_causes
from launcher.plan.executor import Observed

_PARALLEL = 16
# Maximum number of pods whose last lines are awaited while they end; the others' logs are saved up to that moment.
_FOLLOWED = 64
_LOG_SECONDS = 120
# Exit codes of SIGTERM and SIGKILL: those of pods that end because another one has failed.
_ENDED_BY_OTHERS = (143, 137)
_NUMBER = re.compile(r"-(\d+)(?:-[a-z0-9]{5})?$")
# Labels with a pod's attempt of the whole job; Source: JobSet pkg/constants, Volcano batch/v1alpha1 labels.go.
_ATTEMPT = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count")
_INDEX = ("batch.kubernetes.io/job-completion-index", "volcano.sh/task-index")
# Volcano's JobPhase (batch/v1alpha1 job.go).
_PHASES = {
    "Pending": "queued",
    "Completed": "done",
    "Failed": "failed",
    "Terminated": "failed",
    "Aborted": "stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod.

    Attributes:
        node: rank of its node.
        attempt: number of earlier starts of all pods.
        phase: as in Kubernetes: Pending, Running, Succeeded, Failed, Unknown.
        why: reason for waiting, or for its end.
        code: exit code of its container; None while it runs.
        ended: what the cluster says of the end of its container, such as OOMKilled.
        at: end time, in seconds since 1970.
        machine: name of the cluster node.
    """

    name: str
    node: int
    phase: str
    attempt: int = 0
    why: str = ""
    code: int | None = None
    ended: str = ""
    at: float = 0.0
    machine: str = ""


def pods_seen(handle: Mapping[str, Any]) -> list[Pod]:
    """Return a run's pods by node.

    Raises:
        Refused: with kubectl's message.
    """
    found = [_pod(tree) for tree in items(handle, "pods", "-l", f"{RUN_LABEL}={handle['name']}")]
    return sorted(found, key=lambda pod: (pod.node, pod.at))


def state_seen(handle: Mapping[str, Any], pods: Sequence[Pod]) -> Observed:
    """Return the state of the job object.

    Raises:
        Refused: with kubectl's message; the job may be missing.
    """
    (job,) = items(handle, f"{RESOURCES[handle['kind']]}/{handle['name']}")
    status = job.get("status", {})
    machines = tuple(dict.fromkeys(pod.machine for pod in pods if pod.machine))
    state, why = _of_phase(status) if handle["kind"] == "volcano" else _of_conditions(status)
    if not state:
        state = "running" if any(pod.phase == "Running" for pod in pods) else "queued"
        why = "" if state == "running" else next((pod.why for pod in pods if pod.why), why)
    return Observed(state=state, why=why, nodes=machines)


def keep_exits(folder: Path, pods: Sequence[Pod]) -> int | None:
    """Write the exit code of each pod to the run directory; return the code of the first failure."""
    ended = sorted((pod for pod in pods if pod.code is not None), key=lambda pod: pod.at)
    first = next((pod for pod in ended if pod.code), None)
    for pod in ended:
        file = folder / RUN / EXITS / f"{pod.attempt}.{pod.node}"
        if file.exists():
            continue
        by_others = pod is not first and pod.code in _ENDED_BY_OTHERS
        try:
            private.make_folder(file.parent)
            private.write(file, f"{pod.code} {pod.machine or pod.name} {'stopped' if by_others else ''}\n")
            os.utime(file, (pod.at, pod.at))
            write_causes(folder, pod.attempt, pod.node, [pod.ended] if pod.ended else [])
        except OSError:
            break  # a folder of another user, or a full disk: the cluster still has the codes
    return None if first is None else first.code


def fetch_logs(handle: Mapping[str, Any], pods: Sequence[Pod]) -> None:
    """Append the output of pods since the last call to `logs/node<R>.log`; pods that have not started have none."""
    folder = Path(handle["folder"]) / "logs"
    begun = [pod for pod in pods if pod.phase != "Pending"]
    if not begun:
        return
    try:
        with _alone(folder), ThreadPoolExecutor(min(_PARALLEL, len(begun))) as pool:
            list(pool.map(lambda pod: _append(handle, folder, pod), begun))
    except OSError:
        return


@contextmanager
def following_logs(handle: Mapping[str, Any], pods: Sequence[Pod], seconds: float) -> Iterator[None]:
    """Save the output of pods while they are being deleted, up to the last line; return once they have ended.

    Args:
        seconds: time limit of the wait.
    """
    folder = Path(handle["folder"]) / "logs"
    going = [pod for pod in pods if pod.phase == "Running"][:_FOLLOWED]
    with _alone(folder), ThreadPoolExecutor(max(1, len(going))) as pool:
        for pod in pods:
            pool.submit(_append, handle, folder, pod, follow=seconds if pod in going else 0.0)
        yield


def _append(handle: Mapping[str, Any], folder: Path, pod: Pod, follow: float = 0.0) -> None:
    """Append the lines of one pod that are newer than the last one saved; each has a timestamp in nanoseconds."""
    mark = folder / f".{pod.name}.seen"
    seen = mark.read_text(encoding="utf-8") if mark.exists() else ""
    options = [*([f"--since-time={seen}"] if seen else []), *(["--follow"] if follow else [])]
    try:
        text = kubectl(handle, "logs", pod.name, "--timestamps", *options, seconds=follow or _LOG_SECONDS)
    except Refused:
        return  # not started yet, or deleted
    fresh = []
    for line in text.splitlines():
        stamp, _, rest = line.partition(" ")
        if stamp > seen:
            fresh.append(rest)
            last = stamp
    if fresh:
        with open(folder / f"node{pod.node}.log", "a", encoding="utf-8", opener=private.opener) as file:
            file.write("\n".join(fresh) + "\n")
        mark.write_text(last, encoding="utf-8")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder against concurrent appends: `status` and `logs -f` may run at the same time."""
    private.make_folder(folder)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# -- responses of the cluster


def _of_conditions(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return state and reason of a Job, TrainJob or JobSet; "" while it is active.

    Source: batch/v1 JobConditionType; jobset v1alpha2 JobSetConditionType.
    """
    for condition in status.get("conditions", ()):
        if condition.get("status") != "True":
            continue
        message = ": ".join(filter(None, (condition.get("reason", ""), condition.get("message", ""))))
        if condition["type"] in ("Complete", "Completed"):
            return "done", ""
        if condition["type"] == "Failed":
            return "failed", message
        if condition["type"] == "Suspended":
            return "queued", message or "suspended"
    return "", ""


def _of_phase(status: Mapping[str, Any]) -> tuple[str, str]:
    state = status.get("state", {})
    message = ": ".join(filter(None, (state.get("reason", ""), state.get("message", ""))))
    known = _PHASES.get(state.get("phase", ""), "")
    return ("" if known == "queued" else known), message


def _pod(tree: Mapping[str, Any]) -> Pod:
    metadata, status = tree["metadata"], tree.get("status", {})
    ended = [
        each["state"]["terminated"] for each in status.get("containerStatuses", ()) if each["state"].get("terminated")
    ]
    return Pod(
        name=metadata["name"],
        node=_node(metadata),
        attempt=int(next((text for name in _ATTEMPT if (text := _job_labels(metadata).get(name, "")).isdigit()), 0)),
        phase=status.get("phase", "Unknown"),
        why=_why(status),
        code=ended[0]["exitCode"] if ended else None,
        ended=_ended(ended, status),
        at=_seconds(ended[0].get("finishedAt")) if ended else 0.0,
        machine=tree.get("spec", {}).get("nodeName", ""),
    )


def _node(metadata: Mapping[str, Any]) -> int:
    labels = _job_labels(metadata)
    text = next((labels[name] for name in _INDEX if name in labels), None)
    if text is None:
        found = _NUMBER.search(metadata["name"])
        text = found[1] if found else "0"
    return int(text)


def _job_labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {**metadata.get("labels", {}), **metadata.get("annotations", {})}


def _why(status: Mapping[str, Any]) -> str:
    """Return why a pod waits: for a machine, or for its image."""
    waiting = [each["state"]["waiting"] for each in status.get("containerStatuses", ()) if "waiting" in each["state"]]
    unplaced = [each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
    for each in (*waiting, *(each for each in unplaced if each["status"] != "True")):
        if each.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return ": ".join(filter(None, (each["reason"], each.get("message", ""))))
    return ": ".join(filter(None, (status.get("reason", ""), status.get("message", ""))))


def _ended(ended: Sequence[Mapping[str, Any]], status: Mapping[str, Any]) -> str:
    """Return what the cluster says of a pod's end, of its container or of itself (evicted)."""
    for each in (*ended, status):
        if each.get("reason") not in (None, "", "Error", "Completed"):
            return " ".join(filter(None, (each["reason"], each.get("message", "")))).replace("\n", " ")
    return ""


def _seconds(text: str | None) -> float:
    return 0.0 if not text else datetime.fromisoformat(text).timestamp()
