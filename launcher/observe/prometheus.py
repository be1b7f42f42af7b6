"""State and figures of a run as a file for Prometheus' textfile collector (node_exporter).

Format: https://prometheus.io/docs/instrumenting/exposition_formats, text format 0.0.4. A dozen gauges do not justify a
dependency on prometheus-client, which no other part would use.
"""

import math
from pathlib import Path

from launcher.executors import private
from launcher.executors.record import Record
from launcher.observe.state import State
from launcher.observe.training import Training
from launcher.plan.executor import STATES

_GIB = 1024.0**3
_FILE_MODE = 0o644  # node_exporter runs as another user


def write_textfile(file: Path, record: Record, state: State, training: Training | None) -> None:
    """Replace the file with the current figures, as a whole: the collector never reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    private.write(file, text_of(record, state, training), _FILE_MODE)


def text_of(record: Record, state: State, training: Training | None) -> str:
    """Return the metrics of a run in Prometheus' text format; figures that the log lacks are absent."""
    lines: list[str] = []
    label = f'run="{_label(record.id)}"'
    lines += ["# HELP launch_run_state 1 for the state of the run.", "# TYPE launch_run_state gauge"]
    lines += [f'launch_run_state{{{label},state="{name}"}} {int(name == state.state)}' for name in STATES]
    for name, meaning, value in _gauges(state, training):
        if value is not None:
            metric = f"launch_{name}"
            lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} gauge", f"{metric}{{{label}}} {_number(value)}"]
    return "\n".join(lines) + "\n"


def _gauges(state: State, training: Training | None) -> list[tuple[str, str, float | None]]:
    gauges: list[tuple[str, str, float | None]] = [("restarts", "How often all ranks started again.", state.restarts)]
    if training is None:
        return gauges
    figures = training.figures
    memory = figures.memory_gib
    return [
        *gauges,
        ("iteration", "Last iteration.", figures.iteration),
        ("iterations", "Iterations of the whole training.", figures.iterations),
        ("loss", "Loss of the last iteration.", figures.loss),
        ("grad_norm", "Gradient norm of the last iteration.", figures.grad_norm),
        ("step_seconds", "Seconds of an iteration, median of the last 20.", figures.step_s),
        ("expected_step_seconds", "Seconds of an iteration by the estimate.", training.expected_step_s),
        ("tokens_per_second_per_device", "Tokens a second of one device.", training.tokens_per_s_per_device),
        ("tflops_per_device", "TFLOP/s of one device as the backend counts them.", figures.tflops_per_device),
        ("mfu_ratio", "Model FLOPs utilization, FLOPs by the estimate.", training.mfu),
        ("memory_bytes", "Peak of reserved memory of a device.", None if memory is None else memory * _GIB),
        ("slowest_rank", "Rank with the longest iteration.", figures.slowest_rank),
        ("left_seconds", "Seconds to the last iteration.", training.eta_s),
    ]


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return f"{value:.10g}" if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"
