"""A run of this machine: started again from its checkpoint, ended when it hangs, remembered, and never left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.executors import port, render
from launcher.executors.begin import begin, check_start, run_here
from launcher.executors.failure import CannotStart
from launcher.executors.record import read_exits, read_status, write_status
from launcher.executors.shell_bodies import shell_body
from launcher.observe.find import UnknownRun, all_runs, find_run
from launcher.observe.state import state_of
from launcher.plan import LaunchPlan, NodePlan, Start, Watch
from tests.conftest import ROOT
from tests.processes import alive
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def plan(script: str, again: str | None = None, **start: object) -> LaunchPlan:
    def of(text: str) -> tuple[NodePlan, ...]:
        return (NodePlan(rank=0, argv=("bash", "-c", text)),)

    watch = Watch(checkpoints="ckpt", trackers=(("step-*", "done"),), iteration_line=r"iteration +\d+")
    resume = None if again is None else LaunchPlan(nodes=of(again), output_dir="out")
    known = Start(name="tiny", **start)  # type: ignore[arg-type]
    return LaunchPlan(nodes=of(script), output_dir="out", start=known, watch=watch, resume=resume)


SAVES = "mkdir -p ckpt/step-1 ckpt/step-2; echo 1 >ckpt/step-1/done; sleep 0.05; echo 2 >ckpt/step-2/done; "


def test_a_restart_goes_on_from_the_newest_complete_checkpoint(capfd):
    again = 'echo "from ${LAUNCH_RESUME}"'
    begun = begin(plan(SAVES + "mkdir ckpt/step-3; exit 3", again, max_restarts=2), {})
    ended = run_here(begun, quiet=False)
    assert (ended.code, ended.restarts) == (0, 1)
    assert f"from {Path('ckpt/step-2').absolute()}" in capfd.readouterr().out
    assert [(end.attempt, end.code) for end in read_exits(Path("out"))] == [(0, 3), (1, 0)]


def test_without_a_checkpoint_a_restart_begins_again():
    begun = begin(plan("echo once >>count; [ $(wc -l <count) = 3 ]", "exit 9", max_restarts=2), {})
    assert run_here(begun, quiet=True).code == 0
    assert Path("count").read_text() == "once\n" * 3


def test_restarts_are_counted_and_the_last_code_counts():
    begun = begin(plan("exit 5", max_restarts=2), {})
    ended = run_here(begun, quiet=True)
    assert (ended.code, ended.restarts) == (5, 2)
    assert read_status(Path("out"))["state"] == "failed"


def test_a_hang_is_ended_after_the_first_iteration_only():
    script = "sleep 1.5; echo iteration 1; sleep 3000"
    ended = run_here(begin(plan(script, hang_seconds=1.0), {}), quiet=True)
    assert ended.code == 124
    assert "iteration 1" in Path("out/logs/node0.log").read_text()
    assert read_status(Path("out"))["reason"] == "hung"


def test_a_run_is_remembered_by_an_id_that_counts_up(tmp_path):
    first = begin(plan("exit 0"), {"job": {"name": "tiny"}})
    assert first.place.id == "tiny-1"
    run_here(first, quiet=True)
    assert {path.name for path in Path("out/run").iterdir()} >= {"run.json", "plan.json", "job.json", "status.json"}
    second = begin(replace(plan("exit 4"), output_dir="out2"), {})
    run_here(second, quiet=True)
    assert [record.id for record in all_runs()[0]] == ["tiny-1", "tiny-2"]
    assert state_of(find_run("tiny-1")).state == "done"
    state = state_of(find_run("out2"))
    assert (state.state, state.code) == ("failed", 4)


def test_what_is_never_started_is_forgotten():
    with pytest.raises(CannotStart):
        run_here(begin(replace(plan("true"), nodes=(NodePlan(rank=0, argv=("/none/x",)),)), {}), quiet=True)
    assert all_runs() == ([], [])
    assert not Path("out").exists()


def test_the_folder_of_another_run_is_refused_by_its_name():
    run_here(begin(plan("true"), {}), quiet=True)
    with pytest.raises(CannotStart, match=r"run tiny-1: launch status tiny-1"):
        check_start(plan("true"))


UNKNOWN = {"no run": ("nothing-7", "no run 'nothing-7'"), "no run's folder": (".", "no run was started in it")}


@pytest.mark.parametrize("case", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_id_is_refused(case):
    text, message = case
    with pytest.raises(UnknownRun, match=message):
        find_run(text)


def test_references_stay_references_in_what_is_kept(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_do_not_write_me_down")
    node = NodePlan(rank=0, argv=("bash", "-c", 'echo "${#HF_TOKEN} letters"'), env={"HF_TOKEN": "${HF_TOKEN}"})
    run_here(begin(replace(plan("true"), nodes=(node,)), {}), quiet=True)
    for file in Path("out").rglob("*.*"):
        assert "hf_do_not" not in file.read_text(), file


RUNNER = """
import sys
from launcher.executors.begin import begin, run_here
from launcher.plan import LaunchPlan, NodePlan, Start
node = NodePlan(rank=0, argv=("bash", "-c", sys.argv[1]))
run_here(begin(LaunchPlan(nodes=(node,), output_dir="out", start=Start(name="tiny")), {}), quiet=False)
"""


def test_a_killed_launcher_leaves_nothing_running():
    """The rank has a session of its own and is deaf to SIGTERM's default path: only its mark finds it."""
    rank = "trap 'touch saved; exit 0' TERM; echo rank $$; while :; do sleep 0.1; done"
    script = f"setsid bash -c {json.dumps(rank)} & trap 'kill -TERM $!; wait; exit 1' TERM; wait"
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, script.replace("$$", "\\$\\$")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    pid = int(line.split()[1])
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not alive(pid))
    assert Path("saved").exists()
    assert state_of(find_run("tiny-1")).state == "lost"


