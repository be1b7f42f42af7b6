"""Waiting for what another process does.

A machine that runs other tests beside may be ten times as slow for a while. So a test never says how long something
should take: it waits for as long as a person would before calling it stuck, and what it starts sleeps longer than that.
"""

import time
from collections.abc import Callable

STUCK_SECONDS = 400.0


def wait_until(true: Callable[[], object], what: str | Callable[[], object] = "") -> None:
    """Wait until something holds, or fail with what is seen then."""
    deadline = time.monotonic() + STUCK_SECONDS
    while not true():
        if time.monotonic() > deadline:
            seen = what() if callable(what) else what
            raise AssertionError(f"stuck for {STUCK_SECONDS:.0f} s: {seen}")
        time.sleep(0.2)
