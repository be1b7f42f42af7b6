"""Figures of a run's training: what its log says of the last iterations, beside what the estimate expects."""

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from itertools import islice
from pathlib import Path

from launcher.executors import private
from launcher.executors.progress import likely_logs
from launcher.executors.record import Record
from launcher.records import dataclass

_TAIL = 100_000
# The memory of a run is printed once, after its first iterations.
_HEAD = 1_000_000
_STEPS = 20
# Of thousands of logs without an iteration so many are read.
_LOGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Numbers in the log of a training, by the names of `launcher.plan.start.Watch.figures`; None: it has none.

    Attributes:
        iteration, iterations: the last one done, and how many there will be.
        step_s: seconds of an iteration: the median of the last 20 log lines.
        tflops_per_device: as the backend counts it, in TFLOP/s.
        memory_gib: largest of the printed peaks of the allocator.
        skipped: iterations without an update among those of the last log line.
        slowest_rank: by the backend's own comparison of ranks, where it is on.
    """

    iteration: float | None = None
    iterations: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    step_s: float | None = None
    tflops_per_device: float | None = None
    memory_gib: float | None = None
    skipped: float | None = None
    slowest_rank: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the estimate says of the job of a run.

    Attributes:
        tokens: of an iteration, all devices together; None: not known.
        step_s, mfu: None where the estimate has no time.
        why: why there is none.
        hang_s: seconds without an iteration that the job itself counts as a hang; None: it does not say.
    """

    tokens: int | None = None
    step_s: float | None = None
    mfu: float | None = None
    why: str = ""
    hang_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Figures of a training and what follows from them.

    Attributes:
        eta_s: seconds to the last iteration, at the pace of the last ones.
        mfu: expected MFU x expected seconds / measured seconds: the FLOPs of an iteration are the estimate's.
        expected_step_s: seconds of an iteration by the estimate; None: `missing` has the reason.
    """

    figures: Figures
    eta_s: float | None
    tokens_per_s_per_device: float | None
    mfu: float | None
    expected_step_s: float | None
    missing: str


def training_of(record: Record, expect: Callable[[], Expected], *, ended: bool = False) -> Training | None:
    """Return the figures of a run's training; None: its log has no iteration yet, or its backend has no figures.

    Args:
        expect: returns what the estimate says of the run's job; called only where there are figures.
        ended: the run has ended, so that no time is left.
    """
    found = figures_of(record)
    if found is None:
        return None
    expected, step = expect(), found.step_s
    devices = record.nodes * record.devices_per_node
    left = None
    if step and not ended and found.iterations is not None and found.iteration is not None:
        left = step * max(0.0, found.iterations - found.iteration)
    return Training(
        figures=found,
        eta_s=finite(left),
        tokens_per_s_per_device=finite(expected.tokens / devices / step) if step and expected.tokens else None,
        mfu=finite(expected.mfu * expected.step_s / step) if step and expected.mfu and expected.step_s else None,
        expected_step_s=expected.step_s,
        missing=expected.why,
    )


def figures_of(record: Record) -> Figures | None:
    """Return the numbers in the log that has the last lines of iterations; None: there are none."""
    if record.gone or not record.iteration_line or not record.figures:
        return None
    line = re.compile(record.iteration_line)
    for file in islice(likely_logs(Path(record.folder), record.rank_log), _LOGS):
        tail = _read(file, -_TAIL)
        steps = [text for text in tail.splitlines() if line.search(text)]
        if steps:
            return _figures(record, steps, [*_read(file, _HEAD).splitlines(), *tail.splitlines()])
    return None


def _figures(record: Record, steps: list[str], lines: list[str]) -> Figures:
    """Return the figures of the last of `steps`, or, where only other lines have one, of those."""
    found: dict[str, float] = {}
    for name, pattern, scale in record.figures:
        if name in found or name not in _NAMES:
            continue
        texts = lines if name in _OF_ALL_LINES else steps[-_STEPS:]
        values = list(_numbers(re.compile(pattern), scale, texts))
        if values:
            found[name] = _VALUE.get(name, _last)(values)
    return Figures(**found)


def _last(values: list[float]) -> float:
    return values[-1]


_NAMES = frozenset(field.name for field in fields(Figures))
# Figures that other lines than those of iterations have, and those of which the last value is not the one to show.
_OF_ALL_LINES = ("memory_gib", "slowest_rank")
_VALUE: Mapping[str, Callable[[list[float]], float]] = {"step_s": statistics.median, "memory_gib": max}


def _numbers(expression: re.Pattern[str], scale: float, lines: list[str]) -> Iterator[float]:
    for line in lines:
        match = expression.search(line)
        if match is not None:
            try:
                yield float(match[1]) * scale
            except (ValueError, TypeError, IndexError):  # a pattern of another user's record
                continue


def _read(file: Path, size: int) -> str:
    """Return the first bytes of a file, or with a negative size the last ones; empty: it cannot be read."""
    try:
        with private.open_to_read(file) as stream:
            end = stream.seek(0, 2)
            stream.seek(0 if size > 0 else max(0, end + size))
            return stream.read(abs(size)).decode("utf-8", "replace")
    except OSError:
        return ""


def finite(value: float | None) -> float | None:
    """Return a figure, or None in place of NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
