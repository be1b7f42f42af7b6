"""What a node writes of itself: when its log grew, its last iteration, how it ended, lines that look like errors."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from launcher.executors.progress import last_iteration
from launcher.executors.record import read_exits
from launcher.executors.ssh.executor import EXECUTOR, Hosts
from launcher.plan import LaunchPlan, NodePlan, Start, Watch
from launcher.plan.executor import Place
from tests.processes import alive
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = pytest.mark.slow

ITERATION = r"iteration +[0-9]+/ *[0-9]+"


def node(folder: Path, program: str, *, rank: int = 1, devices: int = 2, rank_log: str = "", **more: object) -> int:
    """Run the files of a node as ssh does, with its output in its log, and return its exit code."""
    return started(folder, program, rank=rank, devices=devices, rank_log=rank_log, **more).wait()


def started(
    folder: Path, program: str, *, rank: int = 1, devices: int = 2, rank_log: str = "", **more: object
) -> "subprocess.Popen[bytes]":
    """Start the files of a node as ssh does, with its output in its log."""
    nodes = tuple(NodePlan(rank=each, argv=("bash", "-c", program)) for each in range(2))
    known = {"executor": "ssh", "devices_per_node": devices, "settings": Hosts(hosts=("n0", "n1"))}
    start = Start(**{**known, **more})  # type: ignore[arg-type]
    plan = LaunchPlan(nodes=nodes, start=start, watch=Watch(iteration_line=ITERATION, rank_log=rank_log))
    place = Place(id="job-1", folder=str(folder / "out"), launch_dir=str(folder))
    (folder / "out/logs").mkdir(parents=True, exist_ok=True)
    (folder / "out/run").mkdir(exist_ok=True)
    for file in EXECUTOR.render(plan, place):
        Path(file.path).write_text(file.content)
    with (folder / f"out/logs/node{rank}.log").open("ab") as log:
        environ = {**os.environ, "NODE_RANK": str(rank), "ATTEMPT": "0"}
        return subprocess.Popen(["bash", "out/run/node.sh"], cwd=folder, env=environ, stdout=log, stderr=log)


def test_a_node_writes_its_last_iteration_and_when_its_log_grew(tmp_path: Path):
    assert node(tmp_path, "echo iteration 1/9; sleep 2.5; echo iteration 2/9; sleep 2.5; echo iteration 3/9") == 0
    out = tmp_path / "out"
    assert (out / "run/progress/1").read_text() == "iteration 3/9\n"
    (row,) = (out / "logs/times/node1").read_text().splitlines()
    assert row.split()[1] == str(len("iteration 1/9\n"))
    assert last_iteration(out, ITERATION, "") == "iteration 3/9"
    assert [(end.node, end.code, end.lines) for end in read_exits(out)] == [(1, 0, ())]


def test_a_node_without_iterations_writes_none(tmp_path: Path):
    assert node(tmp_path, "echo nothing") == 0
    assert not (tmp_path / "out/run/progress").exists()


def test_iterations_in_the_files_of_ranks_are_those_of_their_node(tmp_path: Path):
    write = "mkdir -p out/own; echo iteration 4/9 >out/own/r3.log; echo iteration 5/9 >out/own/r1.log"
    assert node(tmp_path, write, rank_log="own/r{rank}.log") == 0
    assert (tmp_path / "out/run/progress/1").read_text() == "iteration 4/9\n"


def test_a_node_that_fails_writes_the_lines_that_look_like_errors(tmp_path: Path):
    program = "echo fine; for i in 1 2 3; do echo \"[rank$i] RuntimeError: lost $i\"; done; echo 'KeyError: x'; exit 3"
    assert node(tmp_path, program) == 3
    (end,) = read_exits(tmp_path / "out")
    assert (end.code, end.lines) == (3, ("[rank1] RuntimeError: lost 1", "KeyError: x"))


def test_what_a_killed_node_script_started_is_ended(tmp_path: Path):
    process = started(tmp_path, "trap 'sleep 1; touch saved; exit' TERM; echo $$ >pid; while :; do sleep 0.1; done")
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(pid))
    assert (tmp_path / "saved").exists(), "it had its time to save"


def test_a_node_that_is_a_child_ends_with_its_parent(tmp_path: Path):
    started(tmp_path, "true").wait()
    (tmp_path / "out/run/command.sh").write_text("echo $$ >pid; exec sleep 60\n")
    text = "NODE_RANK=1 ATTEMPT=1 LAUNCH_CHILD=1 bash out/run/node.sh & wait"
    parent = subprocess.Popen(["bash", "-c", text], cwd=tmp_path)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(pid))


def test_what_the_site_s_lines_leave_running_does_not_keep_ranks_of_a_killed_node(tmp_path: Path):
    process = started(tmp_path, "echo $$ >pid; sleep 600", setup=("sleep 4500 & echo $! >site",))
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    rank, site = (int((tmp_path / name).read_text()) for name in ("pid", "site"))
    process.kill()
    process.wait()
    try:
        wait_until(lambda: not alive(rank))
    finally:
        os.kill(site, signal.SIGKILL)


def test_ranks_save_first_though_a_platform_sets_their_variable_for_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The agent kills its rank soon after it is told to end, as torchrun does."""
    monkeypatch.setenv("RANK", "1")
    rank = 'trap "sleep 2; touch saved; exit 0" TERM; touch up; while :; do sleep 0.1; done'
    agent = f"trap 'kill -KILL $!; exit 1' TERM; LOCAL_RANK=0 bash -c '{rank}' & wait"
    process = started(tmp_path, agent, save_seconds=20)
    while not (tmp_path / "up").exists():
        time.sleep(0.1)
    process.terminate()
    process.wait(timeout=STUCK_SECONDS)
    assert (tmp_path / "saved").exists()
