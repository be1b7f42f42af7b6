"""What a job says of Weights & Biases arrives in the offline run that the backends' own training writes."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.rehearse.native import missing
from tests.conftest import Launch
from tests.rehearse.native.environments import mindspeed_python, swift_python, wandb_packages

pytestmark = pytest.mark.slow

_ABSENT = missing(NATIVE_CPU, os.environ, version_of=lambda _name: "installed in the test's own environment")
READER = Path(__file__).with_name("wandb_run.py")
# Dashes in a run's name, and blanks: they must reach the tracker as typed.
TRACKED = (
    "logging.wandb_project=tiny-project",
    "logging.wandb_name=first try",
    "backend.env.WANDB_MODE=offline",
    "backend.env.WANDB_ENTITY=our-team",
)
SMALL = (
    "+recipe=tiny_qwen3",
    "runtime=rehearsal",
    "rehearse.entry=native",
    "cluster.devices_per_node=1",
    "schedule.train_iters=3",
    "schedule.lr_warmup_iters=1",
    "batch.global_batch_size=4",
    "batch.seq_length=64",
    "output_dir=out",
)


def offline_run(launch: Launch, folder: Path, python: Path, words: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """Train with an environment, and return the folder and the contents of the one offline run that it wrote."""
    packages = str(wandb_packages(python))
    path = os.pathsep.join((packages, str(READER.parents[3])))
    done = launch("run", *SMALL, *TRACKED, f"cluster.python={python}", *words, env={"PYTHONPATH": path})
    assert done.code == 0, done.err[-3000:] + done.out[-3000:]
    (file,) = folder.rglob("offline-run-*/run-*.wandb")
    read = subprocess.run(
        [str(python), str(READER), str(file)],
        env={**os.environ, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=True,
    )
    return file.parent.parent, json.loads(read.stdout)


def assert_arrived(run: dict[str, Any], loss: str, rate: str, seconds: str) -> None:
    """Assert that project, name, entity and job are the job's, and each step has its figures."""
    assert (run["project"], run["name"], run["entity"]) == ("tiny-project", "first try", "our-team")
    job = run["config"]["launch_job"]
    assert (job["logging"]["wandb_project"], job["schedule"]["train_iters"]) == ("tiny-project", 3)
    steps = [step for step in run["history"] if loss in step]
    assert [step["_step"] for step in steps] == [1, 2, 3]
    # A tiny model of 256 tokens that has learned nothing yet, and the recipe's schedule: one step up, then a cosine.
    assert all(5.0 < step[loss] < 7.0 for step in steps)
    assert [step[rate] for step in steps] == pytest.approx([3e-3, 1.65e-3, 3e-4])
    assert all(0 < step[seconds] < 60 for step in steps)


def test_megatron_swift(launch: Launch, tmp_path: Path) -> None:
    place, run = offline_run(launch, tmp_path, swift_python(), ["backend=megatron"])
    assert place.is_relative_to(tmp_path / "out")
    assert place.name == "wandb"
    assert_arrived(run, "train/loss", "train/learning_rate", "train/train_speed(s_it)")
    assert run["config"]["global_batch_size"] == 4


@pytest.mark.skipif(bool(_ABSENT), reason="; ".join(_ABSENT))
def test_mindspeed(launch: Launch, tmp_path: Path) -> None:
    place = tmp_path / "our runs"
    words = ("backend=mindspeed", "logging.tensorboard_dir=out/tb", "logging.timers=true", f"logging.wandb_dir={place}")
    found, run = offline_run(launch, tmp_path, mindspeed_python(), words)
    assert found == place / "wandb"
    assert_arrived(run, "lm loss", "learning-rate", "iteration-time")
    assert run["config"]["global_batch_size"] == 4
