"""A run of this machine: started again from its checkpoint, ended when it hangs, remembered, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.executors.begin import begin, check_start, run_here
from launcher.executors.failure import CannotStart
from launcher.executors.record import read_exits, read_status
from launcher.observe.find import UnknownRun, all_runs, find_run
from launcher.observe.state import state_of
from launcher.plan import LaunchPlan, NodePlan, Start, Watch
from tests.conftest import ROOT
from tests.processes import alive


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
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.1)
    assert Path("saved").exists()
    assert state_of(find_run("tiny-1")).state == "lost"
