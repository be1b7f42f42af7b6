"""State of a run: from its queue while it is listed there, else from its directory, else from its processes."""

import socket
from dataclasses import dataclass
from pathlib import Path

from launcher import plugins
from launcher.executors.processes import identified
from launcher.executors.progress import last_iteration
from launcher.executors.record import Exit, Record, read_exits, read_status
from launcher.plan.executor import ENDED, Executor, Observed, find_executor


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
    folder = Path(record.folder)
    written = str(read_status(folder).get("state", ""))
    # A list of runs does not query the queue for those that are done: their state is final.
    state, why, nodes = ("done", "", ()) if written == "done" and not deep else _state(record, written)
    executor = find_executor(record.executor)
    if deep and executor is not None and state == "running":
        executor.fetch(record.handle)
    status = read_status(folder)  # an executor may just have written how it ended
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
        if written in ENDED:
            return written, "" if seen.state == written else seen.why, seen.nodes
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
