"""Whether Slurm accepts a request: what can never run is refused, what only has to wait is a warning."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from launcher.executors.refusal import refused
from launcher.executors.slurm.refusals import REFUSALS
from launcher.executors.slurm.state import call, words
from launcher.executors.time_limit import seconds_of

# A start that is this near is not announced, and one this far away is no estimate: Slurm assumes a year for a job
# without a time limit (22.05: 2197 behind two of them).
_SOON_SECONDS, _NO_ESTIMATE_SECONDS = 120, 300 * 86_400
# sbatch(1), --test-only.
_STARTS = re.compile(r"to start at (\S+)")
# Errors with which sbatch itself accepts a job, which then waits: slurm_errno.c, and job_mgr.c, job_allocate
# ("job remains queued"). Slurm 22.05.
_WAITS = (
    "Requested nodes are busy",
    "Required node not available",
    "Required partition not available",
    "Requested partition configuration not available now",
    "Requested reservation is in use",
    "Requested reservation not usable now",
    "Requested account has breached requested QOS usage threshold",
    "Job can not start due to maintenance reservation",
    "Job can not start immediately",
    "Immediate execution impossible",
    "Job is in held state",
)
# Also the answer for nodes that exist and are drained or down, for which sbatch itself accepts the job.
_NO_SUCH_NODES = "Requested node configuration is not available"
# sinfo(1), NODE STATE CODES, without their suffixes (`*`: does not respond).
_ABLE = re.compile(r"(idle|mixed|allocated|completing|planned|reserved|allocated\+)\W*", re.IGNORECASE)
_SHORT = {"p": "partition", "t": "time", "M": "clusters", "N": "nodes", "c": "cpus-per-task"}


def admitted(options: Sequence[str]) -> list[str]:
    """Let Slurm validate a request, and return what it has to wait for; nothing is submitted.

    Raises:
        CannotStart: it can never run, with Slurm's message.
    """
    done = call(["sbatch", "--test-only", *options, "--wrap", "true"])
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode == 0:
        return [*_start(said), *_too_long(options)]
    if any(text in said for text in _WAITS):
        return [f"{words(done)}: it is queued until that changes", *_too_long(options)]
    if _NO_SUCH_NODES in said and (unable := _unable(options)) and _would_fit(options):
        return [f"not enough suitable nodes are up: {unable}; it is queued until they are"]
    raise refused("Slurm refuses the job", words(done), options, REFUSALS)


def _start(said: str) -> Iterator[str]:
    """Yield when the job is expected to start, if not about now."""
    found = _STARTS.search(said)
    try:
        at = datetime.fromisoformat(found[1]).timestamp() if found else 0.0
    except ValueError:
        return
    wait = at - time.time()
    if found is None or wait < _SOON_SECONDS:
        return
    if wait > _NO_ESTIMATE_SECONDS:
        yield "the nodes are busy, and when is not known: jobs without a time limit run or wait before it"
    else:
        yield f"the nodes are busy: expected start {found[1]} (in {_duration(wait)})"


def _too_long(options: Sequence[str]) -> Iterator[str]:
    """Yield that the time limit exceeds the partition's, with which Slurm queues a job for ever."""
    asked = seconds_of(_value(options, "time", "SBATCH_TIMELIMIT"))
    if not asked:
        return
    limits = [line.strip() for line in _sinfo(options, "%l").splitlines() if line.strip()]
    most = [seconds_of(limit) for limit in limits]
    if most and all(each is not None and each < asked for each in most):
        yield (
            f"the time limit exceeds that of the partition, {limits[0]}: it stays queued (PartitionTimeLimit), unless "
            f"its QOS allows more; works: cluster.time_limit={limits[0]}"
        )


def _unable(options: Sequence[str]) -> str:
    """Return the nodes of the partition that are down, drained or reserved, with the reason; "" if all are up."""
    found = []
    for line in _sinfo(options, "%T|%D|%N|%E").splitlines():
        state, _, rest = line.partition("|")
        number, nodes, why = (*rest.split("|", 2), "", "", "")[:3]
        if not _ABLE.fullmatch(state.strip()):
            found.append(f"{number} {state} ({nodes}{'' if why in ('', 'none') else f': {why}'})")
    return ", ".join(found)


def _would_fit(options: Sequence[str]) -> bool:
    """Return whether the partition has enough nodes of the size that is asked for, whatever their state."""
    wanted = _whole(_value(options, "nodes")), _whole(_value(options, "cpus-per-task"))
    memory, devices = _megabytes(_value(options, "mem")), _value(options, "gres")
    suitable = 0
    for line in _sinfo(options, "%D|%c|%m|%G").splitlines():
        number, cpus, size, gres = (*line.split("|"), "", "", "", "")[:4]
        fits = _whole(cpus) >= wanted[1] and _whole(size) >= memory
        suitable += _whole(number) if fits and _gres_fits(devices, gres) else 0
    return suitable >= max(wanted[0], 1)


def _gres_fits(wanted: str, there: str) -> bool:
    """Return whether a node's resources hold those that are asked for: `gpu:8`, `gpu:a100:8(S:0-1)`."""
    for each in filter(None, wanted.split(",")):
        kind, _, rest = each.partition(":")
        model, _, count = rest.rpartition(":")
        rows = [re.sub(r"\(.*?\)", "", row).split(":") for row in re.split(r",(?![^(]*\))", there)]
        have = [_whole(row[-1]) for row in rows if row[0] == kind and (not model or model in row[1:-1])]
        if sum(have) < (_whole(count) or 1):
            return False
    return True


def _whole(text: str) -> int:
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else 0


def _megabytes(text: str) -> int:
    """Return the megabytes of a size in sbatch's format, in megabytes unless it has a unit."""
    scale = {"K": 1 / 1024, "G": 1024, "T": 1024**2}.get(text[-1:].upper(), 1)
    return int(_whole(text) * scale)


def _sinfo(options: Sequence[str], form: str) -> str:
    partition = _value(options, "partition", "SBATCH_PARTITION")
    clusters = _value(options, "clusters", "SBATCH_CLUSTERS")
    where = [*([f"--partition={partition}"] if partition else []), *([f"--clusters={clusters}"] if clusters else [])]
    done = call(["sinfo", *where, "-h", "-o", form if partition else f"%P|{form}"])
    if done.returncode:
        return ""
    if partition:
        return done.stdout
    # Of all partitions the default one, which is marked.
    rows = [line.partition("|") for line in done.stdout.splitlines()]
    return "\n".join(rest for name, _, rest in rows if name.strip().endswith("*"))


def _value(options: Sequence[str], name: str, variable: str = "") -> str:
    """Return the value of an option of sbatch, the last one; else of its environment variable; "" if unset."""
    found, before = os.environ.get(variable, ""), ""
    for option in options:
        key, equals, value = option.partition("=")
        short = "" if option.startswith("--") else _SHORT.get(option[1:2], "")
        if key == f"--{name}" and equals:
            found = value
        elif short == name and len(option) > 2:
            found = option[2:]
        elif before == name:
            found = option
        before = name if (key == f"--{name}" and not equals) or (short == name and len(option) == 2) else ""
    return found


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
