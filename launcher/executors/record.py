"""Records in a run directory: run.json at the start, status.json while it runs, exits/ for each node."""

import contextlib
import dataclasses
import getpass
import json
import os
import re
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from launcher.executors import private
from launcher.executors.processes import Process, identified
from launcher.job.migrations import RUN_RECORDS, migrated, versioned
from launcher.job.secret import without_secrets
from launcher.plan import LaunchPlan
from launcher.plan.executor import Place
from launcher.records import dataclass

RUN, RECORD, STATUS, EXITS = "run", "run.json", "status.json", "exits"
PLAN, JOB = "plan.json", "job.json"
CAUSES, REQUEST, PROGRESS, HEARTBEAT = "causes", "stop.json", "progress", "heartbeat"
# The program that started a run touches its heartbeat so often.
HEARTBEAT_SECONDS = 30
_MOST_RANKS = 10_000_000
_MOST_ATTEMPTS = 1_000_000
_LONGEST_EXIT = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who started a run, its settings and location, and how to find it again; pure data.

    Attributes:
        pid, start: process that started it on `host`, and the start time of that process (clock ticks since boot).
        handle: the job's identity in the queue.
        what: description of the run.
        command: words of the command line.
        iteration_line, rank_log, figures, checkpoints: as in the plan's `watch`.
        launch_dir: folder to which relative paths refer; "": an earlier version wrote the record.
        sweep: id of the first run of the sweep that it is one of; "": of none.
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
    figures: tuple[tuple[str, str, float], ...] = ()
    checkpoints: str | None = None
    launch_dir: str = ""
    sweep: str = ""
    gone: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What tells runs apart: ids repeat across state folders, and a later run may have taken a folder."""
        return self.id, os.path.realpath(self.folder)

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
        lines: the last lines of a failed node's logs that look like errors, as the node itself found them.
    """

    attempt: int
    node: int
    code: int
    host: str
    how: str
    at: float
    lines: tuple[str, ...] = ()

    def as_tree(self) -> dict[str, Any]:
        """Return the exit as plain data, without the lines of its logs."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "lines"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A user's request to stop a run.

    Attributes:
        at: seconds since 1970 by the clock of the file system, as of `Exit`; 0 where no file system has its time.
        sweep: the runs of its sweep that follow are not to start either.
    """

    by: str
    host: str
    at: float
    sweep: bool = False

    @property
    def shown(self) -> str:
        """Who asked, as the reason of the end."""
        return f"by {self.by} on {self.host}"


def record_of(plan: LaunchPlan, place: Place, command: tuple[str, ...]) -> Record:
    """Return the record of a run that this process is about to start."""
    own = identified(os.getpid())
    return Record(
        id=place.id,
        executor=plan.start.executor,
        folder=place.folder,
        host=socket.gethostname(),
        user=user_name(),
        pid=os.getpid(),
        start=own.start if own else 0,
        submitted=now(),
        nodes=len(plan.nodes),
        devices_per_node=plan.start.devices_per_node,
        launch_dir=place.launch_dir,
        what=plan.what,
        command=tuple(without_secrets(command)),
        iteration_line=plan.watch.iteration_line,
        rank_log=plan.watch.rank_log,
        figures=plan.watch.figures,
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
        tuples = {
            "command": tuple(tree.get("command", ())),
            "figures": tuple((name, pattern, float(scale)) for name, pattern, scale in tree.get("figures", ())),
        }
        record = Record(**{**tree, **tuples, "folder": str(folder), "gone": gone})
        return record if _is_valid(record) else None
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError, re.error):
        return None


def _is_valid(record: Record) -> bool:
    """Return whether the values of a record, which another user may have written, are such as this program writes."""
    texts = [record.id, record.executor, record.host, record.user, record.submitted, record.what, record.rank_log]
    texts += [record.launch_dir, record.sweep, *record.command, *(figure[0] for figure in record.figures)]
    numbers = (record.pid, record.start, record.nodes, record.devices_per_node)
    for pattern in (record.iteration_line, *(figure[1] for figure in record.figures)):
        re.compile(pattern)
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int) for number in numbers)
        and record.nodes > 0
        and 0 < record.nodes * record.devices_per_node <= _MOST_RANKS
        and not os.path.isabs(record.rank_log)
        and not any(sign in record.rank_log for sign in ("\0", "..", "**"))
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
    if not isinstance(tree, dict) or not all(isinstance(tree.get(name, 0), int) for name in numbers):
        return {}
    return tree if all(0 <= tree.get(name, 0) <= _MOST_ATTEMPTS for name in numbers) else {}


