"""State of a run: from its queue while it is listed there, else from its directory, else from its processes."""

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher import plugins
from launcher.executors import private
from launcher.executors.processes import identified, runs_script_of
from launcher.executors.progress import last_iteration
from launcher.executors.record import (
    HEARTBEAT_SECONDS,
    RUN,
    Exit,
    Record,
    heartbeat_age,
    now,
    read_exits,
    read_request,
    read_status,
    write_status,
)
from launcher.executors.register import entry_of, remember
from launcher.executors.register_end import register_end
from launcher.executors.requests import UNSURE, as_asked_when_gone
from launcher.observe.owner import not_installed
from launcher.plan.executor import ENDED, FINAL, Observed, find_executor
from launcher.records import dataclass

# Without so many heartbeats it is not known whether a run of another machine still runs.
_SILENT_SECONDS = 10 * HEARTBEAT_SECONDS
_SETTLED_SECONDS = 60
# Exit code of what SIGTERM ended.
_STOPPED = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of a run.

    Attributes:
        state: queued, running, done, failed, stopped or lost.
        code: exit code of the first failure; None while it runs.
        why: reason given by the queue, or why the run is lost.
        at: when its directory last changed its state, in UTC.
        restarts: how often all ranks were started again, since the run was started or resumed.
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

    @property
    def shown(self) -> str:
        """The state for people, with its reason: `queued (Priority)`."""
        return f"{self.state} ({self.why})" if self.why else self.state


def state_of(record: Record, *, deep: bool = True) -> State:
    """Return the current state of a run.

    Args:
        deep: also read exits and logs.
    """
    (state,) = _states([record], deep=deep)
    return state


def states_of(records: Sequence[Record]) -> list[State]:
    """Return the current states of runs without exits and logs; each queue is asked once."""
    return list(_states(records, deep=False))


def _states(records: Sequence[Record], *, deep: bool) -> Iterator[State]:
    known = [_known(record) for record in records]
    # A list of runs does not query the queue for those that are done: their state is final.
    asked = [
        record
        for record, state in zip(records, known, strict=True)
        if not (state in ENDED if record.gone else state == "done" and not deep)
    ]
    seen = _observed(asked)
    for record, state in zip(records, known, strict=True):
        if record.gone:
            yield _of_gone(record, seen.get(record.key))
        elif state == "done" and not deep:
            yield _of_folder(record, state, (state, "", ()), deep=deep)
        else:
            yield _of_folder(record, state, _state(record, state, seen.get(record.key)), deep=deep)


def _known(record: Record) -> str:
    """Return the state that is written down: in the folder, or where that is gone in the register."""
    if not record.gone:
        return str(read_status(Path(record.folder)).get("state", ""))
    entry = entry_of(record.id)
    return entry.state if entry is not None else ""


def _of_folder(record: Record, written: str, found: tuple[str, str, tuple[str, ...]], *, deep: bool) -> State:
    state, why, nodes = found
    folder = Path(record.folder)
    executor = find_executor(record.executor)
    if deep and executor is not None and state == "running":
        executor.fetch(record.handle)
    status = read_status(folder)  # an executor may just have written how it ended
    unsure = state == "lost" or (state in UNSURE and read_request(folder) is not None)
    exits = read_exits(folder) if deep or unsure else []
    settled = executor is None or not executor.foreground or _is_settled(exits)
    begun = int(status.get("attempt", 0))
    if state == "lost" and settled and (by_nodes := _as_nodes_ended(record, exits, begun)) is not None:
        state, status["code"], why = by_nodes
    state, why = _as_asked(folder, state, why, exits)
    if state in FINAL:
        _keep(record, state, why, status, written)
    code = status.get("code") if state in ENDED else None
    return State(
        state=state,
        code=code if isinstance(code, int) else None,
        why=why or str(status.get("reason", "")),
        at=str(status.get("at", record.submitted)),
        restarts=int(status.get("restarts", 0)),
        nodes=nodes,
        exits=tuple(exits) if deep else (),
        iteration=(last_iteration(folder, record.iteration_line, record.rank_log) or "").strip() if deep else "",
    )


def _of_gone(record: Record, seen: Observed | None) -> State:
    """Return the state of a run whose folder is gone, and let the register keep its end."""
    known = entry_of(record.id)
    gone = f"its folder {record.folder} is gone"
    if known is not None and known.state:
        why = "; ".join(filter(None, (known.why, gone)))
        return State(state=known.state, code=known.code, why=why, at=known.at)
    state, why, nodes = _state(record, "", seen)
    state, why = as_asked_when_gone(record, state, why)
    if state in FINAL:
        remember(record.id, Path(record.folder), record.as_tree(), state, why=why, at=now())
    return State(state=state, why="; ".join(filter(None, (why, gone))), nodes=nodes)


def _is_settled(exits: Sequence[Exit]) -> bool:
    """Return whether what ends a run whose launcher was killed would have written its end by now."""
    return time.time() - max((end.at for end in exits), default=0.0) > _SETTLED_SECONDS


