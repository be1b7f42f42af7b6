"""`launch stop` of several runs: by their ids, all of a user's, all of a sweep."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.executors.record import read_request
from tests.cli.test_runs import overrides  # noqa: F401
from tests.commands import ROOT
from tests.conftest import Launch
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = pytest.mark.slow

Process = subprocess.Popen[bytes]


@pytest.fixture
def started(overrides: tuple[str, ...], tmp_path: Path) -> Iterator[list[Process]]:  # noqa: F811
    """Two runs that go on."""
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text("#!/usr/bin/env bash\necho at work\nwhile :; do sleep 0.1; done\n")
    found = [begin(tmp_path, *overrides[:-1], f"output_dir=out{number}") for number in (1, 2)]
    yield found
    for process in found:
        process.terminate()
        process.wait(timeout=STUCK_SECONDS)


def begin(folder: Path, *words: str) -> Process:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{folder}.launch"}
    command = [sys.executable, "-m", "launcher", "run", *words]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    assert any(b"at work" in line for line in iter(process.stdout.readline, b""))
    return process


def test_several_runs_are_stopped_by_one_command(launch: Launch, started: list[Process]):
    unknown = launch("stop", "qwen3_8b-1", "qwen3_8b-7")
    assert (unknown.code, "no run 'qwen3_8b-7'" in unknown.err) == (1, True)
    assert all(process.poll() is None for process in started), "with one unknown id none is stopped"
    done = launch("stop", "qwen3_8b-1", "out2", "qwen3_8b-2", "--json")
    assert done.code == 0
    assert [(row["ok"], row["id"], row["state"]) for row in done.json] == [
        *((True, "qwen3_8b-1", "stopped"), (True, "qwen3_8b-2", "stopped")),
    ]
    again = launch("stop", "qwen3_8b-1", "qwen3_8b-2")
    assert again.code == 1
    assert again.err.count("has ended: stopped") == 2


def test_all_runs_are_listed_and_stopped_once_that_is_confirmed(launch: Launch, started: list[Process], tmp_path: Path):
    refused = launch("stop", "--all")
    assert refused.code == 1
    assert "2 runs would be stopped: qwen3_8b-1, qwen3_8b-2; nothing was" in refused.err
    assert "works: launch stop --all --yes" in refused.err
    assert f"{tmp_path}/out2" in refused.err
    assert launch("stop", "--all", "--json").json["ok"] is False
    assert all(process.poll() is None for process in started)
    # A run of somebody else in the same register is neither listed nor stopped.
    path = tmp_path / "out2/run/run.json"
    record = path.read_text()
    path.write_text(json.dumps({**json.loads(record), "user": "somebody"}))
    done = launch("stop", "--all", "--yes")
    assert (done.code, done.out) == (0, "qwen3_8b-1: stopped\n")
    assert started[1].poll() is None
    path.write_text(record)
    assert launch("stop", "-y", "--all").out == "qwen3_8b-2: stopped\n"
    assert launch("stop", "--all", "--yes", "--json").json == []


WRONG = {
    "nothing named": ((), "name the runs to stop"),
    "all and one": (("--all", "qwen3_8b-1"), "takes neither an ID nor --sweep"),
    "all of a sweep": (("--all", "--sweep"), "takes neither an ID nor --sweep"),
}


def test_what_is_to_be_stopped_must_be_clear(launch: Launch):
    for name, (words, message) in WRONG.items():
        done = launch("stop", *words)
        assert (done.code, message in done.err) == (2, True), (name, done)
    assert launch("stop", "--all", "--yes").code == 0


def test_a_sweep_on_this_machine_is_stopped_with_what_would_follow(
    launch: Launch,
    overrides: tuple[str, ...],  # noqa: F811
    tmp_path: Path,
):
    program = tmp_path / "env" / "bin" / "megatron"
    program.write_text("#!/usr/bin/env bash\necho at work\n[ ! -e go ] || while :; do sleep 0.1; done\ntouch go\n")
    process = begin(tmp_path, "-m", *overrides, "optimizer.lr=1e-4,2e-4,3e-4")
    wait_until((tmp_path / "out/2/run/run.json").exists)
    done = launch("stop", "--sweep", "qwen3_8b-1", "--json")  # the first has ended; the second runs
    assert [(row["id"], row["state"], row["sweep"]) for row in done.json] == [("qwen3_8b-2", "stopped", "qwen3_8b-1")]
    assert process.wait(timeout=STUCK_SECONDS) == 143
    assert not (tmp_path / "out/3").exists()
    request = read_request(tmp_path / "out/2")
    assert request is not None
    assert request.sweep
