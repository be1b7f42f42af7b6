"""Handles Ctrl-C and SIGTERM: finish the step, save, exit; a second Ctrl-C exits at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from launcher.rehearse.core.errors import EXIT_SIGINT


class Interrupt:
    """Records the first signal; the training loop checks it between steps."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._interrupts = 0

    def install(self) -> None:
        """Handle SIGINT and SIGTERM from now on (main thread only)."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._handle)
            signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
        # A launcher forwards Ctrl-C as SIGTERM right after the terminal's SIGINT: only a second SIGINT exits at once.
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            os._exit(EXIT_SIGINT)
