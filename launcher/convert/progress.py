"""Progress of a conversion: rate and time left, redrawn on a terminal, as periodic lines in a log."""

from __future__ import annotations

import sys
import time
from threading import Lock
from typing import TextIO

from launcher.terminal import can_redraw, duration

_REDRAW = 0.2
_LINE = 10.0


class Progress:
    """Bytes done of a known total. `advance` may be called from any thread."""

    def __init__(self, label: str, total: int, *, stream: TextIO | None = None, quiet: bool = False) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self.quiet = quiet
        self.stream = sys.stderr if stream is None else stream
        self.drawn = can_redraw(self.stream)
        self.started = time.monotonic()
        self.shown = self.started
        self.lock = Lock()

    def advance(self, count: int) -> None:
        """Count bytes, and update the display if it is due."""
        with self.lock:
            self.done += count
            now = time.monotonic()
            if self.quiet or now - self.shown < (_REDRAW if self.drawn else _LINE):
                return
            self.shown = now
            self._show(now)

    def finish(self) -> float:
        """Show the final state and return the elapsed seconds."""
        now = time.monotonic()
        if not self.quiet and self.drawn:
            self._show(now)
            print(file=self.stream, flush=True)
        return now - self.started

    def _show(self, now: float) -> None:
        rate = self.done / max(now - self.started, 1e-9)
        left = (self.total - self.done) / rate if rate else 0.0
        share = 100 * self.done // self.total if self.total else 100
        text = (
            f"{self.label} {share:3d} %  {size(self.done)} of {size(self.total)}  {size(rate)}/s  {duration(left)} left"
        )
        if self.drawn:
            print(f"\r{text}   ", end="", file=self.stream, flush=True)
        else:
            print(text, file=self.stream, flush=True)


def size(count: float) -> str:
    """Return a byte count in human-readable form (decimal units)."""
    for unit, digits in (("B", 0), ("kB", 0), ("MB", 0)):
        if count < 1000:
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{count:.2f} GB" if count < 1000 else f"{count / 1000:.2f} TB"
