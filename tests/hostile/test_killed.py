"""kill -9 at random moments of a conversion and of a run: the next start goes on, and nothing is left or lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.executors.shell_bodies import shell_body
from tests.conftest import ROOT
from tests.convert.test_command import _large
from tests.sampling import dice, trials
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = pytest.mark.slow


def started(folder: Path, args: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "launcher", *args]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(folder: Path, args: list[str]) -> tuple[str, str]:
    with started(folder, args) as child:
        out, err = child.communicate(timeout=STUCK_SECONDS)
    assert child.returncode == 0, err
    return out, err


def killed(folder: Path, args: list[str], after: float) -> bool:
    """Start a command and kill it; tell whether it was still running."""
    with started(folder, args) as child:
        time.sleep(after)
        child.kill()
    return child.returncode == -signal.SIGKILL


def weights(folder: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint but the record, which holds times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "conversion.json"
    }


def test_a_conversion_killed_again_and_again_ends_like_one_that_was_not(tmp_path: Path) -> None:
    model = _large(tmp_path / "hf")
    source = weights(model)
    args = ["convert", "hf-to-mcore", "--model", str(model), "--workers", "1", "--out"]
    began = time.monotonic()
    finished(tmp_path, [*args, "whole"])
    longest, expected = time.monotonic() - began, weights(tmp_path / "whole")
    chance, kills = dice("killed conversion"), 0
    while kills < trials(40):
        out = f"out{kills}"
        # Up to three kills for one target: what goes on is killed, too.
        for _ in range(chance.randint(1, 3)):
            kills += killed(tmp_path, [*args, out], chance.uniform(0.05, longest))
            if (tmp_path / out).exists():
                break
        if (tmp_path / out).exists():
            # Perhaps killed between the last rename and the end: what is left beside it goes with the next start.
            with started(tmp_path, [*args, out]) as child:
                assert "not empty" in child.communicate(timeout=STUCK_SECONDS)[1]
        else:
            finished(tmp_path, [*args, out])
        assert weights(tmp_path / out) == expected
        assert [path.name for path in tmp_path.glob("out*")] == [out], "something is left beside the result"
        finished(tmp_path, ["convert", "verify", str(model), out])
        for path in sorted((tmp_path / out).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / out).rmdir()
    assert weights(model) == source


def test_a_run_killed_at_random_leaves_no_process_and_a_record_that_can_be_read(tmp_path: Path) -> None:
    program = tmp_path / "env" / "bin" / "megatron"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/env bash\nexec sleep 600\n")
    program.chmod(0o755)
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    args = ["run", "+recipe=qwen3_8b", "backend=megatron", "runtime=native", "estimate.enforce=false"]
    args += ["data.format=messages", "data.paths=[train.jsonl]", f"cluster.python={program.parent}/python"]
    chance, recorded, start = dice("killed run"), 0, 0.0
    for turn in range(trials(20)):
        if turn == 0:  # how long a start takes depends on the load: the others are drawn relative to it
            start = _killed_once_recorded(tmp_path, [*args, "output_dir=out0"])
        else:
            assert killed(tmp_path, [*args, f"output_dir=out{turn}"], chance.uniform(0.05, 2 * start))
        wait_until(lambda: not _processes(tmp_path), lambda: _processes(tmp_path))
        runs = json.loads(finished(tmp_path, ["ps", "--json"])[0])
        assert all(run["state"] in ("lost", "failed", "stopped") for run in runs), runs
        recorded = len(runs)
    assert recorded, "no kill came after a training had started"


def _killed_once_recorded(folder: Path, args: list[str]) -> float:
    """Kill a run when its record appears, and return the seconds until then."""
    began = time.monotonic()
    with started(folder, args) as child:
        while not (folder / "out0" / "run" / "run.json").exists():
            assert child.poll() is None, child.communicate()
            assert time.monotonic() - began < STUCK_SECONDS
            time.sleep(0.02)
        seconds = time.monotonic() - began
        child.kill()
    return seconds


def _processes(folder: Path) -> list[str]:
    """Return the command lines of the processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (entry / "cwd").resolve() == folder:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("named", [True, False], ids=["its group is named", "killed before its group was named"])
def test_the_process_that_a_killed_run_had_started_is_ended(tmp_path: Path, named: bool) -> None:
    status = tmp_path / "status.json"
    status.write_text('{"state": "running", "code": null, "attempt": 0, "reason": "", "at": ""}')
    words = ["bash", "-c", shell_body("watchdog"), "watchdog", "killed-1", "5", str(status), "killed"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as watchdog:
        assert watchdog.stdin is not None
        mark = {**os.environ, "LAUNCH_RUN": "killed-1/0"}
        with subprocess.Popen(["sleep", "600"], env=mark, start_new_session=True) as child:
            if named:
                print(child.pid, file=watchdog.stdin, flush=True)
            watchdog.stdin.close()
            assert child.wait(STUCK_SECONDS) == -signal.SIGTERM
        assert watchdog.wait(STUCK_SECONDS) == 0
    written = json.loads(status.read_text())
    assert (written["state"], written["reason"]) == ("stopped", "killed")
