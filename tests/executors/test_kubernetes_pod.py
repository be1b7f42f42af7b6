"""What runs in a pod: its node's script is ended when the pod is, whenever that comes, and it watches for hangs."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.executors.kubernetes.executor import EXECUTOR
from launcher.executors.record import read_exits
from launcher.observe.reason import Kind
from launcher.observe.reasons import reason_of
from launcher.plan import NodePlan
from launcher.plan.executor import Place
from tests.executors.test_kubernetes import plan
from tests.executors.test_kubernetes_run import lacking
from tests.waiting import STUCK_SECONDS, wait_until

ENVIRON = {**os.environ, "JOB_COMPLETION_INDEX": "0"}


def write_pod(folder: Path, argv: tuple[str, ...], *, hang: float | None = None, save_seconds: float = 0.0) -> None:
    """Write the files of a pod of one node as its ConfigMap has them."""
    given = plan("job", 1, hang=hang)
    start = replace(given.start, save_seconds=save_seconds) if save_seconds else given.start
    node = NodePlan(rank=0, argv=argv)
    given = replace(given, nodes=(node,), start=start, resume=None, output_dir=str(folder / "out"))
    for file in EXECUTOR.render(given, Place(id="x-1", folder=str(folder / "out"), launch_dir=str(folder))):
        (folder / Path(file.path).name).write_text(file.content.replace("files=/run/launch", f"files={folder}"))


def slow(folder: Path, name: str) -> dict[str, str]:
    """Return an environment in which a program takes a while to start, and says that it was asked for."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text(f'#!/usr/bin/env bash\ntouch {folder}/asked\nsleep 1\nexec {shutil.which(name)} "$@"\n')
    program.chmod(0o755)
    return {**ENVIRON, "PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.slow
def test_a_pod_whose_ranks_save_does_not_hang(tmp_path: Path):
    rank = "trap 'sleep 5; touch saved; exit 0' TERM; echo iteration 1; sleep 1.5; echo iteration 2; "
    argv = ("env", "LOCAL_RANK=0", "bash", "-c", rank + "while :; do sleep 0.1; done")
    write_pod(tmp_path, argv, hang=3.0, save_seconds=20.0)
    process = subprocess.Popen(["bash", "pod.sh"], cwd=tmp_path, env=ENVIRON, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = next(line for line in process.stdout if "iteration 2" in line)
    time.sleep(1.5)
    process.terminate()
    said += process.communicate(timeout=STUCK_SECONDS)[0]
    assert (process.returncode, "no new iteration" in said) == (0, False), said
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_a_pod_that_hangs_has_failed_whatever_its_node_wrote(tmp_path: Path):
    write_pod(tmp_path, ("bash", "-c", "echo iteration 1; sleep 1.5; echo iteration 2; sleep 3000"), hang=2.0)
    done = subprocess.run(
        ["bash", "pod.sh"], cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=STUCK_SECONDS
    )
    assert done.returncode == 124, done
    (end,) = read_exits(tmp_path / "out")
    assert (end.code, end.how) == (124, "")
    said = next(line for line in done.stdout.splitlines() if "no new iteration" in line)
    reason = reason_of(said, Kind.LINE)
    assert reason is not None
    assert reason.name == "hang"


TRAINS = ("bash", "-c", "touch begun; sleep 40; touch trained")


@pytest.mark.slow
def test_a_node_that_is_ended_while_its_program_starts_does_not_train(tmp_path: Path):
    """Its program is not yet in a session of its own, so that a signal to its process group reaches nobody."""
    write_pod(tmp_path, TRAINS)
    process = subprocess.Popen(["bash", "pod.sh"], cwd=tmp_path, env=slow(tmp_path, "setsid"))
    wait_until((tmp_path / "asked").exists)
    time.sleep(0.3)
    process.terminate()
    process.wait(STUCK_SECONDS)
    (end,) = read_exits(tmp_path / "out")
    assert (end.how, (tmp_path / "trained").exists()) == ("stopped", False)


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")
def test_a_pod_that_is_ended_while_its_files_are_brought_starts_nothing(tmp_path: Path):
    """As the first process of a container: without a trap it is deaf to the signal."""
    write_pod(tmp_path, TRAINS)
    space = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
    process = subprocess.Popen([*space, "bash", "pod.sh"], cwd=tmp_path, env=slow(tmp_path, "cp"))
    wait_until((tmp_path / "asked").exists)
    (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    assert process.wait(STUCK_SECONDS) == 143
    assert not (tmp_path / "begun").exists()
