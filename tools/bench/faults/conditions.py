"""Faults around a job that every executor has: disk, memory, folders, clocks, a second launcher, a hang, a stop."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.bench.faults.case import ASKED, LAST, Case
from tools.bench.faults.stage import Stage, wait_until

EXECUTORS = ("local", "ssh", "slurm", "kubernetes")
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
_MEMORY = Path("/sys/fs/cgroup/memory")
HANG = ("fault_tolerance.hang_minutes=0.05",)


def stop(stage: Stage) -> None:
    """Ask it to stop, from another process."""
    done = stage.launch("stop", stage.id)
    if done.code:
        stage.problems.append(f"launch stop: {done.code} {done.err[-200:]}")


def interrupt_twice(stage: Stage) -> None:
    """Press Ctrl-C twice."""
    stage.signal("INT", "launcher")
    time.sleep(0.5)
    assert stage.process is not None
    if stage.process.poll() is None:
        stage.process.send_signal(signal.SIGINT)


def fill_disk(stage: Stage) -> None:
    """Fill the disk of the folder, and let the first rank save."""
    subprocess.run(["dd", "if=/dev/zero", f"of={stage.folder}/ballast", "bs=4k"], capture_output=True, check=False)
    stage.undo.append((stage.folder / "ballast").unlink)
    (stage.home / "save").touch()


def free_disk_later(stage: Stage) -> None:
    """Fill the disk, and free it once the run has ended: states are read then, too."""
    fill_disk(stage)
    assert stage.process is not None
    stage.process.wait(90)
    (stage.folder / "ballast").unlink()


def eat(stage: Stage) -> None:
    """Let a rank of the last node take more memory than its cgroup has."""
    stage.touch("eat", str(stage.nodes - 1))


def hang(stage: Stage) -> None:
    """Print no iterations any more."""
    stage.touch("hang")


def remove_folder(stage: Stage) -> None:
    """Remove the run's folder while it runs, and stop the run by its id."""
    for _ in range(2):
        shutil.rmtree(stage.out, ignore_errors=True)
    shown = stage.status()
    if "gone" not in str(shown.get("why")):
        stage.problems.append(f"status without the folder: {shown.get('state')} {shown.get('why')}")
    stop(stage)


def remove_record(stage: Stage) -> None:
    """Remove run.json while it runs, and stop the run by its id."""
    (stage.out / "run" / "run.json").unlink()
    stop(stage)


def remove_logs(stage: Stage) -> None:
    """Remove the logs while it runs."""
    shutil.rmtree(stage.out / "logs", ignore_errors=True)


def second_launcher(stage: Stage) -> None:
    """Start a second launcher in the same folder: it is refused."""
    second = stage.start(wait=stage.case.wait)
    if second.wait(60) != 1:
        stage.problems.append(f"the second launcher ended with {second.returncode}")


def two_at_once(stage: Stage) -> None:
    """Start two launchers in one folder at once: one is refused, the other's job runs."""
    both = [stage.start(wait=stage.case.wait) for _ in range(2)]
    wait_until(lambda: any(each.poll() is not None for each in both), 60, "none of the two is refused")
    refused = next(each for each in both if each.poll() is not None)
    stage.process = next(each for each in both if each is not refused)
    if refused.returncode != 1:
        stage.problems.append(f"the refused launcher ended with {refused.returncode}")
    wait_until(stage.trains, 90, "the ranks do not train")
    stage.only_one_id()


def kill_rank(stage: Stage) -> None:
    """Kill a rank."""
    stage.signal("KILL", "rank")


def raise_signal(name: str) -> Callable[[Stage], None]:
    """Return what lets a rank crash by a signal."""
    return lambda stage: stage.signal(name, "rank")


def skewed(stage: Stage) -> None:
    """Kill a rank of a node whose clock is an hour slow: it is still the first that failed."""
    stage.signal("KILL", "rank")


