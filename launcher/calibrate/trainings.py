"""The trainings of a calibration, one after the other: again while steps differ, within a time, and what fails."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.calibrate.layouts import Layout, warm_up
from launcher.calibrate.measure import CannotMeasure, Clock, Measured, measured
from launcher.calibrate.state import State
from launcher.rehearse.core.options import Device

# A layout whose steps spread further than this, as interquartile range, is trained again.
SPREAD = 0.05


class OutOfTime(Exception):
    """The calibration's time is over."""


class Trainings:
    """The trainings of a calibration."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        *,
        config_dirs: Sequence[str],
        steps: int,
        rounds: int,
        clock: Clock,
        seconds: float | None,
        environ: Mapping[str, str],
        kind: Device,
        state: State,
        show: Callable[[str], None],
        advanced: Callable[[str, int, int], None],
    ) -> None:
        """Begin; the time runs from here.

        Args:
            words: overrides that all have.
            folder: for their outputs.
            rounds: trainings of a layout whose steps differ, at most.
            seconds: in which all of them are to end; None: no limit.
        """
        self.words, self.folder, self.config_dirs = words, folder, config_dirs
        self.steps, self.rounds, self.clock = steps, rounds, clock
        self.environ, self.kind, self.state = environ, kind, state
        self.show, self.advanced = show, advanced
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.number = 0

    def measure(self, place: str, layout: Layout) -> Measured:
        """Train a layout until its steps are alike, at most as often as asked; return the steadiest training.

        Args:
            place: of the layout among all, for the line that announces it.

        Raises:
            OutOfTime: before a training of it ended.
            CannotMeasure: a training of it failed.
        """
        best = self.state.get(layout.name)
        if best is not None:
            self.show(f"{place}: {layout.name}, measured before")
            return best
        for again in range(self.rounds):
            self.show(f"{place}: {layout.name}" + (f", again: steps differ by {best.spread:.0%}" if best else ""))
            try:
                run = self.once(layout, count=not again)
            except OutOfTime:
                if best is None:
                    raise
                break
            if best is None:
                best = run
            elif run.spread < best.spread:
                best = replace(run, tensor_bytes=best.tensor_bytes)
            if best.spread <= SPREAD:
                break
        assert best is not None
        self.state.keep(layout.name, best)
        return best

    def process(self, layout: Layout) -> Measured:
        """Train a layout without a count of its tensors, which a process would hold too.

        Raises:
            OutOfTime: before it ended.
            CannotMeasure: it failed.
        """
        name = f"process: {layout.name}"
        found = self.state.get(name)
        if found is None:
            self.show(name)
            found = self.once(layout, count=False)
            self.state.keep(name, found)
        return found

    def once(self, layout: Layout, *, count: bool) -> Measured:
        """Train a layout once."""
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise OutOfTime
        self.number += 1
        total = self.steps + warm_up()
        try:
            found = measured(
                layout,
                [
                    *(f"--config-dir={folder}" for folder in self.config_dirs),
                    *training(self.words, layout, self.kind),
                ],
                self.folder / str(self.number),
                environ=self.environ,
                clock=self.clock,
                advanced=lambda done: self.advanced(layout.name, done, total),
                count=count,
                limit=left,
            )
        except CannotMeasure:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise OutOfTime from None
            raise
        if (found.device == "cpu") != (self.kind == "cpu"):
            raise CannotMeasure(f"{layout.name}: ran on {found.device} in place of {self.kind}")
        return found


def training(words: Sequence[str], layout: Layout, kind: Device) -> list[str]:
    """Return the overrides of a layout's training."""
    return [*words, *layout.words, "runtime=rehearsal", f"rehearse.device={kind}"]