def small_disk(folder: Path) -> None:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tests", folder], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("a small disk needs root")


def test_how_a_run_ended_is_known_though_its_disk_is_full(tmp_path: Path):
    small_disk(Path("out"))
    try:
        begun = begin(plan("cat /dev/zero >out/ballast; exit 3"), {})
        ended = run_here(begun, quiet=True)
        assert ended.code == 3
        status = read_status(Path("out"))
        assert (status["state"], status["code"]) == ("failed", 3)
        assert state_of(begun.record).state == "failed"
    finally:
        subprocess.run(["umount", "-l", "out"], check=False)


def status_after_kill(made: str, due: Callable[[], object]) -> dict[str, Any]:
    """Start a plan by a process of its own, kill that when it is due, and return the run's last status."""
    text = f"from tests.executors.test_restart import *\nrun_here(begin({made}, {{}}), quiet=True)"
    process = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait_until(due)
    process.kill()
    process.wait()
    wait_until(lambda: read_status(Path("out"))["state"] != "running")
    return read_status(Path("out"))


def test_a_run_whose_launcher_was_killed_is_stopped_and_says_so(tmp_path: Path):
    status = status_after_kill(
        "plan('echo $$ >pid; sleep 600')", lambda: Path("pid").exists() and Path("pid").read_text()
    )
    assert (status["state"], status["code"]) == ("stopped", 143)
    assert status["reason"] == "the program that started it was killed"
    assert not alive(int(Path("pid").read_text()))


def test_a_launcher_that_is_killed_while_a_restart_waits_says_so(tmp_path: Path):
    made = "plan('exit 3', max_restarts=1, restart_seconds=60)"
    status = status_after_kill(made, lambda: "waits until" in str(read_status(Path("out")).get("reason")))
    assert (status["state"], status["reason"]) == ("stopped", "the program that started it was killed")


def test_a_port_that_another_run_reserves_meanwhile_takes_nothing_from_a_restart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(port, "RESERVED", f"{Path.cwd()}/launch-ports-")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    taken = f"launch-ports-{os.getuid()}/{number}"
    script = f"echo once >>count; [ $(wc -l <count) = 2 ] || {{ echo other.1 >{taken}; exit 3; }}"
    ended = run_here(begin(plan(script, max_restarts=1, port=number), {}), quiet=True)
    assert (ended.code, ended.restarts) == (0, 1)
    assert read_status(Path("out"))["state"] == "done"