def in_cgroup(executor: str) -> tuple[str, ...]:
    """Return the overrides with which nodes run in a cgroup of 300 MB."""
    if executor == "kubernetes":
        return ("cluster.memory=300Mi",)
    if executor == "local":  # its launcher does (LocalStage.prefix)
        return ()
    group = _MEMORY / f"faults-{executor}-{os.getpid()}"
    limit = f"echo 300000000 >{group}/memory.limit_in_bytes"
    return (f'cluster.setup=["mkdir -p {group}","{limit}","echo $$ >{group}/cgroup.procs"]',)


def lacking_cgroup() -> str:
    """Return why no case can limit memory here."""
    return "" if (_MEMORY / "memory.limit_in_bytes").exists() else "no cgroup of version 1 with memory"


_SLOW_CLOCK = (
    f'cluster.setup=["[ $NODE_RANK = 0 ] || export LD_PRELOAD={FAKETIME} FAKETIME=-1h FAKETIME_NO_CACHE=1"]',
)


def _of(executor: str) -> Iterator[Case]:
    queued = executor in ("slurm", "kubernetes")
    once = ("cluster.requeue=false",) if executor == "slurm" else ()

    def case(name: str, do: Callable[[Stage], None], **more: object) -> Case:
        fields: dict[str, object] = {"group": "surroundings", "overrides": once, **more}
        return Case(executor=executor, name=name, do=do, **fields)  # type: ignore[arg-type]

    yield case("launch stop", stop, state="stopped", code=143, saved=ASKED, resumes=True)
    if not queued:
        yield case("Ctrl-C twice", interrupt_twice, state="stopped", code=130)
    yield case("a hang", hang, overrides=(*once, *HANG), state="failed", code=1, reason="hung" if not queued else "")
    yield case(
        "a rank is suspended (SIGSTOP), with the hang watch",
        suspend,
        overrides=(*once, *HANG),
        state="failed",
        code=1,
        settle=120,
    )
    yield case("the run's folder is removed, then launch stop", remove_folder, state="stopped", code=143, saved=0)
    yield case("run.json is removed, then launch stop", remove_record, state="stopped", code=143)
    yield case("a second launcher in the folder", second_launcher, state="done", code=0, saved=LAST, finish=True)
    yield case(
        "two launchers in one folder at once", two_at_once, state="done", code=0, saved=LAST, finish=True, starts=False
    )
    for name, reason in (("SEGV", "segmentation-fault"), ("ABRT", "aborted"), ("BUS", "bus-error")):
        if executor in ("local", "ssh"):
            yield case(f"a rank crashes (SIG{name})", raise_signal(name), state="failed", code=1, reason=reason)
    if executor != "kubernetes":
        yield case("the logs are removed", remove_logs, state="done", code=0, saved=LAST, finish=True)
        yield case("the disk is full", free_disk_later, state="failed", code=1, disk=True)
        restarts = ("fault_tolerance.max_restarts=1",)
        yield case(
            "a rank is killed, with a restart",
            kill_rank,
            overrides=(*once, *restarts),
            state="done",
            code=0,
            saved=LAST,
            finish=True,
        )
        yield case(
            "out of memory (cgroup)",
            eat,
            overrides=(*once, *in_cgroup(executor)),
            state="failed",
            code=1,
            reason="host-out-of-memory",
        )
    if executor in ("ssh", "slurm"):
        yield case(
            "a node's clock is an hour slow",
            lambda stage: None,
            overrides=(*once, *_SLOW_CLOCK),
            state="done",
            code=0,
            saved=LAST,
            finish=True,
        )
        yield case(
            "a rank is killed where the clock is an hour slow",
            skewed,
            overrides=(*once, *_SLOW_CLOCK),
            state="failed",
            code=1,
            reason="killed",
        )


def suspend(stage: Stage) -> None:
    """Suspend the first rank of all: no iteration is printed."""
    stage.touch("hang")
    stage.signal("STOP", "rank", 0)


CASES = tuple(case for executor in EXECUTORS for case in _of(executor))
