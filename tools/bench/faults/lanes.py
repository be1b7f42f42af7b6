"""What each executor's cases need, and how they run one after another on it."""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.cluster import machines
from tests.cluster.machines import Machines
from tests.commands import CommandServer
from tests.executors import api_server
from tools.bench.faults.case import Case, Result
from tools.bench.faults.kubernetes import KubernetesStage, cluster
from tools.bench.faults.local import LocalStage
from tools.bench.faults.machines import SlurmStage, SshStage
from tools.bench.faults.stage import Stage

# Set by a signal: the case that runs is the last.
STOPPING = threading.Event()
Keep = Callable[[Case, Result], None]
# Runs cases in a folder.
Lane = Callable[[Path, Sequence[Case], Keep], None]
SMALL = "small"  # folder with a disk of its own, which cases fill
_SMALL_DISK = "size=24m"


def lacking(executor: str) -> str:
    """Return why an executor's cases cannot run here; "" if they can."""
    if executor == "kubernetes":
        return api_server.lacking(nodes=True)
    return machines.lacking(slurm=executor == "slurm")


@contextlib.contextmanager
def small_disk(root: Path) -> Iterator[None]:
    """Mount a small file system: before the machines are made, which then have it, too."""
    place = root / SMALL
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", _SMALL_DISK, "faults", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


@contextlib.contextmanager
def up(root: Path) -> Iterator[Machines]:
    """Make machines, and take them down."""
    made = machines.up(root / "machines")
    try:
        yield made
    finally:
        made.call("down", check=False)


def _each(root: Path, cases: Sequence[Case], keep: Keep, make: Callable[[Path, Case], Stage]) -> None:
    for number, case in enumerate(cases):
        if STOPPING.is_set():
            break
        stage = make(root / (SMALL if case.disk else "c") / f"{number:03}", case)
        found = stage.play()
        if found.right:
            stage.remove()
        keep(case, found)


def _local(root: Path, cases: Sequence[Case], keep: Keep) -> None:
    with small_disk(root), CommandServer(root) as server:
        _each(root, cases, keep, lambda folder, case: LocalStage(folder, server, case))


def _on_machines(stage: type[SshStage] | type[SlurmStage]) -> Lane:
    def lane(root: Path, cases: Sequence[Case], keep: Keep) -> None:
        with small_disk(root), up(root) as made, CommandServer(root) as server:
            _each(root, cases, keep, lambda folder, case: stage(folder, server, case, made))

    return lane


def _kubernetes(root: Path, cases: Sequence[Case], keep: Keep) -> None:
    with small_disk(root), cluster(root) as made, CommandServer(root) as server:
        _each(root, cases, keep, lambda folder, case: KubernetesStage(folder, server, case, made))


# With how many of each run beside each other.
LANES: dict[str, tuple[Lane, int]] = {
    "local": (_local, 1),
    "ssh": (_on_machines(SshStage), 2),
    "slurm": (_on_machines(SlurmStage), 2),
    "kubernetes": (_kubernetes, 1),
}
