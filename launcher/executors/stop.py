"""Signals that stop a run: caught before its first process starts, passed on to the running one."""

import math
import os
import signal
import subprocess
import threading
import time
from types import TracebackType
from typing import Any

from launcher.executors.processes import descendants, identified, kill_all, ranks_below, signal_all

# After the first signal ranks finish their step and save; a rank that has not ended by then is killed.
_GRACE_SECONDS = 60.0
# A script that ends nodes by itself (shell/supervise.sh) kills them 10 s after their grace period, and records the end.
_SUPERVISOR_SECONDS = 30.0
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Context manager that catches the signals; `received` holds their numbers.

    The first asks the process to end, by SIGTERM, on which ranks save; a second kills it. SIGHUP
    never counts as the second: shells and service managers send it with another signal, or twice.

    Args:
        save_seconds: time in which only ranks are asked to end, because they save on a signal; None: they do not.
        passes_interrupt: the process distinguishes SIGINT and SIGHUP from SIGTERM: a script that signals ranks itself.
    """

    def __init__(self, save_seconds: float | None = None, *, passes_interrupt: bool = False) -> None:
        self._passes_interrupt = passes_interrupt
        self.received: list[int] = []
        self._save_seconds, self._saving = save_seconds, False
        self._passed_on = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = math.inf
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                # Under nohup SIGHUP stays ignored.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Pass signals on to this process from now on, including those received while it was being started."""
        self._process = process
        if not self.received:
            self._deadline = math.inf
        self._pass_on()

    def ask(self, process: "subprocess.Popen[bytes]", since: float = math.inf) -> None:
        """Ask a process to end without a signal from the user, because it hangs; it gets the same grace period.

        Args:
            since: when it was asked before, in vain.
        """
        now = time.monotonic()
        self._deadline = now + _GRACE_SECONDS if since <= now else min(self._deadline, now + _GRACE_SECONDS)
        _signal_group(process, signal.SIGTERM)

    def overdue(self) -> bool:
        """Return whether the process was asked to end and its grace period is over."""
        if self._saving and time.monotonic() > self._deadline and self._process is not None:
            self._saving = False
            self.ask(self._process, since=self._deadline)
        return time.monotonic() > self._deadline

    def kill(self) -> None:
        """Kill the process and its descendants."""
        process = self._process
        if process is not None and process.returncode is None:
            own = identified(process.pid)
            kill_all([*descendants(process.pid), *([own] if own else [])])

    def _receive(self, number: int, _frame: object) -> None:
        self.received.append(number)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._process is not None and self._passed_on < len(self.received):
            index = self._passed_on
            self._passed_on += 1
            urgent = sum(number != signal.SIGHUP for number in self.received[: index + 1])
            if urgent > 1:
                self.kill()
            elif index == 0:
                save = self._save_seconds
                ranks = [] if save is None or self._passes_interrupt else ranks_below(self._process.pid)
                self._saving = bool(ranks)
                seconds = (
                    _GRACE_SECONDS
                    if not self._passes_interrupt
                    else _GRACE_SECONDS + _SUPERVISOR_SECONDS + (save or 0.0)
                )
                self._deadline = time.monotonic() + ((save or 0.0) if self._saving else seconds)
                number = self.received[0]
                if self._saving:
                    signal_all(ranks, signal.SIGTERM)
                else:
                    _signal_group(self._process, number if self._passes_interrupt else signal.SIGTERM)


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal every process of the group that we started, and no other."""
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
