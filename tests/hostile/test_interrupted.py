"""Ctrl-C and SIGTERM at random moments of a conversion and of a run: the right code, and no traceback."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.convert.test_command import _large
from tests.hostile.run import is_too_early
from tests.sampling import dice, trials
from tests.waiting import STUCK_SECONDS

pytestmark = pytest.mark.slow

# What each signal leaves as exit code; 0: the command was faster.
CODES = {signal.SIGINT: (130, 0), signal.SIGTERM: (143, 0)}
SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM)


def ended(folder: Path, args: list[str], number: int, delay: float) -> tuple[int, str]:
    """Run a command, send it a signal, and return its exit code and output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "launcher", *args],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        time.sleep(delay)
        child.send_signal(number)
        _, reported = child.communicate(timeout=STUCK_SECONDS)
    return child.returncode, reported


def sweep(folder: Path, args: list[str], *, count: int, longest: float, key: str) -> None:
    chance = dice(key)
    for turn in range(count):
        number, delay = SIGNALS[turn % len(SIGNALS)], chance.uniform(0.03, longest)
        code, reported = ended(folder, [arg.replace("{}", str(turn)) for arg in args], number, delay)
        if is_too_early(reported):
            continue
        for left in folder.glob(f"out{turn}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        case = f"{signal.Signals(number).name} after {delay:.3f} s: exit code {code}\n{reported}"
        assert "Traceback" not in reported, case
        assert "Exception ignored" not in reported, case
        assert "internal error" not in reported, case
        assert code in (*CODES[number], -number if delay < 0.5 else 0), case


def test_a_conversion_at_random_moments(tmp_path: Path) -> None:
    model = _large(tmp_path / "hf")
    args = ["convert", "hf-to-mcore", "--model", str(model), "--workers", "1", "--out", "out{}"]
    began = time.monotonic()
    assert ended(tmp_path, [arg.replace("{}", "-whole") for arg in args], 0, 0.0)[0] == 0
    sweep(tmp_path, args, count=trials(30), longest=time.monotonic() - began, key="conversion")


def test_a_run_at_random_moments(tmp_path: Path) -> None:
    program = tmp_path / "env" / "bin" / "megatron"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/env bash\nexec sleep 3\n")
    program.chmod(0o755)
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    args = ["run", "+recipe=qwen3_8b", "backend=megatron", "runtime=native", "estimate.enforce=false"]
    args += ["data.format=messages", "data.paths=[train.jsonl]", f"cluster.python={program.parent}/python"]
    sweep(tmp_path, [*args, "output_dir=out{}"], count=trials(15), longest=2.0, key="run")