def _as_nodes_ended(record: Record, exits: Sequence[Exit], begun: int) -> tuple[str, int, str] | None:
    """Return state, code and reason of a run from the ends of its nodes; None if they do not tell.

    Args:
        begun: its last attempt, of which there may be no end.
    """
    last = max((begun, *(end.attempt for end in exits)))
    ends = [end for end in exits if end.attempt == last]
    failed = next((end.code for end in ends if end.code and end.how != "stopped"), 0)
    if failed:
        return "failed", failed, "as its nodes ended; what started them recorded no end"
    if len({end.node for end in ends}) < record.nodes:
        return None
    if any(end.how == "stopped" for end in ends):
        return "stopped", _STOPPED, "its nodes were asked to end; nothing says by whom"
    return "done", 0, ""


def _as_asked(folder: Path, state: str, why: str, exits: Sequence[Exit]) -> tuple[str, str]:
    """Return `stopped` for a run that a user asked to stop and that had not failed before."""
    asked = read_request(folder) if state in UNSURE else None
    if asked is None:
        return state, why
    last = max((end.attempt for end in exits), default=0)  # those before did fail, and were started again
    if any(end.attempt == last and end.code and end.how != "stopped" and end.at < asked.at for end in exits):
        return state, why
    return "stopped", asked.shown


def _keep(record: Record, state: str, why: str, status: Mapping[str, Any], written: str) -> None:
    """Write down an end when it is first seen, for queues forget and folders are removed; in own folders only."""
    folder = Path(record.folder)
    is_news = state != written or bool(why and why != status.get("reason"))
    entry = None if is_news else entry_of(record.id)
    is_registered = entry is not None and (entry.folder != folder or bool(entry.state))
    if is_registered or not private.is_own(folder / RUN):
        return
    if is_news:
        number = {name: int(status.get(name) or 0) for name in ("attempt", "restarts")}
        with contextlib.suppress(OSError, ValueError):  # a folder of another user, or a full disk
            write_status(folder, state, status.get("code"), **number, why=why or str(status.get("reason", "")))
    register_end(record, state)


def _observed(records: Sequence[Record]) -> dict[tuple[str, str], Observed]:
    """Return what queues say of runs; a plug-in that fails does not hide the other runs."""
    found: dict[tuple[str, str], Observed] = {}
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.executor, []).append(record)
    for name, own in groups.items():
        executor = find_executor(name)
        if executor is None or executor.foreground:
            continue
        try:
            handles = [record.handle for record in own]
            seen = executor.observe_all(handles) if len(own) > 1 else [executor.observe(handles[0])]
        except Exception as error:
            plugin = plugins.culprit(error)
            if not plugin:
                raise
            failed = Observed(state="", why=f"{plugin} failed: {plugins.reason(error)}", asked=False)
            seen = [failed] * len(own)
        found |= {record.key: state for record, state in zip(own, seen, strict=True)}
    return found


def _on_other_machine(record: Record) -> str:
    """Return what is known of a run that another machine started, by its heartbeat."""
    silent = heartbeat_age(Path(record.folder))
    if silent is None or silent < _SILENT_SECONDS:
        return f"last known state; whether it still runs is known on {record.host} only"
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - silent))
    return f"unknown since {since}: {record.host} wrote no heartbeat; whether it still runs is known there only"


def _state(record: Record, written: str, seen: Observed | None) -> tuple[str, str, tuple[str, ...]]:
    executor = find_executor(record.executor)
    if executor is None:
        return written or "running", "" if written in ENDED else f"last known state; {not_installed(record)}", ()
    if seen is not None:
        if not seen.asked:
            state = written or "queued"
            return state, "" if state in ENDED else f"last known state; {seen.why}", seen.nodes
        if seen.state in ("queued", "running"):
            return seen.state, seen.why, seen.nodes
        if seen.final and written not in ("done", "failed"):
            return seen.state, seen.why, seen.nodes
        if written in ENDED:
            # That a batch script exits with a code is no news where it wrote down why.
            unexplained = seen.state not in ("", written) and not read_status(Path(record.folder)).get("reason")
            return written, seen.why if seen.final or unexplained else "", seen.nodes
        if seen.state:
            return seen.state, seen.why, seen.nodes
        return "lost", "the queue no longer lists it, and it recorded no end", ()
    if written in ENDED:
        return written, "", ()
    if record.host != socket.gethostname():
        return "running", _on_other_machine(record), ()
    if identified(record.pid) == record.process:
        return "running", "", ()
    if runs_script_of(Path(record.folder) / RUN):
        return "running", "the process that started it is gone, and its script ends it", ()
    written = str(read_status(Path(record.folder)).get("state", ""))
    if written in ENDED:  # just now
        return written, "", ()
    return "lost", "the process that started it is gone and recorded no end", ()
