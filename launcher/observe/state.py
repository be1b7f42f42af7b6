"""State of a run: from its queue while it is listed there, else from its directory, else from its processes."""

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import plugins
from launcher.executors import private
from launcher.executors.processes import identified
from launcher.executors.progress import last_iteration
from launcher.executors.record import RUN, Exit, Record, read_exits, read_request, read_status, write_status
from launcher.executors.register import entry_of, remember
from launcher.plan.executor import ENDED, FINAL, Executor, Observed, find_executor


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of a run.

    Attributes:
        state: queued, running, done, failed, stopped or lost.
        code: exit code of the first failure; None while it runs.
        why: reason given by the queue, or why the run is lost.
        at: when its directory last changed its state, in UTC.
        restarts: how often all ranks were started again.
        nodes: machines, as the queue names them.
        exits: how nodes ended, in the order in which they did.
        iteration: the last line of an iteration.
    """

    state: str
    code: int | None = None
    why: str = ""
    at: str = ""
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    exits: tuple[Exit, ...] = ()
    iteration: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.state in ENDED


def state_of(record: Record, *, deep: bool = True) -> State:
    """Return the current state of a run.

    Args:
        deep: also read exits and logs.
    """
    if record.gone:
        return _of_gone(record)
    folder = Path(record.folder)
    written = str(read_status(folder).get("state", ""))
    # A list of runs does not query the queue for those that are done: their state is final.
    state, why, nodes = ("done", "", ()) if written == "done" and not deep else _state(record, written)
    executor = find_executor(record.executor)
    if deep and executor is not None and state == "running":
        executor.fetch(record.handle)
    status = read_status(folder)  # an executor may just have written how it ended
    state, why = _as_asked(folder, state, why)
    if state in FINAL and (state != written or (why and why != status.get("reason"))):
        _keep(record, folder, state, why, status)
    code = status.get("code") if state in ENDED else None
    return State(
        state=state,
        code=code if isinstance(code, int) else None,
        why=why or str(status.get("reason", "")),
        at=str(status.get("at", record.submitted)),
        restarts=int(status.get("restarts", 0)),
        nodes=nodes,
        exits=tuple(read_exits(folder)) if deep else (),
        iteration=(last_iteration(folder, record.iteration_line, record.rank_log) or "").strip() if deep else "",
    )


def _of_gone(record: Record) -> State:
    """Return the state of a run whose folder is gone, and let the register keep its end."""
    entry = entry_of(record.id)
    state, why, nodes = (entry.state, "", ()) if entry is not None and entry.state else _state(record, "")
    if state in FINAL:
        remember(record.id, Path(record.folder), record.as_tree(), state)
    return State(state=state, why="; ".join(filter(None, (why, f"its folder {record.folder} is gone"))), nodes=nodes)


def _as_asked(folder: Path, state: str, why: str) -> tuple[str, str]:
    """Return `stopped` for a run that a user asked to stop and that had not failed before."""
    asked = read_request(folder) if state in ("failed", "lost", "stopped") else None
    if asked is None:
        return state, why
    exits = read_exits(folder)
    last = max((end.attempt for end in exits), default=0)  # those before did fail, and were started again
    if any(end.attempt == last and end.code and end.how != "stopped" and end.at < asked.at for end in exits):
        return state, why
    return "stopped", f"by {asked.by} on {asked.host}"


def _keep(record: Record, folder: Path, state: str, why: str, status: Mapping[str, Any]) -> None:
    """Write down an end when it is first seen, for queues forget; but not in the folder of another user."""
    if not private.is_own(folder / RUN):
        return
    number = {name: int(status.get(name) or 0) for name in ("attempt", "restarts")}
    with contextlib.suppress(OSError, ValueError):  # a folder of another user, or a full disk
        write_status(folder, state, status.get("code"), **number, why=why or str(status.get("reason", "")))
    remember(record.id, folder, record.as_tree(), state)


def _observed(executor: Executor, record: Record) -> Observed:
    """Return the state from the executor; a plug-in that fails does not hide the other runs."""
    try:
        return executor.observe(record.handle)
    except Exception as error:
        plugin = plugins.culprit(error)
        if not plugin:
            raise
        return Observed(state="", why=f"{plugin} failed: {plugins.reason(error)}", asked=False)


def _not_installed(record: Record) -> str:
    return f"last known state; the executor {record.executor!r} is not installed here"


def _state(record: Record, written: str) -> tuple[str, str, tuple[str, ...]]:
    executor = find_executor(record.executor)
    if executor is None:
        return written or "running", "" if written in ENDED else _not_installed(record), ()
    if not executor.foreground:
        seen = _observed(executor, record)
        if not seen.asked:
            state = written or "queued"
            return state, "" if state in ENDED else f"last known state; {seen.why}", seen.nodes
        if seen.state in ("queued", "running"):
            return seen.state, seen.why, seen.nodes
        if seen.final and written not in ("done", "failed"):
            return seen.state, seen.why, seen.nodes
        if written in ENDED:
            return written, seen.why if seen.final or seen.state not in ("", written) else "", seen.nodes
        if seen.state:
            return seen.state, seen.why, seen.nodes
        return "lost", "the queue no longer lists it, and it recorded no end", ()
    if written in ENDED:
        return written, "", ()
    if record.host != socket.gethostname():
        return "running", f"last known state; whether it still runs is known on {record.host} only", ()
    if identified(record.pid) == record.process:
        return "running", "", ()
    return "lost", "the process that started it is gone and recorded no end", ()
