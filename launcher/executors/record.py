"""Records in a run directory: run.json at the start, status.json while it runs, exits/ for each node."""

import dataclasses
import getpass
import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.processes import Process, identified
from launcher.job.migrations import RUN_RECORDS, migrated, versioned
from launcher.job.secret import without_secrets
from launcher.plan import LaunchPlan
from launcher.plan.executor import Place

RUN, RECORD, STATUS, EXITS = "run", "run.json", "status.json", "exits"
CAUSES, REQUEST = "causes", "stop.json"
_MOST_RANKS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who started a run, its settings and location, and how to find it again; pure data.

    Attributes:
        pid, start: process that started it on `host`, and the start time of that process (clock ticks since boot).
        handle: the job's identity in the queue.
        what: description of the run.
        command: words of the command line.
        iteration_line, rank_log, checkpoints: as in the plan's `watch`.
        gone: its folder was removed or holds another run: only what the register kept of it is known.
    """

    id: str
    executor: str
    folder: str
    host: str
    user: str
    pid: int
    start: int
    submitted: str
    nodes: int
    devices_per_node: int
    what: str = ""
    command: tuple[str, ...] = ()
    handle: Mapping[str, Any] = field(default_factory=dict)
    iteration_line: str = ""
    rank_log: str = ""
    checkpoints: str | None = None
    gone: bool = False

    @property
    def process(self) -> Process:
        """The process that started the run."""
        return Process(pid=self.pid, start=self.start)

    def as_json(self) -> str:
        """Return the text of run.json."""
        return json.dumps(self.as_tree(), indent=2) + "\n"

    def as_tree(self) -> dict[str, Any]:
        """Return the record as plain data, with the version of its form."""
        tree = dataclasses.asdict(self)
        del tree["gone"]
        return versioned(tree, RUN_RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """End of one node in one attempt.

    Attributes:
        how: "" by itself, `stopped` on request, `lost` if only the end of its connection is known.
        at: seconds since 1970 by the clock of the file system, which all nodes share.
    """

    attempt: int
    node: int
    code: int
    host: str
    how: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A user's request to stop a run.

    Attributes:
        at: seconds since 1970 by the clock of the file system, as of `Exit`.
    """

    by: str
    host: str
    at: float


def record_of(plan: LaunchPlan, place: Place, command: tuple[str, ...]) -> Record:
    """Return the record of a run that this process is about to start."""
    own = identified(os.getpid())
    return Record(
        id=place.id,
        executor=plan.start.executor,
        folder=place.folder,
        host=socket.gethostname(),
        user=_user(),
        pid=os.getpid(),
        start=own.start if own else 0,
        submitted=now(),
        nodes=len(plan.nodes),
        devices_per_node=plan.start.devices_per_node,
        what=plan.what,
        command=tuple(without_secrets(command)),
        iteration_line=plan.watch.iteration_line,
        rank_log=plan.watch.rank_log,
        checkpoints=plan.watch.checkpoints and os.path.join(place.launch_dir, plan.watch.checkpoints),
    )


def read_record(folder: Path) -> Record | None:
    """Return the record of a run directory; None if there is none, or it cannot be read.

    Raises:
        WrongSchema: a newer version of this program wrote it.
    """
    try:
        tree = json.loads(private.read(folder / RUN / RECORD))
        return record_from(tree, folder, str(folder / RUN / RECORD))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def record_from(tree: dict[str, Any], folder: Path, where: str, *, gone: bool = False) -> Record | None:
    """Return the record in plain data; None if it is none.

    Args:
        where: the file that holds it, for messages.

    Raises:
        WrongSchema: a newer version of this program wrote it.
    """
    try:
        tree = migrated(tree, RUN_RECORDS, where)
        names = {field.name for field in dataclasses.fields(Record)}
        tree = {name: value for name, value in tree.items() if name in names}
        record = Record(**{**tree, "command": tuple(tree.get("command", ())), "folder": str(folder), "gone": gone})
        return record if _is_valid(record) else None
    except (TypeError, ValueError, AttributeError, re.error):
        return None


