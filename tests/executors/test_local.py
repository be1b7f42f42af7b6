"""Running a plan here: nothing overwritten, nothing left behind, the right exit code."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.executors.failure import CannotStart
from launcher.executors.local import run
from launcher.plan import LaunchPlan, NodePlan, PlanFile
from tests.conftest import ROOT


def plan(folder: Path, code: str, *words: str, env: dict[str, str] | None = None, **more: object) -> LaunchPlan:
    node = NodePlan(rank=0, argv=(sys.executable, "-c", code, *words), env=env or {})
    return LaunchPlan(nodes=(node,), output_dir=str(folder), **more)  # type: ignore[arg-type]


def test_output_is_logged_and_the_exit_code_comes_back(tmp_path, capfd):
    ended = run(plan(tmp_path / "out", "print('hello'); raise SystemExit(3)"))
    assert ended.code == 3
    assert ended.log.read_text() == "hello\n"
    assert "hello" in capfd.readouterr().out


def test_a_folder_that_is_not_empty_is_refused_and_untouched(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(CannotStart, match="not empty"):
        run(plan(tmp_path, "print(1)", files=(PlanFile(path=str(tmp_path / "mine"), content="other"),)))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot be written"):
        run(plan(tmp_path / "file" / "out", "print(1)"))


def test_a_reference_that_is_not_set_is_refused(tmp_path):
    with pytest.raises(CannotStart, match="NOT_SET_ANYWHERE"):
        run(plan(tmp_path / "out", "print(1)", "${NOT_SET_ANYWHERE}"))
    assert not (tmp_path / "out").exists()


def test_several_nodes_are_refused(tmp_path):
    nodes = tuple(NodePlan(rank=rank, argv=("true",)) for rank in range(2))
    with pytest.raises(CannotStart, match="2 nodes"):
        run(LaunchPlan(nodes=nodes, output_dir=str(tmp_path / "out")))


def test_a_command_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(CannotStart, match="no-such-command"):
        run(LaunchPlan(nodes=(NodePlan(rank=0, argv=("no-such-command",)),), output_dir=str(tmp_path / "out")))


def test_a_taken_port_is_replaced_by_a_free_one(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code = "import os, sys; print(sys.argv[-1] == os.environ['MASTER_PORT'], sys.argv[-1])"
        ended = run(plan(tmp_path / "out", code, "--master_port", port, env={"MASTER_PORT": port}))
    same, chosen = ended.log.read_text().split()
    assert same == "True"
    assert chosen != port


def test_failed_preparation_ends_the_run(tmp_path):
    prepare = NodePlan(rank=0, argv=("bash", "-c", "exit 4"))
    ended = run(plan(tmp_path / "out", "print('trained')", prepare=(prepare,)))
    assert ended.code == 4
    assert "trained" not in ended.log.read_text()


# A starter whose child has a session of its own, as torchrun's ranks have.
STARTER = """
import subprocess, sys, time, signal
child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
def stop(number, frame):
    if SLOW: return
    child.send_signal(number); child.wait(); raise SystemExit(1)
signal.signal(signal.SIGINT, stop)
print("child", child.pid, flush=True)
while True: time.sleep(0.1)
"""
RUNNER = """
import sys
from pathlib import Path
from launcher.executors.local import run
from launcher.plan import LaunchPlan, NodePlan
ended = run(LaunchPlan(nodes=(NodePlan(rank=0, argv=(sys.executable, "-c", sys.argv[1])),), output_dir=sys.argv[2]))
print("ended", ended.code, ended.interrupted, flush=True)
"""
SAVES = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *a: (time.sleep(2), print("saved", flush=True), sys.exit(0)))
time.sleep(60)
"""
DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(("child", "slow", "times"), [(SAVES, False, 1), (DEAF, True, 2)], ids=["clean stop", "kill"])
def test_ctrl_c_leaves_no_process(tmp_path, child, slow, times):
    starter = STARTER.replace("CHILD", repr(child)).replace("SLOW", str(slow))
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, starter, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    time.sleep(1.0)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    out, _ = process.communicate(timeout=30)
    assert "ended 130 True" in out
    assert ("saved" in out) == (not slow)
    assert not alive(pid)
