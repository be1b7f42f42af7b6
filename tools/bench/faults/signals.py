"""Every signal to every part of a job: from the launcher to a rank."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tools.bench.faults.case import ASKED, LAST, Case
from tools.bench.faults.stage import Stage

NUMBER = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "TERM": 15}
# Names of launcher/observe/reasons.py.
REASONS = {"HUP": "terminated", "INT": "interrupted", "QUIT": "interrupted", "KILL": "killed", "TERM": "terminated"}
TITLES = {
    "launcher": "the launcher",
    "watchdog": "the launcher's watchdog",
    "conductor": "the script that starts the nodes",
    "connection": "the connection to a node (ssh, srun)",
    "wrapper": "the script of a node",
    "command": "torchrun of a node",
    "rank": "a rank",
    "stepd": "slurmstepd of a node",
}
# How a run may end.
GOES_ON = {"state": "done", "code": 0, "saved": LAST, "finish": True}
FAILED = {"state": "failed", "code": 1}
STOPPED = {"state": "stopped", "saved": ASKED}
_ONCE = {"slurm": ("cluster.requeue=false",)}
# With these a run is resumed afterwards: one for each way to end.
_RESUMED = (
    ("local", "INT", "launcher"),
    ("local", "KILL", "launcher"),
    ("local", "KILL", "command"),
    ("ssh", "TERM", "launcher"),
    ("ssh", "KILL", "conductor"),
    ("ssh", "KILL", "wrapper"),
    ("slurm", "KILL", "command"),
    ("slurm", "TERM", "conductor"),
)


def _launcher(executor: str, name: str) -> Mapping[str, Any]:
    code = 128 + NUMBER[name]
    if executor in ("slurm", "kubernetes"):
        return {**GOES_ON, "code": code}
    return {**STOPPED, "code": code, "reason": "killed" if name in ("QUIT", "KILL") else ""}


def _conductor(executor: str, name: str) -> Mapping[str, Any]:
    if name == "QUIT":  # bash(1), SIGNALS: in all cases, bash ignores SIGQUIT
        return GOES_ON
    if name == "KILL":
        return {**FAILED, "reason": "killed"} if executor == "ssh" else FAILED
    return {**STOPPED, "code": 130 if name == "INT" else 143}


def _connection(executor: str, name: str) -> Mapping[str, Any]:
    # Over ssh our script lets it ignore what the terminal sends; srun is started in the background of a shell.
    if name in (("INT", "TERM", "HUP") if executor == "ssh" else ("INT",)):
        return GOES_ON
    return {**FAILED, "reason": "node-lost"} if executor == "ssh" else FAILED


def _wrapper(_executor: str, name: str) -> Mapping[str, Any]:
    return GOES_ON if name == "QUIT" else FAILED


def _rank(_executor: str, name: str) -> Mapping[str, Any]:
    return {**FAILED, "reason": REASONS[name]}


_PARTS: Mapping[str, tuple[tuple[str, ...], Callable[[str, str], Mapping[str, Any]]]] = {
    "launcher": (("local", "ssh", "slurm", "kubernetes"), _launcher),
    "conductor": (("ssh", "slurm"), _conductor),
    "connection": (("ssh", "slurm"), _connection),
    "wrapper": (("ssh", "slurm", "kubernetes"), _wrapper),
    "command": (("local", "ssh", "slurm"), lambda _executor, _name: FAILED),
    "rank": (("local", "ssh", "slurm", "kubernetes"), _rank),
}


def signalled(name: str, part: str, node: int = 1) -> Callable[[Stage], None]:
    """Return what sends a signal to a part."""
    return lambda stage: stage.signal(name, part, node)


def _case(executor: str, name: str, part: str, outcome: Mapping[str, Any]) -> Case:
    return Case(
        executor=executor,
        group="signals",
        name=f"SIG{name} to {TITLES[part]}",
        do=signalled(name, part),
        overrides=() if part == "launcher" else _ONCE.get(executor, ()),
        resumes=(executor, name, part) in _RESUMED,
        **outcome,
    )


def _cases() -> Iterator[Case]:
    for part, (executors, outcome) in _PARTS.items():
        for executor in executors:
            yield from (_case(executor, name, part, outcome(executor, name)) for name in NUMBER)
    yield _case("local", "KILL", "watchdog", GOES_ON)
    yield _case("slurm", "KILL", "stepd", FAILED)


CASES = tuple(_cases())
