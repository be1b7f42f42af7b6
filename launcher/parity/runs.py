"""Trains one side as a run of its own: a child process of `launch run`, with its folder, log and record."""

import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.rehearse.cpu.recorder import VARIABLE

NO_UPDATE = "updated no weights: gradients overflow in every iteration"
"""Problem of a training in fp16 whose loss scale is too large from the first to the last iteration."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """What one iteration reported.

    Attributes:
        loss: mean over its micro-batches or over its predicted tokens, as the backend reports it.
        grad_norm: None where the backend reports none.
        token_loss: the reference's mean over predicted tokens, where its `loss` is that of micro-batches.
        skipped: whether no weight was updated, because gradients were not finite.
    """

    iteration: int
    loss: float
    grad_norm: float | None
    token_loss: float | None = None
    skipped: bool = False

    @property
    def norm(self) -> float | None:
        """The gradient norm, infinite where gradients were not finite; None where none is reported."""
        return math.inf if self.skipped else self.grad_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One training, finished or failed.

    Attributes:
        label: the side's label.
        iterations: what was recorded, up to a failure.
        problem: why it failed; "" where it did not.
        command: what repeats it.
        log: the file with its output.
        seconds: from start to end.
    """

    label: str
    iterations: tuple[Iteration, ...]
    problem: str
    command: str
    log: str
    seconds: float


def train(
    label: str,
    argv: Sequence[str],
    folder: Path,
    *,
    environ: Mapping[str, str],
    advanced: Callable[[int], None],
    limit: float = math.inf,
) -> Trained:
    """Run a command that records its iterations, and wait for its end.

    Args:
        argv: `launch run …` without `--json`, or another command that writes the record.
        advanced: called with the number of iterations whenever it changed.
        limit: seconds after which the command is stopped, and counts as failed.

    Raises:
        KeyboardInterrupt: after the child has ended, too.
    """
    record, log = folder / "record.jsonl", folder / "log.txt"
    started, stopped = time.monotonic(), ""
    with log.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(
            argv, env={**os.environ, **environ, VARIABLE: str(record)}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            seen = -1
            while child.poll() is None:
                time.sleep(_POLL_SECONDS)
                if time.monotonic() - started > limit:
                    stopped = f"stopped after {limit:.0f} s"
                    _end(child, patience=0)
                    break
                count = len(read_record(record))
                if count != seen:
                    advanced(seen := count)
        except BaseException:
            _end(child)
            raise
    iterations = read_record(record)
    problem = stopped or ("" if child.returncode == 0 else _reason(log, child.returncode))
    # What fails after it is a consequence: MindSpeed-LLM saves Adam's moments, which no update has made.
    if iterations and all(each.skipped for each in iterations):
        problem = NO_UPDATE
    return Trained(
        label=label,
        iterations=iterations,
        problem=problem,
        command=" ".join((*(f"{name}={shlex.quote(value)}" for name, value in environ.items()), shlex.join(argv))),
        log=str(log),
        seconds=time.monotonic() - started,
    )


def _end(child: "subprocess.Popen[bytes]", patience: float = 5) -> None:
    """End the child and what it started, and wait for it.

    SIGTERM: a child of a shell's background job ignores SIGINT. A second one ends ranks that finish their step.

    Args:
        patience: seconds in which a terminal's signal may end it.
    """
    for wait in (patience, 20, 10):
        try:
            child.wait(timeout=wait)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.terminate()
    try:
        child.wait(timeout=5)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()


def read_record(file: Path) -> tuple[Iteration, ...]:
    """Return the iterations of a record; a line that is being written is left out."""
    if not file.exists():
        return ()
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return tuple(Iteration(**each) for each in found)


def _reason(log: Path, code: int) -> str:
    """Return the line of the output that says why the command failed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [
        line.removeprefix("launch: ").strip() for line in lines if line.startswith("launch") and "exit code" not in line
    ]
    errors = [line for line in lines if line.startswith("error ")]
    if errors:
        return " ".join(lines[lines.index(errors[0]) : lines.index(errors[0]) + 2])
    return (said or lines or [f"exit code {code}"])[0 if said else -1]


def launch_words() -> tuple[str, ...]:
    """Return the command that starts this program in a child process."""
    return (sys.executable, "-m", "launcher")
