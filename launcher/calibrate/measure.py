"""Measures one layout: a training of its own through `launch run`, and what it recorded."""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from launcher.calibrate.layouts import Layout, warm_up
from launcher.parity.runs import launch_words, train
from launcher.records import dataclass
from launcher.rehearse.core.tensor_memory import VARIABLE

Clock = Literal["wall", "processor"]
_MILLISECONDS: Mapping[Clock, str] = {"wall": "milliseconds", "processor": "processor_milliseconds"}


class CannotMeasure(Exception):
    """A training failed, or recorded what cannot be a measurement; has the log to read."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One training.

    Attributes:
        step_s: median of its steps after the first ones.
        spread: their interquartile range, relative to the median.
        steps: how many they are.
        tensor_bytes: peak of the first rank's tensors; None: not counted.
        process_bytes: peak of the first rank's process; larger where tensors were counted.
        device: what it ran on.
    """

    step_s: float
    spread: float
    steps: int
    tensor_bytes: int | None
    process_bytes: int
    device: str


def measured(
    layout: Layout,
    words: Sequence[str],
    folder: Path,
    *,
    environ: Mapping[str, str],
    clock: Clock,
    advanced: Callable[[int], None],
    count: bool = True,
    limit: float | None = None,
) -> Measured:
    """Train a layout and return what it took.

    Args:
        words: overrides of its job, without a place for its outputs.
        folder: new folder for its outputs.
        environ: more variables of its processes.
        count: count tensors in the first iterations, where the device's allocator does not.
        limit: seconds after which it is stopped, and counts as failed.

    Raises:
        CannotMeasure: it failed, or recorded no positive number.
        KeyboardInterrupt: after its processes have ended.
    """
    folder.mkdir(parents=True)
    counted = {VARIABLE: "1"} if count else {}
    argv = (*launch_words(), "run", *words, f"output_dir={folder / 'run'}")
    environ = {"NO_COLOR": "1", **environ, **counted}
    seconds = math.inf if limit is None else limit
    trained = train(layout.name, argv, folder, environ=environ, advanced=advanced, limit=seconds)
    if trained.problem:
        raise CannotMeasure(f"{layout.name}: {trained.problem}", trained.log)
    result = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder / "run", ignore_errors=True)
    return read(result, layout.name, clock, log=trained.log)


def read(result: Mapping[str, Any], name: str, clock: Clock, log: str = "") -> Measured:
    """Return the measurement in the result of a training.

    Args:
        result: content of its result.json, in which what is not finite is null.

    Raises:
        CannotMeasure: a figure of it is missing, not finite or not positive.
    """
    steps = (result.get(_MILLISECONDS[clock]) or [])[warm_up() :]
    if not steps:
        raise CannotMeasure(f"{name}: no {_MILLISECONDS[clock]} after the first {warm_up()} iterations", log)
    for index, value in enumerate(steps):
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise CannotMeasure(
                f"{name}: {_MILLISECONDS[clock]} of iteration {index + 1 + warm_up()} is {value}, not a time", log
            )
    if any(value is None for value in result.get("losses") or []):
        raise CannotMeasure(f"{name}: the loss is not a number", log)
    tensors = result.get("peak_tensor_bytes")
    if result.get("device") != "cpu":
        tensors = result.get("peak_memory_bytes")
    median = statistics.median(steps)
    quartiles = statistics.quantiles(steps, n=4) if len(steps) > 1 else [median] * 3
    return Measured(
        step_s=median / 1e3,
        spread=(quartiles[2] - quartiles[0]) / median,
        steps=len(steps),
        tensor_bytes=tensors,
        process_bytes=int(result["peak_memory_bytes"]),
        device=str(result["device"]),
    )


def peaks(kind: str, dtype: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the peaks of this device, measured in a process of their own.

    Raises:
        CannotMeasure: they cannot be measured, or are no positive numbers.
    """
    argv = (sys.executable, "-m", "launcher.calibrate.kernels", kind, dtype)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **environ})
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise CannotMeasure(f"peaks of this device: {said[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    for name in ("tflops", "gbs"):
        if not (math.isfinite(found[name]) and found[name] > 0):
            raise CannotMeasure(f"peaks of this device: {name} is {found[name]}, not a positive number")
    return found
