"""Output of a run: progress lines, TensorBoard events, a plot of the loss, and result.json."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from launcher.plan.start import NUMBER
from launcher.rehearse.core.errors import RehearsalError
from launcher.terminal import duration

RESULT, LOG, CURVE, TENSORBOARD = "result.json", "log.txt", "loss.png", "tensorboard"
# Numbers in the lines of `Progress.step`, as `launcher.plan.start.Watch.figures`.
FIGURES = (
    ("iteration", rf"iteration +({NUMBER})/", 1.0),
    ("iterations", rf"iteration +[0-9]+/({NUMBER})", 1.0),
    ("loss", rf"\| loss ({NUMBER})", 1.0),
    ("step_s", rf"\| ({NUMBER}) ms \|", 1e-3),
    ("grad_norm", rf"grad norm ({NUMBER})", 1.0),
    ("skipped", rf"\| skipped ({NUMBER})", 1.0),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One reported iteration."""

    iteration: int
    loss: float
    learning_rate: float
    grad_norm: float
    milliseconds: float
    tokens_per_s: float
    skipped: int


class Progress:
    """Writes progress to the terminal and log.txt, and scalars to TensorBoard; only one rank has an instance."""

    def __init__(
        self, output_dir: Path, *, iterations: int, show: bool, tensorboard_dir: str | None, first_iteration: int
    ) -> None:
        self.iterations, self.show = iterations, show
        self.bar = terminal_bar(iterations, first_iteration) if show and sys.stdout.isatty() else None
        self.log: TextIO = (output_dir / LOG).open("a", encoding="utf-8")
        self.scalars = _writer(tensorboard_dir or str(output_dir / TENSORBOARD), first_iteration)
        self.started, self.first = time.perf_counter(), first_iteration

    def print_line(self, text: str) -> None:
        """Write a line to the terminal and to log.txt."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=True, markup=False, soft_wrap=True)
        elif self.show:
            print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def step(self, line: Line) -> None:
        """Report one iteration."""
        done = line.iteration - self.first
        left = (time.perf_counter() - self.started) / max(done, 1) * (self.iterations - line.iteration)
        skipped = f" | skipped {line.skipped}" if line.skipped else ""
        self.print_line(
            f"iteration {line.iteration:>{len(str(self.iterations))}}/{self.iterations} | loss {line.loss:.6f} | "
            f"lr {line.learning_rate:.3e} | grad norm {line.grad_norm:.3f} | {line.milliseconds:.1f} ms | "
            f"{line.tokens_per_s:,.0f} tokens/s | {duration(left)} left{skipped}"
        )

    def advance(self, iteration: int, loss: float) -> None:
        """Move the terminal's progress bar, where there is one."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=iteration, loss=f"{loss:.4f}")

    def scalar(self, name: str, value: float, iteration: int) -> None:
        """Add one value to the TensorBoard events."""
        if self.scalars is not None:
            self.scalars.add_scalar(name, value, iteration)

    def close(self) -> None:
        """Flush everything."""
        if self.bar is not None:
            self.bar.stop()
        if self.scalars is not None:
            self.scalars.close()
        self.log.close()


def terminal_bar(iterations: int, first_iteration: int) -> Any:
    """Start a progress bar below the lines of a run; for a terminal only. None where rich is missing."""
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    columns = (TextColumn("loss {task.fields[loss]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, transient=True)
    bar.add_task("training", total=iterations, completed=first_iteration, loss="-")
    bar.start()
    return bar


def _writer(directory: str, first_iteration: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(directory, purge_step=first_iteration + 1)


def write_result(output_dir: Path, result: dict[str, Any]) -> None:
    """Write result.json under a temporary name and rename it; NaN becomes null."""
    clean = json.dumps(_finite(result), indent=2, allow_nan=False)
    partial = output_dir / (RESULT + ".partial")
    partial.write_text(clean + "\n", encoding="utf-8")
    os.replace(partial, output_dir / RESULT)


def check_output_directory(output_dir: Path, *, continues: bool) -> None:
    """Create the directory; RehearsalError where that fails, or a result exists and this run starts from scratch."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RehearsalError(f"output_dir {output_dir}: {error.strerror}") from error
    if not os.access(output_dir, os.W_OK):
        raise RehearsalError(f"output_dir {output_dir}: not writable")
    if (output_dir / RESULT).exists() and not continues:
        raise RehearsalError(
            f"output_dir {output_dir}: holds the {RESULT} of another run, nothing is overwritten; works: another "
            "directory, or --load to continue that run"
        )


def set_aside(output_dir: Path, first_iteration: int) -> list[float]:
    """Rename the result of the run that this one continues, and return its losses."""
    result = output_dir / RESULT
    if not result.exists():
        return []
    earlier = json.loads(result.read_text(encoding="utf-8"))
    os.replace(result, output_dir / f"result.before-{first_iteration + 1}.json")
    losses: list[float] = earlier.get("losses") or []
    continues = earlier.get("first_iteration", 1) + len(losses) == first_iteration + 1
    return losses if continues and None not in losses else []


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def draw_curve(
    output_dir: Path,
    losses: Sequence[float],
    validation: Sequence[tuple[int, float]],
    *,
    first: int,
    title: str,
    earlier: Sequence[float] = (),
) -> None:
    """Draw the loss over iterations to loss.png; do nothing where matplotlib is missing or there is no loss.

    `first` counts the iterations before this run, `earlier` are the losses of the last of them.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return
    if not losses:
        return
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    iterations = range(first + 1, first + 1 + len(losses))
    axes.plot(
        iterations, losses, linewidth=1.6, marker="o" if len(losses) < 40 else None, markersize=3, label="training"
    )
    if earlier:
        before = range(first + 1 - len(earlier), first + 1)
        axes.plot(before, earlier, linewidth=1.6, color="0.6", label="before the resume")
        axes.axvline(first + 0.5, color="0.8", linewidth=0.8)
    if validation:
        axes.plot(*zip(*validation, strict=True), marker="s", markersize=5, linewidth=1.2, label="validation")
    if validation or earlier:
        axes.legend(frameon=False)
    for position, loss in ((iterations[0], losses[0]), (iterations[-1], losses[-1])):
        axes.annotate(f"{loss:.3f}", (position, loss), textcoords="offset points", xytext=(0, 8), ha="center")
    axes.set_xlabel("iteration")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.margins(x=0.06, y=0.14)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output_dir / CURVE, dpi=120)