def test_a_full_disk_reserves_no_port_and_refuses_none(monkeypatch: pytest.MonkeyPatch):
    small_disk(Path("full"))
    try:
        monkeypatch.setattr(port, "RESERVED", f"{Path('full').absolute()}/launch-ports-")
        assert port.reserve(5000, "a.1")
        with suppress(OSError):
            Path("full/ballast").write_bytes(bytes(1_000_000))
        assert port.reserve(5001, "a.1")
        monkeypatch.setattr(render, "RESERVED", port.RESERVED)
        script = "\n".join(["id=a folder=/a", *render.port_head(), shell_body("common"), "reserve_port 5002"])
        assert subprocess.run(["bash", "-c", script], check=False).returncode == 0
    finally:
        subprocess.run(["umount", "-l", "full"], check=False)


SAVING = """
from tests.executors.test_restart import *
rank = 'trap "sleep 5; touch saved; exit 0" TERM; echo iteration 1; sleep 1; echo iteration 2; touch up; '
rank += 'while :; do sleep 0.1; done'
agent = f"trap 'kill -KILL $!; exit 1' TERM; LOCAL_RANK=0 bash -c '{rank}' & wait"
run_here(begin(plan(agent, hang_seconds=3, save_seconds=20), {}), quiet=True)
"""


def test_ranks_that_save_do_not_hang(tmp_path: Path):
    """The agent kills its rank soon after it is told to end, as torchrun does."""
    process = subprocess.Popen([sys.executable, "-c", SAVING], env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait_until(Path("up").exists)
    process.terminate()
    process.wait(timeout=STUCK_SECONDS)
    assert Path("saved").exists()
    assert read_status(Path("out"))["state"] == "stopped"


LOST = {
    "all ended well": ({"0.0": "0 a", "0.1": "0 b"}, ("done", 0)),
    "one failed": ({"0.0": "143 a stopped", "0.1": "3 b"}, ("failed", 3)),
    "all were asked to end": ({"0.0": "143 a stopped", "0.1": "0 b stopped"}, ("stopped", 143)),
    "one is not known": ({"0.0": "0 a"}, ("lost", None)),
    "an attempt before": ({"0.0": "3 a", "0.1": "3 b", "1.0": "0 a", "1.1": "0 b"}, ("done", 0)),
}


@pytest.mark.parametrize("name", LOST)
def test_a_run_that_recorded_no_end_ended_as_its_nodes_did(name: str, tmp_path: Path):
    exits, expected = LOST[name]
    begun = begin(plan("true"), {})
    folder = tmp_path / "out"
    (folder / "run/exits").mkdir(parents=True)
    for file, text in exits.items():
        (folder / "run/exits" / file).write_text(f"{text}\n")
        os.utime(folder / "run/exits" / file, (1_000_000_000, 1_000_000_000))
    state = state_of(replace(begun.record, nodes=2, pid=1, start=1))
    assert (state.state, state.code) == expected


def test_a_run_that_is_lost_in_its_second_attempt_did_not_end_as_its_first(tmp_path: Path):
    begun = begin(plan("true"), {})
    folder = tmp_path / "out"
    (folder / "run/exits").mkdir(parents=True)
    (folder / "run/exits/0.0").write_text("3 a\n")
    os.utime(folder / "run/exits/0.0", (1_000_000_000, 1_000_000_000))
    write_status(folder, "running", None, attempt=1, restarts=1)
    assert state_of(replace(begun.record, pid=1, start=1)).state == "lost"


def test_a_port_that_was_taken_meanwhile_costs_no_restart(tmp_path: Path):
    failing = "[ -e once ] || { touch once; echo 'errno: 98 - Address already in use'; exit 1; }"
    ended = run_here(begin(plan(failing), {}), quiet=True)
    assert (ended.code, ended.restarts) == (0, 0)
    assert "its port was taken meanwhile" in (tmp_path / "out/logs/node0.log").read_text()
    assert read_status(Path("out"))["state"] == "done"