def _is_valid(record: Record) -> bool:
    """Return whether the values of a record, which another user may have written, are such as this program writes."""
    texts = (record.id, record.executor, record.host, record.user, record.submitted, record.what, record.rank_log)
    numbers = (record.pid, record.start, record.nodes, record.devices_per_node)
    re.compile(record.iteration_line)
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int) for number in numbers)
        and 0 < record.nodes * record.devices_per_node <= _MOST_RANKS
        and not os.path.isabs(record.rank_log)
        and isinstance(record.handle, Mapping)
        and isinstance(record.checkpoints, str | None)
    )


def write_record(record: Record) -> None:
    """Write run.json again, when more is known than at the start."""
    _replace(Path(record.folder) / RUN / RECORD, record.as_json())


def write_status(
    folder: Path, state: str, code: int | None, *, attempt: int = 0, restarts: int = 0, why: str = ""
) -> None:
    """Write status.json, as the rendered files do."""
    tree = {"state": state, "code": code, "attempt": attempt, "restarts": restarts, "reason": why, "at": now()}
    _replace(folder / RUN / STATUS, json.dumps(tree) + "\n")


def read_status(folder: Path) -> dict[str, Any]:
    """Return the content of status.json; empty if there is none, or it has other values than this program writes."""
    try:
        tree = json.loads(private.read(folder / RUN / STATUS))
    except (OSError, ValueError, RecursionError):
        return {}
    numbers = ("attempt", "restarts")
    valid = isinstance(tree, dict) and all(isinstance(tree.get(name, 0), int) for name in numbers)
    return tree if valid else {}


def write_request(folder: Path) -> None:
    """Write, before the first signal, that a user asked the run to stop."""
    _replace(folder / RUN / REQUEST, json.dumps({"by": _user(), "host": socket.gethostname(), "at": now()}) + "\n")


def withdraw_request(folder: Path) -> None:
    """Remove the request: it could not be passed on, or the run starts again."""
    (folder / RUN / REQUEST).unlink(missing_ok=True)


def read_request(folder: Path) -> Request | None:
    """Return who asked the run to stop; None: nobody did."""
    file = folder / RUN / REQUEST
    try:
        tree = json.loads(private.read(file))
        return Request(by=str(tree["by"]), host=str(tree["host"]), at=file.stat().st_mtime_ns / 1e9)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_exit(folder: Path, attempt: int, node: int, code: int, *, stopped: bool) -> None:
    """Write the exit of a node on this machine."""
    how = "stopped" if stopped else ""
    _replace(folder / RUN / EXITS / f"{attempt}.{node}", f"{code} {socket.gethostname()} {how}\n")


def read_exits(folder: Path) -> list[Exit]:
    """Return the exits of nodes, in order of time."""
    found = []
    for file in (folder / RUN / EXITS).glob("[0-9]*.[0-9]*"):
        try:
            attempt, node = (int(part) for part in file.name.split("."))
            code, host, *how = private.read(file).split()
            at = file.stat().st_mtime_ns / 1e9
            found.append(Exit(attempt=attempt, node=node, code=int(code), host=host, how=how[0] if how else "", at=at))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda end: end.at)


def write_causes(folder: Path, attempt: int, node: int, lines: Sequence[str]) -> None:
    """Write what the system of a node says of its end, if it says anything: one line each."""
    if lines:
        _replace(folder / RUN / CAUSES / f"{attempt}.{node}", "\n".join(lines) + "\n")


def read_causes(path: Path) -> list[str]:
    """Return what the system of a node says of its end."""
    try:
        return private.read(path).splitlines()
    except OSError:
        return []


def now() -> str:
    """Return the time, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _replace(path: Path, text: str) -> None:
    private.make_folder(path.parent)
    private.write(path, text)
