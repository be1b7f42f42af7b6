"""`launch resume`: the same job again, from its last complete checkpoint; or the reason why not, and what works."""

import fcntl
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from launcher.executors.record import read_exits
from tests.cli.test_runs import JOB, own_start
from tests.cluster.machines import PROGRAM
from tests.conftest import Launch

pytestmark = pytest.mark.slow

# Fails once it has saved, unless it goes on from a checkpoint.
FAILS_ONCE = """[ -z "$load" ] || { step 10; exit ${AGAIN:-0}; }
checkpoint 5
step 6
exit 3"""


@pytest.fixture
def overrides(tmp_path: Path) -> tuple[str, ...]:
    write(tmp_path, FAILS_ONCE)
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    python = f"cluster.python={tmp_path}/env/bin/python"
    return (*JOB, "estimate.enforce=false", python, "checkpoint.save_interval=5", "output_dir=out")


def write(folder: Path, body: str) -> None:
    program = folder / "env" / "bin" / "megatron"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"{PROGRAM}{body}\n")
    program.chmod(0o755)


def test_a_failed_run_goes_on_from_its_checkpoint(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 1
    (tmp_path / "elsewhere").mkdir()
    done = launch("resume", "qwen3_8b-1")
    assert done.code == 0, done
    checkpoint = f"{tmp_path}/out/checkpoints/v0/checkpoint-5"
    assert f"resumes: qwen3_8b-1 as attempt 1, from {checkpoint}" in done.out
    log = (tmp_path / "out/logs/node0.log").read_text()
    assert log.count("load=\n") == 1
    assert f"load={checkpoint}\n" in log
    assert [(end.attempt, end.code) for end in read_exits(tmp_path / "out")] == [(0, 3), (1, 0)]
    (row,) = launch("ps", "--json").json
    assert (row["id"], row["state"], row["code"]) == ("qwen3_8b-1", "done", 0)
    again = launch("resume", "qwen3_8b-1")
    assert (again.code, "is done: there is nothing left to train" in again.err) == (1, True)


def test_a_run_that_fails_again_says_why_and_can_be_resumed_again(
    launch: Launch, overrides: tuple[str, ...], tmp_path: Path
):
    assert launch("run", *overrides).code == 1
    for attempt in (1, 2):
        done = launch("resume", "out", "--json", env={"AGAIN": "7"})
        assert (done.code, done.json["exit_code"], done.json["attempt"]) == (1, 7, attempt)
    assert [end.code for end in read_exits(tmp_path / "out")] == [3, 7, 7]
    assert launch("status", "qwen3_8b-1", "--json").json["failure"]["code"] == 7


def test_restarts_count_from_the_resumed_attempt(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 1
    path = tmp_path / "out/run/plan.json"
    plan = json.loads(path.read_text())
    plan["start"]["max_restarts"] = 1
    path.write_text(json.dumps(plan))
    done = launch("resume", "out", "--json", env={"AGAIN": "7"})
    assert (done.code, done.json["restarts"]) == (1, 1)
    assert [end.attempt for end in read_exits(tmp_path / "out")] == [0, 1, 2]


def test_another_way_to_the_folder_is_the_same_run(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 1
    assert launch("resume", f"{tmp_path}/env/../out").code == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_files_of_another_user_are_not_run(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    """A record may name any user; but a file system may show another owner of what the register knows."""
    assert launch("run", *overrides).code == 1
    os.chown(tmp_path / "out/run", 12345, -1)
    done = launch("resume", "out", env={"LAUNCH_HOME": str(tmp_path / "empty")})
    assert (done.code, "is another user's: nothing was started" in done.err) == (1, True), done
    assert launch("resume", "out").code == 0


def test_a_stopped_run_is_not_stopped_any_more(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 1
    (tmp_path / "out/run/stop.json").write_text('{"by": "somebody", "host": "elsewhere"}')
    assert launch("resume", "out", env={"AGAIN": "7"}).code == 1
    assert launch("status", "out", "--json").json["state"] == "failed"


def refused(launch: Launch, message: str, *more: str, run: str = "qwen3_8b-1") -> str:
    done = launch("resume", run)
    assert done.code == 1
    shown = " ".join(done.err.split())  # lines are as wide as the terminal
    assert message in shown, done
    for text in more:
        assert text in shown, done
    return shown


def test_without_a_complete_checkpoint_the_job_is_offered_anew(
    launch: Launch, overrides: tuple[str, ...], tmp_path: Path
):
    assert launch("run", *overrides).code == 1
    (tmp_path / "out/checkpoints/v0/checkpoint-5/latest_checkpointed_iteration.txt").write_text("")
    place = f"there is no complete checkpoint in {tmp_path}/out/checkpoints"
    anew = refused(launch, place, "works: launch run +recipe=qwen3_8b", f"output_dir={tmp_path}/out-2 (anew)")
    words = shlex.split(anew.partition("works: launch ")[2].partition(" (anew)")[0])
    assert launch(*words, env={"AGAIN": "0"}).code == 1  # it starts, and fails as it did
    assert (tmp_path / "out-2/logs/node0.log").exists()


def test_a_run_that_goes_on_is_not_started_twice(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 1
    path = tmp_path / "out/run/run.json"
    kept = path.read_text()
    status = (tmp_path / "out/run/status.json").read_text()
    path.write_text(json.dumps({**json.loads(kept), "pid": os.getpid(), "start": own_start()}))
    (tmp_path / "out/run/status.json").unlink()
    refused(launch, "is running; works: launch stop qwen3_8b-1, then resume it")
    path.write_text(kept)
    (tmp_path / "out/run/status.json").write_text(status)
    with (tmp_path / "out/run/resume.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(launch, "is being resumed by another launch resume")
    assert launch("resume", "out").code == 0


def test_what_cannot_be_resumed_is_refused_with_the_reason(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 1
    run = tmp_path / "out/run"
    kept = {path: path.read_text() for path in (run / "run.json", run / "plan.json", run / "status.json")}
    record = json.loads(kept[run / "run.json"])
    changes = (
        ({"user": "somebody"}, "belongs to somebody"),
        ({"executor": "nobody-has-it"}, "its executor 'nobody-has-it' is not installed here"),
        ({"executor": "environment"}, "its platform starts it again, by the same command"),
        ({"launch_dir": f"{tmp_path}/gone"}, f"{tmp_path}/gone, in which it was started, is gone"),
        ({"launch_dir": f"{tmp_path}/env"}, "it was moved"),
    )
    for change, message in changes:
        (run / "run.json").write_text(json.dumps({**record, **change}))
        refused(launch, message)
    (run / "run.json").write_text(kept[run / "run.json"])
    for text in ("{}", "[" * 100_000, '{"start": 5}'):
        (run / "plan.json").write_text(text)
        refused(launch, "plan.json is not its plan")
    plan = json.loads(kept[run / "plan.json"])
    (run / "plan.json").write_text(json.dumps({**plan, "resume": None}))
    refused(launch, "saves no checkpoint from which it could go on")
    (run / "plan.json").write_text(kept[run / "plan.json"])
    (tmp_path / "env/bin/megatron").unlink()
    done = launch("resume", "out")
    assert (done.code, "bin/megatron does not exist" in " ".join(done.err.split())) == (1, True), done
    for path, text in kept.items():
        assert path.read_text() == text, "a run that could not be started again is as it was"
    shutil.rmtree(tmp_path / "out")
    refused(launch, f"its folder {tmp_path}/out is gone, with its plan", "works: launch run")
    assert launch("resume", "nothing-1").code == 1
