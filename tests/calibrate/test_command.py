"""`launch calibrate` as a user runs it: refusals, and a real calibration whose file the estimate reads."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Launch
from tests.waiting import STUCK_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
JOB = "+recipe=tiny_qwen3"

WRONG = {
    "no file": ([JOB], 2, "-o"),
    "few steps": ([JOB, "-o", "hw.yaml", "--steps", "1"], 2, "--steps 1: must be at least 3"),
    "few layouts": ([JOB, "-o", "hw.yaml", "--layouts", "2"], 2, "--layouts 2: must be at least 4"),
    "no round": ([JOB, "-o", "hw.yaml", "--rounds", "0"], 2, "--rounds 0: must be at least 1"),
    "no time": ([JOB, "-o", "hw.yaml", "--minutes", "0"], 2, "--minutes 0: must be a number above 0"),
    "no number of minutes": ([JOB, "-o", "hw.yaml", "--minutes", "nan"], 2, "--minutes nan: must be a number above 0"),
    "another kind of state": ([JOB, "-o", "hw.yaml", "--resume", "state.txt"], 2, "the name must end in .json"),
    "no GPU": ([JOB, "-o", "hw.yaml", "rehearse.device=cuda"], 1, "no CUDA device can be used here"),
    "another kind of file": ([JOB, "-o", "hw.txt"], 2, "the name must end in .yaml or .yml"),
    "native": ([JOB, "-o", "hw.yaml", "runtime=native"], 1, "without runtime and rehearse.entry"),
    "fine-tuning": ([JOB, "-o", "hw.yaml", "task=sft"], 1, "task=pretrain"),
    "another device": ([JOB, "-o", "hw.yaml", "hardware=ascend_910b"], 1, "device of kind npu"),
    "FP8 on a processor": ([JOB, "-o", "hw.yaml", "precision.dtype=bf16", "precision.fp8_format=hybrid"], 1, "fp8"),
    "what no rehearsal trains": ([JOB, "-o", "hw.yaml", "batch.rampup_batch_size=[4,4,100]"], 1, "rampup"),
    "no such field": ([JOB, "-o", "hw.yaml", "model.hiden_size=3"], 2, "model.hidden_size"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words, code, said = WRONG[name]
    finished = launch("calibrate", *words)
    assert finished.code == code, finished.err
    assert said in finished.err
    assert "peaks:" not in finished.err  # refused before anything is measured
    assert not list(tmp_path.glob("*.yaml"))
    assert not list(tmp_path.glob("launch-calibrate-*"))


def test_a_file_of_another_kind_is_not_replaced(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model:\n  hidden_size: 4\n", encoding="utf-8")
    finished = launch("calibrate", JOB, "-o", str(file))
    assert finished.code == 1
    assert "is not a hardware file that launch made: it is not replaced" in finished.err
    assert file.read_text(encoding="utf-8") == "model:\n  hidden_size: 4\n"


def started(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "launcher", "calibrate", *words],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    child = started([JOB, "-o", "hw.yaml"], tmp_path)
    wait_until(lambda: list(tmp_path.glob("launch-calibrate-*/1/log.txt")))
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=STUCK_SECONDS)
    assert child.returncode == 130
    assert not list(tmp_path.glob("launch-calibrate-*"))
    assert not (tmp_path / "hw.yaml").exists()


@pytest.mark.slow
def test_a_calibration_whose_file_the_estimate_reads(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "hw.yaml"
    words = ("--steps", "3", "--rounds", "1", "--layouts", "4", "--clock", "processor", "--json")
    finished = launch("calibrate", JOB, "-o", str(file), *words)
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert [each["held_out"] for each in found["layouts"]] == [False, False, False, True]
    assert abs(found["errors"]["held_out"]["memory"]["worst"]) < 0.3  # what is freed late differs between runs
    assert abs(found["errors"]["held_out"]["time"]["worst"]) < 1.0  # no bound holds beside other programs
    estimated = launch("estimate", JOB, "backend=megatron_lm", *found["overrides"], f"hardware={file}", "--json")
    assert estimated.code == 0, estimated.err
    tree = json.loads(estimated.out)
    assert tree["time"]["step_s"] > 0
    again = launch("calibrate", JOB, "-o", str(file), "task=sft")
    assert again.code == 1
    assert file.read_text(encoding="utf-8").startswith("# @package hardware\n")
