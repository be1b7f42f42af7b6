"""Runs for Python: starts a job in a process of its own that outlives this one, and follows, stops and lists runs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from launcher.executors.record import Record, read_record
from launcher.importing.job_file import whole_job_yaml
from launcher.job import Job, output_dir
from launcher.job.finding import Finding, Findings
from launcher.notebook import Shown
from launcher.observe.find import all_runs, find_run
from launcher.observe.logs import Wanted, fetch, read_lines, sources
from launcher.observe.state import State, state_of
from launcher.observe.stop import stop_run
from launcher.outputs.free import free_folder
from launcher.records import dataclass

_POLL_SECONDS = 0.2
_ASK_SECONDS = 1.0


class NotStarted(Exception):
    """The job was refused, or could not be started; nothing runs. Has the message and the findings."""

    def __init__(self, message: str, findings: Findings) -> None:
        errors = [each.message for each in findings if each.severity == "error" and each.message != message]
        super().__init__("\n  ".join([message, *errors]))
        self.findings = findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Shown):
    """A started run; it belongs to the user, not to this process.

    Attributes:
        id: as `launch ps` lists it.
        folder: absolute path of its folder.
    """

    id: str
    folder: str

    def _record(self) -> Record:
        return find_run(self.id)

    def status(self) -> State:
        """Return its current state: queued, running, done, failed, stopped or lost, with exit code and reason.

        Raises:
            UnknownRun: its folder is gone.
        """
        return state_of(self._record())

    def logs(self, rank: int | None = None, tail: int | None = None) -> list[str]:
        """Return lines of its output.

        Args:
            rank: only of this global rank; None: of all nodes.
            tail: only the last lines of each log; None: all.

        Raises:
            NoSuchRank: it has no such rank.
            UnknownRun: its folder is gone.
        """
        record = self._record()
        files = sources(record, rank)
        fetch(record)
        return list(read_lines(files, Wanted(tail=tail)))

    def stop(self) -> None:
        """Request its end; ranks get time to save. Returns at once: `wait` waits.

        Raises:
            CannotStop: it has ended, belongs to another user, or is on another machine.
        """
        stop_run(self._record())

    def wait(self, timeout: float | None = None) -> State:
        """Wait for its end and return how it ended.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            TimeoutError: it has not ended by then; it continues.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        record = self._record()
        while not state_of(record, deep=False).ended:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} has not ended within {timeout:g} s")
            time.sleep(_ASK_SECONDS)
        return state_of(record)


def runs() -> list[Run]:
    """Return the runs that this user started, oldest first."""
    return [_run(record) for record in all_runs()[0]]


def start(job: Job) -> Run:
    """Start a job as `launch run` does, and return once it runs or is queued.

    Raises:
        NotStarted: it is refused or cannot be started.
    """
    folder = job.output_dir or free_folder(Path(output_dir(job)))
    placed = dataclasses.replace(job, output_dir=folder)
    # Only for this user: a job may name hosts and paths that others must not see.
    with tempfile.TemporaryDirectory(prefix="launch-run-") as scratch:
        file, answer, errors = (Path(scratch, name) for name in ("job.yaml", "answer.json", "errors.txt"))
        file.write_text(whole_job_yaml(placed), encoding="utf-8")
        words = [sys.executable, "-m", "launcher", "run", "--json", f"+job={file}"]
        with answer.open("wb") as out, errors.open("wb") as err:
            # A session of its own: neither the end of a notebook's kernel nor its Ctrl-C ends the training.
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        while child.poll() is None:
            record = read_record(Path(folder).absolute())
            if record is not None and record.pid == child.pid:
                threading.Thread(target=child.wait, daemon=True).start()
                return _run(record)
            time.sleep(_POLL_SECONDS)
        return _ended(answer, errors)


def _ended(answer: Path, errors: Path) -> Run:
    """Return the run of a command that has ended: submitted to a queue, or over already.

    Raises:
        NotStarted: it started none.
    """
    try:
        tree = json.loads(answer.read_text(encoding="utf-8"))
    except ValueError:
        message = errors.read_text(encoding="utf-8", errors="replace").strip()
        raise NotStarted(message or "the command ended without an answer", Findings()) from None
    if "id" in tree:
        return _run(find_run(tree["id"]))
    found = Findings(map(Finding.from_tree, tree.get("findings", ())))
    raise NotStarted(tree.get("message") or "refused", found)


def _run(record: Record) -> Run:
    return Run(id=record.id, folder=record.folder)
