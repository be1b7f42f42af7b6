"""Output of a run's pods, appended to its log files; the cluster forgets it with the pods."""

import fcntl
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.kubernetes.kinds import KINDS
from launcher.executors.kubernetes.kubectl import Refused, ask
from launcher.executors.kubernetes.pods_seen import Pod

_PARALLEL = 16
# Maximum number of pods whose last lines are awaited while they end; the others' logs are saved up to that moment.
_FOLLOWED = 64
_LOG_SECONDS = 120
# Of one pod in one call; the next call goes on behind it.
_MOST_BYTES = 64 * 2**20
# `kubectl logs --timestamps`: RFC 3339 with nanoseconds before every line.
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
# The end of a container is written in whole seconds.
_ROUNDED_SECONDS = 1.0


def fetch_logs(handle: Mapping[str, Any], run: Path, pods: Sequence[Pod]) -> None:
    """Append the output of pods since the last call to `logs/node<R>.log`; pods that have not started have none.

    Args:
        run: as `own_folder` returns it.
    """
    folder = run / "logs"
    begun = [pod for pod in pods if pod.phase != "Pending"]
    if not begun:
        return
    try:
        with _alone(folder), ThreadPoolExecutor(min(_PARALLEL, len(begun))) as pool:
            list(pool.map(lambda pod: _append(handle, folder, pod), begun))
    except OSError:
        return


@contextmanager
def following_logs(handle: Mapping[str, Any], run: Path, pods: Sequence[Pod], seconds: float) -> Iterator[None]:
    """Save the output of pods while they are being deleted, up to the last line; return once they have ended.

    Args:
        run: as `own_folder` returns it.
        seconds: time limit of the wait.
    """
    folder = run / "logs"
    going = [pod for pod in pods if pod.phase == "Running"][:_FOLLOWED]
    with _alone(folder), ThreadPoolExecutor(max(1, len(going))) as pool:
        for pod in pods:
            pool.submit(_append, handle, folder, pod, follow=seconds if pod in going else 0.0)
        yield


def _append(handle: Mapping[str, Any], folder: Path, pod: Pod, follow: float = 0.0) -> None:
    """Append the lines of one pod that are newer than the last one saved, those of a container before it first."""
    file = folder / f".{pod.name}.seen"
    seen = _read_mark(file)
    if pod.before is not None and _time_of(seen) < pod.before.at + _ROUNDED_SECONDS:
        is_cut = True
        while is_cut:
            seen, is_cut = _append_after(handle, folder, pod, seen, "--previous")
    _append_after(handle, folder, pod, seen, *(["--follow"] if follow else []), seconds=follow or _LOG_SECONDS)


def _append_after(
    handle: Mapping[str, Any], folder: Path, pod: Pod, seen: str, *options: str, seconds: float = _LOG_SECONDS
) -> tuple[str, bool]:
    """Append the lines of one container that are newer than a time.

    Returns:
        The time of the last line saved, and whether there are more that were not read.
    """
    since = [f"--since-time={seen}"] if seen else []
    container = KINDS[handle["kind"]].container
    words = ("logs", pod.name, "-c", container, "--timestamps", f"--limit-bytes={_MOST_BYTES}", *since, *options)
    try:
        data = ask(handle, *words, seconds=seconds).data
    except Refused:
        return seen, False  # not started yet, or deleted
    is_cut = len(data) >= _MOST_BYTES
    if is_cut:  # the last line is not whole; the next call reads it from its beginning
        data = data[: data.rfind(b"\n") + 1] or data
    fresh, last = lines_after(data.decode("utf-8", "replace"), seen)
    if fresh:
        with open(folder / f"node{pod.node}.log", "a", encoding="utf-8", opener=private.opener) as file:
            file.write("\n".join(fresh) + "\n")
        private.write(folder / f".{pod.name}.seen", last)
    return last, is_cut and bool(fresh)


def lines_after(text: str, seen: str) -> tuple[list[str], str]:
    """Return the lines of `kubectl logs --timestamps` that are newer than a time, and the time of the last one.

    A line without a time is not one of the pod's, but kubectl's or the kubelet's own: it is kept where it stands.
    """
    fresh: list[str] = []
    last, is_new = seen, False
    for line in text.removesuffix("\n").split("\n"):
        stamp, _, rest = line.partition(" ")
        if _STAMP.fullmatch(stamp):
            is_new = stamp > seen
            last = max(last, stamp)
        else:
            rest = line
        if is_new:
            fresh.append(rest)
    return fresh, last


def _read_mark(mark: Path) -> str:
    try:
        text = private.read(mark).strip()
    except OSError:
        return ""
    return text if _STAMP.fullmatch(text) else ""


def _time_of(mark: str) -> float:
    """Return a mark as seconds since 1970; 0 for none."""
    try:
        return datetime.fromisoformat(mark).timestamp()
    except ValueError:
        return 0.0


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder against concurrent appends: `status` and `logs -f` may run at the same time."""
    private.make_folder(folder)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
