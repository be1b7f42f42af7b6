"""`ps`, `status`, `logs` and `stop` as a user meets them, and a start that is written down instead of done."""

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.conftest import Launch
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = pytest.mark.slow

JOB = ("+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[train.jsonl]")


@pytest.fixture
def overrides(tmp_path: Path) -> tuple[str, ...]:
    program = tmp_path / "env" / "bin" / "megatron"
    program.parent.mkdir(parents=True)
    program.write_text('#!/usr/bin/env bash\necho "trained in $PWD"\necho "[rank1] second"\nexit ${CODE:-0}\n')
    program.chmod(0o755)
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    return (*JOB, "estimate.enforce=false", f"cluster.python={program.parent}/python", "output_dir=out")


def test_a_run_is_seen_by_its_id(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 0
    (row,) = launch("ps", "--json").json
    assert (row["id"], row["state"], row["folder"]) == ("qwen3_8b-1", "done", str(tmp_path / "out"))
    assert "qwen3_8b-1  done" in launch("ps").out
    assert launch("ps", "--running", "--json").json == []
    assert launch("logs", "qwen3_8b-1").out == f"trained in {tmp_path}\n[rank1] second\n"
    assert launch("logs", "qwen3_8b-1", "--rank", "1").out == "second\n"
    assert launch("logs", "qwen3_8b-1", "--rank", "0").out == f"trained in {tmp_path}\n"
    assert launch("logs", "out", "--grep", "sec.nd", "--json").json["lines"] == ["[rank1] second"]
    kept = json.loads((tmp_path / "out/run/job.json").read_text())
    assert kept["model"]["hub_id"] == "Qwen/Qwen3-8B"


def test_a_run_whose_folder_another_run_took_is_not_listed(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 0
    shutil.rmtree(tmp_path / "out")
    assert launch("run", *overrides).code == 0
    assert [row["id"] for row in launch("ps", "--json").json] == ["qwen3_8b-2"]


def test_a_failure_is_explained(launch: Launch, overrides: tuple[str, ...]):
    done = launch("run", *overrides, env={"CODE": "3"})
    assert done.code == 1
    assert "failed first: rank" in done.err or "failed first: node 0" in done.err
    shown = launch("status", "qwen3_8b-1")
    assert "failed, exit code 3" in shown.out
    assert "unknown reason: nothing that was written names it" in shown.out
    assert launch("status", "out", "--json").json["failure"]["code"] == 3


def test_a_failure_is_explained_by_its_reason_and_the_line(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text('#!/usr/bin/env bash\necho "step 1"\necho "[rank1] KeyError: \'layers\'"\nexit 1\n')
    done = launch("run", *overrides)
    place = f"evidence: {tmp_path}/out/logs/node0.log:2"
    for text in (done.err, launch("status", "out").out, launch("logs", "out").err):
        assert "failed first: rank 1 on " in text
        assert "[exception]" in text
        assert place in text
    assert launch("logs", "out").out == "step 1\n[rank1] KeyError: 'layers'\n"
    assert launch("logs", "out", "--json").json["failure"]["reason"] == "exception"


WRONG = {
    "unknown id": (("status", "nothing-1"), 1, "no run 'nothing-1'"),
    "unknown id to stop": (("stop", "nothing-1"), 1, "no run 'nothing-1'"),
    "unknown id to clean": (("clean", "nothing-1"), 1, "no run 'nothing-1'"),
    "a folder without run": (("logs", "env"), 1, "no run was started in it"),
    "over": (("stop", "qwen3_8b-1"), 1, "has ended: done"),
    "no such rank": (("logs", "qwen3_8b-1", "--rank", "8"), 1, "has ranks 0 to 7, not 8"),
    "no pattern": (("logs", "qwen3_8b-1", "--grep", "("), 2, "is not a valid regular expression"),
    "no id": (("status",), 2, "required: ID"),
}


def test_what_cannot_be_is_reported(launch: Launch, overrides: tuple[str, ...]):
    assert launch("run", *overrides).code == 0
    for name, (call, code, message) in WRONG.items():
        done = launch(*call)
        assert done.code == code, (name, done)
        assert message in done.err, (name, done)


def test_a_run_on_this_machine_leaves_nothing(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 0
    before = sorted(path for path in tmp_path.rglob("*"))
    for _ in range(2):
        cleaned = launch("clean", "qwen3_8b-1")
        assert cleaned.code == 0
        assert cleaned.out == f"qwen3_8b-1: nothing to remove outside its folder\nfolder kept: {tmp_path}/out\n"
    tree = launch("clean", "out", "--json").json
    assert (tree["ok"], tree["removed"], tree["id"], tree["state"]) == (True, [], "qwen3_8b-1", "done")
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_run_that_goes_on_or_is_somebody_else_s_is_not_cleaned_up(
    launch: Launch, overrides: tuple[str, ...], tmp_path: Path
):
    assert launch("run", *overrides).code == 0
    path = tmp_path / "out/run/run.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "user": "somebody"}))
    assert "belongs to somebody" in launch("clean", "qwen3_8b-1").err
    (tmp_path / "out/run/status.json").unlink()
    path.write_text(json.dumps({**json.loads(kept), "pid": os.getpid(), "start": own_start()}))
    going = launch("clean", "qwen3_8b-1")
    assert (going.code, "is running; works: launch stop qwen3_8b-1" in going.err) == (1, True)
    path.write_text(json.dumps({**json.loads(kept), "executor": "nobody-has-it"}))
    (tmp_path / "out/run/status.json").write_text('{"state": "done", "code": 0}')
    assert "'nobody-has-it' is not installed here" in launch("clean", "qwen3_8b-1").err


def test_a_run_of_somebody_else_is_not_stopped(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 0
    path = tmp_path / "out/run/run.json"
    (tmp_path / "out/run/status.json").unlink()
    for change, message in (
        ({"user": "somebody", "pid": os.getpid(), "start": own_start()}, "belongs to somebody"),
        ({"host": "elsewhere"}, "was started on elsewhere: launch stop qwen3_8b-1 works there"),
        ({"pid": 1, "start": 1}, "has ended: lost"),
    ):
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **change}))
        done = launch("stop", "qwen3_8b-1")
        assert done.code == 1
        assert message in done.err, done
        path.write_text(before)


def test_a_run_is_not_lost_while_its_script_ends_it(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 0
    path = tmp_path / "out/run/run.json"
    (tmp_path / "out/run/status.json").unlink()
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": 1, "start": 1}))
    script = tmp_path / "out/run/ends.sh"
    script.write_text("echo begun\nread -r _\n")
    with subprocess.Popen(["bash", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        shown = launch("status", "qwen3_8b-1", "--json").json
        stopped = launch("stop", "qwen3_8b-1")
        process.terminate()
    why = "the process that started it is gone, and its script ends it"
    assert (shown["state"], shown["why"]) == ("running", why)
    assert (stopped.code, why in stopped.err) == (1, True)
    assert launch("status", "qwen3_8b-1", "--json").json["state"] == "lost"


def own_start() -> int:
    from launcher.executors.processes import identified

    found = identified(os.getpid())
    assert found is not None
    return found.start


def test_a_rendered_start_runs_without_this_program(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    done = launch("dry-run", *overrides, "--render", "files")
    assert done.code == 0, done
    assert f"start it with: bash {tmp_path}/files/run/command.sh" in done.err
    ran = subprocess.run(["bash", "files/run/command.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("trained in"), ran
    again = launch("dry-run", *overrides, "--render", "files")
    assert again.code == 1
    assert "not empty" in again.err


def test_a_secret_on_the_command_line_is_not_kept(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    done = launch("run", *overrides, "backend.env.HF_TOKEN=hf_do_not_write_me_down", env={"HF_TOKEN": "hf_other"})
    assert done.code == 0, done
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or "hf_" not in file.read_text().replace("hf_hub", ""), file


def test_every_node_of_a_platform_runs_its_own_part(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text('#!/usr/bin/env bash\necho "node $NODE_RANK of $NNODES meets $MASTER_ADDR:$MASTER_PORT"\n')
    here = {"WORLD_SIZE": "2", "NPROC_PER_NODE": "8", "MASTER_ADDR": "job-0", "MASTER_PORT": "23456"}
    job = (*overrides, "cluster=environment", "cluster.nodes=2", "estimate.enforce=false")
    refused = launch("run", *job, env={**here, "WORLD_SIZE": "4", "RANK": "0"})
    assert refused.code == 1
    assert "WORLD_SIZE=4, but the job has cluster.nodes=2 x cluster.devices_per_node=8" in refused.err
    assert not (tmp_path / "out").exists()
    for rank in ("0", "1", "0"):  # and a platform may start a node again
        done = launch("run", *job, env={**here, "RANK": rank})
        assert done.code == 0, done
        log = (tmp_path / f"out/logs/node{rank}.log").read_text()
        assert f"node {rank} of 2 meets job-0:23456" in log
    assert [row["id"] for row in launch("ps", "--json").json] == ["qwen3_8b-3"]
    assert "no longer holds it" in launch("status", "qwen3_8b-2").err  # no run of its own whose folder is gone
    other = launch("run", *job, env={**here, "RANK": "0", "MASTER_ADDR": "job-1"})
    assert other.code == 1
    assert "not empty" in other.err


def test_a_copy_of_a_folder_does_not_take_the_id(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides, env={"CODE": "3"}).code == 1
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    request = tmp_path / "copy/run/stop.json"
    request.write_text('{"by": "somebody", "host": "elsewhere"}')
    os.utime(request, (1, 1))
    assert launch("status", "copy", "--json").json["state"] == "stopped"
    shown = launch("status", "qwen3_8b-1", "--json").json
    assert (shown["state"], shown["folder"]) == ("failed", str(tmp_path / "out"))


def test_an_earlier_attempt_that_failed_does_not_hide_who_stopped_the_run(
    launch: Launch, overrides: tuple[str, ...], tmp_path: Path
):
    assert launch("run", *overrides, env={"CODE": "3"}).code == 1
    run = tmp_path / "out/run"
    (run / "exits/1.0").write_text("143 elsewhere stopped\n")
    (run / "stop.json").write_text('{"by": "somebody", "host": "elsewhere"}')
    shown = launch("status", "out", "--json").json
    assert (shown["state"], shown["why"]) == ("stopped", "by somebody on elsewhere")


def test_a_run_whose_folder_another_run_took_does_not_show_that_one(
    launch: Launch, overrides: tuple[str, ...], tmp_path: Path
):
    assert launch("run", *overrides, env={"CODE": "3"}).code == 1
    shutil.rmtree(tmp_path / "out")
    assert launch("run", *overrides, env={"CODE": "4"}).code == 1
    shown = launch("status", "qwen3_8b-1", "--json").json
    assert (shown["state"], shown["failure"], shown["exits"]) == ("failed", None, [])
    logs = launch("logs", "qwen3_8b-1")
    assert (logs.code, logs.out, "is gone or of another run" in logs.err) == (1, "", True)


ERROR = "logs/ranks/node0/x/attempt_0/0/error.json"
NAMED_PIPES = ("run/status.json", "run/stop.json", "run/causes/0.0", "run/exits/0.0", "logs/node0.log", ERROR)
HOSTILE = {
    "run/status.json": ("[" * 100_000, '{"state": "failed", "attempt": "x", "restarts": [1]}'),
    "run/stop.json": ("[" * 100_000, "5"),
    ERROR: (
        '{"message": {"message": ["x"], "extraInfo": {"py_callstack": null}}}',
        '{"message": {"message": "x", "extraInfo": {"timestamp": Infinity}}}',
    ),
    ERROR.replace("/0/", "/\u00b2/"): ('{"message": "x"}',),
}
HOSTILE_RECORDS = (
    {"iteration_line": "("},
    {"devices_per_node": "8"},
    {"devices_per_node": 10**12},
    {"rank_log": "/etc/passwd"},
    {"handle": [1]},
    {"executor": ["x"]},
    {"id": 5},
    {"pid": "x"},
)


def test_a_folder_of_somebody_else_does_not_harm_who_looks(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides, env={"CODE": "3"}).code == 1
    out = tmp_path / "out"
    for name in NAMED_PIPES:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(out, tmp_path / "copy")
        (tmp_path / "copy" / name).unlink(missing_ok=True)
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(tmp_path / "copy" / name)
        assert launch("status", "copy").code == 0, name
    for name, texts in HOSTILE.items():
        for text in texts:
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(out, tmp_path / "copy")
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / name).write_text(text)
            assert launch("status", "copy").code == 0, (name, text[:60])
    record = json.loads((out / "run/run.json").read_text())
    for change in HOSTILE_RECORDS:
        (tmp_path / "copy/run/run.json").write_text(json.dumps({**record, **change}))
        done = launch("status", "copy")
        assert (done.code, "its run/run.json is damaged" in done.err) == (1, True), (change, done)
    (tmp_path / "copy/run/run.json").write_text(json.dumps({**record, "what": "\x1b[2J", "host": "\x07"}))
    (tmp_path / "copy/logs/node0.log").write_text("[rank1] RuntimeError: \x1b]0;title\x07\n")
    shown = launch("status", "copy").out
    assert "RuntimeError: \\x1b]0;title\\x07" in shown
    assert not {"\x1b", "\x07"} & set(shown)
    (tmp_path / "copy/run/run.json").unlink()
    (tmp_path / "copy/run/run.json").mkdir()
    assert "its run/run.json cannot be read: " in launch("status", "copy").err


@pytest.fixture
def working(overrides: tuple[str, ...], tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A run that goes on, once it prints."""
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text("#!/usr/bin/env bash\necho at work\nwhile :; do sleep 0.1; done\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{tmp_path}.launch"}
    words = [sys.executable, "-m", "launcher", "run", *overrides]
    process = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        assert any(b"at work" in line for line in iter(process.stdout.readline, b""))
        yield process
    finally:
        process.terminate()
        process.wait(timeout=STUCK_SECONDS)


def test_a_run_whose_folder_is_gone_is_seen_and_stopped_by_its_id(
    launch: Launch, working: "subprocess.Popen[bytes]", tmp_path: Path
):
    shutil.rmtree(tmp_path / "out")
    (row,) = launch("ps", "--json").json
    assert (row["id"], row["state"]) == ("qwen3_8b-1", "running")
    assert f"its folder {tmp_path}/out is gone" in launch("status", "qwen3_8b-1").out
    assert launch("stop", "qwen3_8b-1").code == 0
    assert working.wait(timeout=STUCK_SECONDS) != 0
    assert launch("ps", "--json").json == []
    shown = launch("status", "qwen3_8b-1", "--json").json
    by = f"by {getpass.getuser()} on {socket.gethostname()}"
    assert (shown["state"], shown["why"]) == ("stopped", f"{by}; its folder {tmp_path}/out is gone")
    assert (
        launch("ps").out == "qwen3_8b-1 has ended and its folder is gone: launch status qwen3_8b-1 shows how it ended\n"
    )


def test_an_end_that_was_seen_outlasts_the_run_s_folder(
    launch: Launch, working: "subprocess.Popen[bytes]", tmp_path: Path
):
    """The launcher is killed, so that a script writes down the end; `ps` or `status` is the first to see it."""
    working.kill()
    working.wait(timeout=STUCK_SECONDS)
    wait_until(lambda: '"state": "running"' not in (tmp_path / "out/run/status.json").read_text())
    seen = launch("status", "qwen3_8b-1", "--json").json
    assert (seen["state"], seen["code"], seen["why"]) == ("stopped", 143, "the program that started it was killed")
    shutil.rmtree(tmp_path / "out")
    later = launch("status", "qwen3_8b-1", "--json").json
    assert (later["state"], later["code"], later["at"]) == (seen["state"], seen["code"], seen["at"])
    assert later["why"] == f"{seen['why']}; its folder {tmp_path}/out is gone"


def test_who_first_asked_a_run_to_stop_is_who_stopped_it(
    launch: Launch, working: "subprocess.Popen[bytes]", tmp_path: Path
):
    (tmp_path / "out/run/stop.json").write_text('{"by": "somebody", "host": "elsewhere"}')
    stopped = launch("stop", "qwen3_8b-1", "--json")
    assert (stopped.code, stopped.json["why"]) == (0, "by somebody on elsewhere")
    working.wait(timeout=STUCK_SECONDS)


def test_who_stopped_a_run_is_known_before_it_ends(launch: Launch, working: "subprocess.Popen[bytes]", tmp_path: Path):
    assert launch("stop", "qwen3_8b-1", "--no-wait").code == 0
    assert json.loads((tmp_path / "out/run/stop.json").read_text())["by"] == getpass.getuser()
    working.wait(timeout=STUCK_SECONDS)
    shown = launch("status", "qwen3_8b-1", "--json").json
    assert (shown["state"], shown["why"].split(" on ")[0]) == ("stopped", f"by {getpass.getuser()}")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert launch("status", "copy", "--json").json["state"] == "stopped"
