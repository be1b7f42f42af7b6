"""Runs one job of a verification through `launch run`, and reads what it measured."""

import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.parity.runs import Trained, launch_words, train

# First iterations of a process, left out of the step time: kernels load, libraries choose algorithms, memory is mapped.
_WARM_UP = 2
# Nothing is started with fewer seconds left.
_LEAST_SECONDS = 10.0


class OutOfTimeError(Exception):
    """The verification's time is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training: what it recorded, and its result.json.

    Attributes:
        trained: loss and gradient norm of each iteration, or why it failed.
        result: content of result.json; empty where the run failed.
    """

    trained: Trained
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step_ms(self) -> float:
        """Median time of an iteration in milliseconds, without the first ones."""
        times: list[float] = self.result["milliseconds"]
        return statistics.median(times[_WARM_UP:] or times)

    @property
    def peak_bytes(self) -> int:
        """Peak of what tensors took on the device, in bytes; on CPU, of the whole process."""
        return int(self.result["peak_memory_bytes"])


@dataclass(slots=True, kw_only=True)
class Runner:
    """Runs trainings below one folder, each once, within the time of the verification.

    Attributes:
        folder: where each training has a folder.
        deadline: `time.monotonic()` after which nothing is started.
        longest: seconds that one training may take.
    """

    folder: Path
    deadline: float
    longest: float = 150.0
    kept: dict[str, Run] = field(default_factory=dict)

    def left(self, trainings: int = 1) -> float:
        """Return the seconds that a command may take.

        Args:
            trainings: how many trainings it may be as long as.

        Raises:
            OutOfTimeError: too few are left to start one.
        """
        left = self.deadline - time.monotonic()
        if left < _LEAST_SECONDS:
            raise OutOfTimeError
        return min(left, trainings * self.longest)

    def train(self, name: str, words: Sequence[str], device: str) -> Run:
        """Train a job on a device, or return what an earlier call of this name measured.

        Raises:
            OutOfTimeError: too few seconds are left, or they ended while it trained.
        """
        if name in self.kept:
            return self.kept[name]
        limit = self.left()
        folder = self.folder / name
        folder.mkdir(parents=True)
        own = (f"rehearse.device={device}", "runtime=rehearsal", f"output_dir={folder / 'run'}")
        argv = (*launch_words(), "run", *words, *own)
        # A terminal's width and colours would only change the log.
        trained = train(name, argv, folder, environ={"NO_COLOR": "1"}, advanced=lambda _count: None, limit=limit)
        if trained.problem and limit < self.longest and trained.seconds > limit:
            raise OutOfTimeError  # stopped by the end of the verification's time, and not for what it did
        file = folder / "run" / "result.json"
        result = json.loads(file.read_text(encoding="utf-8")) if not trained.problem and file.exists() else {}
        if not trained.problem and (result.get("device", "").lower() == "cpu") != (device == "cpu"):
            trained = replace(trained, problem=f"it ran on {result.get('device')} in place of {device}")
        self.kept[name] = Run(trained=trained, result=result)
        return self.kept[name]

    def command(self, *words: str, hide_devices: bool = True, trainings: int = 1) -> "subprocess.CompletedProcess[str]":
        """Run another command of `launch`, on the CPU or with the devices of this machine.

        Args:
            trainings: how many trainings it may be as long as.

        Raises:
            OutOfTimeError: too few seconds are left.
        """
        environ = {**os.environ, "NO_COLOR": "1", **({"CUDA_VISIBLE_DEVICES": ""} if hide_devices else {})}
        limit = self.left(trainings)
        return subprocess.run(
            [*launch_words(), *words], capture_output=True, text=True, check=False, timeout=limit, env=environ
        )

    def clean(self, name: str) -> None:
        """Remove the outputs of a training, except what says how it went."""
        shutil.rmtree(self.folder / name / "run" / "checkpoints", ignore_errors=True)
