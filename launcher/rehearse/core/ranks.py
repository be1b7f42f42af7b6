"""Starts every rank of a run on this machine: one import, short errors, correct exit codes, no orphaned processes.

Does what torchrun does for a rehearsal, and in addition: ranks are forked from one process that has imported
megatron-core (where there is no CUDA), errors are printed once, and Ctrl-C ends with the run's exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from launcher.rehearse.core import environment
from launcher.rehearse.core.errors import EXIT_OK, EXIT_SIGINT, EXIT_SIGTERM

_GRACE_S = 15.0
_PR_SET_PDEATHSIG = 1


class Supervisor:
    """Supervises the ranks: forwards signals, and stops the others when one fails."""

    def __init__(self) -> None:
        self.alive: dict[int, int] = {}
        """Process id to rank."""
        self.exit_codes: dict[int, int] = {}
        self.signal: int | None = None

    def watch(self) -> int:
        """Wait for every rank and return the exit code of the run."""
        deadline: float | None = None
        with self._handling_signals():
            while self.alive:
                self._reap()
                failed = any(self.exit_codes.values()) and self.signal is None
                if failed and deadline is None:
                    deadline = time.monotonic() + _GRACE_S
                if deadline is not None and time.monotonic() > deadline:
                    self._send(signal.SIGKILL)
                time.sleep(0.02)
        return self._exit_code()

    def _reap(self) -> None:
        for process in list(self.alive):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                self.exit_codes[self.alive.pop(process)] = os.waitstatus_to_exitcode(status)

    def _exit_code(self) -> int:
        if self.signal is not None:
            return EXIT_SIGINT if self.signal == signal.SIGINT else EXIT_SIGTERM
        failures = [code for code in self.exit_codes.values() if code]
        if not failures:
            return EXIT_OK
        return next((code for code in failures if code > 0), 1)

    def _send(self, number: int) -> None:
        for process in self.alive:
            with contextlib.suppress(ProcessLookupError):  # ended just now
                os.kill(process, number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        second = self.signal is not None and number == signal.SIGINT
        self.signal = self.signal or number
        # SIGTERM makes a rank finish its step; a terminal has sent it SIGINT already, and two SIGINTs would kill it.
        self._send(signal.SIGKILL if second else signal.SIGTERM)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def run(count: int, words: Sequence[str], rank_main: Callable[[], int]) -> int:
    """Run `count` ranks of the command line `words` and return the exit code of the run; `rank_main` is one rank."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in shared.items()})
    supervisor = Supervisor()
    forks = not environment.has_cuda()
    if forks:
        environment.import_megatron()
    for rank in range(count):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        process = _fork(rank_main) if forks else _spawn(words)
        supervisor.alive[process] = rank
    return supervisor.watch()


def _fork(rank_main: Callable[[], int]) -> int:
    sys.stdout.flush()
    parent = os.getpid()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        _end_with(parent)
        code = rank_main()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with(parent: int) -> None:
    """Make this rank finish its step and stop when its supervisor exits (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _spawn(words: Sequence[str]) -> int:
    return subprocess.Popen([sys.executable, "-m", "launcher.rehearse.core", *words]).pid
