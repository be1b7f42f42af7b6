"""State of Slurm jobs: one query of squeue for all, then of scontrol and the accounting for those that it lacks."""

import contextlib
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from datetime import datetime

from launcher.plan.executor import Observed, Submitted

_SECONDS, _LOOK_SECONDS = 60, 20
# Message of squeue for a single job that it has purged; other messages do not concern the job.
_FORGOTTEN = ("Invalid job id specified",)
# JobState of squeue(1), JOB STATE CODES. In other states the job has ended; the run directory has the result.
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD")
_GOING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_ENDED = {
    "COMPLETED": "done",
    "CANCELLED": "stopped",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "TIMEOUT": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "PREEMPTED": "failed",
    "LAUNCH_FAILED": "failed",
}
# Ends that Slurm decides; COMPLETED and FAILED only repeat the exit code of the batch script.
_ENDED_BY_SLURM = frozenset(_ENDED) - {"COMPLETED", "FAILED"}
_NO_REASON = ("", "None", "(null)")
_FIELD = re.compile(r"(\w+)=(\S*)")
_Row = tuple[str, str, str]


def jobs_seen(place: Sequence[str], jobs: Sequence[str]) -> dict[str, Observed]:
    """Return the states of jobs of one cluster; their nodes as Slurm abbreviates them.

    Args:
        place: option that names the cluster.
        jobs: numbers, with the index in an array.
    """
    done = call(["squeue", *place, "-h", "-r", "-j", ",".join(jobs), "-t", "all", "-o", "%i|%T|%r|%N"], _LOOK_SECONDS)
    if done.returncode and not any(sign in done.stderr for sign in _FORGOTTEN):
        failed = Observed(state="", why=f"Slurm cannot be queried: {words(done)}", asked=False)
        return dict.fromkeys(jobs, failed)
    rows = _rows(done.stdout)
    missing = [job for job in jobs if job not in rows]
    if missing:
        rows = {**_by_scontrol(place, missing), **rows}
    unsure = [job for job in jobs if job not in rows or rows[job][0] == "CANCELLED"]
    # It lags behind the controller and may never learn of an end: of a job that has gone, only an end counts.
    for job, accounted in _accounted(place, unsure).items():
        state = rows[job][0] if job in rows else ""
        if accounted[0].partition(" by ")[0] in ((state,) if state else _ENDED):
            rows[job] = accounted
    return {job: _observed(*rows.get(job, ("", "", ""))) for job in jobs}


def _rows(text: str) -> dict[str, _Row]:
    """Return the rows of a listing by job, of several of one job the last."""
    found = (line.split("|") for line in text.splitlines() if line.count("|") == 3)
    return {job.strip(): (state, why, nodes) for job, state, why, nodes in found}


def _by_scontrol(place: Sequence[str], jobs: Sequence[str]) -> dict[str, _Row]:
    one = jobs if len(jobs) == 1 else ()
    done = call(["scontrol", *place, "-o", "show", "job", *one], _LOOK_SECONDS)
    found: dict[str, _Row] = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        fields = dict(_FIELD.findall(line))
        row = (fields.get("JobState", ""), fields.get("Reason", ""), fields.get("NodeList", ""))
        names = (fields.get("JobId", ""), f"{fields.get('ArrayJobId', '')}_{fields.get('ArrayTaskId', '')}", *one)
        found |= {name: row for name in names if name in jobs and row[0]}
    return found


def _accounted(place: Sequence[str], jobs: Iterable[str]) -> dict[str, _Row]:
    """Return state, reason and nodes of jobs from Slurm's accounting, as far as there is one that knows them."""
    text = ",".join(jobs)
    if not text or shutil.which("sacct") is None:
        return {}
    done = call(
        ["sacct", *place, "-X", "-n", "-P", "-D", "-j", text, "-o", "JobID,State,Reason,NodeList"], _LOOK_SECONDS
    )
    return {} if done.returncode else _rows(done.stdout)


def _observed(state: str, why: str, nodes: str) -> Observed:
    # sacct(1): `CANCELLED by UID`.
    state, _, by = state.partition(" by ")
    said = [
        f"Slurm: {state}" if state else "",
        f"by {_user(by)}" if by else "",
        why if why not in _NO_REASON else "",
    ]
    known = "queued" if state in _WAITING else "running" if state in _GOING else _ENDED.get(state, "")
    places = () if nodes in _NO_REASON else (nodes,)
    return Observed(state=known, why=" ".join(filter(None, said)), nodes=places, final=state in _ENDED_BY_SLURM)


def find_job(script: str, since: float) -> Submitted | None:
    """Return the newest job of this user whose batch script is that file; None if Slurm lists none.

    Args:
        since: seconds since 1970; Slurm's times are of seconds, by its controller's clock.
    """
    done = call(["squeue", "--me", "-h", "-t", "all", "-o", "%i|%V|%o"], _LOOK_SECONDS)
    found = []
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        job, at, command = (*line.split("|", 2), "", "")[:3]
        with contextlib.suppress(ValueError):  # a time that is not known
            if command.strip() == script and datetime.fromisoformat(at).timestamp() >= since - _SECONDS:
                found.append((datetime.fromisoformat(at), job.strip()))
    return Submitted(handle={"job": max(found)[1]}) if found else None


def expanded(nodes: str) -> tuple[str, ...]:
    """Return the names of nodes that Slurm abbreviates."""
    done = call(["scontrol", "show", "hostnames", nodes])
    return tuple(done.stdout.split()) if done.returncode == 0 else (nodes,)


def call(argv: Sequence[str], seconds: float = _SECONDS) -> "subprocess.CompletedProcess[str]":
    """Run one of Slurm's commands; exit code 127 if it cannot be run or does not respond."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 127, "", f"{argv[0]} did not respond within {seconds:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


def words(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the message of a command that failed."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return " · ".join(lines) or f"exit code {done.returncode}"


def _user(number: str) -> str:
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError):
        return f"user {number}"