def write_heartbeat(folder: Path) -> None:
    """Touch the file by which other machines see that the program that started the run still runs."""
    with contextlib.suppress(OSError):  # a full disk, or no connection to it: the next one is due soon
        (folder / RUN / HEARTBEAT).touch(private.FILE)


def heartbeat_age(folder: Path) -> float | None:
    """Return the seconds since the last heartbeat; None: there is none, as of a run of an earlier version."""
    try:
        return time.time() - (folder / RUN / HEARTBEAT).stat().st_mtime
    except OSError:
        return None


def write_request(folder: Path, *, sweep: bool = False) -> None:
    """Write, before the first signal, that a user asked the run to stop."""
    _replace(folder / RUN / REQUEST, json.dumps(request_tree(sweep=sweep)) + "\n")


def request_tree(*, sweep: bool) -> dict[str, Any]:
    """Return a request of this user as plain data."""
    return {"by": user_name(), "host": socket.gethostname(), "at": now(), "sweep": sweep}


def withdraw_request(folder: Path) -> None:
    """Remove the request: it could not be passed on, or the run starts again."""
    (folder / RUN / REQUEST).unlink(missing_ok=True)


def read_request(folder: Path) -> Request | None:
    """Return the request to stop the run; None: there is none."""
    file = folder / RUN / REQUEST
    try:
        return request_from(json.loads(private.read(file)), file.stat().st_mtime_ns / 1e9)
    except (OSError, ValueError, RecursionError):
        return None


def request_from(tree: Mapping[str, Any], at: float = 0.0) -> Request | None:
    """Return the request in plain data; None if it is none."""
    try:
        return Request(by=str(tree["by"]), host=str(tree["host"]), at=at, sweep=tree.get("sweep") is True)
    except (KeyError, TypeError, AttributeError):
        return None


def write_exit(folder: Path, attempt: int, node: int, code: int, *, stopped: bool) -> None:
    """Write the exit of a node on this machine."""
    how = "stopped" if stopped else ""
    _replace(folder / RUN / EXITS / f"{attempt}.{node}", f"{code} {socket.gethostname()} {how}\n")


def read_exits(folder: Path) -> list[Exit]:
    """Return the exits of nodes, in order of time."""
    try:
        with os.scandir(folder / RUN / EXITS) as entries:
            found = [_exit(entry) for entry in entries]
    except OSError:
        return []
    return sorted((end for end in found if end is not None), key=lambda end: end.at)


def _exit(entry: "os.DirEntry[str]") -> Exit | None:
    """Return the exit in a file, of which a run of 10,000 nodes has as many: system calls, no objects."""
    attempt, _, node = entry.name.partition(".")
    if not (attempt.isdecimal() and node.isdecimal()):
        return None
    try:
        file = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return None
            first, *lines = os.read(file, _LONGEST_EXIT).decode("utf-8", "replace").split("\n")
        finally:
            os.close(file)
        code, host, *how = first.split()
        return Exit(
            attempt=int(attempt),
            node=int(node),
            code=int(code),
            host=host,
            how=how[0] if how else "",
            at=status.st_mtime_ns / 1e9,
            lines=tuple(filter(None, lines)),
        )
    except (OSError, ValueError):
        return None


def causes_file(folder: Path, attempt: int, node: int) -> Path:
    """Return the file with what the system of a node says of its end in one attempt."""
    return folder / RUN / CAUSES / f"{attempt}.{node}"


def write_causes(folder: Path, attempt: int, node: int, lines: Sequence[str]) -> None:
    """Write what the system of a node says of its end, if it says anything: one line each."""
    if lines:
        _replace(causes_file(folder, attempt, node), "\n".join(lines) + "\n")


def read_causes(path: Path) -> list[str]:
    """Return what the system of a node says of its end."""
    try:
        return private.read(path).splitlines()
    except OSError:
        return []


def now() -> str:
    """Return the time, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def user_name() -> str:
    """Return the name of this user; the number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _replace(path: Path, text: str) -> None:
    private.make_folder(path.parent)
    private.write(path, text)
