"""Waiting for what another process does.

A machine that runs other tests beside may be ten times as slow for a while. So a test never says how long something
should take: it waits for as long as a person would before calling it stuck, and what it starts sleeps longer than that.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STUCK_SECONDS = 400.0


def wait_until(true: Callable[[], object], what: str | Callable[[], object] = "") -> None:
    """Wait until something holds, or fail with what is seen then."""
    deadline = time.monotonic() + STUCK_SECONDS
    while not true():
        if time.monotonic() > deadline:
            seen = what() if callable(what) else what
            raise AssertionError(f"stuck for {STUCK_SECONDS:.0f} s: {seen}")
        time.sleep(0.2)


@contextmanager
def ended_if_stuck() -> Iterator[None]:
    """Fail if what runs inside, in the main thread, takes the processor time that only an endless computation takes."""

    def fail(number: int, frame: object) -> None:
        raise AssertionError(f"stuck for {STUCK_SECONDS:.0f} s of processor time")

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, STUCK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
